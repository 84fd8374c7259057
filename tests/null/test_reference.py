"""The float64 references, their tolerances, and `wootz verify` over a library whose kernels are NumPy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from wootz import checks, verify
from wootz.checks import binary, copy, expect
from wootz.errors import ArgumentError, ArtifactError, DtypeError, NoVariantError
from wootz.formats import Descriptor, quantize
from wootz.formats.descriptor import STORAGE
from wootz.operands import contents, fetched
from wootz.own_checks import check_of
from wootz.reference import DTYPES as DTYPES_OF
from wootz.reference import Comparison, Expected, compare, round_to, to_double
from wootz.staging import memory

from gen.build.index import format_record
from gen.emit import text as emit
from gen.manifest import reader as manifest
from tests.null.format_cases import E2M1, E4M3, E8M0, F32, format_of

MANIFEST = manifest.load(Path(__file__).parents[2] / "kernels.yaml")
FORMATS = MANIFEST.formats
DTYPES = ("f16", "bf16", "f32")
STORED = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32)}


# ------------------------------------------------------------ references
@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_to_a_dtype_and_back(dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal(1000)
    np.testing.assert_array_equal(to_double(round_to(x, dtype), dtype), x.astype(STORED[dtype]).astype(float))
    with pytest.raises(DtypeError, match="f64"):
        round_to(x, "f64")


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2", "i8", "bool"])
def test_numbers_are_not_cut_off_to_codes(dtype: str) -> None:
    with pytest.raises(DtypeError, match=f"to round to; got '{dtype}'"):
        round_to(np.array([-1.5]), dtype)


@pytest.mark.parametrize("dtype", ["i8", "e4m3"])
def test_activations_of_8_bits_are_numbers(dtype: str) -> None:
    check, rng = checks.check("qmm_packed_a8"), np.random.default_rng(5)
    format = Descriptor.parse(format_record(FORMATS["mxfp4"]))
    for size in check.shapes(format)[1:5]:  # the first has no rows
        values = check.operands(format, size, dtype, {"out": "bf16"}, rng)
        assert np.isfinite(check.expect(values, dtype, {"out": "bf16"}).value).all()
        x = to_double(values["x"], dtype)
        assert len(np.unique(np.sign(x))) > 1
        assert np.abs(x).max() > 1.0


def test_minimum_and_maximum_propagate_nan() -> None:
    a, b = np.float32([1, np.nan, 2]), np.float32([np.nan, 1, 3])
    for op, last in (("min", 2.0), ("max", 3.0)):
        value = binary.expect({"a": a, "b": b}, "f32", {"op": op}).value
        np.testing.assert_array_equal(value, [np.nan, np.nan, last])


def test_unknown_names_are_refused() -> None:
    one = np.float32([1])
    with pytest.raises(ArgumentError, match="op: wanted one of add"):
        binary.expect({"a": one, "b": one}, "f32", {"op": "pow"})
    with pytest.raises(ArgumentError, match="no reference"):
        expect("unknown", {}, {"x": one}, "f32")


@pytest.mark.parametrize("dtype", DTYPES)
def test_qgemv_is_the_matrix_product(dtype: str) -> None:
    rng = np.random.default_rng(1)
    q = quantize(rng.standard_normal((5, 70)), format_of(E2M1, (1, 32), (E8M0, "nearest")))
    x = round_to(rng.standard_normal((3, 70)), dtype)
    expected = to_double(x, dtype) @ q.dequantize().astype(float).T
    np.testing.assert_allclose(expect("qgemv", {}, {"x": x, "w": q}, dtype).value, expected, rtol=1e-12)


# ------------------------------------------------------------ tolerances
def f32_dot(x: Any, w: Any) -> Any:
    """One term after the other, in float32: the least careful sum that is still float32."""
    total = np.zeros((x.shape[0], w.shape[0]), np.float32)
    for k in range(x.shape[1]):
        total += x[:, k : k + 1] * w[None, :, k]
    return total


@pytest.mark.parametrize("k", [1, 33, 512, 4096])
@pytest.mark.parametrize("positive", [False, True])
def test_a_float32_sum_passes_and_a_float16_sum_fails(k: int, positive: bool) -> None:
    rng = np.random.default_rng(k)
    w = rng.standard_normal((64, k))
    q = quantize(np.abs(w) if positive else w, FORMATS["int8"].descriptor())
    x = rng.uniform(0 if positive else -1, 1, (2, k)).astype(np.float32)
    expected = expect("qgemv", {}, {"x": x, "w": q}, "f32")
    good = compare(f32_dot(x, q.dequantize()), expected, "f32")
    assert good.passed
    assert good.error <= good.tolerance
    half = (x.astype(np.float16).astype(np.float32) @ q.dequantize().T).astype(np.float32)
    assert not compare(half, expected, "f32").passed


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_wrong_weight_of_four_thousand_is_seen(dtype: str) -> None:
    rng = np.random.default_rng(3)
    q = quantize(rng.standard_normal((8, 4096)), FORMATS["int4"].descriptor())
    x = round_to(rng.standard_normal((1, 4096)), dtype)
    expected = expect("qgemv", {}, {"x": x, "w": q}, dtype)
    w = q.dequantize().astype(float)
    assert compare(round_to(to_double(x, dtype) @ w.T, dtype), expected, dtype).passed
    w[:, 4095] += 0.5  # about a code and a half
    assert not compare(round_to(to_double(x, dtype) @ w.T, dtype), expected, dtype).passed


@pytest.mark.parametrize("dtype", DTYPES)
def test_truncation_is_seen_where_rounding_was_meant(dtype: str) -> None:
    q = quantize(np.random.default_rng(4).standard_normal((9, 70)), FORMATS["fp8_e4m3"].descriptor())
    expected = expect("dequant", {}, {"w": q}, dtype)
    assert compare(round_to(q.dequantize().astype(float), dtype), expected, dtype) == Comparison(
        *(pytest.approx(v, abs=1e-2) for v in (0, 0)), True
    )
    if dtype != "f32":
        bits = {"f16": 13, "bf16": 16}[dtype]
        cut = (q.dequantize().view(np.uint32) >> bits << bits).view(np.float32)
        assert not compare(round_to(cut.astype(float), dtype), expected, dtype).passed
    else:
        off = np.nextafter(q.dequantize(), np.float32(9))  # one scale: not even the last bit is free
        assert not compare(off, expected, dtype).passed


def test_division_may_be_off_by_two_and_a_half_ulp_and_no_more() -> None:
    a, b = np.float32([1.0]), np.float32([3.0])
    expected = binary.expect({"a": a, "b": b}, "f32", {"op": "div"})
    near = a / b
    for steps, passed in ((0, True), (2, True), (4, False)):
        moved = (near.view(np.uint32) + np.uint32(steps)).view(np.float32)
        assert compare(moved, expected, "f32").passed is passed
    add = binary.expect({"a": a, "b": b}, "f32", {"op": "add"})
    assert not compare(np.nextafter(np.float32([4.0]), np.float32(9)), add, "f32").passed


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 0.0])
def test_special_numbers_must_be_where_they_are_expected(wrong: float) -> None:
    x = np.float32([np.nan, np.inf, -np.inf, 0.0, 1.0])
    expected = copy.expect({"x": x}, "f32", {})
    assert compare(x, expected, "f32").passed
    for i in range(5):
        y = x.copy()
        y[i] = wrong
        same = np.array_equal(y, x, equal_nan=True)
        assert compare(y, expected, "f32").passed is same


def test_overflow_of_the_output_is_expected() -> None:
    a = np.float16([60000, -60000, 300])
    expected = binary.expect({"a": a, "b": a}, "f16", {"op": "mul"})
    assert compare(np.float16([np.inf, np.inf, np.inf]), expected, "f16").passed
    assert not compare(np.float16([np.inf, 65504, np.inf]), expected, "f16").passed


@pytest.mark.parametrize("dtype", ["bool", "i8", "u8", "i32", "u32", "e4m3", "e5m2"])
def test_outputs_that_are_not_rounded_to_are_compared(dtype: str) -> None:
    raw = np.array([0, 1, 1], DTYPES_OF[dtype][2])
    value = to_double(raw, dtype)
    expected = Expected(value, np.zeros_like(value))
    assert compare(raw, expected, dtype).passed
    assert not compare(raw[::-1], expected, dtype).passed


def test_a_wrong_shape_fails() -> None:
    x = np.float32([1, 2])
    assert not compare(x[:1], copy.expect({"x": x}, "f32", {}), "f32").passed


# ------------------------------------------------------------ wootz verify
def numpy_kernel(kernel: str, options: dict[str, str], dtype: str) -> Callable[..., Any]:
    """A right kernel: float32 arithmetic on ml_dtypes arrays, written into out."""

    def widen(a: Any) -> Any:
        return a.astype(np.float32)

    @np.errstate(all="ignore")
    def call(*operands: Any, out: Any) -> Any:
        if kernel == "copy":
            out[...] = operands[0]
        elif kernel == "binary":
            out[...] = binary.OPERATIONS[options["op"]](*map(widen, operands)).astype(STORED[dtype])
        elif kernel == "dequant":
            out[...] = operands[0].dequantize().astype(STORED[dtype])
        else:
            out[...] = (widen(operands[0]) @ operands[1].dequantize().T).astype(STORED[dtype])
        return out

    return call


def kernel_record(section: str, key: str) -> dict[str, Any]:
    return emit.kernel_record(MANIFEST.kernels[key])


class FakeLibrary:
    """What verify asks of a library, over NumPy kernels. wrap(key, call) may plant a bug."""

    def __init__(self, keys: list[str], wrap: Callable[[str, Any], Any] = lambda key, call: call) -> None:
        self.targets = (
            {"key": "cpu", "backend": "cpu"},
            {"key": "sm_80", "backend": "cuda", "capability": [8, 0], "suffix": ""},
        )
        self.index = SimpleNamespace(
            header={"generator": "0.0", "compilers": {"c++": "none"}}, find=kernel_record
        )
        self._keys, self._wrap = keys, wrap

    def cells(self) -> list[dict[str, Any]]:
        return [self._cell(key) for key in self._keys]

    def _cell(self, key: str) -> dict[str, Any]:
        name, format, dtype, target = key.split("/")
        kernel, _, option = name.partition(".")
        return {
            "key": key, "kernel": kernel, "format": format, "dtype": dtype, "target": target,
            "options": {"op": option} if option else {}, "files": [{"file": "x"}], "source_sha256": "ab" * 32,
        }  # fmt: skip

    def format(self, name: str) -> Descriptor:
        return Descriptor.parse(FORMATS[name].descriptor())

    def kernel(self, name: str, format: str | None, dtype: str, device: str, **options: str) -> Any:
        stem = f"{'.'.join((name, *options.values()))}/{format or '-'}/{dtype}"
        return self._wrap(f"{stem}/{device}", numpy_kernel(name, options, dtype))


ALL = [
    *(
        f"{kernel}/-/{dtype}/cpu"
        for dtype in DTYPES
        for kernel in ("copy", *(f"binary.{op}" for op in binary.OPERATIONS))
    ),
    *(f"dequant/{name}/{dtype}/cpu" for dtype in DTYPES for name in FORMATS),
    *(f"qgemv/{name}/{dtype}/cpu" for dtype, name in zip(DTYPES * 9, FORMATS, strict=False)),
]


def test_every_cell_passes_with_right_kernels() -> None:
    rows = list(verify.verify(FakeLibrary([*ALL, "copy/-/f32/sm_80"])))
    assert {row.cell for row in rows} == set(ALL)
    assert [row for row in rows if not row.passed] == []
    assert all(row.shapes >= 5 for row in rows)


BUGS: dict[str, tuple[str, Callable[[Any, Any], None]]] = {
    "the last element is not written": ("copy/-/f32/cpu", lambda out, args: out.__setitem__(-1, np.nan)),
    "one bit of a copy": ("copy/-/f32/cpu", lambda out, args: out.view(np.uint32).__setitem__(0, 0x80000000)),
    "minimum ignores NaN": ("binary.min/-/f32/cpu", lambda out, args: np.fmin(*args, out=out)),
    "flush of subnormals": (
        "binary.add/-/f32/cpu",
        lambda out, args: out.__setitem__(np.abs(out) < 2.0**-126, 0),
    ),
    "a row too many": ("dequant/int4/f16/cpu", lambda out, args: overrun(out)),
    "scales of the next block": ("dequant/mxfp4/f32/cpu", lambda out, args: shifted_scale(out, args[0])),
    "a ragged tail is dropped": ("qgemv/mxfp4/f16/cpu", lambda out, args: without_tail(out, *args)),
    "the last row of x": (
        "qgemv/int4/f32/cpu",
        lambda out, args: out.__setitem__(-1, out[0]) if len(out) > 7 else None,
    ),
}


def overrun(out: Any) -> None:
    address = out.__array_interface__["data"][0] + out.nbytes
    np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * 1).from_address(address))[0] = 0


def shifted_scale(out: Any, q: Any) -> None:
    scale = np.roll(q.fields["scale"], 1, axis=1)
    out[...] = type(q)(q.format, q.shape, {**q.fields, "scale": scale}).dequantize()


def without_tail(out: Any, x: Any, q: Any) -> None:
    whole = q.shape[1] // 8 * 8
    out[...] = (x[:, :whole].astype(np.float32) @ q.dequantize()[:, :whole].T).astype(out.dtype)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    key, spoil = BUGS[bug]

    def wrap(_: str, call: Any) -> Any:
        def spoilt(*args: Any, out: Any) -> None:
            call(*args, out=out)
            with np.errstate(all="ignore"):
                spoil(out, args)

        return spoilt

    (row,) = verify.verify(FakeLibrary([key], wrap))
    assert not row.passed
    assert row.message


def test_a_kernel_that_raises_is_a_failure_and_the_rest_still_runs() -> None:
    def wrap(key: str, call: Any) -> Any:
        def broken(*args: Any, out: Any) -> None:
            raise ArtifactError("truncated")

        return broken if key.startswith("copy") else call

    rows = list(verify.verify(FakeLibrary(["copy/-/f32/cpu", "binary.add/-/f32/cpu"], wrap)))
    assert [(row.cell, row.passed) for row in rows] == [
        ("binary.add/-/f32/cpu", True),
        ("copy/-/f32/cpu", False),
    ]
    assert "ArtifactError: truncated" in rows[1].message


NOTHING_RUN = "the check of copy gives no shapes: nothing was run"


def test_a_check_without_shapes_passes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.check("copy"), "shapes", lambda format: [])
    (row,) = verify.verify(FakeLibrary(["copy/-/f32/cpu"]))
    assert (row.passed, row.shapes) == (False, 0)
    assert row.message.endswith(NOTHING_RUN)


def test_a_kernel_without_a_reference_is_told_so_in_a_line() -> None:
    with pytest.raises(ArgumentError) as caught:
        check_of(None, {"key": "divisors"})
    assert str(caught.value) == (
        "divisors has no reference: write python/wootz/checks/divisors.py, "
        "or in a project name a file under check"
    )


def test_variants_that_take_no_shape_pass_nothing() -> None:
    def call(*args: Any, out: Any) -> None:
        raise NoVariantError("no variant takes it")

    kernel = SimpleNamespace(variants=lambda: ["a", "b"], only=lambda symbol: call)
    (cell,) = FakeLibrary(["copy/-/f32/cpu"]).cells()
    row = verify.check_variants(kernel, cell, kernel_record("kernels", "copy"), None, verify.memory("cpu"))
    assert (row.passed, row.shapes, row.idle) == (False, 0, ("a", "b"))
    assert row.message == "its variants take none of the check's shapes: nothing was run"


@pytest.mark.parametrize(("key", "operand"), [("copy/-/f32/cpu", "x"), ("qgemv/int4/f32/cpu", "w")])
def test_a_kernel_that_writes_to_its_operand_fails(key: str, operand: str) -> None:
    def wrap(_: str, call: Any) -> Any:
        def spoilt(*args: Any, out: Any) -> None:
            call(*args, out=out)
            array = args[-1].fields["scale"] if operand == "w" else args[0]
            array.reshape(-1)[-1:] += 1

        return spoilt

    (row,) = verify.verify(FakeLibrary([key], wrap))
    assert not row.passed
    assert row.message.startswith(f"wrote to its operand {operand} at ")


def test_a_kernel_whose_output_may_be_an_operand_is_run_so() -> None:
    """One that fills its output before it reads: right where it has memory of its own."""
    (row,) = verify.verify(FakeLibrary(["binary.add/-/f32/cpu"], filling_first))
    assert not row.passed
    assert row.message.startswith("with out=")


def filling_first(_: str, call: Any) -> Any:
    def spoilt(*args: Any, out: Any) -> None:
        out[...] = 0
        call(*args, out=out)

    return spoilt


def test_outputs_arrive_poisoned_and_data_is_the_same_every_time() -> None:
    seen: list[bytes] = []

    def wrap(_: str, call: Any) -> Any:
        def look(*args: Any, out: Any) -> None:
            assert np.isnan(out.astype(np.float32)).all()
            seen.append(args[0].fields["codes"].tobytes())
            call(*args, out=out)

        return look

    for _ in range(2):
        assert all(row.passed for row in verify.verify(FakeLibrary(["dequant/mxfp4/bf16/cpu"], wrap)))
    half = len(seen) // 2
    assert seen[:half] == seen[half:]
    other = list(verify.verify(FakeLibrary(["dequant/mxfp4/f16/cpu"], wrap)))
    assert other[0].passed
    assert seen[2 * half + 3 :] != seen[3:half]


def test_shapes_are_ragged_in_every_axis() -> None:
    format = Descriptor.parse(format_of(E4M3, (128, 128), (F32, "absmax")))
    sizes = checks.check("qgemv").shapes(format)
    assert {size["m"] for size in sizes} == set(range(1, 9))
    assert any(size["k"] % 128 for size in sizes)
    assert any(size["k"] % 8 for size in sizes)
    assert any(size["n"] == 1 for size in sizes)
    assert {"m": 1, "n": 1, "k": 1} in sizes
    assert any(size["n"] > 128 and size["n"] % 128 for size in sizes)


# ------------------------------------------------------------ command line
@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def use(found: Any) -> None:
        def load(path: Any) -> Any:
            if isinstance(found, Exception):
                raise found
            return found

        import wootz

        monkeypatch.setitem(vars(wootz), "load", load)  # its own is imported on first use

    return use


def broken_minimum(key: str, call: Any) -> Any:
    def spoilt(*args: Any, out: Any) -> None:
        np.fmin(*args, out=out)

    return spoilt if "min" in key else call


def test_the_command_prints_a_table_and_writes_json(library: Any, tmp_path: Path, capsys: Any) -> None:
    library(FakeLibrary(["copy/-/f32/cpu", "binary.min/-/f32/cpu", "copy/-/f16/cpu"], broken_minimum))
    file = tmp_path / "result.json"
    assert verify.main(["--json", str(file)]) == 1
    printed = capsys.readouterr().out
    assert "copy/-/*/cpu (2)" in printed
    assert "FAIL binary.min/-/f32/cpu: outside the tolerance at n = " in printed
    assert printed.endswith("2 passed, 1 failed\n")
    result = json.loads(file.read_text())
    assert set(result) == {"device", "driver", "date", "generator", "compilers", "host", "cells"}
    assert result["device"] == "cpu"
    by_cell = {cell["cell"]: cell for cell in result["cells"]}
    assert set(by_cell["copy/-/f32/cpu"]) == {"cell", "source_sha256", "error", "tolerance", "pass", "shapes"}
    assert by_cell["copy/-/f32/cpu"]["pass"] is True
    assert by_cell["binary.min/-/f32/cpu"]["pass"] is False
    assert by_cell["binary.min/-/f32/cpu"]["error"] is None  # infinite: a NaN was missed


def test_the_command_passes_and_filters(library: Any, capsys: Any) -> None:
    library(FakeLibrary(["copy/-/f32/cpu", "binary.min/-/f32/cpu"], broken_minimum))
    assert verify.main(["--filter", "copy/*", "--verbose"]) == 0
    printed = capsys.readouterr()
    assert "copy/-/f32/cpu" in printed.out
    assert printed.err == ""  # no progress line where nobody looks


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--filter", "nothing"], "no cell matches"),
        (["--device", "tpu"], "wanted"),
        (["--nonsense"], "unrecognized"),
        (["--variants", "some"], "try: wootz verify --help"),
        (["--json", "/nowhere/at/all.json"], "cannot write"),
        (["--json", "/"], "cannot write"),
    ],
)
def test_bad_use_has_status_two(library: Any, capsys: Any, argv: list[str], said: str) -> None:
    library(FakeLibrary(["copy/-/f32/cpu"]))
    assert verify.main(argv) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_a_broken_library_has_status_two(library: Any, capsys: Any) -> None:
    library(ArtifactError("no index.json"))
    assert verify.main([]) == 2
    assert "no index.json" in capsys.readouterr().err


def test_the_numbers_of_byte_floats_are_ml_dtypes() -> None:
    codes = np.arange(256, dtype=np.uint8)
    for dtype, theirs in (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)):
        np.testing.assert_array_equal(to_double(codes, dtype), codes.view(theirs).astype(float))


def test_a_number_of_processes_is_positive(
    capsys: pytest.CaptureFixture[str], library: Callable[..., None]
) -> None:
    library(FakeLibrary(["copy/-/f32/cpu"]))
    assert verify.main(["-j", "0"]) == 2
    assert "--jobs: wanted 1 or more; got 0" in capsys.readouterr().err


def threads_there(_: Any) -> tuple[str | None, ...]:
    """What a process of wootz verify would tell NumPy's BLAS."""
    return tuple(os.environ.get(name) for name in verify.BLAS_THREADS)


def test_processes_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten processes with a BLAS of sixteen threads each took minutes for what takes seconds."""
    for name in verify.BLAS_THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # the user's own
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(9)), raising=False)
    monkeypatch.setattr(verify, "_one_cell", threads_there)
    own = SimpleNamespace(parts=())
    monkeypatch.setattr(verify, "cells_for", lambda lib, device: [{"key": "copy/-/f32/cpu"}])
    assert verify._shared_out(own, "cpu", "*", 2, False) == [("4", "7", "4", "4")]
    assert verify._shared_out(own, "cpu", "*", 20, False) == [("1", "7", "1", "1")]
    assert threads_there(None) == (None, "7", None, None)  # as it was before


def test_fields_of_every_storage_type_are_fetched() -> None:
    """Those of bf16 scales are u16: verify looks whether a call wrote to them."""
    where = memory("cpu")
    fields = {name: np.arange(6, dtype=STORAGE[name]).reshape(2, 3) for name in STORAGE}
    value = SimpleNamespace(fields=fields)
    there = SimpleNamespace(fields={name: where.put(v, name) for name, v in fields.items()})
    assert fetched(there, value, "", where) == contents(value)
    there.fields["u16"] = there.fields["u16"] + 1
    assert fetched(there, value, "", where) != contents(value)
