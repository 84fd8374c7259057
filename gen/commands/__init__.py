"""The commands of `wootz`, one module each.

A command is a module with TEXT (its help in a line), `options(parser)` and `run(args) -> exit status`. It
imports what it needs inside `run`, so that `wootz --help` and a misspelt option cost nothing. NAMES is their
order in the help.
"""

from __future__ import annotations

NAMES = (
    "check",
    "list",
    "explain",
    "generate",
    "build",
)

RUN_TIME = {
    "verify": "Run every cell against the reference.",
    "bench": "Time cells, cold, against their floor and against peers.",
    "tune": "Which variants are fastest at given shapes, as a table for builds.",
    "info": "What this machine has, what runs there, and what a kernel would get.",
}
"""Commands of the package that runs kernels: each is the module of its name there, which reads its own
arguments."""
