"""From a matrix to a QuantizedTensor. What each step rounds, and how:

Ranges    are taken over a block's finite numbers. A block with infinities and otherwise zeros has scale 1.
Scales    are computed in float64, rounded to float32, then to the nearest of the scale's type; they saturate
          at its largest finite number, and a block that is not all zeros never gets scale 0. With E the
          element's largest magnitude and a the block's:
            absmax         a / E
            signed_absmax  e / low: e the first number of largest magnitude, low the element's least value
            minmax         (high - low of the block) / (high - low of the element)
            floor          2^(floor(log2 a) - floor(log2 E)) (OCP MX v1.0, 6.3)
            even           the same after rounding a to the element's mantissa (torchao's EVEN)
            ceil           2^ceil(log2(a / E)) (DeepGEMM; MLX 0.32)
            nearest        2^round(log2(a / E)) (MLX before)
All zero  blocks get scale 0, which decodes to 0 with any element. A power-of-two type has no 0: the code of 1
          (as MLX), or the least one when the element has no zero. Levels above the first get 1.
Levels    above the first: the largest scale below / the largest number of its type; what is below is then
          divided by the number as stored. op divide stores the reciprocal.
Zeros     are low_block - low * s (value domain) or low - low_block / s (code domain; the block's range is
          widened to hold 0 when the zero point would not fit its type), rounded to their type.
Codes     are the nearest of w / s with the scale as stored: ties to even (codebooks: lower index),
          saturating. Symmetric integers leave the least code out. signed_absmax on integers with no zero
          point takes GGUF's arithmetic instead: float32, the scale before it is rounded, ties up.
Specials  Infinities saturate. NaN takes the element's NaN code if there is one, else it is an error; or it
          counts as 0, on request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ..errors import ArgumentError, DeviceError, DtypeError
from ..lazy_numpy import np
from .bank import check_shape
from .dequantize import combine_scales, expand, row_chunks, scale_block, zero_values
from .descriptor import Descriptor
from .element import Element
from .scales import FLOAT32_MAX, Source, block_ranges, choose_entries
from .tensor import QuantizedTensor, pack_rows, pack_side

if TYPE_CHECKING:
    from numpy.typing import NDArray


def quantize(array: Any, format: Any, *, nan: Literal["error", "zero"] = "error") -> QuantizedTensor:
    """Quantise a matrix.

    array: [N, K] of float16, float32, float64, bfloat16 (ml_dtypes or a torch CPU tensor) or integers, with
    any strides and byte order (what is not native and contiguous is converted, some rows at a time).
    format: a descriptor dict, a Descriptor or an object whose descriptor() gives one. nan: "error": NaN
    takes the element's NaN code, ArgumentError where it has none; "zero": NaN counts as 0. Raises
    ArgumentError (rank, empty axis, NaN), DtypeError, DeviceError (array not on the CPU), FormatError.
    """
    if nan not in ("error", "zero"):
        raise ArgumentError(f'nan: wanted "error" or "zero"; got {nan!r}')
    descriptor = Descriptor.parse(format)
    w = as_matrix(array)
    source = Source(w, descriptor.element.nan_code is None, nan == "zero")
    ranges = block_ranges(source, descriptor)
    sides, raw_scale = choose_entries(descriptor, ranges, w.shape)
    codes = _codes(source, descriptor, sides, raw_scale)
    fields: dict[str, Any] = {"codes": codes}
    inline = {i.field for i in descriptor.layout.inline}
    for name, element, _ in descriptor.side_fields:
        if name not in inline:
            fields[name] = pack_side(sides[name], element)
    return QuantizedTensor(descriptor, (w.shape[0], w.shape[1]), fields)


def as_matrix(array: Any) -> NDArray[Any]:
    """The array as NumPy [N, K] of a real dtype, without a copy; see quantize for what is accepted."""
    if hasattr(array, "detach"):
        array = _from_torch(array)
    try:
        w = np.asarray(array)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"array: wanted a matrix of numbers; got {type(array).__name__} ({error})"
        ) from None
    if w.dtype.kind not in "fiu" and not w.dtype.name.startswith(
        ("bfloat16", "float8_", "float6_", "float4_")
    ):
        raise DtypeError(
            f"array: wanted a real dtype (float16, bfloat16, float32, float64, integer); got {w.dtype}"
        )
    if w.ndim != 2:
        raise ArgumentError(f"array: wanted 2 dimensions (N, K); got shape {w.shape}")
    check_shape(w.shape)
    return w


def _from_torch(tensor: Any) -> NDArray[Any]:
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        raise DeviceError(f"array: wanted a tensor on the CPU; got one on {tensor.device}; call .cpu() first")
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    return np.asarray(tensor.numpy())


# ------------------------------------------------------------ codes
def _codes(
    source: Source, format: Descriptor, sides: dict[str, NDArray[Any]], raw_scale: NDArray[np.float64] | None
) -> NDArray[np.uint8]:
    shape = (source.w.shape[0], source.w.shape[1])
    scale = combine_scales(format, sides, shape, np.float32).astype(np.float64)
    zero = zero_values(format, sides)
    block = scale_block(format)
    inverse = _legacy_inverse(format, raw_scale, scale)
    out = np.zeros((shape[0], format.layout.row_bytes(shape[1])), dtype=np.uint8)
    for start, stop in row_chunks(*shape):
        w = source.rows(start, stop)
        if inverse is not None:
            codes = _legacy_codes(w, expand(inverse, block, shape, start, stop), format.element)
        else:
            s = expand(scale, block, shape, start, stop)
            z = None if zero is None else expand(zero.astype(np.float64), format.block, shape, start, stop)
            codes = _nearest_codes(w, s, z, format)
        if format.element.nan_code is not None:
            codes[np.isnan(w)] = format.element.nan_code
        pack_rows(
            format,
            codes,
            {i.field: sides[i.field][start:stop] for i in format.layout.inline},
            out[start:stop],
        )
    return out


def _nearest_codes(
    w: NDArray[np.float64], s: NDArray[np.float64], z: NDArray[np.float64] | None, format: Descriptor
) -> NDArray[np.uint8]:
    zero, element = format.zero, format.element
    if zero is not None and z is not None and zero.domain == "value":
        w = w - z
    with np.errstate(over="ignore"):
        q = np.divide(w, s, out=np.zeros_like(w), where=s != 0)
    if zero is not None and z is not None and zero.domain == "code":
        q = np.rint(q) + z if element.kind == "int" and zero.element.kind == "int" else q + z
    q = (
        np.nan_to_num(q, copy=False, nan=0.0, posinf=np.inf, neginf=-np.inf)
        if element.nan_code is not None
        else q
    )
    return element.nearest(q)


def _legacy_inverse(
    format: Descriptor, wanted: NDArray[np.float64] | None, scale: NDArray[np.float64]
) -> NDArray[np.float32] | None:
    """1 / scale in float32 from the scale before rounding, for integers under signed_absmax; None for all
    others.

    Where the stored scale is not simply the nearest of its type (it was kept from overflow or from 0), the
    stored one.
    """
    ours = len(format.scales) == 1 and format.scales[0].rule == "signed_absmax"
    if not ours or wanted is None or format.element.kind != "int" or format.zero is not None:
        return None
    element = format.scales[0].element
    plain = element.decode(element.encode(wanted)).astype(np.float64) == scale
    kept = np.where(plain & (np.abs(wanted) <= element.high if not element.wide else plain), wanted, scale)
    with np.errstate(over="ignore"):
        return np.divide(1, kept, out=np.zeros_like(kept), where=kept != 0).astype(np.float32)


def _legacy_codes(
    w: NDArray[np.float64], inverse: NDArray[np.float32], element: Element
) -> NDArray[np.uint8]:
    single = np.clip(w, -FLOAT32_MAX, FLOAT32_MAX).astype(np.float32)
    with np.errstate(over="ignore"):
        shifted = single * inverse + np.float32(0.5 - element.low)
    whole = np.clip(np.trunc(np.nan_to_num(shifted, nan=-element.low)), 0, element.high - element.low)
    return element.nearest(whole.astype(np.float64) + element.low)
