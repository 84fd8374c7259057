"""GEMMs without a device: what variant takes what shape, what is refused, what texts say, the references."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wootz import checks
from wootz.formulas import compile_formula
from wootz.reference import compare, to_double

from gen.lower import cutlass, templates, warp_gemm
from gen.lower.cutlass import Collective, Instantiation, Matrix
from gen.manifest.target import Target
from gen.plan import cells as plan
from gen.variants.family import Instance, family
from gen.variants.tiles import allowed as allowed_points

MANIFEST = plan.load(Path(__file__).parents[2] / "kernels.yaml")
TARGETS = {t.name: t for t in MANIFEST.targets.values() if t.has("mma")}
DTYPES = {"gemm": ("f16", "bf16", "i8"), "gemm_fp8": ("e4m3",), "gemm_fp8_block": ("e4m3",)}

Cell = tuple[str, Target, str, dict[str, str]]


def cells() -> Iterator[Cell]:
    """Every kernel x target x dtype x options that is not refused."""
    for kernel, dtypes in DTYPES.items():
        declared = family(kernel)
        for target, dtype, out in itertools.product(TARGETS.values(), dtypes, declared.options["out"]):
            options = {"out": out}
            assert declared.accepts is not None
            if declared.needs <= target.features and not declared.accepts(None, dtype, target, options):
                yield kernel, target, dtype, options


CELLS = [pytest.param(c, id=f"{c[0]}-{c[1].name}-{c[2]}-{c[3]['out']}") for c in cells()]


def variants(cell: Cell) -> list[Instance]:
    kernel, target, dtype, options = cell
    found = list(family(kernel).variants(None, dtype, target, options))
    assert all(isinstance(v, Instance) for v in found)
    return found  # type: ignore[return-value]


def holds(variant: Instance, size: dict[str, int]) -> bool:
    names = {"sms": 132, "has_c": 0, "has_bias": 0, "alpha": 1, "beta": 0, "activation": 0, **size}
    names = {"rows_a": size["m"], "rows_b": size["n"], **names}
    return all(compile_formula(formula, names)(names) for formula in variant.when)


def sizes(count: int) -> Iterator[dict[str, int]]:
    rng = random.Random(5)
    steps = (1, 2, 4, 8, 16, 128)
    for _ in range(count):
        yield {axis: rng.randint(1, 40) * rng.choice(steps) for axis in ("m", "n", "k")}


# ------------------------------------------------------------ variants
@pytest.mark.parametrize("cell", CELLS)
def test_every_shape_has_a_variant_and_every_variant_a_shape(cell: Cell) -> None:
    found, used = variants(cell), set()
    large = {"m": 8192, "n": 8192, "k": 8192}
    for size in (*sizes(400), large, {"m": 8192, "n": 8191, "k": 8192}):
        fitting = [v.suffix for v in found if holds(v, size)]
        assert fitting, size
        used.add(fitting[0])
    assert used == {v.suffix for v in found}


@pytest.mark.parametrize("cell", CELLS)
def test_wide_loads_are_for_aligned_rows_only(cell: Cell) -> None:
    types = family(cell[0]).types
    assert types is not None
    out = types(cell[2], cell[3]).get("y", cell[2])
    for variant, size in itertools.product(variants(cell), sizes(200)):
        if holds(variant, size) and variant.suffix != "any":
            assert size["k"] * cutlass.BYTES[cell[2]] % 16 == 0
        if holds(variant, size) and variant.stub:
            assert size["n"] * cutlass.BYTES[out] % 16 == 0


@pytest.mark.parametrize("cell", CELLS)
def test_blocks_fit_their_target(cell: Cell) -> None:
    for variant in variants(cell):
        if not variant.stub:
            assert isinstance(variant.shared, int)
            assert 0 < variant.shared <= cell[1].shared_max
            assert variant.threads <= cell[1].max_threads
            assert re.search(rf"__launch_bounds__\({variant.threads}(, 1)?\)", variant.text)


def test_the_best_hardware_comes_first() -> None:
    first = variants(("gemm", TARGETS["sm_90a"], "bf16", {"out": "same"}))[0]
    assert first.stub
    assert holds(first, {"m": 8192, "n": 8192, "k": 8192})
    assert not any(v.stub for v in variants(("gemm", TARGETS["sm_80"], "bf16", {"out": "same"})))


@pytest.mark.parametrize("given", [{"has_c": 1}, {"has_bias": 1}, {"alpha": 2}, {"activation": 1}])
def test_integer_sums_leave_nothing_to_an_epilogue(given: dict[str, int]) -> None:
    size = {"m": 64, "n": 64, "k": 64}
    for target in ("sm_80", "sm_90a"):
        found = variants(("gemm", TARGETS[target], "i8", {"out": "same"}))
        assert any(holds(v, size) for v in found)
        assert not any(holds(v, {**size, **given}) for v in found)


# ------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("kernel", "dtype", "out", "says"),
    [
        ("gemm", "f32", "same", "take f16, bf16 and i8; got f32"),
        ("gemm", "e4m3", "same", "got e4m3"),
        ("gemm", "i8", "f32", "no f32 output"),
        ("gemm_fp8", "e5m2", "bf16", "got e5m2"),
        ("gemm_fp8_block", "bf16", "bf16", "got bf16"),
    ],
)
def test_refusals_say_why(kernel: str, dtype: str, out: str, says: str) -> None:
    accepts = family(kernel).accepts
    assert accepts is not None
    assert says in (accepts(None, dtype, TARGETS["sm_90a"], {"out": out}) or "")


def test_integers_need_their_feature() -> None:
    accepts = family("gemm").accepts
    without = Target("old", "cuda", features=frozenset({"mma", "cp_async"}))
    assert accepts is not None
    assert "'mma_s8', which target old" in (accepts(None, "i8", without, {"out": "same"}) or "")


def test_types_are_those_of_the_output() -> None:
    dense, scaled = family("gemm").types, family("gemm_fp8").types
    assert dense is not None
    assert scaled is not None
    assert dense("bf16", {"out": "same"}) == {}
    assert dense("bf16", {"out": "f32"}) == {"c": "f32", "y": "f32"}
    assert dense("i8", {"out": "same"}) == {"c": "i32", "y": "i32"}
    assert scaled("e4m3", {"out": "f16"}) == {"y": "f16"}


# ------------------------------------------------------------ texts
BF, F = Matrix("bf16", 8), Matrix("f32", 4)
CONFIG = Collective(90, BF, Matrix("bf16", 8, "Column"), F, F, (128, 64, 32), (2, 1, 1))
EXAMPLE = Instantiation(CONFIG, ("gemm_dense.cuh",), "Dense", (4, "Four"))


def test_kernel_and_stub_name_the_same_types() -> None:
    types = cutlass.types_text(EXAMPLE)
    assert cutlass.device_text(EXAMPLE).startswith(types)
    assert types in cutlass.stub_text(EXAMPLE)
    assert "Operand<cutlass::bfloat16_t, Column, 8>" in types
    assert "cute::Shape<cute::Int<128>, cute::Int<64>, cute::Int<32>>" in types
    assert "WOOTZ_GENERATION(90)" in types
    assert "using Host = Dense<Gemm, 4, Four>;" in cutlass.stub_text(EXAMPLE)


def test_a_stub_begins_with_what_has_to_come_before_the_library() -> None:
    text = templates.inline((), [cutlass.stub_text(EXAMPLE)])
    marks = (
        "cutlass/arch/wmma.h",
        "__CUDACC_VER_MAJOR__ WOOTZ",
        "cuTensorMapEncodeTiled wootz::",
        "cute/tensor",
    )
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


@pytest.mark.parametrize("cell", CELLS)
def test_texts_name_their_symbol_and_their_headers_exist(cell: Cell) -> None:
    for variant in variants(cell):
        assert "$SYMBOL" in variant.text
        assert templates.inline(variant.templates, [variant.text])
        words = set(variant.stub.replace("(", " ").split())
        assert not variant.stub or {"$SYMBOL_query", "$SYMBOL_fill"} <= words


@pytest.mark.parametrize("cell", CELLS)
def test_parameters_are_the_arguments(cell: Cell) -> None:
    """A warp-level kernel's parameters, by name and order."""
    for variant in variants(cell):
        if not variant.stub and not variant.maps:
            declared = variant.text[variant.text.index("$SYMBOL(") + 8 :].partition(")")[0].split(", ")
            assert [d.split()[-1] for d in declared] == [a.name for a in variant.args]
            assert ["*" in d for d in declared] == [a.type == "ptr" for a in variant.args]
            assert ["const" in d for d in declared] == [a.role == "in" for a in variant.args]


def test_tiles_leave_no_thread_without_work() -> None:
    for tile in (warp_gemm.FEW_ROWS, warp_gemm.SMALL, warp_gemm.MEDIUM, warp_gemm.LOW, warp_gemm.LARGE):
        pieces = tile.depth // 16
        assert tile.rows * pieces % tile.threads == tile.columns * pieces % tile.threads == 0
        assert 16 * tile.warps[0] * (tile.columns + 8) * 4 <= tile.shared


def test_tiles_are_points_of_the_lattice() -> None:
    names = ("warps m", "warps n", "tiles m", "tiles n", "depth", "stages")
    for target in TARGETS.values():
        allowed = [c.point for c in allowed_points(warp_gemm.lattice(), target)]
        for _, tile, _ in (*warp_gemm.choice(target, "bf16"), *warp_gemm.choice(target, "e4m3")):
            assert dict(zip(names, (*tile.warps, *tile.tiles, tile.depth, tile.stages))) in allowed


# ------------------------------------------------------------ references
def given(kernel: str, dtype: str, out: str, size: dict[str, int], seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return checks.check(kernel).operands(None, size, dtype, {"out": out}, rng)


def naive(kernel: str, operands: dict[str, Any], dtype: str) -> np.ndarray:
    """Element by element, in Python's floats."""
    a, b = to_double(operands["a"], dtype), to_double(operands["b"], dtype)
    left, right = (operands.get(f"scale_{x}") for x in "ab")
    y = np.zeros((a.shape[0], b.shape[0]))
    for i, j in np.ndindex(*y.shape):
        for x in range(a.shape[1]):
            scale = 1.0
            if kernel == "gemm_fp8_block":
                scale = float(left[x // 128, i]) * float(right[j // 128, x // 128])
            y[i, j] += a[i, x] * b[j, x] * scale
        if kernel == "gemm_fp8":
            y[i, j] *= float(left[i % len(left)]) * float(right[j % len(right)])
    return y


@pytest.mark.parametrize(
    ("kernel", "dtype"), [("gemm", "i8"), ("gemm_fp8", "e4m3"), ("gemm_fp8_block", "e4m3")]
)
def test_references_are_the_formula(kernel: str, dtype: str) -> None:
    size = {"m": 3, "n": 131, "k": 140, "rows_a": 3, "rows_b": 1}
    operands = given(kernel, dtype, "bf16", size)
    expected = checks.expect(kernel, {"out": "bf16"}, operands, dtype)
    assert np.allclose(expected.value, naive(kernel, operands, dtype), rtol=1e-12)


@pytest.mark.parametrize("name", ["none", "relu", "silu", "gelu"])
def test_the_epilogue_is_the_formula(name: str) -> None:
    rng = np.random.default_rng(2)
    a, b, c = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 11), (9, 11), (2, 9)))
    operands = {"a": a, "b": b, "c": c, "bias": c[0], "alpha": 0.5, "beta": -2.0, "activation": name}
    expected = checks.expect("gemm", {"out": "same"}, operands, "f16")
    act = {
        "none": lambda x: x,
        "relu": lambda x: max(x, 0.0),
        "silu": lambda x: x / (1 + math.exp(-x)),
        "gelu": lambda x: x / 2 * (1 + math.erf(x / math.sqrt(2))),
    }[name]
    for i, j in np.ndindex(2, 9):
        products = a[i].astype(float) * b[j].astype(float)
        wanted = act(0.5 * products.sum() - 2.0 * float(c[i, j]) + float(c[0, j]))
        assert math.isclose(expected.value[i, j], wanted, rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.parametrize("kernel", DTYPES)
@pytest.mark.parametrize("swap", ["rows of a", "rows of b", "columns of a", "scales"])
def test_a_block_in_another_ones_place_shows(kernel: str, swap: str) -> None:
    dtype, out = DTYPES[kernel][0], "f32"
    size = {"m": 32, "n": 256, "k": 256, "rows_a": 32, "rows_b": 256}
    operands = given(kernel, dtype, out, size)
    right = checks.expect(kernel, {"out": out}, operands, dtype)
    wrong = {name: np.copy(v) if isinstance(v, np.ndarray) else v for name, v in operands.items()}
    if swap == "scales" and kernel != "gemm":
        wrong["scale_a"] = np.roll(wrong["scale_a"], 8, axis=-1)
    elif swap == "rows of b":
        wrong["b"] = np.roll(wrong["b"], 8, axis=0)
    else:
        wrong["a"] = np.roll(wrong["a"], 8, axis=1 if swap == "columns of a" else 0)
    other = checks.expect(kernel, {"out": out}, wrong, dtype)
    assert not compare(other.value.astype(np.float32), right, out).passed
    assert compare(right.value.astype(np.float32), right, out).passed


def test_codes_are_near_and_never_nan() -> None:
    fp8 = checks.check("gemm_fp8")
    codes = fp8.codes((64, 96), "e4m3", np.random.default_rng(3))  # type: ignore[attr-defined]
    assert len(np.unique(codes)) > 120
    assert np.isfinite(to_double(codes, "e4m3")).all()
