"""Cells -> sources on disk."""
