"""qgemv for one row of x on sm_90a (cutlass/qgemv_sm90_natural.cuh): the emitted text, run on the CPU with
twins of tensor copies and barriers, against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inputs import arguments, planted
from lanes import ORDERS, Entry, ExecutionError, Program, evaluate, poisoned
from tensor_maps import arguments_of, from_arrays
from wootz import checks, reference
from wootz.formats import Descriptor

from gen.build import index
from gen.formats.axes import Format
from gen.formats.grammar import format_of
from gen.kernels import _natural_sm90 as natural
from gen.lower import templates
from gen.plan import cells as plan
from gen.variants.family import Instance

HERE = Path(__file__).resolve().parent
MANIFEST = plan.load(HERE.parents[1] / "kernels.yaml")
TARGET = MANIFEST.targets["sm_90a"]
TWINS = (HERE / "twins" / "sm90.h").read_text()
MEMORY = "__shared__ __align__(1024) uint8_t memory"
TAKEN = [name for name, fmt in MANIFEST.formats.items() if natural.row_of(fmt)]
SIZES = {"n": 37, "k": 3072}, {"n": 5, "k": 256}, {"n": 100, "k": 8192}
"""Several tiles, the last one short, and warps of one unit and two; warps without any; more x than a warp has
in registers, tiles more than slots."""
OWN = {
    "small blocks under fields": {"element": "e2m1", "block": 16, "scale": "f32"},
    "bytes as zero points": {"element": "uint4", "block": 64, "scale": "bf16", "zero": "uint8"},
    "zero points less one": {"element": "uint4", "block": 32, "scale": "f16", "zero": "uint4"},
    "floats past any exponent": {
        "element": {"float": {"exponent": 2, "mantissa": 1, "bias": -1}},
        "block": 32,
        "scale": "f32",
    },
    "long blocks": {"element": {"int": 4, "symmetric": True}, "block": 256, "scale": "f32"},
    "words of eight": {
        "element": "uint4",
        "block": 64,
        "scale": "f16",
        "zero": "f16",
        "packing": {"word": 32},
    },
}


def own(name: str) -> Format:
    fmt, wrong = format_of("own", OWN[name])
    assert fmt is not None, wrong
    return fmt


@contextmanager
def built(
    some: list[Instance], sizes: tuple[dict[str, int], ...] = SIZES, change: Any = None
) -> Iterator[tuple[Program, dict[str, Instance]]]:
    instances = {f"{i.suffix}_{at}": i for at, i in enumerate(some)}
    parts = [*dict.fromkeys(part for i in some for part in i.preamble)]
    for symbol, instance in instances.items():
        most = max(evaluate(instance.shared, size) for size in sizes)
        text = from_arrays(instance, instance.text.replace(templates.SYMBOL, symbol))
        parts.append(text.replace(f"extern {MEMORY}[]", f"{MEMORY}[{most}]"))
    text = TWINS + templates.inline(["qgemv_sm90_natural.cuh"], parts)
    entries = [
        Entry(symbol, arguments_of(i), (i.threads, 1, 1), (i.grid[0], 1, 1))
        for symbol, i in instances.items()
    ]
    with Program.build(change(text) if change else text, "cuda", entries) as program:
        yield program, instances


def operands(fmt: Format, size: dict[str, int], dtype: str) -> dict[str, Any]:
    rng = np.random.default_rng([size["k"], *fmt.name.encode()])
    descriptor = Descriptor.parse(index.format_record(fmt))
    return checks.check("qgemv").operands(descriptor, {"m": 1, **size}, dtype, {}, rng)


def outcome(
    program: Program,
    instance: Instance,
    symbol: str,
    given: dict[str, Any],
    dtype: str,
    order: int = 0,
    sms: int = 2,
) -> tuple[Any, reference.Comparison]:
    (m, k), n = given["x"].shape, given["w"].shape[0]
    expected = checks.expect("qgemv", {}, given, dtype)
    blank = poisoned(expected.value.shape, reference.DTYPES[dtype][2])
    values = arguments(given, {"m": m, "n": n, "k": k, "sms": sms}, ("y", blank))
    entry = Entry(symbol, arguments_of(instance), (instance.threads, 1, 1), (instance.grid[0], 1, 1))
    y = program.run(entry, values, order)["y", "out"]
    return y, reference.compare(y, expected, dtype)


def everything(fmt: Format) -> list[tuple[str, Instance]]:
    return [(dtype, i) for dtype in ("f16", "bf16") for i in natural.instances(fmt, dtype, TARGET)]


def check(fmt: Format) -> None:
    found = everything(fmt)
    assert len(found) == 2
    with built([i for _, i in found]) as (program, instances):
        for (dtype, _), (symbol, instance) in zip(found, instances.items()):
            for size in SIZES:
                if suits(instance, m=1, **size):
                    _, compared = outcome(program, instance, symbol, operands(fmt, size, dtype), dtype)
                    assert compared.passed, (dtype, size, compared)


@pytest.mark.parametrize("name", TAKEN)
def test_every_format_of_four_bits(name: str) -> None:
    check(MANIFEST.formats[name])


@pytest.mark.parametrize("name", OWN)
def test_formats_that_no_manifest_has(name: str) -> None:
    check(own(name))


def test_which_formats_are_taken() -> None:
    assert {"int4", "uint4_z", "mxfp4", "nvfp4", "q4_0", "affine4", "fp4", "mxint4", "int4_g128"} <= {*TAKEN}
    assert not {"nf4", "int8", "int3", "int5"} & {*TAKEN}


@pytest.mark.parametrize("name", ["int4_g128", "uint4_z", "mxfp4", "nvfp4", "q4_0"])
def test_every_tile_gives_the_same_bits_in_every_order(name: str) -> None:
    fmt, dtype, size = MANIFEST.formats[name], "bf16", {"n": 50, "k": 5120}
    with built(
        [*natural.instances(fmt, dtype, TARGET), *natural.further(fmt, dtype, TARGET)], (size,)
    ) as found:
        program, instances = found
        given = operands(fmt, size, dtype)
        for symbol, instance in instances.items():
            bits = set()
            for order in ORDERS:
                y, compared = outcome(program, instance, symbol, given, dtype, order, sms=1 + order % 2)
                assert compared.passed, (symbol, compared)
                bits.add(y.tobytes())
            assert len(bits) == 1, symbol


@pytest.mark.parametrize("magnitude", [2.0**-120, 2.0**-60, 2.0**60, 2.0**120])
@pytest.mark.parametrize("k", [256, 8448])
def test_x_of_any_magnitude(magnitude: float, k: int) -> None:
    """Of decoders whose numbers lack a power of two; as much as a warp has in registers, and more."""
    fmt, size = MANIFEST.formats["mxfp4"], {"n": 16, "k": k}
    with built([*natural.instances(fmt, "bf16", TARGET)], (size,)) as (program, instances):
        ((symbol, instance),) = instances.items()
        given = operands(fmt, size, "bf16")
        given["x"] = reference.round_to(reference.to_double(given["x"], "bf16") * magnitude, "bf16")
        _, compared = outcome(program, instance, symbol, given, "bf16")
        assert compared.passed, compared


def test_numbers_that_are_none_stay_in_their_rows() -> None:
    fmt, size = MANIFEST.formats["mxfp4"], {"n": 40, "k": 512}
    with built([*natural.instances(fmt, "bf16", TARGET)], (size,)) as (program, instances):
        ((symbol, instance),) = instances.items()
        given = operands(fmt, size, "bf16")
        given["w"].fields["scale"][[3, 21], [5, 9]] = 255
        y, _ = outcome(program, instance, symbol, given, "bf16")
        wrong = ~np.isfinite(reference.to_double(y, "bf16")[0])
        assert [*np.flatnonzero(wrong)] == [3, 21]


def suits(instance: Instance, **size: int) -> bool:
    return all(evaluate(formula, {"sms": 132, **size}) for formula in instance.when)


MISTAKES = {
    "a slot is not waited for": ("                ring.wait();\n", ""),
    "the parity stays": ("parity ^= 1;", "parity ^= 0;"),
    "every lane has x in every column": ("lane / 4 % 4 == lane % 4", "true"),
    "blocks of the other part are added": ("lane % 4 >= 2", "lane % 4 < 2"),
    "rows 8 to 15 are those of 0 to 7": ("from_row + 8 * Tile::piece", "from_row"),
    "rows are not swizzled": ("((t + 4 * Part) ^ row) * 16", "(t + 4 * Part) * 16"),
    "scales are those of a row's first unit": ("column = (begin + unit) * 256", "column = begin * 256"),
    "scales are not waited for": ("cp_async_wait<Tile::slots - 1>();", ""),
    "sums go to other rows": ("to[row + 8 * i]", "to[lane / 4 + 8 * i]"),
    "pairs are of other rows": ("{a[0], a[2], a[1], a[3]}", "{a[0], a[1], a[2], a[3]}"),
    "halves of a word change places": ("0x6240", "0x7351"),
    "sums of x are those of the unit before": ("parts += 8 * Tile::halves;", ""),
    "columns of x change places": ("0x5410", "0x7632"),
    "a pair has the sum of another block's x": ("lane % 4 * 2 * Tile::halves + i.value", "i.value"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    fmt, size, wrong = MANIFEST.formats["uint4_z"], {"n": 82, "k": 6144}, 0
    change = planted(*MISTAKES[mistake])
    with built([*natural.instances(fmt, "bf16", TARGET)], (size,), change) as (program, instances):
        ((symbol, instance),) = instances.items()
        for order in ORDERS:
            try:
                given = operands(fmt, size, "bf16")
                wrong += not outcome(program, instance, symbol, given, "bf16", order, sms=1)[1].passed
            except ExecutionError:
                wrong += 1
    assert wrong


def test_blocks_that_begin_off_a_word_are_turned() -> None:
    fmt, size = MANIFEST.formats["q4_0"], {"n": 20, "k": 512}
    change = planted("off ? 0x7610 : 0x3210", "0x3210")
    with built([*natural.instances(fmt, "bf16", TARGET)], (size,), change) as (program, instances):
        ((symbol, instance),) = instances.items()
        assert not outcome(program, instance, symbol, operands(fmt, size, "bf16"), "bf16")[1].passed


# ---- which shapes are taken


@pytest.mark.parametrize("name", TAKEN)
def test_one_row_of_whole_units_that_fits(name: str) -> None:
    (one,) = natural.instances(MANIFEST.formats[name], "bf16", TARGET)
    assert [m for m in range(9) if suits(one, m=m, n=4096, k=4096)] == [1]
    assert [k for k in (0, 128, 255, 256, 4000, 4096, 14336, 1 << 20) if suits(one, m=1, n=9, k=k)] == [
        *([256] if name != "uint4_z" else []), 4096, 14336,
    ]  # fmt: skip
    for k in (256, 4096, 14336, 28672):
        if suits(one, m=1, n=4096, k=k):
            assert evaluate(one.shared, {"m": 1, "n": 4096, "k": k, "sms": 132}) <= TARGET.shared_max


def test_floats_less_zero_points_have_none_where_they_lack_a_power() -> None:
    """In f16, whose exponents are fewer: what zero points are subtracted from is not the value."""
    fmt, wrong = format_of("own", {"element": "e2m1", "block": 32, "scale": "f16", "zero": "uint4"})
    assert fmt is not None, wrong
    assert not [*natural.instances(fmt, "f16", TARGET)]
    (one,) = natural.instances(fmt, "bf16", TARGET)
    with built([one]) as (program, instances):
        for symbol, instance in instances.items():
            _, compared = outcome(program, instance, symbol, operands(fmt, SIZES[0], "bf16"), "bf16")
            assert compared.passed, compared


def test_other_targets_and_types_have_none() -> None:
    fmt = MANIFEST.formats["mxfp4"]
    assert not [*natural.instances(fmt, "f32", TARGET)]
    assert not [*natural.instances(fmt, "bf16", replace(TARGET, features=frozenset({"mma", "cp_async"})))]
