"""Which kernel of a library does what an op is asked for. The rules are the index': signatures, their limits,
and what is shipped for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch

from ..errors import FormatError, NoKernelError
from ..formats import Descriptor
from ..kernel import Kernel
from ..library import Library
from ..plan import Plan
from ..signature import Binding, Operand, Signature
from .plans import Plans
from .tensors import KINDS

__all__ = ["Dispatch", "Product", "Request", "aligned", "device_name"]

_KNOWN = 1024
"""Most kernels, and most choices, that are remembered."""


def device_name(device: torch.device) -> str:
    """As Library.kernel takes it."""
    return f"cuda:{device.index or 0}" if device.type == "cuda" else device.type


class Request(NamedTuple):
    """What Library.kernel is asked for."""

    name: str
    format: str | None
    dtype: str
    device: str | None
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Product:
    """A kernel for x[m, k] w[n, k]^T, and the most rows of x that it takes; None: any number."""

    request: Request
    most: int | None


class Dispatch:
    """The kernels and plans of one library, remembered. All raise NoKernelError where it has none."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._plans = Plans()
        self.kernel: Callable[[Request], Kernel] = lru_cache(_KNOWN)(self._kernel)
        self.products: Callable[[str, str, str, str], tuple[Product, ...]]
        self.products = lru_cache(_KNOWN)(self._products)
        self.format: Callable[[str], Descriptor] = lru_cache(_KNOWN)(self._format)

    @cached_property
    def signatures(self) -> tuple[Signature, ...]:
        """Of all kernels, in the order of their names."""
        return tuple(map(Signature.parse, self.library.index.records("kernels")))

    def choices(self, name: str, option: str) -> set[str]:
        """The values of an option that the library has cells of."""
        cells = self.library.index.records("cells", f"{name}.")
        return {cell["options"][option] for cell in cells if option in cell["options"]}

    def only_dtype(self, name: str, format: str) -> str:
        """The dtype of a kernel whose cells of a format differ in nothing else."""
        cell = next(self.library.index.records("cells", f"{name}/{format}/"), None)
        if cell is None:
            raise NoKernelError(f"{name}/{format} is not in {self.library.where}")
        return str(cell["dtype"])

    def call(
        self, request: Request, operands: Mapping[str, Any], scalars: Mapping[str, Any], out: Any = None
    ) -> Any:
        """Launches a kernel; operands by name, in the order of calls. A problem that comes again has a plan.

        Not while a stream is captured: a plan owns its workspace, and the graph would not keep the plan; a
        kernel's workspace is the graph's own memory. Raises what kernels raise.
        """
        kernel = self.kernel(request)
        if request.device != "cpu" and torch.cuda.is_current_stream_capturing():
            return kernel(**operands, **scalars, out=out)
        shapes = tuple((name, tuple(each.shape)) for name, each in operands.items())
        plan = self._plans.find(
            (request, shapes, tuple(scalars.items())), lambda: self._plan(kernel, request, operands, scalars)
        )
        if plan is None:
            return kernel(**operands, **scalars, out=out)
        return plan(*operands.values(), out=out) if plan.signature.plain else plan(**operands, out=out)

    def multiply(self, x: torch.Tensor, w: Any, kind: str, dtype: str) -> torch.Tensor:
        """x[m, k] w[n, k]^T for any m: the kernel with the narrowest limit that takes m rows; in slices of
        rows where none takes them all. Raises what the kernels raise.
        """
        products = self.products(kind, w.format.name, dtype, device_name(x.device))
        rows, last = x.shape[0], products[-1]
        for product in products:
            if product.most is None or rows <= product.most:
                made: torch.Tensor = self.call(product.request, {"x": x, "w": w}, {})
                return made
        most, out = last.most or rows, x.new_empty((rows, w.shape[0]))
        for start in range(0, rows, most):
            part = aligned(x[start : start + most])
            out[start : start + most] = self.call(last.request, {"x": part, "w": w}, {})
        return out

    # ---- what is remembered

    def _format(self, marked: str) -> Descriptor:
        """The format of a mark, NAME@DIGEST, or of a name alone. Raises FormatError where the library has
        another definition under that name.
        """
        name, _, digest = marked.partition("@")
        found = self.library.format(name)
        if digest and digest != found.digest:
            raise FormatError(
                f"format {name} has another definition than in {self.library.where}: quantise again with the "
                "library's own, or open the library that the tensor was made with"
            )
        return found

    def _kernel(self, request: Request) -> Kernel:
        name, format, dtype, device, options = request
        kernel = self.library.kernel(name, format, dtype, device, **dict(options))
        if device is not None:
            kernel.preload(device)  # a first call may come while a stream is captured
        return kernel

    def _plan(
        self, kernel: Kernel, request: Request, operands: Mapping[str, Any], scalars: Mapping[str, Any]
    ) -> Plan | None:
        """A plan for operands of these extents; None where there is none: the kernel broadcasts, or a
        tensor has a format of its own."""
        if kernel.signature.broadcasts or any(each.format for each in kernel.signature.operands):
            return None
        binding = Binding(kernel.signature)
        for each in kernel.signature.operands:
            if each.name in operands:
                binding.bind(each, tuple(operands[each.name].shape))
        given = {
            each.name: True for each in kernel.signature.operands if each.optional and each.name in operands
        }
        extents = {axis: n for axis, n in binding.values.items() if axis not in binding.left_out()}
        settled = {**extents, **scalars, **given, **dict(request.options)}
        assert request.device is not None, "calls are on a device"
        return self.library.plan(
            request.name, device=request.device, format=request.format, dtype=request.dtype, **settled
        )

    def _products(self, kind: str, format: str, dtype: str, device: str) -> tuple[Product, ...]:
        """Those shipped for weights of a kind on a device, narrow limits first."""
        names, found = [], []
        for name, most in self._multiplying(kind):
            names.append(name)
            request = Request(name, format, dtype, device)
            try:
                self.kernel(request)
            except NoKernelError:
                continue
            found.append(Product(request, most))
        if not found:
            stems = [f"{name}/{format}/{dtype}" for name in names]
            shipped = "; ".join(f"{stem} for {self.library.shipped(stem)}" for stem in stems)
            layout = next(each for each, of in KINDS.items() if of == kind)
            raise NoKernelError(
                f"no product of {dtype} activations and {format} weights in the {layout} layout on {device}; "
                f"{self.library.where} ships: {shipped or 'none in this layout'}"
            )
        return tuple(sorted(found, key=lambda each: (each.most is None, each.most)))

    def _multiplying(self, kind: str) -> Iterator[tuple[str, int | None]]:
        """Kernels that give x[m, k] w[n, k]^T and take nothing else, with the most rows that they take."""
        wanted = [("x", "array", ("m", "k")), ("w", kind, ("n", "k")), ("y", "array", ("m", "n"))]
        for each in self.signatures:
            arrays = (*each.operands, each.output)
            alone = each.plain and not each.options and not any(map(_has_own, arrays))
            if alone and [(one.name, one.kind, one.shape) for one in arrays] == wanted:
                yield each.name, each.limits["m"][1] if "m" in each.limits else None


def _has_own(operand: Operand) -> bool:
    """Whether its type or format is not the cell's."""
    return bool(operand.dtype or operand.format)


def aligned(x: Any) -> Any:
    """x, or a copy of it that is dense and begins at a multiple of 16 bytes."""
    x = x.detach()
    return (
        x if x.is_contiguous() and x.data_ptr() % 16 == 0 else x.clone(memory_format=torch.contiguous_format)
    )
