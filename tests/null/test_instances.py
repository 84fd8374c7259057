"""Kernels made from device templates: what a family declares, and what the emitter makes of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gen.build import index, state
from gen.emit import emission
from gen.emit import text as emit
from gen.ir.dsl import Builder
from gen.lower import templates
from gen.manifest.reader import KernelSpec
from gen.manifest.target import Target
from gen.plan import cells as plan
from gen.variants import family
from gen.variants.family import Arg, Family, Instance, Launch, Operand, Scalar, Spill, TensorMap, Variant

PLAIN = Target("plain", "cuda", "arch", frozenset({"f16", "mma"}), shared_bytes=1 << 12, shared_max=1 << 17)
BARE = Target("bare", "cuda", "arch", frozenset({"f16"}))
HOST = Target("host", "cpu", features=frozenset({"f16", "mma"}))
KERNEL = KernelSpec("probe", ("f16", "i8"), (), {"act": ("none", "relu")})
ARGS = (Arg("x", "ptr", "in"), Arg("y", "ptr", "out"), Arg("n", "u32", "shape"))
TEXT = '#include "deep.cuh"\nextern "C" __global__ void $SYMBOL(const float* x, float* y, unsigned n) {}\n'


def _instance(suffix: str = "a", **changes: Any) -> Instance:
    given: dict[str, Any] = {
        "templates": ("top.cuh",),
        "text": TEXT,
        "args": ARGS,
        "threads": 128,
        "grid": (["ceildiv", "n", 128], 1, 1),
        **changes,
    }
    return Instance(suffix, **given)


@pytest.fixture
def headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two headers in the place of cutlass/, one includes the other; a C header in that of csrc/."""
    ours, loader = tmp_path / "cutlass", tmp_path / "csrc"
    for folder in (ours, loader):
        folder.mkdir()
    (ours / "top.cuh").write_text('#pragma once\n#include <cstdint>\n#include "deep.cuh"\nint top;\n')
    (ours / "deep.cuh").write_text("#pragma once\nint deep;\n")
    (loader / "abi.h").write_text("#pragma once\nint abi;\n")
    (loader / "loader.hpp").write_text("int loader;\n")
    monkeypatch.setattr(templates, "FOLDERS", (ours, loader))
    templates.header.cache_clear()
    yield ours
    templates.header.cache_clear()


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch, headers: Path) -> Iterator[Callable[..., None]]:
    """Puts a family in the place of gen/kernels/probe.py."""

    def put(*variants: Instance | Variant, **changes: Any) -> None:
        module: Any = ModuleType("gen.kernels.probe")
        given: dict[str, Any] = {"options": {"act": ("none", "relu")}, **changes}
        operands = (Operand("x", "array", ("n",)), Operand("bias", "array", ("n",), "f32", optional=True))

        def yielded(fmt: Any, dtype: str, target: Target, options: dict[str, str]) -> Iterator[Any]:
            for v in variants:
                yield type(v)(**{**vars(v), "options": options})

        given.setdefault("accepts", lambda *cell: None)
        module.FAMILY = Family(operands, Operand("y", "array", ("n",)), yielded, **given)
        monkeypatch.setitem(sys.modules, "gen.kernels.probe", module)
        family.family.cache_clear()
        emit._emit.cache_clear()

    yield put
    family.family.cache_clear()
    emit._emit.cache_clear()


def _emit(dtypes: tuple[str, ...] = ("f16",), target: Target = PLAIN) -> emit.Emitted:
    return emit.emit(KERNEL, None, target, dtypes)


def test_headers_are_inlined_once_each(declare: Callable[..., None]) -> None:
    declare(
        _instance("a", preamble=("struct Shared {};\n",)), _instance("b", preamble=("struct Shared {};\n",))
    )
    emitted = _emit()
    assert emitted.text.startswith("#include <cstdint>\nint deep;\nint top;\nstruct Shared {};\n")
    assert emitted.text.count("deep;") == emitted.text.count("struct Shared") == 1
    assert "pragma" not in emitted.text
    assert "$SYMBOL" not in emitted.text
    symbols = [entry.symbol for entry in emitted.entries]
    assert symbols == [f"wootz_probe_{act}_f16_{suffix}" for act in ("none", "relu") for suffix in "ab"]
    assert all(f"void {symbol}(" in emitted.text for symbol in symbols)
    assert emitted.instances
    assert not emitted.stub


@pytest.mark.parametrize("include", ["none.cuh", "loader.hpp", "cutlass/cutlass.h", "../cutlass/none.cuh"])
def test_a_header_that_is_not_ours_is_an_error(declare: Callable[..., None], include: str) -> None:
    declare(_instance(text=f'#include "{include}"\n'))
    with pytest.raises(templates.TemplateError, match=include):
        _emit()


def test_entries_say_what_a_launch_needs(declare: Callable[..., None]) -> None:
    tensor_map = TensorMap("tx", "x", "f16", ("k", "m"), (["mul", "k", 2],), (64, 128))
    first = Launch("zero", (Arg("y", "ptr", "out"),), 256, (["ceildiv", "n", 256], 1, 1))
    whole = _instance(
        shared=["mul", "n", 4],
        cluster=(2, 1, 1),
        maps=(tensor_map,),
        workspace=["mul", "sms", 64],
        zeroed=True,
        pdl=True,
        gate="hmma+ldgsts",
        prologue=(first,),
        spills=Spill(16, "a table of the epilogue"),
        static_shared=64,
    )
    declare(whole)
    entry = _emit().entries[0].to_json()
    assert entry == {
        "symbol": "wootz_probe_none_f16_a",
        "args": [["x", "ptr", "in"], ["y", "ptr", "out"], ["n", "u32", "shape"]],
        "block": [128, 1, 1],
        "grid": [["ceildiv", "n", 128], 1, 1],
        "shared": ["mul", "n", 4],
        "static_shared": 64,
        "when": [],
        "cluster": [2, 1, 1],
        "workspace": ["mul", "sms", 64],
        "zeroed": True,
        "maps": {
            "tx": {"of": "x", "dtype": "f16", "dims": ["k", "m"], "strides": [["mul", "k", 2]],
                   "box": [64, 128], "swizzle": 128, "promotion": 256},
        },
        "pdl": True,
        "prologue": [
            {"symbol": "wootz_probe_none_f16_a_zero", "args": [["y", "ptr", "out"]], "block": [256, 1, 1],
             "grid": [["ceildiv", "n", 256], 1, 1], "shared": 0},
        ],
        "gate": "hmma+ldgsts",
        "spills": {"bytes": 16, "reason": "a table of the epilogue"},
    }  # fmt: skip
    declare(_instance())
    plain = _emit().entries[0].to_json()
    assert list(plain) == ["symbol", "args", "block", "grid", "shared", "static_shared", "when"]


def test_the_kernels_record() -> None:
    operands = (
        Operand("x", "array", ("m", ["ceildiv", "k", 128]), "f32"),
        Operand("w", "packed", ("n", "k")),
    )
    bias = Operand("bias", "array", ("n",), optional=True)
    scalars = (Scalar("alpha", "f32", 1.0), Scalar("activation", "u32", 0, ("none", "relu")))
    declared = Family(
        (*operands, bias), Operand("y", "array", ("m", "n"), "f32"), lambda *a: (), scalars=scalars
    )
    assert declared.quantised
    assert declared.packed
    record = declared.record()
    assert record["operands"] == [
        {"name": "x", "kind": "array", "shape": ["m", ["ceildiv", "k", 128]], "dtype": "f32"},
        {"name": "w", "kind": "packed", "shape": ["n", "k"]},
        {"name": "bias", "kind": "array", "shape": ["n"], "optional": True},
    ]
    assert record["output"] == {"name": "y", "shape": ["m", "n"], "dtype": "f32"}
    assert record["scalars"] == [
        {"name": "alpha", "type": "f32", "default": 1.0, "choices": []},
        {"name": "activation", "type": "u32", "default": 0, "choices": ["none", "relu"]},
    ]
    assert "scalars" not in Family((), operands[0], lambda *a: ()).record()
    mixed = Family((), Operand("y", "tiled", ("m", "k"), format="activations"), lambda *a: ()).record()
    assert mixed["output"] == {"name": "y", "kind": "tiled", "shape": ["m", "k"], "format": "activations"}


def test_what_a_target_lacks_is_refused_at_plan_time(declare: Callable[..., None]) -> None:
    def accepts(fmt: Any, dtype: str, target: Target, options: dict[str, str]) -> str | None:
        return "no relu for i8" if (dtype, options["act"]) == ("i8", "relu") else None

    declare(_instance(), needs=frozenset({"mma"}), accepts=accepts)
    unit = plan.Unit(KERNEL, None, BARE, tuple(plan._cells(KERNEL, None, BARE, (), plan._options(KERNEL))))
    assert {cell.state for cell in unit.cells} == {plan.REFUSED}
    wanted = "probe needs the feature 'mma', which target bare does not declare"
    assert {cell.reason for cell in unit.cells} == {wanted}
    cells = {cell.key: cell for cell in plan._cells(KERNEL, None, PLAIN, (), plan._options(KERNEL))}
    assert [key for key, cell in cells.items() if cell.state == plan.REFUSED] == ["probe.relu/-/i8/plain"]
    assert cells["probe.relu/-/i8/plain"].reason == "no relu for i8"
    symbols = [entry.symbol for entry in _emit(("f16", "i8")).entries]  # and no text is emitted for it
    assert symbols == ["wootz_probe_none_f16_a", "wootz_probe_relu_f16_a", "wootz_probe_none_i8_a"]


def test_types_of_operands_go_into_the_cell(declare: Callable[..., None]) -> None:
    declare(_instance(), types=lambda dtype, options: {"y": "i32"} if dtype == "i8" else {})
    by_dtype = {entry.dtype: entry.types for entry in _emit(("f16", "i8")).entries}
    assert by_dtype == {"f16": {}, "i8": {"y": "i32"}}
    cells = tuple(plan._cells(KERNEL, None, PLAIN, (), plan._options(KERNEL)))
    _, entries = emission.render(plan.Unit(KERNEL, None, PLAIN, cells))
    assert [entry.get("types") for entry in entries] == [None, None, {"y": "i32"}, {"y": "i32"}]


def test_dsl_and_template_in_one_unit(declare: Callable[..., None]) -> None:
    def build(b: Builder) -> None:
        b.buffer("y", "f32", "out")

    declare(_instance(when=(["eq", ["mod", "n", 8], 0],)), Variant("any", 32, (1, 1, 1), build))
    emitted = _emit()
    assert [entry.symbol for entry in emitted.entries][:2] == [
        "wootz_probe_none_f16_a",
        "wootz_probe_none_f16_any",
    ]
    assert emitted.text.index("_f16_any(") < emitted.text.index("int deep;")


@pytest.mark.parametrize(
    ("variants", "target", "wanted"),
    [
        ((_instance("a"), _instance("a")), PLAIN, "two variants have this symbol"),
        ((_instance("a", gate="hmma+magic"),), PLAIN, "no row 'magic' in the table; known: hmma, "),
        ((_instance("a"),), HOST, "device templates are for CUDA, not for cpu"),
    ],
)
def test_what_cannot_be_emitted(
    declare: Callable[..., None], variants: tuple[Instance, ...], target: Target, wanted: str
) -> None:
    declare(*variants)
    with pytest.raises(ValueError, match=wanted):
        _emit(target=target)


def test_a_stub_knows_its_source(declare: Callable[..., None]) -> None:
    stub = '#include "abi.h"\nint $SYMBOL_query(void);\n'
    declare(_instance("a", stub=stub), _instance("b", stub=stub), _instance("c"))
    cells = tuple(plan._cells(KERNEL, None, PLAIN, (), plan._options(KERNEL)))
    whole = emission.rendered(plan.Unit(KERNEL, None, PLAIN, cells))
    assert whole.stub.startswith("// Generated by wootz")
    assert whole.stub.count("int abi;") == 1
    assert "wootz_probe_relu_i8_b_query(void);" in whole.stub
    assert f'return "{index.sha256(whole.text.encode())}";' in whole.stub
    assert [e["entry"].get("stub") for e in whole.entries][:3] == [
        "wootz_probe_none_f16_a",
        "wootz_probe_none_f16_b",
        None,
    ]
    assert whole.kind == state.LEAN


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("#include <cutlass/gemm/gemm.h>", state.CUTLASS),
        ("  #  include <cute/tensor.hpp>", state.CUTLASS),
        ("// #include <cutlass/cutlass.h>", state.LEAN),
        ("#include <cuda_fp16.h>", state.LEAN),
    ],
)
def test_the_kind_of_a_unit(declare: Callable[..., None], line: str, kind: str) -> None:
    declare(_instance(text=f"{line}\n{TEXT}"))
    cells = tuple(plan._cells(KERNEL, None, PLAIN, (), plan._options(KERNEL)))
    assert emission.rendered(plan.Unit(KERNEL, None, PLAIN, cells)).kind == kind


@pytest.mark.parametrize("kernel", ["copy", "binary", "dequant", "qgemv", "gemv", "prepack"])
def test_a_type_that_a_kernel_does_not_take_is_refused_with_a_reason(kernel: str) -> None:
    manifest = plan.load(Path(__file__).parents[2] / "kernels.yaml")
    spec, target = manifest.kernels[kernel], manifest.targets["cpu"]
    fmt = manifest.formats["int4"] if spec.formats else None
    options = {name: values[0] for name, values in spec.options.items()}
    assert "got e4m3" in (emit.refusal(spec, fmt, "e4m3", target, options) or "")
    assert emit.refusal(spec, fmt, spec.dtypes[0], target, options) is None
