"""Plans of kernels with scalars, optional operands, workspaces, tensors in other layouts and results that are
tensors, on the CPU."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wootz
from wootz.errors import ArgumentError, FormatError

from tests.null import loader_tools as tools
from tests.null import test_loader_calls as cells
from tests.null.format_cases import E4M3, E8M0, format_of

WIDE = format_of(E4M3, (1, 32), (E8M0, "floor"), name="wide")


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    made = tools.Folder(tmp_path_factory.mktemp("kinds") / "a")
    made.kernels = [cells.SCALE, cells.COUNT, cells.SUM, cells.TILE, cells.MIXED]
    files = [made.file("cpu/calls.so", cells.image(tmp_path_factory.mktemp("source")), "baseline")]
    made.cell("scale", "-", "i8", "cpu", files, entries=[cells.SCALE_ENTRY])
    made.cell("count", "-", "u8", "cpu", files, entries=[cells.COUNT_ENTRY])
    made.cell("sum", "toy", "f16", "cpu", files, entries=[cells.SUM_ENTRY])
    made.cell("tile", "tiled", "f16", "cpu", files, entries=[cells.TILE_ENTRY])
    for of in ("same", "e4m3"):
        options = {"of": of}
        made.cell(f"mixed.{of}", "tiled", "f16", "cpu", files, entries=[cells.MIXED_ENTRY], options=options)
    return cells.write(made, cells.PACKED, cells.TILED, WIDE)


def fast_only(plan: wootz.Plan) -> wootz.Plan:
    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("this call went the careful way")

    plan._careful = fail  # type: ignore[method-assign]
    return plan


def test_scalars_and_optional_operands(lib: wootz.Library) -> None:
    x, scale, bias = cells.inputs()
    extents = {"device": "cpu", "dtype": "i8", "m": 3, "k": 10}
    with_bias = lib.plan("scale", **extents, alpha=-0.25, mode="even", bias=True)
    y = fast_only(with_bias)(x, scale, bias)
    np.testing.assert_allclose(y, cells.wanted(x, scale, bias, -0.25, 2), rtol=1e-6)
    np.testing.assert_allclose(with_bias(x, scale=scale, bias=bias), y)
    plain = lib.plan("scale", **extents)
    np.testing.assert_allclose(fast_only(plain)(x, scale, None), cells.wanted(x, scale), rtol=1e-6)
    assert with_bias.describe()["scalars"] == {"alpha": -0.25, "mode": 2, "seed": 0}
    careful = lib.plan("scale", **extents)
    with pytest.raises(ArgumentError, match=r"bias is given; the plan was made without it"):
        careful(x, scale, bias)
    with pytest.raises(ArgumentError, match=r"alpha is 2.0; the plan was made for alpha=1.0"):
        careful(x, scale, alpha=2)
    with pytest.raises(ArgumentError, match=r"scale has shape \[3, 4\]; want \[m, ceildiv\(k, 4\)\]"):
        careful(x, np.ones((3, 4), np.float32))
    with pytest.raises(ArgumentError, match="alpha is 'much'; want a number"):
        lib.plan("scale", **extents, alpha="much")


def test_a_plan_of_not_a_number(lib: wootz.Library) -> None:
    x, scale, _ = cells.inputs()
    plan = lib.plan("scale", device="cpu", dtype="i8", m=3, k=10, alpha=float("nan"))
    assert np.isnan(plan(x, scale)).all()
    assert np.isnan(plan._careful(x, scale, alpha=float("nan"))).all()


def test_a_workspace_is_the_plans_own(lib: wootz.Library) -> None:
    """The kernel counts its calls in the workspace, which only its maker zeroes."""
    x = np.zeros(40, np.uint8)
    plan = lib.plan("count", device="cpu", dtype="u8", n=40)
    assert plan.workspace_bytes == 160
    bound = plan.bind(x)
    assert [int(plan(x)[0]) for _ in range(2)] == [1, 2]
    assert int(bound()[0]) == 3
    assert int(plan._careful(x)[0]) == 4, "both ways launch the same"
    assert int(lib.plan("count", device="cpu", dtype="u8", n=40)(x)[0]) == 1


def test_packed_operands(lib: wootz.Library) -> None:
    _, w = cells.packed(lib)
    n, k = w.shape
    plan = fast_only(lib.plan("sum", format="toy", device="cpu", dtype="f16", n=n, k=k))
    assert plan(w) == lib.kernel("sum", format="toy", dtype="f16")(w)
    with pytest.raises(AssertionError, match="careful"):
        plan(cells.Loose(w))


def test_fields_that_nobody_holds_are_not_read_the_fast_way(lib: wootz.Library) -> None:
    _, w = cells.packed(lib)

    class Made(dict):  # type: ignore[type-arg]
        def __getitem__(self, name: str) -> Any:
            return super().__getitem__(name).copy()

    loose = copy.copy(w)
    object.__setattr__(loose, "fields", Made(w.fields))
    plan = fast_only(lib.plan("sum", format="toy", device="cpu", dtype="f16", n=w.shape[0], k=w.shape[1]))
    with pytest.raises(AssertionError, match="careful"):
        plan(loose)


def test_results_that_are_tensors(lib: wootz.Library) -> None:
    plan = lib.plan("tile", format="tiled", dtype="f16", device="cpu", m=4, k=100, scale1=True)
    x, scale1 = np.zeros((4, 100), np.float16), np.full((1, 1), 0.5, np.float32)
    y = plan(x, scale1)
    assert isinstance(y, wootz.TiledTensor)
    assert y.fields["scale1"] is scale1
    y.fields["tiles"].fill(0)
    fast_only(plan)
    assert plan(x, scale1, out=y) is y
    assert (y.fields["tiles"] == 4).all()
    other = np.full((1, 1), 0.25, np.float32)
    with pytest.raises(AssertionError, match="careful"):
        plan(x, other, out=y)
    careful = lib.plan("tile", format="tiled", dtype="f16", device="cpu", m=4, k=100, scale1=True)
    careful(x, other, out=y)
    assert scale1[0, 0] == 0.25, "an output takes over what is handed on"
    with pytest.raises(ArgumentError, match="scale1 is missing"):
        lib.plan("tile", format="tiled", dtype="f16", device="cpu", m=4, k=100)
    with pytest.raises(ArgumentError, match="scale1 is not given; the plan was made with it"):
        careful(x)


def test_a_format_of_an_operands_own(lib: wootz.Library) -> None:
    w = wootz.tile(wootz.quantize(tools.random(4, 64), lib.format("tiled")))
    x = wootz.tile(wootz.quantize(tools.random(2, 64), lib.format("wide")))
    asked: dict[str, Any] = {"format": "tiled", "dtype": "f16", "device": "cpu", "m": 2, "n": 4, "k": 64}
    mixed = lib.plan("mixed", of="e4m3", x="wide", **asked)
    assert fast_only(mixed)(x, w) == lib.kernel("mixed", format="tiled", dtype="f16", of="e4m3")(x, w)
    with pytest.raises(ArgumentError, match=r"the plan needs x= of mixed.*the name of that tensor's format"):
        lib.plan("mixed", of="e4m3", **asked)
    with pytest.raises(FormatError, match="x has format tiled with elements e2m1; the kernel takes e4m3"):
        lib.plan("mixed", of="e4m3", x="tiled", **asked)
    with pytest.raises(FormatError, match="x has format wide; the kernel takes tiled"):
        lib.plan("mixed", of="same", **asked)(x, w)


def test_plans_share_what_kernels_loaded(lib: wootz.Library, tmp_path: Path) -> None:
    from wootz import modules

    before = len(modules._modules._made)
    x, scale, _ = cells.inputs()
    lib.plan("scale", device="cpu", dtype="i8", m=3, k=10)(x, scale)
    lib.plan("scale", device="cpu", dtype="i8", m=5, k=10)
    assert len(modules._modules._made) <= before + 1
