"""Runs emitted .cu and .metal text on the CPU: `Program.build(text, backend, entries)`, then `.run(...)`.

CUDA text is compiled as host C++17 against NVIDIA's own headers and those in cuda/, Metal text as C++ for
OpenCL against those in metal/; threads are the fibers of runtime/. Each text becomes one shared object, which
a runner process loads: a crash, a deadlock or a sanitizer's report ends that process and is the
`ExecutionError` of the launch that caused it.

Seen: wrong results, races inside a block, divergent or missing barriers and collectives, bad masks, accesses
outside or before initialisation, misalignment, undefined behaviour, wrong signatures, endless loops. Not
seen: races between blocks (unless an order of blocks shows them), register and group-memory limits, fast-math
rounding, what a vendor's own front end refuses.
"""

from gen.variants.formula import evaluate

from .build import CompileError
from .harness import ORDERS, ExecutionError, Program, Values, poisoned
from .plan import Arg, Entry, kinds_of
from .runner import KINDS
from .tools import MissingTool

__all__ = [
    "KINDS",
    "ORDERS",
    "Arg",
    "CompileError",
    "Entry",
    "ExecutionError",
    "MissingTool",
    "Program",
    "Values",
    "evaluate",
    "kinds_of",
    "poisoned",
]
