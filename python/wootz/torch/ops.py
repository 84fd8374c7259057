"""A library's kernels as custom ops of torch."""

from __future__ import annotations

import re
from typing import Any

import torch

from ..errors import ArgumentError, near
from ..library import Library, default_library, load
from ..signature import Signature
from .dispatch import Dispatch
from .kernel_op import KernelOp
from .linear_op import LINEAR, LinearOp, linear
from .tensors import flatten

__all__ = ["NAMESPACE", "Ops", "default_ops", "register", "registered"]

NAMESPACE = "wootz"
_DEVICES = ("CPU", "CUDA")
_REGISTERED: dict[str, Ops] = {}


def register(library: Library | str, namespace: str | None = None) -> Ops:
    """Defines an op for every kernel of the library, torch.ops.NAMESPACE.KERNEL, and the op `linear`, which
    chooses among them. Exported programs name these ops: whoever loads one registers the library first.

    library: one that is open, or the name of an installed one (wootz.load), whose namespace is its name, with
    "_" for "-" and ".", unless another is given. Raises ArgumentError for a namespace that is no identifier,
    or is taken; what wootz.load raises.
    """
    if isinstance(library, str):
        namespace = re.sub(r"[-.]", "_", library) if namespace is None else namespace
        library = load(library)
    if not isinstance(namespace, str) or not namespace.isidentifier():
        raise ArgumentError(f"namespace is {namespace!r}; want an identifier")
    taken = _REGISTERED.get(namespace)
    if taken is not None and taken.library.parts != library.parts:
        raise ArgumentError(
            f"namespace {namespace!r} has the ops of {taken.library.where}: choose another namespace"
        )
    if taken is None:
        taken = _REGISTERED[namespace] = Ops(library, namespace)
    return taken


def default_ops(namespace: str = NAMESPACE) -> Ops:
    """The ops of a namespace; the default library's are defined now where they are not yet. Raises
    ArgumentError for one that is not registered, ArtifactError where there is no default library.
    """
    found = _REGISTERED.get(namespace)
    if found is None and namespace != NAMESPACE:
        raise ArgumentError(
            f"no ops in namespace {namespace!r}: call wootz.torch.register(library, {namespace!r})"
        )
    return found or register(default_library(), NAMESPACE)


def registered(namespace: str) -> Ops | None:
    """The ops of a namespace, once `register` has defined them."""
    return _REGISTERED.get(namespace)


class Ops:
    """The ops of one library as functions, ops.KERNEL(...) and ops.linear(x, w, bias); `register` makes it.

    A function takes what the kernel takes: torch tensors, quantised tensors with torch fields, scalars by
    name, options by name (out="same" unless said), and where no operand has it, dtype= or format=. The first
    operand is copied where it is not dense or not on 16 bytes; others are refused. Results are new: torch
    tensors, or a PackedTensor or TiledTensor. A kernel that reads on the device which rows to compute leaves
    the others 0. The launch goes to the current stream. Raises what the kernel raises, ArgumentError for an
    operand that requires grad while gradients are recorded.
    """

    def __init__(self, library: Library, namespace: str) -> None:
        self.library, self.namespace = library, namespace
        self.dispatch = Dispatch(library)
        self._definitions = torch.library.Library(namespace, "FRAGMENT")
        self._define(LINEAR, LinearOp(self.dispatch))
        self._kernels = {}
        for signature in self.dispatch.signatures:
            if _expressible(signature):
                op = self._kernels[signature.name] = KernelOp(self.dispatch, signature, namespace)
                self._define(signature.name, op)

    def _define(self, name: str, op: LinearOp | KernelOp) -> None:
        self._definitions.define(f"{name}{op.schema}", tags=(torch.Tag.pt2_compliant_tag,))
        for device in _DEVICES:
            self._definitions.impl(name, op.run, device)
        torch.library.register_fake(f"{self.namespace}::{name}", op.fake, lib=self._definitions)

    def __getattr__(self, name: str) -> Any:
        kernels = self.__dict__.get("_kernels", {})
        if name not in kernels:
            raise AttributeError(
                f"{self.library.where} has no kernel {name!r} for torch{near(name, kernels)}"
            )
        return kernels[name]

    def __dir__(self) -> list[str]:
        return [LINEAR, "library", "namespace", *self._kernels]

    def __repr__(self) -> str:
        return f"<torch.ops.{self.namespace}: {len(self._kernels) + 1} ops of {self.library.where}>"

    def linear(self, x: torch.Tensor, w: Any, bias: torch.Tensor | None = None) -> torch.Tensor:
        """x[..., K] w^T + bias, w a QuantizedTensor or PackedTensor of shape (N, K): [..., N] of x's dtype.

        The kernel is the one with the narrowest limit of rows that takes x's; x is copied where it is not
        dense or not on 16 bytes. The bias is added in x's dtype. Raises ArgumentError (shapes, x requires
        grad), DtypeError, FormatError, DeviceError, NoKernelError: none for that dtype, layout and device.
        """
        fields, format, shape, layout = flatten("w", w)
        return linear(self.namespace, x, fields, format, shape, layout, bias)


def _expressible(signature: Signature) -> bool:
    """Whether torch has a schema for it: a name of its own."""
    return signature.name.isidentifier() and signature.name != LINEAR
