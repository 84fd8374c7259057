"""Program: one emitted text, compiled, and run entry by entry with NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from gen.variants.formula import evaluate

from . import build
from .plan import Arg, Entry
from .runner import Buffer, Runner, RunnerDied, request

Array = npt.NDArray[Any]
Values = Mapping[tuple[str, str], Union[Array, int, float, None]]
"""(argument name, role) -> array or number, or None for a null pointer; ("sms", "shape") and the like may
stand for names in formulas only. A workspace has no value: it is made.
"""

ORDERS = (0, 1, 2)
"""How threads and blocks take turns: forward, reversed, shuffled."""

_SCALARS = {"u32": np.uint32, "u64": np.uint64, "f32": np.float32}
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_THREADS = 1024


class ExecutionError(Exception):
    """A launch went wrong. kind: address, undefined, thread, memory, lanes, timeout or crash
    (runner.KINDS), or workspace.
    """

    def __init__(self, kind: str, symbol: str, report: str) -> None:
        super().__init__(f"{symbol}: {kind}: {report}")
        self.kind = kind


def poisoned(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """An array of all-ones bits: NaN as a float."""
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[:] = 0xFF
    return array


class Program:
    """A compiled text. `run` launches one entry; `close` (or a with statement) ends the process behind it."""

    def __init__(self, library: Any, sanitizer: str | None) -> None:
        self._runner = Runner(library, sanitizer)
        self._arrays = build.group_arrays(library)
        self.stats: tuple[int, ...] = ()
        """Of the last launch: threads, switches, barriers, collectives."""

    @classmethod
    def build(
        cls, text: str, backend: str, entries: Sequence[Entry], sanitizer: str | None = None
    ) -> Program:
        """Compile emitted text.

        backend: cuda | metal; sanitizer: None | "address" (with undefined) | "thread". Raises MissingTool,
        and CompileError where the text does not compile or has other parameters than the entries.
        """
        return cls(build.library(text, backend, entries, sanitizer), sanitizer)

    def run(
        self, entry: Entry, values: Values, order: int = 0, seconds: int = 60
    ) -> dict[tuple[str, str], Array]:
        """Launch an entry on its own grid; returns what arrays of role "out" or "workspace" hold after it.

        Arrays are copied, so `values` is left alone. An argument without a value is a KeyError, a grid or
        block that no device takes a ValueError, anything that goes wrong in the kernel an ExecutionError.
        """
        shape = {
            name: int(v)
            for (name, role), v in values.items()
            if role == "shape" and isinstance(v, (int, np.integer))
        }
        values = {**values, **_workspace(entry, shape)}
        for before in entry.prologue:
            values = {**values, **self._launch(before, values, shape, order, seconds)}
        return self._launch(entry, values, shape, order, seconds)

    def _launch(
        self, entry: Entry, values: Values, shape: Mapping[str, int], order: int, seconds: int
    ) -> dict[tuple[str, str], Array]:
        grid = [evaluate(formula, shape) for formula in entry.grid]
        _check_launch(entry, grid)
        outputs = {(a.name, a.role): values[a.name, a.role] for a in entry.outputs}
        arrays = {key: array for key, array in outputs.items() if isinstance(array, np.ndarray)}
        if 0 in grid:
            return {key: array.copy() for key, array in arrays.items()}
        buffers = [_buffer(arg, values[arg.name, arg.role]) for arg in entry.args]
        message = request(entry.symbol, grid, entry.block, order, seconds, self._arrays, buffers)
        try:
            self.stats, contents = self._runner.launch(message, [a.nbytes for a in arrays.values()], seconds)
        except RunnerDied as died:
            raise ExecutionError(died.kind, entry.symbol, str(died)) from None
        pairs = zip(arrays.items(), contents)
        found = {
            key: np.frombuffer(data, array.dtype).reshape(array.shape).copy() for (key, array), data in pairs
        }
        if entry.zeroed and any(a.any() for (_, role), a in found.items() if role == "workspace"):
            raise ExecutionError(
                "workspace", entry.symbol, "the workspace is not zero again after the launch"
            )
        return found

    def close(self) -> None:
        self._runner.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_launch(entry: Entry, grid: Sequence[int]) -> None:
    threads = entry.block[0] * entry.block[1] * entry.block[2]
    if not 0 < threads <= _MAX_THREADS:
        raise ValueError(
            f"{entry.symbol}: block {tuple(entry.block)} has {threads} threads; 1 to {_MAX_THREADS}"
        )
    if any(not 0 <= extent <= limit for extent, limit in zip(grid, _MAX_GRID)):
        raise ValueError(f"{entry.symbol}: grid {tuple(grid)} is outside {_MAX_GRID}")


def _workspace(entry: Entry, shape: Mapping[str, int]) -> dict[tuple[str, str], Array]:
    """The workspace of a launch: zero where that is promised, else anything."""
    size = max(16, evaluate(entry.workspace, shape)) if entry.workspace else 16
    made = np.zeros(size, np.uint8) if entry.zeroed else poisoned((size,), np.uint8)
    return {(a.name, a.role): made for a in entry.args if a.role == "workspace"}


def _buffer(arg: Arg, value: Array | int | float | None) -> Buffer:
    if arg.type == "ptr":
        if value is None:
            return Buffer(arg.name, False, None)
        if not isinstance(value, np.ndarray):
            raise TypeError(f"argument {arg.name} ({arg.role}): an array is needed, got {value!r}")
        return Buffer(arg.name, arg.role in ("out", "workspace"), np.ascontiguousarray(value).tobytes())
    return Buffer(f"{arg.name} ({arg.role})", False, np.array(value, _SCALARS[arg.type]).tobytes())
