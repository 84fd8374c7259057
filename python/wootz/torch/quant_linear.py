"""QuantLinear: torch.nn.Linear with quantised weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..errors import ArgumentError, DeviceError, FormatError
from ..formats import Descriptor, QuantizedTensor, quantize
from ..formats.packed import PackedTensor, prepack
from ..layouts import make
from .linear_op import linear
from .ops import NAMESPACE, default_ops
from .tensors import KINDS, check_matrix, flatten

__all__ = ["QuantLinear"]

_VERSION = 1
_STATE = "_extra_state"


class QuantLinear(torch.nn.Module):
    """y = x w^T + bias for quantised w: x [..., K] in f16, bf16 or f32 gives [..., N] of the same dtype.

    weight: a QuantizedTensor (natural layout) or PackedTensor of shape (N, K); NumPy fields are taken as they
    are. bias: [N], floating point; added in x's dtype. namespace: of the ops, see `register`.

    The fields are buffers, under their own names; .to(device) moves them, and .half() and other casts change
    the bias alone. The state dict holds them and, as JSON in a tensor, format, layout and shape, which are
    compared before anything is loaded (FormatError). Inference alone: x that requires grad is refused while
    gradients are recorded. The kernel is chosen by the number of rows at each call; see Ops.linear for it and
    for what is raised.
    """

    def __init__(self, weight: Any, bias: torch.Tensor | None = None, *, namespace: str = NAMESPACE) -> None:
        super().__init__()
        if not isinstance(weight, QuantizedTensor | PackedTensor):
            raise ArgumentError(
                f"weight is a {type(weight).__name__}; want a QuantizedTensor or a PackedTensor: "
                "wootz.quantize(w, format), or QuantLinear.from_float"
            )
        weight = weight.map(_tensor)
        fields, self._mark, shape, self._layout = flatten("weight", weight)
        check_matrix("weight", shape)
        self.out_features, self.in_features = shape
        self.namespace, self._format = namespace, _plain(weight.format.raw)
        self._names, self._types = tuple(weight.fields), tuple(each.dtype for each in fields)
        for name, each in zip(self._names, fields):
            self.register_buffer(name, each)
        self.bias = None if bias is None else torch.nn.Parameter(_bias(bias, shape[0]), requires_grad=False)

    @classmethod
    def from_float(
        cls, weight: Any, format: Any, *, bias: torch.Tensor | None = None, packed: bool = False,
        namespace: str = NAMESPACE,
    ) -> QuantLinear:  # fmt: skip
        """Quantises weights [N, K], a tensor or array of floating-point numbers, on the CPU; the layer is on
        their device. format: a name, looked up in the namespace's library, or a descriptor. packed: in the
        packed layout, which matrix kernels read fastest. Raises what wootz.quantize and wootz.prepack raise.
        """
        device = weight.device if isinstance(weight, torch.Tensor) else torch.device("cpu")
        if isinstance(weight, torch.Tensor):
            weight = weight.detach().float().cpu().numpy()
        if isinstance(format, str):
            format = default_ops(namespace).library.format(format)
        made: Any = quantize(np.asarray(weight), format)
        layer = cls(prepack(made) if packed else made, bias, namespace=namespace)
        layer.to(device)
        return layer

    @classmethod
    def from_linear(
        cls, linear: torch.nn.Linear, format: Any, *, packed: bool = False, namespace: str = NAMESPACE
    ) -> QuantLinear:
        """The layer with its weights quantised; its bias is copied. See from_float."""
        if not isinstance(linear, torch.nn.Linear):
            raise ArgumentError(f"linear is a {type(linear).__name__}; want a torch.nn.Linear")
        bias = None if linear.bias is None else linear.bias.detach().clone()
        return cls.from_float(linear.weight, format, bias=bias, packed=packed, namespace=namespace)

    @property
    def weight(self) -> Any:
        """The QuantizedTensor or PackedTensor over the layer's buffers."""
        fields = {name: getattr(self, name) for name in self._names}
        return make(KINDS[self._layout], self.format, (self.out_features, self.in_features), fields)

    @property
    def format(self) -> Descriptor:
        """The format of the weights."""
        return Descriptor.parse(self._format)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class. Raises DeviceError where x is on another device than the weights."""
        fields = [getattr(self, name) for name in self._names]
        if x.device != fields[0].device:
            raise DeviceError(f"x is on {x.device}, the weights are on {fields[0].device}: move one of them")
        shape = [self.out_features, self.in_features]
        return linear(self.namespace, x, fields, self._mark, shape, self._layout, self.bias)

    def extra_repr(self) -> str:
        name = self._format["name"]
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, format={name}, "
            f"layout={self._layout}, bias={self.bias is not None}"
        )

    # ---- moving and casting

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> QuantLinear:
        """Moves the fields' bytes, whatever type is asked for: a scale that is cast is no longer the one that
        the codes were made with.
        """
        fields = {id(getattr(self, name)) for name in self._names}

        def guarded(tensor: torch.Tensor) -> torch.Tensor:
            return _bytes_moved(fn, tensor) if id(tensor) in fields else fn(tensor)

        moved: QuantLinear = super()._apply(guarded, recurse)
        return moved

    # ---- state

    def __getstate__(self) -> dict[str, Any]:
        """The fields as bytes: torch pickles no unsigned 16-bit integers."""
        raw = {name: getattr(self, name).view(torch.uint8) for name in self._names}
        return {**self.__dict__, "_buffers": {**self._buffers, **raw}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for name, dtype in zip(self._names, self._types):
            self._buffers[name] = self._buffers[name].view(dtype)

    def get_extra_state(self) -> torch.Tensor:
        text = json.dumps(self._description(), sort_keys=True)
        return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Any) -> None:
        """Raises FormatError unless the saved layer has this one's format, layout and shape."""
        saved = _read_state(state)
        for key, wanted in self._description().items():
            if saved.get(key) != wanted:
                found, here = (_label(each) for each in (saved.get(key), wanted))
                raise FormatError(
                    f"the saved weights have {key} {found}, this layer has {here}"
                    + ("; the formats have one name and two definitions" if found == here else "")
                    + ": make the layer as the saved one was made"
                )

    def _description(self) -> dict[str, Any]:
        shape = [self.out_features, self.in_features]
        return {"version": _VERSION, "layout": self._layout, "shape": shape, "format": self._format}

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        saved = state_dict.get(prefix + _STATE)
        if saved is not None:
            self.set_extra_state(saved)  # before any buffer is written
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _tensor(array: Any) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


def _bias(bias: Any, n: int) -> torch.Tensor:
    if not isinstance(bias, torch.Tensor) or tuple(bias.shape) != (n,) or not bias.is_floating_point():
        found = f"{bias.dtype} {list(bias.shape)}" if isinstance(bias, torch.Tensor) else type(bias).__name__
        raise ArgumentError(f"bias is {found}; want a floating-point tensor of shape [{n}]")
    return bias.detach()


def _plain(raw: Any) -> dict[str, Any]:
    """A descriptor's dict as JSON has it: it can be copied, pickled and compared."""
    made: dict[str, Any] = json.loads(json.dumps(raw, default=dict))
    return made


def _bytes_moved(fn: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    moved = fn(tensor.view(torch.uint8))
    if moved.dtype != torch.uint8:  # a cast of every tensor, integers too
        moved = tensor.view(torch.uint8).to(moved.device)
    return moved.view(tensor.dtype)


def _read_state(state: Any) -> dict[str, Any]:
    try:
        saved = json.loads(bytes(state.cpu().numpy()).decode())
    except (AttributeError, TypeError, ValueError):
        saved = None
    if not isinstance(saved, dict):
        raise FormatError(f"{_STATE} of the saved weights is no description of a QuantLinear")
    return saved


def _label(value: Any) -> Any:
    return value.get("name", value) if isinstance(value, dict) else value
