"""Wheels: what goes into them, and what is inside."""
