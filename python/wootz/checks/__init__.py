"""What every kernel should give: one file a kernel, with the sizes to run it at, random operands, and the
float64 value of its output with a bound for the error (see `..reference`).

A file <kernel>.py has
    shapes(format) -> sizes that a device is run at: shape name -> extent
    small(format)  -> more sizes that are quick to run, for executors that are slow
    brief(format)  -> a few, for sanitizers
    operands(format, size, dtype, options, rng) -> value by name, in the kernel's order: NumPy storage (bf16,
                   e4m3: raw bits), quantised tensors; optional operands and scalars that the run gives, too
    expect(operands, dtype, options) -> Expected
    updated(operands, dtype, options) -> Expected by name, where the kernel writes to operands, too; by
                   operand.field, in bytes, where those are tensors
    plain(format, size, dtype, options, rng) -> operands without what `operands` draws to find mistakes, where
                   that costs a kernel time: for benchmarks
    bits(operands, dtype, options) -> arrays by name, of the output and of what is written to, that a kernel
                   which moves bits gives to the bit, whatever NaN holds
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..formats import Descriptor
from ..reference import Expected

__all__ = ["Check", "Size", "array_of", "check", "exact", "expect", "known", "updates"]

Size = dict[str, int]


class Check(Protocol):
    """The functions of one file, as described above."""

    def shapes(self, format: Descriptor | None) -> list[Size]: ...
    def small(self, format: Descriptor | None) -> list[Size]: ...
    def brief(self, format: Descriptor | None) -> list[Size]: ...
    def operands(
        self,
        format: Descriptor | None,
        size: Mapping[str, int],
        dtype: str,
        options: Mapping[str, str],
        rng: np.random.Generator,
    ) -> dict[str, Any]: ...
    def expect(self, operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected: ...


def known() -> list[str]:
    """The kernels that have a reference."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


@cache
def check(kernel: str) -> Check:
    """The check of a kernel by name. Raises ArgumentError for one that has no reference."""
    if kernel not in known():
        raise ArgumentError(
            f"kernel: wanted one of {', '.join(known())}; got {kernel!r}, which has no reference"
        )
    found: Any = importlib.import_module(f".{kernel}", __package__)
    return found  # type: ignore[no-any-return]


def expect(kernel: str, options: Mapping[str, str], operands: Mapping[str, Any], dtype: str) -> Expected:
    """The reference of a kernel by name; operands by their names in the index."""
    return check(kernel).expect(operands, dtype, options)


def array_of(operands: Mapping[str, Any], name: str) -> NDArray[Any]:
    """An operand, or a field of one, by the names of `updates`."""
    operand, _, part = name.partition(".")
    found: NDArray[Any] = operands[operand].fields[part] if part else operands[operand]
    return found


def updates(
    kernel: str, options: Mapping[str, str], operands: Mapping[str, Any], dtype: str
) -> dict[str, Expected]:
    """What a kernel leaves in the operands that it writes to."""
    updated = getattr(check(kernel), "updated", None)
    return updated(operands, dtype, options) if updated else {}


def exact(
    kernel: str, options: Mapping[str, str], operands: Mapping[str, Any], dtype: str
) -> dict[str, NDArray[Any]]:
    """What a kernel that moves bits writes, by name; of others nothing."""
    bits = getattr(check(kernel), "bits", None)
    return bits(operands, dtype, options) if bits else {}
