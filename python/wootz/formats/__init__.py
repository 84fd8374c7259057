"""Quantised formats at run time: packer, decoder and tensors, driven by descriptors alone."""

from __future__ import annotations

from .dequantize import decode, decode_exact
from .descriptor import Descriptor
from .element import Element
from .quantize import quantize
from .tensor import QuantizedTensor, from_fields

__all__ = ["Descriptor", "Element", "QuantizedTensor", "decode", "decode_exact", "from_fields", "quantize"]
