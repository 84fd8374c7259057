"""Lowering: one walk over the IR (`walker`), one table of spellings for each language."""
