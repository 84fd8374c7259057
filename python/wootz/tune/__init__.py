"""wootz tune: which variant of a kernel is fastest at given shapes, measured, as a table that builds join
into the index.

cases: the shapes to measure. operands: data for one. search: one case: each variant is checked, then timed.
table: the file. spread: several devices. command: the command line.
"""

from __future__ import annotations

from .command import main

__all__ = ["main"]
