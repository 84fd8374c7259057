"""qmm_packed and its grouped forms on warpgroup MMA (cutlass/qmm_sm90.cuh, grouped_sm90.cuh): each tile's
emitted text, run on the CPU with twins of copies, barriers and products, against the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inputs import arguments, planted
from lanes import ORDERS, Arg, Entry, ExecutionError, Program, evaluate, poisoned
from tensor_maps import arguments_of, from_arrays
from wootz import checks, reference
from wootz.formats import Descriptor
from wootz.formats.packed import prepack, unpack
from wootz.formats.sample import random_tensor

from gen.build import index
from gen.kernels import _grouped_sm90 as grouped
from gen.kernels import _groups as groups
from gen.kernels import _qmm_sm90 as qmm
from gen.kernels._grouped import variants as all_of_groups
from gen.lower import templates
from gen.plan import cells as plan
from gen.variants.family import Instance

HERE = Path(__file__).resolve().parent
MANIFEST = plan.load(HERE.parents[1] / "kernels.yaml")
TARGET = MANIFEST.targets["sm_90a"]
TWINS = "".join((HERE / "twins" / name).read_text() for name in ("sm90.h", "warpgroup.h"))
MODES = {"grouped_qmm": groups.VARIABLE, "grouped_qmm_indexed": groups.INDEXED}
Change = Callable[[str], str]


def tile(kernel: str, fmt: str, suffix: str, dtype: str = "bf16") -> Instance:
    made = MANIFEST.formats[fmt]
    if kernel == "qmm_packed":
        some = qmm.instances(made, dtype, TARGET)
    else:
        some = all_of_groups(MODES[kernel], kernel, made, dtype, TARGET)
    return next(i for i in some if i.suffix == suffix)


# ---- the text, with maps made in the kernel, as the loader makes them


def text_of(some: dict[str, Instance]) -> str:
    parts = [p for i in some.values() for p in i.preamble if "warpgroup::Wgmma<" not in p]
    for symbol, instance in some.items():
        parts.append(from_arrays(instance, instance.text.replace(templates.SYMBOL, symbol)))
    headers = dict.fromkeys(header for i in some.values() for header in i.templates)
    text = TWINS + templates.inline(headers, dict.fromkeys(parts))
    most = max(evaluate(i.shared, {}) for i in some.values())
    return text.replace("extern __shared__ uint8_t unaligned[]", f"__shared__ uint8_t unaligned[{most}]")


def entry_of(instance: Instance, symbol: str) -> Entry:
    roles = {"workspace": "out"}
    args = [Arg(a.name, a.type, roles.get(a.role, a.role)) for a in arguments_of(instance)]
    return Entry(symbol, tuple(args), (instance.threads, 1, 1), instance.grid)


def fitting(given: dict[str, Any]) -> dict[str, Any]:
    """The groups that lie in x; others are taken as empty."""
    if "counts" not in given:
        return {}
    counts, offsets = given["counts"], given["offsets"]
    return {"counts": counts * ((offsets >= 0) & (offsets + counts <= len(given["x"])))}


@contextmanager
def built(some: list[Instance], change: Change = lambda text: text) -> Iterator[Any]:
    named = {f"{i.suffix}_{at}": i for at, i in enumerate(some)}
    entries = [entry_of(i, symbol) for symbol, i in named.items()]
    with Program.build(change(text_of(named)), "cuda", entries) as program:
        yield program, named


def outcome(
    program: Program, kernel: str, symbol: str, instance: Instance, given: dict[str, Any], order: int,
    sms: int, dtype: str = "bf16",
) -> tuple[Any, reference.Comparison]:  # fmt: skip
    """The bits of y, and how they compare; rows in no group are left as they were. Of the workspace, the
    counters are zero again."""
    x, w = given["x"], given["w"]
    size = {"n": w.shape[-2], "k": w.shape[-1], "sms": sms}
    size |= {"experts": w.shape[0]} if kernel != "qmm_packed" else {}
    size |= dict(zip(("groups", "rows") if x.ndim == 3 else ("m",), x.shape))
    expected = checks.expect(kernel, {}, given | fitting(given), dtype)
    blank = poisoned(expected.value.shape, reference.DTYPES[dtype][2])
    space = np.zeros(max(evaluate(instance.workspace, size), 16), np.uint8)
    values = arguments(given, size, ("y", blank), ("workspace", space))
    found = program.run(entry_of(instance, symbol), values, order, 60)
    assert not instance.workspace or not found["workspace", "out"][: 8 * sms].any()
    return found["y", "out"], reference.compare(found["y", "out"], expected, dtype)


# ---- operands


def operands(kernel: str, fmt: str, dtype: str = "bf16", **size: int) -> dict[str, Any]:
    rng = np.random.default_rng([*size.values(), *fmt.encode()])
    descriptor = Descriptor.parse(index.format_record(MANIFEST.formats[fmt]))
    return checks.check(kernel).operands(descriptor, size, dtype, {}, rng)


def ragged(fmt: str, counts: list[int], n: int, k: int, dtype: str = "bf16", gap: int = 0) -> dict[str, Any]:
    """Groups of these rows one after the other, `gap` rows between them, the last one first."""
    order = [len(counts) - 1, *range(len(counts) - 1)]
    offsets, at = [0] * len(counts), 0
    for g in order:
        offsets[g], at = at, at + counts[g] + gap
    given = operands("grouped_qmm", fmt, dtype, m=at, experts=len(counts), n=n, k=k)
    return given | {"counts": np.array(counts, np.int32), "offsets": np.array(offsets, np.int32)}


def check(kernel: str, instance: Instance, *given: dict[str, Any], dtype: str = "bf16") -> None:
    """All in each order, on 1 to 5 blocks, and the same bits for each number of blocks."""
    with built([instance]) as (program, named):
        what = next(iter(named.items()))
        for each in given:
            for sms in (1, 5):
                bits = set()
                for order in ORDERS[:: 1 if sms > 1 else 2]:
                    y, compared = outcome(program, kernel, *what, each, order, sms, dtype)
                    assert compared.passed, (instance.suffix, sms, order, compared)
                    bits.add(y.tobytes())
                assert len(bits) == 1


@pytest.mark.parametrize("columns", qmm.COLUMNS)
def test_each_tile_of_one_matrix(columns: int) -> None:
    given = operands("qmm_packed", "mxfp4", m=columns + 9, n=133, k=1032)
    check("qmm_packed", tile("qmm_packed", "mxfp4", f"n{columns}"), given)


SCALES = {
    ("mxfp4", "bf16"): [-127, -60, 0, 1, 40],
    ("mxint4", "bf16"): [-127, -126, 0, 90],
    ("fp4", "bf16"): [-140, -60, 0, 1, 2, 80],
    ("nvfp8_f16", "bf16"): [-20, 0, 15],
    ("int2", "bf16"): [-117, 0, 3, 60, 126],
    ("int3_f16", "bf16"): [-14, 0, 2, 3, 15],
    ("int4", "bf16"): [-117, -60, 1, 3, 120],
    ("int5", "bf16"): [-117, 0, 3, 60, 120],
    ("int6", "bf16"): [-117, 2, 121],
    ("affine4", "bf16"): [-14, 0, 2, 3, 15],
    ("int4", "f16"): [-24, -14, -13, 0, 6],
    ("int6", "f16"): [-18, -16, -14, 0],
    ("fp4_f16", "f16"): [-24, -8, 0, 1, 2],
    ("fp8_e4m3", "f16"): [-20, -17, -15, 0, 6],
    ("fp8_e5m2", "f16"): [-26, -20, -15, -2, -1],
}
"""Powers of two, of 16 rows each, some of them far. (Of five, rows g and g + 8 have unlike ones.)"""


def scaled(fmt: str, dtype: str, m: int, k: int, powers: list[int], each: int = 16) -> dict[str, Any]:
    """Operands with these scales, a quarter or so more or less, of `each` rows in turn."""
    descriptor, rng = Descriptor.parse(index.format_record(MANIFEST.formats[fmt])), np.random.default_rng(k)
    w = random_tensor(descriptor, (each * len(powers), k), rng)
    element, scale = descriptor.scales[0].element, w.fields["scale"]
    rows = 2.0 ** np.repeat(np.array(powers, float), each)[:, None]
    near = 1.0 if element.kind == "exponent" else rng.uniform(0.75, 1.25, scale.shape)
    scale[:] = element.encode(np.broadcast_to(rows * near, scale.shape))
    x = reference.round_to(rng.standard_normal((m, k)) / 64, dtype)
    return {"x": x, "w": prepack(w)}


def compared_by_scale(
    fmt: str, dtype: str, columns: int, change: Change = lambda text: text, each: int = 16, turns: int = 1
) -> None:
    """Rows of a scale by themselves: beside large ones small ones would not be seen. each: so many have the
    same; turns: that all scales have."""
    powers = SCALES[fmt, dtype] * turns
    given = scaled(fmt, dtype, 9, 520, powers, each)
    some = tile("qmm_packed", fmt, f"n{columns}", dtype)
    expected = checks.expect("qmm_packed", {}, given, dtype)
    with built([some], change) as (program, named):
        y, _ = outcome(program, "qmm_packed", *next(iter(named.items())), given, 0, 5, dtype)
    for i, power in enumerate(powers):
        rows = slice(each * i, each * i + each)
        part = reference.Expected(expected.value[:, rows], expected.bound[:, rows])
        assert reference.compare(np.ascontiguousarray(y[:, rows]), part, dtype).passed, (i, power)
        if power < -30 and dtype == "bf16":
            assert np.any(part.value != 0)


@pytest.mark.parametrize(("fmt", "dtype"), SCALES)
@pytest.mark.parametrize("columns", [16, 256])
def test_scales_of_any_size(fmt: str, dtype: str, columns: int) -> None:
    compared_by_scale(fmt, dtype, columns)


@pytest.mark.parametrize(("fmt", "dtype"), SCALES)
def test_neighbours_of_any_scale(fmt: str, dtype: str) -> None:
    """Rows that a warp decodes together."""
    compared_by_scale(fmt, dtype, 16, each=1, turns=5)


@pytest.mark.parametrize(
    ("fmt", "dtype", "old", "new"),
    [
        ("fp4", "bf16", "Weight::far > 0 ? is_far(largest)", "Weight::far > 0 ? false"),
        ("int4", "bf16", "Weight::far > 0 ? is_far(largest)", "Weight::far > 0 ? false"),
        ("mxfp4", "bf16", "return codes & tops", "return 0"),
        ("mxint4", "bf16", "(codes - ones) & ~codes", "0"),
        ("mxfp4", "bf16", "if constexpr (Weight::exponent != 0) multiply(lift);", ""),
        ("fp4_f16", "f16", "if (of.some_far) multiply(lift);", ";"),
        ("int6", "f16", "size < bound &&", "false &&"),
        ("int4", "bf16", "? Type::mul2(Weight::offset, of.rest) :", "? Weight::offset :"),
        ("int5", "bf16", "if constexpr (smaller != 0)", "if constexpr (false)"),
        ("int4", "bf16", "sums[i] *= power_of_2(Weight::less)", ""),
    ],
)
def test_a_mistake_with_scales_is_found(fmt: str, dtype: str, old: str, new: str) -> None:
    with pytest.raises(AssertionError):
        compared_by_scale(fmt, dtype, 16, planted(old, new))


@pytest.mark.parametrize(
    ("fmt", "old", "new"),
    [
        ("fp4_f16", "max(most, finite_bits(level))", "most"),
        ("fp4_f16", "-normal - size", "-normal + 9 - size"),
        ("fp8_e4m3", "which >> at & 1 ? normal", "which >> at & 1 ? normal + 1"),
        ("fp8_e4m3", "which >> at & 1 ? normal", "which ? normal"),
        ("fp8_e4m3", "bits & 2 ? factor", "bits & 1 ? factor"),
    ],
)
def test_a_mistake_with_neighbours_is_found(fmt: str, old: str, new: str) -> None:
    with pytest.raises(AssertionError):
        compared_by_scale(fmt, "f16", 16, planted(old, new), each=1, turns=5)


def test_a_scale_that_is_no_number() -> None:
    """E8M0's NaN makes its rows NaN, and no others."""
    given = scaled("mxfp4", "bf16", 3, 264, [0, 0])
    q = unpack(given["w"])
    q.fields["scale"][5, 3] = 255
    with built([tile("qmm_packed", "mxfp4", "n16")]) as (program, named):
        what = next(iter(named.items()))
        y, _ = outcome(program, "qmm_packed", *what, {**given, "w": prepack(q)}, 0, 2)
    found = reference.to_double(y, "bf16")
    assert np.isnan(found[:, 5]).all()
    assert np.isfinite(np.delete(found, 5, axis=1)).all()


@pytest.mark.parametrize("fmt", ["fp4_f16", "fp4"])
def test_an_infinite_scale_beside_small_ones(fmt: str) -> None:
    """Its row has no numbers; rows that are decoded with it are as they would be without."""
    given = scaled(fmt, "f16", 3, 264, [-12] * 16, 1)
    expected = checks.expect("qmm_packed", {}, given, "f16")
    q = unpack(given["w"])
    q.fields["scale"][5, 3] = np.inf
    with built([tile("qmm_packed", fmt, "n16", "f16")]) as (program, named):
        what = next(iter(named.items()))
        y, _ = outcome(program, "qmm_packed", *what, {**given, "w": prepack(q)}, 0, 2, "f16")
    assert not np.isfinite(reference.to_double(y[:, 5], "f16")).any()
    others = reference.Expected(*(np.delete(part, 5, axis=1) for part in (expected.value, expected.bound)))
    assert reference.compare(np.delete(y, 5, axis=1), others, "f16").passed


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("columns", [16, 64])
@pytest.mark.parametrize("name", ["uint4_z", "nf4", "affine4"])
def test_zero_points_and_tables(name: str, dtype: str, columns: int) -> None:
    given = operands("qmm_packed", name, dtype, m=columns, n=70, k=1032)
    check("qmm_packed", tile("qmm_packed", name, f"n{columns}", dtype), given, dtype=dtype)


@pytest.mark.parametrize(
    ("name", "dtype", "old", "new"),
    [
        ("uint4_z", "bf16", "zero_bits(sides, g, run, 1)", "zero_bits(sides, g, run, 0)"),
        ("affine4", "bf16", "sides, levels[1], g, run, 1)", "sides, levels[1], g, run, 0)"),
        ("affine4", "bf16", "added.addend.template pair<run>()", "added.addend.template pair<run ^ 1>()"),
        ("affine4", "f16", "in_type.addend.template pair<run>()", "in_type.addend.template pair<run ^ 1>()"),
    ],
)
def test_a_mistake_with_zero_points_is_found(name: str, dtype: str, old: str, new: str) -> None:
    given = operands("qmm_packed", name, dtype, m=9, n=70, k=520)
    with built([tile("qmm_packed", name, "n16", dtype)], planted(old, new)) as (program, named):
        _, compared = outcome(program, "qmm_packed", *next(iter(named.items())), given, 0, 2, dtype)
    assert not compared.passed


def product_of_ones(change: Change = lambda text: text) -> float:
    """The worst error of rows whose weights are small beside their scales and zero points, x all ones, where
    errors of these would add up; in the scale's last place of bf16."""
    given = scaled("affine4", "bf16", 1, 520, [-4] * 8, 1)
    q = unpack(given["w"])
    scale = q.fields["scale"].astype(np.float64)
    q.fields["zero"][:] = -7.4 * scale
    given = {"x": reference.round_to(np.ones((1, 520)), "bf16"), "w": prepack(q)}
    expected = checks.expect("qmm_packed", {}, given, "bf16")
    with built([tile("qmm_packed", "affine4", "n16")], change) as (program, named):
        y, _ = outcome(program, "qmm_packed", *next(iter(named.items())), given, 0, 2)
    error = np.abs(reference.to_double(y, "bf16") - expected.value) - np.abs(expected.value) * 2.0**-8
    return float(error.max() / (520 * 2.0**-4 * 2.0**-8))


def test_errors_of_scales_and_zero_points_do_not_add_up() -> None:
    assert product_of_ones() < 0.25


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scaled<pair>(code, factor_rest", "scaled<pair>(0, factor_rest"),
        ("less(low, high", "0 * less(low, high"),
        ("less(levels[0] * power", "0 * less(levels[0] * power"),
    ],
)
def test_errors_of_scales_that_add_up_are_found(old: str, new: str) -> None:
    assert product_of_ones(planted(old, new)) > 0.5


@pytest.mark.parametrize("columns", qmm.COLUMNS)
def test_each_tile_of_groups(columns: int) -> None:
    """Of less than a part, of several, of a whole tile and more; none of one in the middle; rows between."""
    narrower = grouped.NARROWER.get(columns, (8,))
    counts = [1, narrower[0], columns + 3, 0, columns, *(width + 1 for width in narrower)]
    given = ragged("mxfp4", counts, 133, 1032, gap=2)
    check("grouped_qmm", tile("grouped_qmm", "mxfp4", f"n{columns}"), given)


@pytest.mark.parametrize("name", ["nvfp4", "uint4_z", "fp8_e4m3_b128", "int8"])
def test_formats_of_groups(name: str) -> None:
    """A level for each matrix, zero points, blocks of rows, 8 bits; every group's tiles on several blocks."""
    given = ragged(name, [5, 0, 37, 9], 40, 1032, "f16")
    check("grouped_qmm", tile("grouped_qmm", name, "n32", "f16"), given, dtype="f16")


def test_levels_of_a_wide_tile() -> None:
    check("grouped_qmm", tile("grouped_qmm", "nvfp4", "n256"), ragged("nvfp4", [130, 20], 33, 264))


@pytest.mark.parametrize(("suffix", "rows"), [("n16", 3), ("n64", 40)])
def test_groups_that_share_matrices(suffix: str, rows: int) -> None:
    given = operands("grouped_qmm_indexed", "int4_g128", groups=6, rows=rows, experts=3, n=133, k=520)
    given["indices"] = np.array([2, 0, 2, 3, -1, 2], np.int32)
    check("grouped_qmm_indexed", tile("grouped_qmm_indexed", "int4_g128", suffix), given)


def test_more_groups_than_threads() -> None:
    """And nearly all empty: some that do not lie in x, all rows in the last one, no rows at all."""
    experts = 500
    given = operands("grouped_qmm", "mxfp4", m=40, experts=experts, n=20, k=264)
    counts, offsets = np.zeros(experts, np.int32), np.zeros(experts, np.int32)
    counts[[3, 70, 400, 499]], offsets[[3, 70, 400, 499]] = [-5, 41, 8, 30], [0, 0, 33, 2]
    some = [{"counts": counts, "offsets": offsets}, {"counts": counts * 0, "offsets": offsets}]
    check("grouped_qmm", tile("grouped_qmm", "mxfp4", "n128"), *({**given, **each} for each in some))


@pytest.mark.parametrize(("suffix", "k"), [("few", 264), ("many", 264), ("odd", 261)])
def test_what_warpgroups_do_not_take(suffix: str, k: int) -> None:
    for kernel, size in (
        ("grouped_qmm", {"m": 90, "experts": 3}),
        ("grouped_qmm_indexed", {"groups": 4, "rows": 19, "experts": 2}),
    ):
        given = operands(kernel, "mxfp4", **size, n=33, k=k)
        check(kernel, tile(kernel, "mxfp4", suffix), given)


MISTAKES = {
    "rows of the next group are stored": ("t >= place.end || ", ""),
    "tiles of groups before are counted": ("tile - (low ? list[low - 1].end : 0)", "tile"),
    "a tile that ends a group is the next group's": ("end > tile", "end > tile + 1"),
    "groups before those of the warp are forgotten": ("before += sums[chunk]", "before += 0"),
    "all weights are of the first matrix": ("(place.matrix) * row_tiles", "(0) * row_tiles"),
    "all levels are of the first matrix": ("load_levels(place.matrix)", "load_levels(0)"),
    "a part is left out": ("left <= Narrower", "left < Narrower + 9"),
    "parts of a tile lie one after the other": ("i * Shape::columns + t", "i * tokens + t"),
    "registers change before their product": ("wgmma_wait<1>();", ""),
    "a slot is not given back": ("barrier_arrive(base + Plan::x_empty", "void(base + Plan::x_empty"),
    "the parity stays": ("parity ^= 1;", "parity ^= 0;"),
    "the first part of a tile is enough": ("if (whole && !work.whole())", "if (false)"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    old, new = MISTAKES[mistake]

    given = ragged("nvfp4", [*[0] * 31, 1, 70, *[0] * 5, 34], 133, 1032)
    with built([tile("grouped_qmm", "nvfp4", "n128")], planted(old, new)) as (program, named):
        try:
            _, compared = outcome(program, "grouped_qmm", *next(iter(named.items())), given, 0, 4)
        except (ExecutionError, AssertionError):
            return
        assert not compared.passed
