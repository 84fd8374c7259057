"""Wheels of artifacts: what is in one, what it weighs, what changed."""
