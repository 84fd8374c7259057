"""What a kernel's record says of its operands together: scalars that need one, shapes that one may have, and
memory that the output may share. On the records of shipped kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wootz import checks, errors
from wootz.arguments import Call, Reader, Request
from wootz.formats import Descriptor, QuantizedTensor, quantize
from wootz.signature import Binding, Signature

from gen.build import index
from gen.emit import text as emit
from gen.plan import cells as plan

MANIFEST = plan.load(Path(__file__).resolve().parents[2] / "kernels.yaml")
F16 = np.float16


def reader(kernel: str, dtype: str, types: dict[str, str] | None = None) -> Reader:
    record = emit.kernel_record(MANIFEST.kernels[kernel])
    return Reader(Signature.parse(record), Request(kernel, None, dtype, {}), types or {})


def read(reader: Reader, *operands: Any, out: Any = None, **named: Any) -> Any:
    """A call as far as its arguments go; what would be written to."""
    values, scalars = reader.signature.arrange(operands, named)
    call = Call(Binding(reader.signature), None)
    reader.read_operands(call, values)
    call.binding.check_derived()
    call.binding.values.update(scalars)
    return reader.read_output(call, out)


def gemm(m: int = 3, n: int = 4, k: int = 8) -> tuple[Reader, Any, Any, Any]:
    a, b, c = (np.zeros(shape, F16) for shape in ((m, k), (n, k), (m, n)))
    return reader("gemm", "f16"), a, b, c


# ---- a scalar that needs an operand


def test_beta_without_c_is_refused() -> None:
    kernel, a, b, c = gemm()
    wanted = r"^beta is 2\.0 and c is not given: beta is for c alone; pass c=, or leave beta out$"
    with pytest.raises(errors.ArgumentError, match=wanted):
        read(kernel, a, b, beta=2)
    with pytest.raises(errors.ArgumentError, match="beta is nan and c is not given"):
        read(kernel, a, b, c=None, beta=float("nan"))
    for named in ({"beta": 0}, {"c": c}, {"c": c, "beta": 2}, {"alpha": 2, "activation": "relu"}):
        assert read(kernel, a, b, **named).shape == (3, 4)


def test_sizes_of_a_call_are_read_likewise() -> None:
    kernel = reader("gemm", "f16")
    sizes = {"m": 1, "n": 8, "k": 8}
    with pytest.raises(errors.ArgumentError, match=r"beta is 0\.5 and c is not given"):
        kernel.assume("the call", {**sizes, "beta": 0.5})
    assert kernel.assume("the call", {**sizes, "c": True, "beta": 0.5}).values["beta"] == 0.5
    assert kernel.assume("the call", sizes).values["beta"] == 0


def test_a_scalar_that_needs_what_no_kernel_has_is_a_broken_index() -> None:
    record = emit.kernel_record(MANIFEST.kernels["gemm"])
    record["scalars"] = [{"name": "beta", "type": "f32", "default": 0, "needs": "d"}]
    with pytest.raises(errors.ArtifactError, match="scalar 'beta' needs 'd'"):
        Signature.parse(record)
    record["scalars"][0]["needs"] = "a"
    with pytest.raises(errors.ArtifactError, match="scalar 'beta' needs 'a'"):
        Signature.parse(record)  # which every call gives


def test_verify_draws_no_call_that_is_refused() -> None:
    kernel = reader("gemm", "f16")
    for seed in range(40):
        size = {"m": 2, "n": 3, "k": 4}
        rng = np.random.default_rng(seed)
        assert read(kernel, **checks.check("gemm").operands(None, size, "f16", {}, rng)).shape == (2, 3)


# ---- the shapes that an operand may have


@pytest.mark.parametrize(
    ("rows_a", "rows_b", "expected"),
    [
        (1, 1, None),
        (4, 1, None),
        (1, 5, None),
        (4, 5, None),
        (3, 1, r"^scale_a has shape \[3\]; want \[1\] or \[m\] = \[4\]$"),
        (0, 1, r"^scale_a has shape \[0\]; want \[1\] or \[m\] = \[4\]$"),
        (1, 4, r"^scale_b has shape \[4\]; want \[1\] or \[n\] = \[5\]$"),
    ],
)
def test_scales_are_counted(rows_a: int, rows_b: int, expected: str | None) -> None:
    kernel = reader("gemm_fp8", "e4m3", {"y": "bf16"})
    a, b = np.zeros((4, 16), np.uint8), np.zeros((5, 16), np.uint8)
    scales = np.ones(rows_a, np.float32), np.ones(rows_b, np.float32)
    sizes = {"m": 4, "n": 5, "k": 16, "rows_a": rows_a, "rows_b": rows_b}
    if expected is None:
        assert kernel.assume("the call", sizes).values["rows_a"] == rows_a
        assert read(kernel, a, b, *scales).shape == (4, 5)
        return
    with pytest.raises(errors.ArgumentError, match=expected):
        read(kernel, a, b, *scales)
    with pytest.raises(errors.ArgumentError, match=expected):
        kernel.assume("the call", sizes)


def test_no_rows_have_scales_of_their_own() -> None:
    kernel = reader("gemm_fp8", "e4m3", {"y": "bf16"})
    empty, b, one = np.zeros((0, 16), np.uint8), np.zeros((5, 16), np.uint8), np.ones(1, np.float32)
    assert read(kernel, empty, b, np.ones(0, np.float32), one).shape == (0, 5)


# ---- an operand that becomes a field of the output


def quantizer(format: str) -> Reader:
    record = emit.kernel_record(MANIFEST.kernels["quantize_activations"])
    descriptor = Descriptor.parse(index.format_record(MANIFEST.formats[format]))
    return Reader(Signature.parse(record), Request("quantize_activations", descriptor, "f16", {}), {})


def test_a_tensor_of_the_natural_layout_is_written_whole() -> None:
    record = emit.kernel_record(MANIFEST.kernels["quantize"])
    x = np.zeros((3, 200), F16)
    for name, fields in (("nvfp4", {"codes", "scale", "scale1"}), ("q4_0", {"codes"})):
        descriptor = Descriptor.parse(index.format_record(MANIFEST.formats[name]))
        kernel = Reader(Signature.parse(record), Request("quantize", descriptor, "f16", {}), {})
        made = read(kernel, x)
        assert isinstance(made, QuantizedTensor)
        assert (made.format, made.shape, set(made.fields)) == (descriptor, (3, 200), fields)
        assert read(kernel, x, out=made) is made
        arrays = kernel.assume("the call", {"n": 3, "k": 200}).arrays
        assert set(arrays) == {"x", *(f"y.{name}" for name in fields)}
        with pytest.raises(errors.ArgumentError, match=r"out\.codes has shape .*want"):
            read(kernel, np.zeros((4, 200), F16), out=made)


def test_indices_of_rows_are_int32_of_one_axis() -> None:
    record = emit.kernel_record(MANIFEST.kernels["dequant_gather"])
    descriptor = Descriptor.parse(index.format_record(MANIFEST.formats["int4"]))
    kernel = Reader(Signature.parse(record), Request("dequant_gather", descriptor, "f16", {}), {})
    w = quantize(np.ones((5, 64)), descriptor)
    assert read(kernel, w, np.zeros(7, np.int32)).shape == (7, 64)
    with pytest.raises(errors.DtypeError, match=r"indices has elements of type i64; .* i32"):
        read(kernel, w, np.zeros(7, np.int64))
    with pytest.raises(errors.ArgumentError, match="indices has 2 dimensions"):
        read(kernel, w, np.zeros((7, 1), np.int32))


def test_a_scale_that_the_format_has_not_is_refused() -> None:
    x, scale1 = np.zeros((2, 64), F16), np.ones((1, 1), np.float32)
    wanted = "^scale1 is given; tensors of format mxfp4 have none: leave it out$"
    with pytest.raises(errors.ArgumentError, match=wanted):
        read(quantizer("mxfp4"), x, scale1)
    with pytest.raises(errors.ArgumentError, match=wanted):
        quantizer("mxfp4").assume("the call", {"m": 2, "k": 64, "scale1": True})
    assert set(read(quantizer("mxfp4"), x).fields) == {"codes", "tiles"}
    assert read(quantizer("nvfp4"), x, scale1).fields["scale1"] is scale1
    assert "scale1" in quantizer("nvfp4").assume("the call", {"m": 2, "k": 64, "scale1": True}).arrays
    with pytest.raises(errors.ArgumentError, match="scale1 is missing"):
        read(quantizer("nvfp4"), x)


# ---- memory that the output may share


def test_c_may_be_the_output() -> None:
    kernel, a, b, c = gemm()
    assert read(kernel, a, b, c=c, beta=1, out=c) is c
    bias = np.zeros(4, F16)
    for name in ("a", "b"):
        given = {each: np.zeros((8, 8), F16) for each in ("a", "b")}
        with pytest.raises(
            errors.ArgumentError, match=f"out shares memory with {name}; the kernel cannot work"
        ):
            read(kernel, **given, out=given[name])
    whole = np.zeros((4, 8), F16)
    with pytest.raises(errors.ArgumentError, match="out shares a part of c's memory: pass the same array"):
        read(kernel, a, np.zeros((8, 8), F16), c=whole[:3], out=whole[1:], beta=1)
    with pytest.raises(errors.ArgumentError, match="out shares memory with bias"):
        read(kernel, np.zeros((1, 8), F16), b, bias=bias, out=bias.reshape(1, 4))


def test_kernels_that_work_in_place_name_their_operands() -> None:
    found = {name: Signature.parse(emit.kernel_record(k)).alias for name, k in MANIFEST.kernels.items()}
    of_x = ("copy", "unary", "cast", "cumsum", "softmax", "log_softmax", "rms_norm", "layer_norm", "rope")
    in_place = {
        **dict.fromkeys((*of_x, "add_rms_norm"), frozenset("x")),
        **dict.fromkeys(("binary", "binary_broadcast"), frozenset("ab")),
        "where": {"condition", "a", "b"},
        "gemm": {"c"},
    }
    assert {name: names for name, names in found.items() if names} == in_place


ALL = {"a", "b", "c", "bias"}


@pytest.mark.parametrize(("given", "expected"), [(True, ALL), (False, set()), (["c"], {"c"})])
def test_the_index_may_say_all_or_some(given: Any, expected: set[str]) -> None:
    record = {**emit.kernel_record(MANIFEST.kernels["gemm"]), "alias": given}
    assert Signature.parse(record).alias == expected


def test_an_alias_that_is_no_operand_is_a_broken_index() -> None:
    record = {**emit.kernel_record(MANIFEST.kernels["gemm"]), "alias": ["d"]}
    with pytest.raises(errors.ArtifactError, match=r"alias of \['d'\]"):
        Signature.parse(record)
