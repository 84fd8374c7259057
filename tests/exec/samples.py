"""Hand-written kernels in the style of the generator's text, with their entries, inputs and expected results.

The checker's tests run them as they are, and with a bug planted in their text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from lanes import Arg, Entry, Program, Values, poisoned

Array = npt.NDArray[Any]
FOLDER = Path(__file__).parent / "samples"
SUFFIX = {"cuda": ".cu", "metal": ".metal"}


@dataclass(frozen=True)
class Case:
    """Inputs of one launch, and a function that says how wrong its outputs are (0 = right; NaN counts as
    wrong).
    """

    values: Values
    error: Callable[[Mapping[tuple[str, str], Array]], float]


@dataclass(frozen=True)
class Sample:
    name: str
    entries: Mapping[str, Entry]  # by backend
    case: Callable[[np.random.Generator], Case]
    tolerance: float = 1e-2

    def text(self, backend: str) -> str:
        return (FOLDER / f"{self.name}{SUFFIX[backend]}").read_text()

    def fresh_case(self) -> Case:
        return self.case(np.random.default_rng(1))

    def run(
        self, backend: str, text: str, sanitizer: str | None = None, order: int = 0, seconds: int = 20
    ) -> float:
        """Compile `text` (this sample's, perhaps changed), launch it once and return the error."""
        case = self.fresh_case()
        entry = self.entries[backend]
        with Program.build(text, backend, [entry], sanitizer) as program:
            error = case.error(program.run(entry, case.values, order, seconds))
        return np.inf if np.isnan(error) else error


def args(listing: str) -> tuple[Arg, ...]:
    """ "x ptr in, n u32 shape" -> the arguments."""
    return tuple(Arg(*item.split()) for item in listing.split(","))


def largest(difference: Array, against: Array | float = 1.0) -> float:
    return float(np.max(np.abs(difference)) / np.max(np.abs(against)))


def e4m3(codes: Array) -> Array:
    c = codes.astype(np.int32)
    sign, exponent, mantissa = np.where(c & 128, -1.0, 1.0), (c >> 3) & 15, c & 7
    return sign * np.where(
        exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0)
    )


def silu_case(rng: np.random.Generator) -> Case:
    n = 1800  # not a multiple of a block's elements, and its f16 bytes are one of 16
    x = rng.standard_normal(n).astype(np.float16)
    wide = x.astype(np.float32)
    expected = wide / (1 + np.exp(-wide)) * np.float32(0.5)

    def error(out: Mapping[tuple[str, str], Array]) -> float:
        worst = largest(out["y", "out"].astype(np.float32) - expected)
        if ("q", "out") not in out:
            return worst
        relative = np.abs(e4m3(out["q", "out"]) - expected) / (np.abs(expected) + 2.0**-6)
        return max(worst, 0.0 if relative.max() < 0.0626 else 1.0)

    values: Values = {
        ("x", "in"): x, ("y", "out"): poisoned((n,), np.float16), ("q", "out"): poisoned((n,), np.uint8),
        ("n2", "shape"): n // 2, ("n4", "shape"): n // 4, ("scale", "shape"): 0.5,
    }  # fmt: skip
    return Case(values, error)


def gemv_case(rng: np.random.Generator) -> Case:
    rows, k = 6, 1024
    q = rng.integers(0, 16, (rows, k)).astype(np.uint32)
    codes = np.zeros((rows, k // 8), np.uint32)
    for j in range(8):
        codes |= q[:, j::8] << np.uint32(4 * j)
    scales = (rng.random((rows, k // 32)) * 0.1).astype(np.float16)
    x = rng.standard_normal(k).astype(np.float16)
    expected = ((q.astype(float) - 8) * np.repeat(scales.astype(float), 32, 1)) @ x.astype(float)
    values: Values = {
        ("codes", "in"): codes, ("scales", "in"): scales, ("x", "in"): x,
        ("y", "out"): poisoned((rows,), np.float32), ("k", "shape"): k, ("rows", "shape"): rows,
    }  # fmt: skip
    return Case(values, lambda out: largest(out["y", "out"] - expected, expected))


def mm_case(rng: np.random.Generator) -> Case:
    m, n, k = 64, 32, 64
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    expected = a.astype(float) @ b.astype(float)
    values: Values = {
        ("a", "in"): a, ("b", "in"): b, ("c", "out"): poisoned((m, n), np.float32),
        ("m", "shape"): m, ("n", "shape"): n, ("k", "shape"): k,
    }  # fmt: skip
    return Case(values, lambda out: largest(out["c", "out"] - expected, expected))


def words_case(rng: np.random.Generator) -> Case:
    x = rng.integers(0, 256, (64, 16)).astype(np.uint8)
    v = x.view(np.uint32)
    m, n, f, t = 40, 5, np.float32(1.5), np.arange(64)
    h = (v[:, 1] & 0x3FFF).astype(np.uint16).view(np.float16).astype(float)
    b = ((v[:, 1] >> 18).astype(np.uint32) << 16).view(np.float32).astype(float)
    sums = np.array([1.0, -2.0, 0.5, 4.0])[v[:, 0] & 3].reshape(2, 32).sum(1).repeat(32)
    y = np.stack([sums, np.float32(h * f + b), np.full(64, 5.5), -f + np.minimum(m, t) + 7], 1)
    by = x.astype(np.uint32)
    halves = (v[:, 1] & 0x3FFF) | ((v[:, 1] >> 18) << 16)
    woven = by[:, 0] | by[:, 4] << 8 | by[:, 1] << 16 | by[:, 5] << 24
    bits = np.stack([v[::-1, 0], v[:, 1], woven, halves], 1)

    def error(out: Mapping[tuple[str, str], Array]) -> float:
        return largest(out["y", "out"] - y.astype(np.float32)) + float(np.sum(out["bits", "out"] != bits))

    values: Values = {
        ("x", "in"): x,
        ("y", "out"): poisoned((64, 4), np.float32), ("bits", "out"): poisoned((64, 4), np.uint32),
        ("m", "shape"): m, ("n", "shape"): n, ("f", "shape"): float(f),
    }  # fmt: skip
    return Case(values, error)


_GEMV = Entry(
    "gemv_f16",
    args("codes ptr in, scales ptr in, x ptr in, y ptr out, k u32 shape"),
    (128, 1, 1),
    ("rows", 1, 1),
)
_MM_GRID = (("ceildiv", "n", 32), ("ceildiv", "m", 32), 1)
_MM = Entry("mm_f16", args("a ptr in, b ptr in, c ptr out, n u32 shape, k u32 shape"), (128, 1, 1), _MM_GRID)
_WORDS = Entry(
    "words",
    args("x ptr in, y ptr out, bits ptr out, m u32 shape, n u64 shape, f f32 shape"),
    (64, 1, 1),
    (1, 1, 1),
)
_SILU = {
    "cuda": Entry(
        "silu_f16",
        args("x ptr in, y ptr out, q ptr out, n2 u32 shape, scale f32 shape"),
        (256, 1, 1),
        (("ceildiv", "n2", 256), 1, 1),
    ),
    "metal": Entry(
        "silu_f16",
        args("x ptr in, y ptr out, n4 u32 shape, scale f32 shape"),
        (256, 1, 1),
        (("ceildiv", "n4", 256), 1, 1),
    ),
}

SAMPLES = {
    "silu": Sample("silu", _SILU, silu_case),
    "gemv": Sample("gemv", {"cuda": _GEMV, "metal": _GEMV}, gemv_case, 1e-5),
    "mm": Sample("mm", {"cuda": _MM, "metal": _MM}, mm_case, 1e-5),
    "words": Sample("words", {"cuda": _WORDS, "metal": _WORDS}, words_case, 1e-6),
}
