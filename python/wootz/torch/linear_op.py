"""The op that multiplies by quantised weights, by whichever kernel suits the number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import ArgumentError
from .dispatch import Dispatch, aligned
from .tensors import KINDS, assemble, check_matrix, refuse_grad, short_dtype

__all__ = ["LINEAR", "LinearOp", "linear"]

LINEAR = "linear"


class LinearOp:
    """The op that chooses among the kernels for x w^T."""

    schema = "(Tensor x, Tensor[] w, str w_format, SymInt[] w_shape, str w_layout) -> Tensor"

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    def run(self, x: torch.Tensor, *weights: Any) -> torch.Tensor:
        """The launch."""
        w, kind = self._read(x, *weights)
        return self._dispatch.multiply(aligned(x), w, kind, short_dtype("x", x.dtype))

    def fake(self, x: torch.Tensor, *weights: Any) -> torch.Tensor:
        """An empty result, of extents that may be symbols."""
        w, _ = self._read(x, *weights)
        short_dtype("x", x.dtype)
        if x.dim() != 2 or x.shape[1] != w.shape[1]:
            raise ArgumentError(f"x has shape {list(x.shape)}; want [m, {w.shape[1]}]")
        return x.new_empty((x.shape[0], w.shape[0]))

    def _read(
        self, x: torch.Tensor, w: Sequence[torch.Tensor], format: str, shape: Sequence[int], layout: str
    ) -> tuple[Any, str]:
        """The quantised tensor, and its kind."""
        kind = KINDS.get(layout)
        if kind is None:
            raise ArgumentError(f"w_layout is {layout!r}; want one of {', '.join(KINDS)}")
        made = assemble("w", kind, self._dispatch.format(format), shape, w)
        refuse_grad({"x": x, **made.fields})
        return made, kind


def linear(
    namespace: str,
    x: torch.Tensor,
    fields: Sequence[torch.Tensor],
    format: str,
    shape: Sequence[int],
    layout: str,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """Ops.linear, of a flattened weight."""
    check_matrix("w", shape)
    n, k = shape
    if not isinstance(x, torch.Tensor):
        raise ArgumentError(f"x is a {type(x).__name__}; want a torch tensor")
    if x.dim() < 1 or x.shape[-1] != k:
        raise ArgumentError(f"x has shape {list(x.shape)}; want [..., {k}]: the weights are {n} x {k}")
    op = getattr(getattr(torch.ops, namespace), LINEAR)
    y: torch.Tensor = op(x.reshape(-1, k), fields, format, shape, layout)
    y = y.reshape(*x.shape[:-1], n)
    return y if bias is None else y + bias.to(y.dtype)
