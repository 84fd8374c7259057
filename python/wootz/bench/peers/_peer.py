"""What a peer is: somebody else's way to the same result, prepared as ours is."""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import parse_device
from ...formats import QuantizedTensor, decode
from ...formats.packed import PackedTensor, unpack
from ...reference import round_to, to_double
from ..checking import grown, sampled
from ..devices import Bench
from ..problems import Placed, Problem
from ..timing import Launch

CLOSE = 2e-2
"""Relative L2 distance to the reference within which a peer computes the same: bf16 sums, in any order."""
OWN_CODES = 0.3
"""The same for peers that quantise the weights again, to 4 bits or fewer."""


@dataclass(frozen=True, eq=False)
class Given:
    """The problem that a peer is to solve, its operands there, where, and the output's shape."""

    problem: Problem
    placed: Placed
    device: Bench
    shape: tuple[int, ...]

    @property
    def torch(self) -> Any:
        return importlib.import_module("torch")

    def each(self, make: Callable[[Any, int], Launch]) -> list[Launch]:
        """A launch for each set of operands: make(operands, its number)."""
        return [make(operands, i) for i, operands in enumerate(self.placed.operands)]

    def dense(self, name: str, dtype: str, copy: int) -> Any:
        """A quantised operand's numbers on the device."""
        drawn = self.problem.values[name]
        raw = round_to(weights(drawn).astype(np.float64), dtype)
        return self.device.grown(raw, dtype, self.problem.shapes.get(name, raw.shape), copy)

    def blank(self, dtype: str = "") -> Any:
        """An output to write to."""
        name = self.problem.signature.output.name
        return self.device.blank(self.shape, dtype or self.problem.types[name])

    def distance(self, out: Any, dtype: str = "") -> float:
        """The relative L2 distance of an output to the reference, where that is finite."""
        dtype = dtype or self.problem.types[self.problem.signature.output.name]
        places = sampled(tuple(out.shape), self.problem.expected.value.shape)
        got = to_double(self.device.sample(out, dtype, places), dtype)
        return distance(got, grown(self.problem.expected, places).value)


def distance(got: NDArray[np.float64], want: NDArray[np.float64]) -> float:
    """Relative L2, over the elements that should be finite; NaN never passes."""
    finite = np.isfinite(want)
    norm = float(np.linalg.norm(want[finite]))
    return float(np.linalg.norm(got[finite] - want[finite])) / (norm or 1.0)


def weights(tensor: QuantizedTensor | PackedTensor) -> NDArray[np.float32]:
    """The numbers of a tensor of the host: [n, k], or of every matrix of a bank."""
    if len(tensor.shape) == 3:
        return np.stack([weights(each) for each in tensor.matrices()])
    return decode(unpack(tensor) if isinstance(tensor, PackedTensor) else tensor)


@dataclass(frozen=True, eq=False)
class Made:
    """launches: as many as there are sets of operands. off: runs the first and gives the distance of its
    result."""

    launches: Sequence[Launch]
    off: Callable[[], float]


@dataclass(frozen=True, eq=False)
class Peer:
    """name: in tables and reports. package: what has to be importable. kernels: names or globs of those that
    it is beside, with options. computes: what it does instead, in words. within: the distance that its result
    may have. dtypes, formats: nothing for all."""

    name: str
    package: str
    device: str
    kernels: tuple[str, ...]
    computes: str
    make: Callable[[Given], Made]
    within: float = CLOSE
    dtypes: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()

    def fits(self, stem: str, format: str, dtype: str, device: str) -> bool:
        """Whether there is such a peer of a cell: kernel with options, format, dtype."""
        return (
            parse_device(device)[0] == self.device
            and any(fnmatch.fnmatchcase(stem, each) for each in self.kernels)
            and (not self.dtypes or dtype in self.dtypes)
            and (not self.formats or format in self.formats)
        )

    def missing(self) -> str:
        """Why it cannot be measured here; nothing where it can."""
        try:
            importlib.import_module(self.package)
        except ImportError as error:
            return f"{self.package} cannot be imported ({error})"
        except Exception as error:  # packages that look for a GPU when they are imported
            return f"{self.package} cannot be imported ({type(error).__name__}: {error})"
        return ""
