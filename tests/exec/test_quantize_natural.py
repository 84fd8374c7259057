"""quantize, its texts executed: numbers next to halfway between codes, formats that no manifest has, and what
a mistake in it does. test_cells.py runs every format of the manifest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import cells
import numpy as np
import pytest
import yaml
from inputs import arguments
from lanes import Entry, Program, evaluate, poisoned
from numpy.typing import NDArray
from wootz.formats import Descriptor, QuantizedTensor, quantize
from wootz.formats.dequantize import combine_scales, expand, zero_values
from wootz.formats.tensor import side_entries
from wootz.reference import round_to, to_double

from gen.build import index
from gen.emit import text as emit
from gen.formats.axes import Format
from gen.formats.grammar import format_of
from gen.kernels import _codes, _entries, _numbers, _quick
from gen.plan import cells as plan

KERNEL, DTYPE = "quantize", "f32"
F32 = np.float32


@contextmanager
def compiled(
    fmt: Format, k: int = 256, dtype: str = DTYPE, target: str = "sm_80"
) -> Iterator[tuple[Program, Entry]]:
    """The program, and its entry for rows of k numbers."""
    known = cells.repository()
    emit._emit.cache_clear()
    emitted = emit.emit(known.kernels[KERNEL], fmt, known.targets[target], (dtype,))
    entries = [Entry.from_json(e.to_json()) for e in emitted.entries]
    names = {"n": 64, "k": k}
    entry = next(e for e in entries if all(evaluate(formula, names) for formula in e.when))
    backend = known.targets[target].backend
    with Program.build(emitted.text, backend, [*entry.prologue, entry]) as program:
        yield program, entry


def differing(program: Program, entry: Entry, x: NDArray[Any], wanted: QuantizedTensor) -> dict[str, int]:
    """Bytes that are not those of wootz.quantize, by field."""
    n, k = x.shape
    blanks = [(f"y.{name}", poisoned(a.shape, a.dtype)) for name, a in wanted.fields.items()]
    found = program.run(entry, arguments({"x": x}, {"n": n, "k": k}, *blanks), 0)
    pairs = {name: (found[f"y.{name}", "out"], a) for name, a in wanted.fields.items()}
    counts = {name: int((a.view(np.uint8) != b.view(np.uint8)).sum()) for name, (a, b) in pairs.items()}
    return {name: count for name, count in counts.items() if count}


def halfway(fmt: Descriptor, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float32]:
    """Numbers that are halfway between two codes, or the float32 before or after such a one. Both ends of
    each block stay, so that its scale does."""
    x = (rng.standard_normal(shape) * 2.0 ** rng.uniform(-3, 3, (shape[0], 1))).astype(F32)
    every = np.sort(fmt.element.values[fmt.element.usable])
    middles = every[:-1] / 2 + every[1:] / 2
    for _ in range(2):  # the first of two numbers of one magnitude may have moved
        q = quantize(x, fmt)
        entries = side_entries(q)
        scale = expand(combine_scales(fmt, entries, shape, F32), fmt.block, shape, 0, shape[0])
        zero = zero_values(fmt, entries)
        there = rng.choice(middles, shape)
        if zero is None:
            there = there * scale
        else:
            point = expand(zero, fmt.block, shape, 0, shape[0]).astype(np.float64)
            by_value = fmt.zero is not None and fmt.zero.domain == "value"
            there = there * scale + point if by_value else (there - point) * scale
        near, up = there.astype(F32), rng.choice([F32(np.inf), F32(-np.inf)], shape)
        moved = np.where(rng.random(shape) < 0.5, near, np.nextafter(near, up, dtype=F32))
        starts = np.arange(0, shape[1], fmt.block[1])
        ends = (np.repeat(f.reduceat(x, starts, axis=1), fmt.block[1], 1) for f in (np.minimum, np.maximum))
        low, high = (end[:, : shape[1]] for end in ends)
        inside = (np.abs(moved) < np.maximum(-low, high)) & (moved > low) & (moved < high)
        x = np.where(inside & (x != low) & (x != high), moved, x)
    return x


NAMES = ["int4", "int8_f16", "fp8_e4m3", "fp4", "nf4", "nvfp4", "uint4_z", "affine4", "q4_0", "mxint8"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rest", [4, 5])
def test_numbers_next_to_halfway(name: str, rest: int) -> None:
    """In rows of whole vectors, and in others."""
    fmt = cells.repository().formats[name]
    descriptor = Descriptor.parse(index.format_record(fmt))
    k = 4 * fmt.block.cols + rest
    with compiled(fmt, k=k) as (program, entry):
        for seed in range(3):
            x = halfway(descriptor, (64, k), np.random.default_rng(seed))
            assert not differing(program, entry, x, quantize(x, descriptor))


@pytest.mark.parametrize("name", ["int4", "fp8_e4m3", "nf4"])
def test_what_is_left_of_a_quotient_decides(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the same numbers give other codes, in rows that `_quick` has no part in."""
    of = _numbers.Quotient.by_inverse
    monkeypatch.setattr(
        _numbers.Quotient, "by_inverse", lambda b, *given: replace(of(b, *given), rest=b.const(0.0, "f32"))
    )
    fmt = cells.repository().formats[name]
    descriptor = Descriptor.parse(index.format_record(fmt))
    k = 4 * fmt.block.cols + 5
    with compiled(fmt, k=k) as (program, entry):
        x = halfway(descriptor, (64, k), np.random.default_rng(0))
        assert set(differing(program, entry, x, quantize(x, descriptor))) == {"codes"}


def careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `_quick` does not apply to has wrong codes."""
    monkeypatch.setattr(_codes.Codes, "code", lambda self, value: self.b.const(1, "u32"))


@pytest.mark.parametrize("name", ["int4", "int4_g128", "fp8_e4m3", "fp4", "mxfp4", "nvfp4"])
def test_finite_numbers_need_no_more_than_quick_codes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    careless(monkeypatch)
    fmt = cells.repository().formats[name]
    descriptor = Descriptor.parse(index.format_record(fmt))
    with compiled(fmt) as (program, entry):
        for x in (np.random.default_rng(0).standard_normal((64, 256)), halfway_of(descriptor, 1)):
            assert not differing(program, entry, x.astype(F32), quantize(x.astype(F32), descriptor))
        x[0, 0] = np.inf
        assert set(differing(program, entry, x, quantize(x, descriptor))) == {"codes"}


def halfway_of(fmt: Descriptor, seed: int) -> NDArray[np.float32]:
    return halfway(fmt, (64, 256), np.random.default_rng(seed))


@pytest.mark.parametrize("name", ["int4", "fp8_e4m3", "nvfp4"])
def test_quick_codes_are_mended(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of float32 numbers; without that they are wrong."""
    monkeypatch.setattr(_quick.Quick, "_mended", lambda self, value, total, near, limit: total)
    fmt = cells.repository().formats[name]
    descriptor = Descriptor.parse(index.format_record(fmt))
    with compiled(fmt) as (program, entry):
        x = halfway_of(descriptor, 0)
        assert set(differing(program, entry, x, quantize(x, descriptor))) == {"codes"}


# ------------------------------------------------------------ numbers of 16 bits
SHORT = [
    ("int2", "sm_80"), ("int4", "sm_90a"), ("int5", "sm_80"), ("int6", "sm_80"), ("int8", "sm_90a"),
    ("int8_f16", "sm_80"), ("int4_g128", "metal3.1"),
    ("fp8_e4m3", "sm_80"), ("fp8_e4m3", "sm_90a"), ("fp8_e5m2", "sm_90a"), ("fp8_e4m3_f16", "sm_90a"),
    ("fp4", "sm_90a"), ("nvfp4", "sm_90a"), ("nvfp8", "sm_90a"), ("mxfp8_e4m3", "sm_90a"),
    ("mxfp8_e5m2", "sm_90a"),
]  # fmt: skip
"""(format, target)."""


def every_quotient(fmt: Format, dtype: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """A block's largest number with any significand, all of those of bf16; with it in their blocks numbers of
    as many, of every exponent that matters; of f16 as many of each, at random."""
    bits, width = {"bf16": 7, "f16": 10}[dtype], fmt.block.cols
    every = np.arange(2**bits, 2 ** (bits + 1)) / 2.0**bits
    tops = every if dtype == "bf16" else rng.choice(every, 128, replace=False)
    depth = 10 if fmt.element.kind == "int" else 12
    rows = []
    for top in tops:
        others = every if dtype == "bf16" else np.concatenate([rng.choice(every, 100), every[:28], [top]])
        x = np.outer(2.0 ** -np.arange(depth), others).ravel()
        x = x[x <= top] * rng.choice([-1.0, 1.0], (x <= top).sum())
        x = np.resize(x, (-(-depth * 130 // (width - 1)), width - 1))
        rows.append(np.insert(x, 0, top * rng.choice([-1.0, 1.0], len(x)), axis=1).ravel())
    return np.stack(rows)


def check_quotients(name: str, dtype: str, target: str) -> dict[str, int]:
    fmt = cells.repository().formats[name]
    descriptor, found = Descriptor.parse(index.format_record(fmt)), {}
    x = every_quotient(fmt, dtype, np.random.default_rng(0))
    with compiled(fmt, x.shape[1], dtype, target) as (program, entry):
        for scale in 1.0, 1.0625, 1.3125, 3.8:  # others of whole tensors
            given = round_to(np.append(x[:-1], x[-1:] * scale, axis=0), dtype)
            wanted = quantize(to_double(given, dtype), descriptor)
            found |= differing(program, entry, given, wanted)
    return found


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize(("name", "target"), SHORT)
def test_every_quotient_of_short_numbers_is_quick_and_right(
    name: str, target: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    careless(monkeypatch)
    assert not check_quotients(name, dtype, target)


@pytest.mark.parametrize(
    ("name", "dtype"), [("int8", "bf16"), ("mxfp4", "f16"), ("int4", "f32"), ("nvfp4", "bf16")]
)
def test_rows_that_are_one(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of fewer numbers than a block has, and of more, whose last block is not full."""
    careless(monkeypatch)
    fmt = cells.repository().formats[name]
    descriptor = Descriptor.parse(index.format_record(fmt))
    with compiled(fmt, 192, dtype, "sm_90a") as (program, entry):
        assert entry.symbol.endswith("_flat")
        for n in 1, 3, 101:
            x = round_to(np.random.default_rng(n).standard_normal((n, 192)), dtype)
            assert not differing(program, entry, x, quantize(to_double(x, dtype), descriptor))


@pytest.mark.parametrize("off", [-2.5, 2.5])
@pytest.mark.parametrize("name", ["int8", "fp8_e4m3", "nvfp4"])
def test_a_fast_quotient_may_be_off(name: str, off: float, monkeypatch: pytest.MonkeyPatch) -> None:
    careless(monkeypatch)
    monkeypatch.setattr(_quick, "BELOW", _quick.BELOW * (1 + off * 2.0**-23))
    assert not check_quotients(name, "f16", "sm_90a")


@pytest.mark.parametrize("name", ["int4", "int8", "fp8_e4m3", "nvfp4"])
def test_short_numbers_next_to_ties_need_the_tilt(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_quick.Quick, "_excess", lambda self: None)
    assert set(check_quotients(name, "f16", "sm_90a")) == {"codes"}


@pytest.mark.parametrize("name", ["int4", "fp8_e4m3"])
def test_ties_need_the_rest_of_the_inverse(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_quick, "BELOW", 1.0)
    monkeypatch.setattr(_quick.Quick, "quotient", lambda self, value: value * self.inverse)
    monkeypatch.setattr(_quick.Quick, "grid", 0.0)
    assert set(check_quotients(name, "f16", "sm_90a")) == {"codes"}


def test_integers_need_a_grid_that_is_not_too_coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_quick.Quick, "grid", 2.0**-15)
    assert set(check_quotients("int8", "f16", "sm_90a")) == {"codes"}


def test_a_range_of_the_wrong_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fmt = cells.repository().formats["uint4_z"]
    monkeypatch.setattr(_entries, "highest", lambda element: element.max - 1)
    with compiled(fmt) as (program, entry):
        x = np.random.default_rng(0).standard_normal((8, 256)).astype(F32)
        assert differing(program, entry, x, quantize(x, index.format_record(fmt)))


@pytest.mark.parametrize("name", ["uint4_z", "affine4"])
def test_ranges_are_rounded_as_float64_rounds_them(name: str) -> None:
    """Ends of very different magnitude, near to each other, and as large as they come."""
    fmt = cells.repository().formats[name]
    descriptor, rng = Descriptor.parse(index.format_record(fmt)), np.random.default_rng(1)
    x = rng.standard_normal((256, fmt.block.cols)) * 2.0 ** rng.uniform(-60, 60, (256, fmt.block.cols))
    x[::4] = 1 + rng.random((64, fmt.block.cols)) * 2.0 ** rng.integers(-23, 0, (64, 1))
    x[1::4] = rng.choice([3e38, -3.4e38, 1e-30, -1e-40], (64, fmt.block.cols))
    with compiled(fmt) as (program, entry):
        single = x.astype(F32)
        assert not differing(program, entry, single, quantize(single, descriptor))


UNSEEN = yaml.safe_load("""
guarded: {element: uint3, block: 128, scale: f16, zero: {type: uint3, stored: minus_one}, packing: {word: 32}}
between:
  {element: uint2, block: 10, scale: f16, zero: bf16, packing: {unit: 30}, storage: [zero, codes, scale]}
unsorted:
  element: {codebook: [0.0, 0.25, 4.0, 1.0, -0.0, -0.25, -4.0, -1.0]}
  block: 5
  scale: bf16
  packing: {order: msb}
rows: {element: {codebook: [-1.0, 1.0]}, block: row, scale: f32}
everything: {element: uint8, block: tensor, scale: f32, zero: uint8}
bits: {element: int1}
plain: {element: uint4, block: 64, scale: f32}
powers: {element: {int: 6, symmetric: true}, block: [4, 64], scale: {type: e8m0, rule: even}}
mixed: {element: {int: 5, offset: 16}, block: 40, scale: {type: int5, rule: signed_absmax}}
""")
REFUSED = yaml.safe_load("""
one f32 of the whole tensor: {element: uint4, block: 32, scale: {type: uint6, block: 256, scale: f16}}
code domain are integers: {element: uint4, block: 64, scale: f16, zero: {type: f16, domain: code}}
scales are of a codebook: {element: int7, block: 8, scale: {type: {codebook: [0.5, 1.0]}}}
"whole words: 32 columns": {element: int5, block: [4, 40], scale: f16}
from 2^-42 to 2^90: {element: {float: {exponent: 5, mantissa: 2, bias: 60}}, block: 32, scale: f32}
""")


def made(body: Any, name: str = "unseen") -> Format:
    found, problems = format_of(name, body)
    assert found is not None, [problem.message for problem in problems]
    return found


@pytest.mark.parametrize("name", UNSEEN)
@pytest.mark.parametrize("backend", cells.BACKENDS)
def test_formats_that_no_manifest_has(name: str, backend: str) -> None:
    check(made(UNSEEN[name]), backend)


def check(fmt: Format, backend: str) -> None:
    """All that a cell is run on."""
    known = cells.repository()
    target = next(t.name for t in known.targets.values() if t.backend == backend)
    spec = replace(known.kernels[KERNEL], dtypes=("f16", "f32"))
    one = replace(known, formats={fmt.name: fmt}, kernels={KERNEL: spec})
    request = plan.Request("release", targets=(target,), formats=(fmt.name,), kernels=(KERNEL,))
    (subject,) = cells.candidates(one, request)
    assert not (problems := cells.failures(cells.run_subject(subject))), problems


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_done_is_refused(reason: str) -> None:
    known = cells.repository()
    found = emit.refusal(known.kernels[KERNEL], made(REFUSED[reason]), "f32", known.targets["cpu"], {})
    assert reason in (found or "")
