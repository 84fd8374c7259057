"""quantize_activations, its texts executed: every byte is what wootz.quantize and wootz.tile give."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from lanes import ORDERS, Entry, Program, poisoned
from numpy.typing import NDArray
from wootz.formats import Descriptor, QuantizedTensor, quantize, tiles
from wootz.formats.quantize import _codes
from wootz.formats.scales import Ranges, Source, _pick, block_ranges
from wootz.reference import round_to, to_double

from gen.emit import text as emit
from gen.formats.axes import EXPONENT_RULES, Format
from gen.plan import cells as plan

KERNEL = "quantize_activations"
DTYPES = ("f16", "bf16", "f32")
SIZES = [(1, 1), (3, 32), (2, 40), (5, 128), (129, 17), (130, 256), (4, 261)]
"""(m, k): one element, a block, ragged ends, padding rows of tiles, a tile more in either direction."""


@cache
def repository() -> Any:
    return plan.load(Path(__file__).parents[2] / "kernels.yaml")


@cache
def formats() -> dict[str, Format]:
    """Every format of the manifest that has tiles, under every rule that its scale type can have."""
    found: dict[str, Format] = {}
    for fmt in repository().formats.values():
        if tiles.refusal(Descriptor.parse(fmt)):
            continue
        exponent = fmt.scales[0].element.kind == "exponent"
        for rule in EXPONENT_RULES if exponent else ("absmax",):
            scales = (replace(fmt.scales[0], rule=rule), *fmt.scales[1:])
            found[f"{fmt.name}-{rule}"] = replace(fmt, scales=scales)
            if len(scales) > 1:
                layout = replace(fmt.layout, fields=fmt.layout.fields[:2])
                found[f"{fmt.name}-{rule}-alone"] = replace(fmt, scales=scales[:1], layout=layout)
    return found


def entries(fmt: Format, backend: str) -> tuple[str, dict[str, Entry]]:
    """The text for the first target of a backend, and its entry of each dtype."""
    target = next(t for t in repository().targets.values() if t.backend == backend)
    spec = replace(repository().kernels["copy"], name=KERNEL, options={})
    emitted = emit.emit(spec, fmt, target, DTYPES)
    return emitted.text, {e.dtype: Entry.from_json(e.to_json()) for e in emitted.entries}


ODD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 2.0**-24, -(2.0**-140), 65504.0, 3.0e38, -1e-40, 2.0**-126]


def numbers(shape: tuple[int, int], element: Any, rng: np.random.Generator) -> NDArray[np.float64]:
    """Rows of several kinds: of one magnitude, of many, halfway between codes, zeros, special numbers."""
    x = rng.standard_normal(shape)
    grid = np.unique(np.abs(element.values[np.isfinite(element.values)]))
    halves = np.concatenate([grid, (grid[1:] + grid[:-1]) / 2])
    for i in range(shape[0]):
        kind = i % 6
        if kind == 1:
            x[i] *= 2.0 ** rng.uniform(-120, 120, shape[1])
        if kind == 2:  # the block's largest is the element's, so that scales are powers of two and others tie
            x[i] = (
                rng.choice(halves, shape[1]) * rng.choice([-1.0, 1.0], shape[1]) * 2.0 ** rng.integers(-8, 4)
            )
            x[i, ::8] = element.max * 2.0 ** rng.integers(-8, 4)
        if kind == 3:
            x[i] = rng.choice([0.0, -0.0], shape[1])
            x[i, shape[1] // 2 :] = rng.choice([0.0, np.inf, -np.inf, np.nan], shape[1] - shape[1] // 2)
        if kind == 4:
            x[i] = np.where(rng.random(shape[1]) < 0.3, rng.choice(ODD, shape[1]), x[i])
        if kind == 5:  # subnormal blocks
            x[i] *= 2.0**-130
    return x


@pytest.mark.parametrize("backend", ["cuda", "metal"])
@pytest.mark.parametrize("name", sorted(formats()))
def test_bit_for_bit(name: str, backend: str) -> None:
    fmt = formats()[name]
    descriptor = Descriptor.parse(fmt)
    nan: Literal["error", "zero"] = "zero" if descriptor.element.nan_code is None else "error"
    text, known = entries(fmt, backend)
    with Program.build(text, backend, list(known.values())) as program:
        for i, (m, k) in enumerate(SIZES):
            for dtype in DTYPES:
                rng = np.random.default_rng([i, len(name)])
                x = round_to(numbers((m, k), descriptor.element, rng), dtype)
                wanted = tiles.tile(quantize(to_double(x, dtype), descriptor, nan=nan))
                order = ORDERS[(i + len(dtype)) % len(ORDERS)]
                found = run(program, known[dtype], x, wanted, order)
                for field in ("codes", "tiles"):
                    differ = np.argwhere(found["y." + field, "out"] != wanted.fields[field])
                    assert not len(differ), (
                        f"{field} of {name} {dtype} {m} x {k}: {len(differ)} at {differ[:4]}"
                    )


def run(
    program: Program, entry: Entry, x: NDArray[Any], wanted: tiles.TiledTensor, order: int
) -> dict[tuple[str, str], NDArray[Any]]:
    """One launch; the outputs are all ones before."""
    m, k = wanted.shape
    values: dict[tuple[str, str], Any] = {("x", "in"): x, ("m", "shape"): m, ("k", "shape"): k}
    for field in ("codes", "tiles"):
        values["y." + field, "out"] = poisoned(wanted.fields[field].shape, np.uint8)
    if "scale1" in wanted.fields:
        values["scale1", "in"] = wanted.fields["scale1"]
    return program.run(entry, values, order)


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_sanitizers(sanitizer: str) -> None:
    name = next(n for n in sorted(formats()) if len(formats()[n].scales) > 1)
    text, known = entries(formats()[name], "cuda")
    with Program.build(text, "cuda", list(known.values()), sanitizer) as program:
        for m, k in ((3, 40), (130, 64)):
            x = np.random.default_rng(m).standard_normal((m, k)).astype(np.float32)
            wanted = tiles.tile(quantize(x, formats()[name]))
            found = run(program, known["f32"], x, wanted, 2)
            assert all(np.array_equal(found["y." + f, "out"], wanted.fields[f]) for f in ("codes", "tiles"))


def test_quotients_next_to_halfway_are_rounded_once() -> None:
    """Peaks and tensor scales whose quotient is all but halfway between two float32 numbers, of which one is
    itself halfway between two scales: rounded twice, or cut off before, they give another code."""
    name = next(n for n in sorted(formats()) if len(formats()[n].scales) > 1)
    descriptor, (text, known) = Descriptor.parse(formats()[name]), entries(formats()[name], "cuda")
    rng, rows = np.random.default_rng(8), 64
    with Program.build(text, "cuda", list(known.values())) as program:
        for middle in (1 + 1 / 16, 1 + 5 / 16, 1.5 + 1 / 16, 2 + 2 / 16):
            target = np.longdouble(middle) + np.longdouble(np.spacing(np.float32(middle))) / 2
            above = rng.integers(1 << 23, 1 << 24, 400_000).astype(np.float32)
            peaks = (6 * above.astype(np.longdouble) * target).astype(np.float32)
            off = peaks.astype(np.longdouble) / (6 * above.astype(np.longdouble)) - target
            for i in np.argsort(np.abs(off))[:8]:
                scale1, peak = above[i].reshape(1, 1), peaks[i]
                x = (rng.standard_normal((rows, 16)) * float(peak) / 8).astype(np.float32)
                x[:, 3] = peak * 2.0 ** rng.integers(-5, 6, rows)
                x = np.clip(x, -np.abs(x[:, 3:4]), np.abs(x[:, 3:4]))
                wanted = given(x, descriptor, scale1)
                found = run(program, known["f32"], x, wanted, 0)
                assert np.array_equal(found["y.tiles", "out"], wanted.fields["tiles"])
                assert np.array_equal(found["y.codes", "out"], wanted.fields["codes"])


def given(x: NDArray[np.float32], descriptor: Descriptor, scale1: NDArray[np.float32]) -> tiles.TiledTensor:
    """wootz.quantize's own arithmetic under a scale of the tensor that is given."""
    size = (x.shape[0], x.shape[1])
    ranges = block_ranges(Source(x, True, False), descriptor)
    assert ranges is not None
    first, above = descriptor.scales[0], float(scale1[0, 0])
    wanted = _pick(
        "absmax", Ranges(*(r / above for r in (ranges.peak, ranges.low, ranges.high))), descriptor.element
    )
    sides = {"scale": first.element.encode(wanted, nonzero=True), "scale1": scale1}
    codes = _codes(Source(x, True, False), descriptor, sides, None)
    return tiles.tile(QuantizedTensor(descriptor, size, {"codes": codes, **sides}))


def test_a_scale_of_the_tensor_may_be_any() -> None:
    """The scale that is given need not be the one that the tensor would have."""
    name = next(n for n in sorted(formats()) if len(formats()[n].scales) > 1)
    alone = formats()[f"{name}-alone"] if f"{name}-alone" in formats() else formats()[name]
    assert len(alone.scales) == 1
    text, known = entries(formats()[name], "cuda")
    x = np.random.default_rng(3).standard_normal((130, 256)).astype(np.float32)
    with Program.build(text, "cuda", list(known.values())) as program:
        for power in (-3, 0, 5):
            # A power of two moves the numbers and changes nothing else.
            other = tiles.tile(quantize(x * np.float32(2.0**-power), alone))
            wanted = tiles.TiledTensor(
                Descriptor.parse(formats()[name]),
                other.shape,
                {**other.fields, "scale1": np.full((1, 1), 2.0**power, np.float32)},
            )
            found = run(program, known["f32"], x, wanted, 0)
            assert all(np.array_equal(found["y." + f, "out"], wanted.fields[f]) for f in ("codes", "tiles"))
