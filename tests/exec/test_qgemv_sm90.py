"""qmm_packed for up to 8 rows of x on sm_90a (cutlass/qgemv_sm90.cuh): the emitted text of each tile, run on
the CPU with twins of bulk copies and barriers, against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inputs import arguments, planted
from lanes import ORDERS, Arg, Entry, ExecutionError, Program, evaluate, poisoned
from wootz import checks, reference
from wootz.checks import qmm_packed as rules
from wootz.formats import Descriptor
from wootz.formats.packed import prepack, unpack

from gen.build import index
from gen.formats.axes import Format
from gen.formats.grammar import format_of
from gen.kernels import _qgemv_sm90 as qgemv
from gen.lower import templates
from gen.plan import cells as plan
from gen.variants.family import Instance

HERE = Path(__file__).resolve().parent
MANIFEST = plan.load(HERE.parents[1] / "kernels.yaml")
TARGET = MANIFEST.targets["sm_90a"]
TWINS = (HERE / "twins" / "sm90.h").read_text()
MEMORY = "__shared__ __align__(128) uint8_t memory"

SIZES = (
    {"m": 1, "n": 37, "k": 2600},  # several tiles, the last ones short in rows and in k
    {"m": 1, "n": 5, "k": 8},  # one unit: warps without any
    {"m": 8, "n": 35, "k": 1032},
    {"m": 3, "n": 17, "k": 264},
)
FORMATS = [name for name in MANIFEST.formats if not name.endswith("_f16")]


def made(name: str) -> Format:
    return MANIFEST.formats[name]


def entries(name: str, dtype: str = "bf16") -> list[Instance]:
    return [*qgemv.instances(made(name), dtype, TARGET)]


def entry(name: str, suffix: str, dtype: str = "bf16") -> Instance:
    return next(i for i in entries(name, dtype) if i.suffix == suffix)


def suits(instance: Instance, size: dict[str, int]) -> bool:
    return all(evaluate(formula, {"sms": 2, **size}) for formula in instance.when)


def entry_of(instance: Instance, symbol: str) -> Entry:
    args = tuple(Arg(a.name, a.type, a.role) for a in instance.args)
    x, y, z = (tuple(g) if isinstance(g, list) else g for g in instance.grid)
    return Entry(symbol, args, (instance.threads, 1, 1), (x, y, z))


def text_of(instances: dict[str, Instance], sizes: tuple[dict[str, int], ...] = SIZES) -> str:
    """The text with as much static group memory as a launch would have asked for."""
    parts = [*dict.fromkeys(part for i in instances.values() for part in i.preamble)]
    for symbol, instance in instances.items():
        few = [size for size in sizes if (size["m"] == 1) == instance.suffix.startswith("v1")] or sizes
        most = max(evaluate(instance.shared, size) for size in few)
        parts.append(
            instance.text.replace(templates.SYMBOL, symbol).replace(f"extern {MEMORY}[]", f"{MEMORY}[{most}]")
        )
    return TWINS + templates.inline(["qgemv_sm90.cuh"], parts)


def operands(fmt: Format, size: dict[str, int], dtype: str) -> dict[str, Any]:
    rng = np.random.default_rng([size["k"], *fmt.name.encode()])
    descriptor = Descriptor.parse(index.format_record(fmt))
    return checks.check("qmm_packed").operands(descriptor, size, dtype, {}, rng)


def outcome(
    program: Program,
    instance: Instance,
    symbol: str,
    given: dict[str, Any],
    dtype: str,
    order: int = 0,
    sms: int = 2,
) -> tuple[Any, reference.Comparison]:
    """The bits of y, and how they compare."""
    (m, k), n = given["x"].shape, given["w"].shape[0]
    expected = rules.outcome(given, dtype, rounded=False)
    blank = poisoned(expected.value.shape, reference.DTYPES[dtype][2])
    values = arguments(given, {"m": m, "n": n, "k": k, "sms": sms}, ("y", blank))
    y = program.run(entry_of(instance, symbol), values, order)["y", "out"]
    return y, reference.compare(y, expected, dtype)


@contextmanager
def built(
    some: list[Instance], sizes: tuple[dict[str, int], ...] = SIZES, change: Any = None
) -> Iterator[Any]:
    instances = {f"{i.suffix}_{at}": i for at, i in enumerate(some)}
    text = text_of(instances, sizes)
    entries = [entry_of(i, symbol) for symbol, i in instances.items()]
    with Program.build(change(text) if change else text, "cuda", entries) as program:
        yield program, instances


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_multiplies_by_few_rows(name: str) -> None:
    fmt = made(name)
    some = {dtype: entries(name, dtype) for dtype in ("f16", "bf16")}
    with built([i for each in some.values() for i in each]) as (program, instances):
        for at, (symbol, instance) in enumerate(instances.items()):
            dtype = "f16" if at < len(some["f16"]) else "bf16"
            for size in SIZES:
                if instance.suffix.startswith("v8") == (size["m"] > 1):
                    _, compared = outcome(program, instance, symbol, operands(fmt, size, dtype), dtype)
                    assert compared.passed, (dtype, size, compared)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_zero_points_do_not_wait_for_a_level_of_the_tensor(dtype: str) -> None:
    """They are added after all scales."""
    scale = {"type": "e4m3", "block": "tensor", "scale": "f32"}
    fmt, wrong = format_of("zeroed", {"element": "uint4", "block": 32, "scale": scale, "zero": "f16"})
    assert fmt is not None, wrong
    size = {"m": 3, "n": 37, "k": 520}
    some = [i for i in qgemv.instances(fmt, dtype, TARGET) if i.suffix in ("v1", "v8")]
    with built(some, (size,)) as (program, instances):
        for symbol, instance in instances.items():
            given = operands(fmt, size | {"m": 1 if instance.suffix == "v1" else 3}, dtype)
            _, compared = outcome(program, instance, symbol, given, dtype)
            assert compared.passed, (instance.suffix, compared)


@pytest.mark.parametrize("name", ["int4_g128", "uint4_z", "affine4", "mxfp4", "nf4", "nvfp4", "int8"])
def test_every_tile_gives_the_same_bits_in_every_order(name: str) -> None:
    """Any number of rows, more and fewer blocks, rings that are filled many times over."""
    fmt, dtype = made(name), "bf16"
    sizes = tuple({"m": m, "n": 50, "k": 4360} for m in range(1, 9))
    with built([*entries(name, dtype), *qgemv.further(fmt, dtype, TARGET)], sizes) as found:
        program, instances = found
        for symbol, instance in instances.items():
            many = instance.suffix.startswith("v8")
            for size in sizes[1 :: 1 if instance.suffix == "v8" else 6] if many else sizes[:1]:
                given = operands(fmt, size, dtype)
                bits = set()
                for order in ORDERS:
                    y, compared = outcome(program, instance, symbol, given, dtype, order, sms=1 + order % 2)
                    assert compared.passed, (symbol, size, compared)
                    bits.add(y.tobytes())
                assert len(bits) == 1, (symbol, size)


def test_sums_of_more_tiles_than_may_wait() -> None:
    fmt, dtype = made("int4_g128"), "f16"
    sizes = ({"m": 1, "n": 16 * 35, "k": 264}, {"m": 2, "n": 16 * 11, "k": 264})
    with built([entry(fmt.name, suffix, dtype) for suffix in ("v1", "v8")], sizes) as (program, instances):
        for (symbol, instance), size in zip(instances.items(), sizes):
            for order in ORDERS:
                _, compared = outcome(
                    program, instance, symbol, operands(fmt, size, dtype), dtype, order, sms=1
                )
                assert compared.passed, (symbol, compared)


@pytest.mark.parametrize("magnitude", [2.0**-120, 2.0**-60, 1.0, 2.0**60, 2.0**120])
@pytest.mark.parametrize(("suffix", "k"), [("v8", 512), ("v8", 6152), ("v1_small", 9736)])
def test_x_of_any_magnitude(magnitude: float, suffix: str, k: int) -> None:
    """Of decoders whose numbers lack a power of two as well; as much as a warp has in registers, and more."""
    fmt, size = made("mxfp4"), {"m": 1 if suffix == "v1_small" else 2, "n": 16, "k": k}
    with built([entry(fmt.name, suffix)], (size,)) as (program, instances):
        ((symbol, instance),) = instances.items()
        given = operands(fmt, size, "bf16")
        x = reference.to_double(given["x"], "bf16") * magnitude
        given["x"] = reference.round_to(x, "bf16")
        _, compared = outcome(program, instance, symbol, given, "bf16")
        assert compared.passed, compared


@pytest.mark.parametrize("magnitude", [2.0**-100, 1.0, 2.0**108])
@pytest.mark.parametrize("suffix", ["v1_wide", "v1_large"])
@pytest.mark.parametrize("name", ["int4_g128", "uint4_z", "int3"])
def test_integers_with_their_excess(name: str, suffix: str, magnitude: float) -> None:
    """x whose sums are far from zero, beside which weights are small."""
    fmt, size = made(name), {"m": 1, "n": 33, "k": 1288}
    with built([entry(name, suffix)], (size,)) as (program, instances):
        ((symbol, instance),) = instances.items()
        given = operands(fmt, size, "bf16")
        x = (np.abs(reference.to_double(given["x"], "bf16")) + 1) * magnitude
        given["x"] = reference.round_to(x, "bf16")
        _, compared = outcome(program, instance, symbol, given, "bf16")
        assert compared.passed, compared


def test_which_integers_keep_their_excess() -> None:
    def keeping(dtype: str) -> set[str]:
        return {
            n for n in FORMATS for i in entries(n, dtype) if i.suffix == "v1_wide" and "_shifted" in i.text
        }

    assert {"int2", "int3", "int4", "int4_g128", "int5", "uint4_z", "q4_0"} <= keeping("bf16")
    assert not {"mxfp4", "nvfp4", "nf4", "int6", "int8", "affine4"} & keeping("bf16")
    assert not keeping("f16")


def test_numbers_that_are_none_stay_so() -> None:
    fmt, size = made("mxfp4"), {"m": 4, "n": 16, "k": 512}
    with built([entry(fmt.name, "v8")], (size,)) as (program, instances):
        ((symbol, instance),) = instances.items()
        given = operands(fmt, size, "bf16")
        x = reference.to_double(given["x"], "bf16").copy()
        x[1, 3], x[2, 300] = np.nan, np.inf
        given["x"] = reference.round_to(x, "bf16")
        y, _ = outcome(program, instance, symbol, given, "bf16")
        values = reference.to_double(y, "bf16")
        assert np.isnan(values[1]).all()
        assert not np.isfinite(values[2]).any()
        assert np.isfinite(values[[0, 3]]).all()


def with_scales(
    name: str, m: int, codes: list[int], power: int, tensor: float = 0.0, dtype: str = "bf16"
) -> dict[str, Any]:
    """Operands whose rows have one scale each, by its stored code, in turn; x of about 2^power."""
    given = operands(made(name), {"m": m, "n": 2 * len(codes), "k": 1032}, dtype)
    w = unpack(given["w"])
    w.fields["scale"][:] = np.resize(codes, (2 * len(codes), 1))
    if tensor:
        w.fields["scale1"][:] = tensor
    x = reference.to_double(given["x"], dtype)
    return {"x": reference.round_to(np.clip(x, -4, 4) * 2.0**power, dtype), "w": prepack(w)}


def compared_by_scale(name: str, suffix: str, change: Any = None, **changed: Any) -> None:
    dtype = changed.get("dtype", "bf16")
    given = with_scales(name, 1 if suffix.startswith("v1") else 3, **changed)
    (m, k), n = given["x"].shape, given["w"].shape[0]
    with built([entry(name, suffix, dtype)], ({"m": m, "n": n, "k": k},), change) as (program, instances):
        ((symbol, instance),) = instances.items()
        y, compared = outcome(program, instance, symbol, given, dtype)
        assert compared.passed, (changed, compared)
        numbers = np.isfinite(rules.outcome(given, dtype, rounded=False).value)
        assert np.array_equal(np.isfinite(reference.to_double(y, dtype)), numbers)


POWERS = ([0, 1, 2, 7, 100, 127, 255, 0, 140], [255, 127, 128, 200, 250, 252, 240, 254, 90])


@pytest.mark.parametrize("codes", POWERS)
@pytest.mark.parametrize("suffix", ["v1", "v8"])
@pytest.mark.parametrize("name", ["mxfp4", "mxint4", "mxfp8_e4m3"])
def test_powers_from_the_first_to_the_last(name: str, suffix: str, codes: list[int]) -> None:
    compared_by_scale(name, suffix, codes=codes, power=-20 if 254 in codes else 10)


@pytest.mark.parametrize(("power", "tensor"), [(0, 1.3), (118, 2.0**-140), (110, 1.1e-30), (-100, 1.7e30),
                                               (-131, 1.9 * 2.0**120), (60, 0.7), (-20, -3e9),
                                               (-2, 2.0**-130)])  # fmt: skip
@pytest.mark.parametrize("suffix", ["v1", "v8"])
def test_a_level_of_the_tensor_waits(suffix: str, power: int, tensor: float) -> None:
    """Whatever it is, and x, and scales: the smallest, the largest, one that is no number."""
    codes = [0x01, 0x07, 0x08, 0x7E, 0x7F, 0x38, 0x81, 0xFE]
    compared_by_scale("nvfp4", suffix, codes=codes, power=power, tensor=tensor)


@pytest.mark.parametrize(("power", "tensor"), [(14, 2.0**-12), (-14, 1e3), (0, 1.3)])
def test_a_level_of_the_tensor_waits_in_the_other_type(power: int, tensor: float) -> None:
    codes = [0x01, 0x08, 0x58, 0x7F, 0xC0]
    compared_by_scale("nvfp4", "v1", codes=codes, power=power, tensor=tensor, dtype="f16")


@pytest.mark.parametrize(("name", "old", "new", "changed"), [
    ("mxfp4", "<< 23) + 0x7fffff)", "<< 23))", {"codes": POWERS[1], "power": -20}),
    ("mxfp4", "+ 0x7fffff)", "+ 0x400000)", {"codes": POWERS[0], "power": 10}),
    ("nvfp4", "power -= 64;", "", {"codes": [0x38], "power": 118, "tensor": 2.0**-140}),
    ("nvfp4", "Tile::rest ? power / 2 : 0", "0", {"codes": [0x7E], "power": -2, "tensor": 2.0**-130}),
])  # fmt: skip
def test_a_mistake_with_scales_is_found(name: str, old: str, new: str, changed: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        compared_by_scale(name, "v8", planted(old, new), **changed)


MISTAKES = {
    "rows 8 to 15 take the scales of rows 0 to 7": ("level(sides, tensor, g, j, 1)",
                                                    "level(sides, tensor, g, j, 0)"),
    "a slot is filled before it was read": ("load(unit);\n        read();", "read();\n        load(unit);"),
    "the parity stays": ("parity ^= 1;", "parity ^= 0;"),
    "a slot is not waited for": ("                ring.wait();\n", ""),
    "barriers lie in slots": ("Tile::barriers_at + warp * (", "warp * ("),
    "a row of tiles begins where the last one ended": ("share.units - share.count)", "share.units)"),
    "the last columns of x are not cleared": ("i < all && at < with.k &&", "i < all &&"),
    "the sum of x stays": ("weights.correct(sums, runs)", "(void)runs"),
    "sums of x are those of the run before": ("runs += Weight::runs;", ""),
    "words of x lie where others are looked for": ("to[(i + turn) % 4 * 4]", "to[i * 4]"),
    "products of another column's x are added": ("(lane & 3) == column / 2", "(lane & 3) == 3 - column / 2"),
    "a run's sum of x is taken away twice": ("mine ? totals[run_of(i.value)] : 0.0f",
                                             "totals[run_of(i.value)]"),
    "rows past m are stored": ("row < with.n && token < with.m", "row < with.n"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    fmt, dtype = made("int4_g128"), "bf16"
    sizes = tuple({"m": m, "n": 82, "k": 9480} for m in (1, 3, 1))

    def change(text: str) -> str:
        old, new = MISTAKES[mistake]
        assert old in text
        return text.replace(old, new)

    wrong = 0
    some = [entry(fmt.name, suffix, dtype) for suffix in ("v1_large", "v8", "v1_wide")]
    with built(some, sizes, change) as (program, instances):
        for (symbol, instance), size in zip(instances.items(), sizes):
            for order in ORDERS:
                try:
                    given = operands(fmt, size, dtype)
                    wrong += not outcome(program, instance, symbol, given, dtype, order, sms=1)[1].passed
                except ExecutionError:
                    wrong += 1
    assert wrong


def test_which_decoders_lack_their_power_of_two() -> None:
    """Floats of few bits in bf16, where that saves a multiplication; conversions and integers need none."""
    found = {
        (name, dtype): qgemv.decoder(made(name), dtype, TARGET)
        for name in FORMATS
        for dtype in ("f16", "bf16")
    }
    assert {key[0] for key, (_, lift) in found.items() if lift} == {
        "mxfp4",
        "nvfp4",
        "fp4",
        "mxfp6_e2m3",
        "mxfp6_e3m2",
    }
    assert not any(lift for key, (_, lift) in found.items() if key[1] == "f16")
    text = entry("mxfp4", "v1").preamble[0]
    assert "Type::mul2(" not in text[text.index("void values") : text.index("int at(")]


# ---- which shapes are taken


@pytest.mark.parametrize("name", MANIFEST.formats)
def test_few_aligned_rows_that_fit_are_taken_and_no_others(name: str) -> None:
    one, many = entry(name, "v1"), entry(name, "v8_long")
    sms = {"sms": 132, "n": 4096}
    assert [m for m in range(20) if suits(one, {**sms, "m": m, "k": 4096})] == [1]
    assert [m for m in range(20) if suits(many, {**sms, "m": m, "k": 4096})] == [*range(1, 9)]
    for instance in (one, many):
        assert not suits(instance, {**sms, "m": 1, "k": 4092})
        assert not suits(instance, {**sms, "m": 1, "k": 1 << 20})
        for m, k in ((1, 8), (1, 28672), (8, 4096), (8, 14336), (2, 57344)):
            size = {**sms, "m": m, "k": k}
            if suits(instance, size):
                assert evaluate(instance.shared, size) <= TARGET.shared_max


def test_larger_copies_are_for_large_matrices() -> None:
    def first(n: int, k: int) -> str:
        return next(i for i in entries("int4_g128") if suits(i, {"m": 1, "n": n, "k": k, "sms": 132})).suffix

    assert [first(14336, 4096), first(4096, 14336), first(28672, 8192)] == ["v1_wide", "v1", "v1_large"]
    for suffix in ("v1_wide", "v1_large"):
        assert all(i.suffix != suffix for name in ("int8", "nf4", "int6") for i in entries(name))


def test_small_matrices_have_small_blocks() -> None:
    def first(n: int, k: int, name: str = "int4_g128") -> str:
        return next(i for i in entries(name) if suits(i, {"m": 1, "n": n, "k": k, "sms": 132})).suffix

    assert [first(4096, 4096), first(4224, 4096), first(4240, 4096)] == ["v1_small", "v1_small", "v1"]
    assert [first(1024, 32768), first(1024, 32776)] == ["v1", "v1"]  # x leaves no room for four blocks
    assert {first(4096, 4096, name) for name in ("nf4", "int8", "mxfp4")} == {"v1_small"}


def test_several_rows_that_fit_twice_have_two_blocks() -> None:
    def first(m: int, k: int) -> str:
        size = {"m": m, "n": 4096, "k": k, "sms": 132}
        return next((i.suffix for i in entries("int4_g128") if suits(i, size)), "")

    assert [first(m, 4096) for m in (2, 8)] == ["v8", "v8"]
    assert [first(m, 14336) for m in (2, 4, 8)] == ["v8", "v8_long", ""]


def test_a_multiprocessor_has_as_many_blocks_as_fit() -> None:
    one = entry("int4_g128", "v1")

    def blocks(n: int, k: int) -> int:
        return evaluate(one.grid[0], {"m": 1, "n": n, "k": k, "sms": 132})

    assert blocks(14336, 4096) == blocks(28672, 8192) == 264
    assert blocks(28672, 57344) == 132
    assert blocks(33, 4096) == 3


def test_it_declares_what_it_needs() -> None:
    for name in MANIFEST.formats:
        for instance in entries(name, "f16"):
            assert instance.pdl
            assert instance.gate == "hmma"
            assert not instance.maps
            assert not instance.workspace
        assert len({i.suffix for i in qgemv.further(made(name), "f16", TARGET)}) <= 6


def test_a_format_without_room_for_its_rings_has_none() -> None:
    small = replace(TARGET, shared_max=60 << 10)
    assert [i.suffix for i in qgemv.instances(made("int4"), "f16", small)] == ["v1", "v8"]
    assert not [*qgemv.instances(made("int4"), "f16", replace(TARGET, shared_max=24 << 10))]
