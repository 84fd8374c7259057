"""Which kernel of a library does what an op is asked for. The rules are the index': signatures, their limits,
and what is shipped for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch

from ..errors import FormatError, NoKernelError
from ..formats import Descriptor
from ..kernel import Kernel
from ..library import Library
from ..signature import Operand, Signature
from .tensors import KINDS, Parts

__all__ = ["Dispatch", "Product", "device_name"]

_KNOWN = 1024
"""Most kernels, and most choices, that are remembered."""


def device_name(device: torch.device) -> str:
    """As Library.kernel takes it."""
    return f"cuda:{device.index or 0}" if device.type == "cuda" else device.type


@dataclass(frozen=True)
class Product:
    """A kernel for x[m, k] w[n, k]^T, and the most rows of x that it takes; None: any number."""

    kernel: Kernel
    most: int | None


class Dispatch:
    """The kernels of one library, remembered. All raise NoKernelError where the library has none."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.kernel: Callable[..., Kernel] = lru_cache(_KNOWN)(self._kernel)
        self.products: Callable[..., tuple[Product, ...]] = lru_cache(_KNOWN)(self._find_products)
        self._formats: Callable[[str], Descriptor] = lru_cache(_KNOWN)(self._find_format)

    @cached_property
    def signatures(self) -> tuple[Signature, ...]:
        """Of all kernels, in the order of their names."""
        return tuple(map(Signature.parse, self.library.index.records("kernels")))

    def format(self, marked: str) -> Descriptor:
        """The format of a mark, NAME@DIGEST, or of a name alone. Raises FormatError where the library has
        another definition under that name.
        """
        return self._formats(marked)

    def _find_format(self, marked: str) -> Descriptor:
        name, _, digest = marked.partition("@")
        found = self.library.format(name)
        if digest and digest != found.digest:
            raise FormatError(
                f"format {name} has another definition than in {self.library.path}: quantise again with the "
                "library's own, or open the library that the tensor was made with"
            )
        return found

    def _kernel(
        self,
        name: str,
        format: str | None,
        dtype: str,
        device: str | None,
        options: tuple[tuple[str, str], ...],
    ) -> Kernel:
        kernel = self.library.kernel(name, format, dtype, device, **dict(options))
        if device is not None:
            kernel.preload(device)  # a first call may come while a stream is captured
        return kernel

    def choices(self, name: str, option: str) -> set[str]:
        """The values of an option that the library has cells of."""
        cells = self.library.index.records("cells", f"{name}.")
        return {cell["options"][option] for cell in cells if option in cell["options"]}

    def only_dtype(self, name: str, format: str) -> str:
        """The dtype of a kernel whose cells of a format differ in nothing else."""
        cell = next(self.library.index.records("cells", f"{name}/{format}/"), None)
        if cell is None:
            raise NoKernelError(f"{name}/{format} is not in {self.library.path}")
        return str(cell["dtype"])

    def multiply(self, x: torch.Tensor, w: Parts, dtype: str) -> torch.Tensor:
        """x[m, k] w[n, k]^T for any m: the kernel with the narrowest limit that takes m rows; in slices of
        rows where none takes them all. Raises what the kernels raise.
        """
        products = self.products(w.layout, w.format.name, dtype, device_name(x.device))
        rows = x.shape[0]
        for product in products:
            if product.most is None or rows <= product.most:
                made: torch.Tensor = product.kernel(x, w)
                return made
        kernel, most = products[-1].kernel, products[-1].most or rows
        out = x.new_empty((rows, w.shape[0]))
        for start in range(0, rows, most):
            # a slice of rows need not lie on 16 bytes
            part = kernel(aligned(x[start : start + most]), w)
            out[start : start + most] = part
        return out

    def _find_products(self, layout: str, format: str, dtype: str, device: str) -> tuple[Product, ...]:
        """Those shipped for a device, narrow limits first."""
        names, found = [], []
        for name, most in self._multiplying(KINDS[layout]):
            names.append(name)
            try:
                found.append(Product(self.kernel(name, format, dtype, device, ()), most))
            except NoKernelError:
                continue
        if not found:
            stems = [f"{name}/{format}/{dtype}" for name in names]
            shipped = "; ".join(f"{stem} for {self.library.shipped(stem)}" for stem in stems)
            raise NoKernelError(
                f"no product of {dtype} activations and {format} weights in the {layout} layout on {device}; "
                f"{self.library.path} ships: {shipped or 'none in this layout'}"
            )
        return tuple(sorted(found, key=lambda each: (each.most is None, each.most)))

    def _multiplying(self, kind: str) -> Iterator[tuple[str, int | None]]:
        """Kernels that give x[m, k] w[n, k]^T and take nothing else, with the most rows that they take."""
        wanted = ((("array"), ("m", "k")), (kind, ("n", "k")))
        for each in self.signatures:
            takes = tuple((operand.kind, operand.shape) for operand in each.operands)
            alone = each.plain and not each.options and all(map(_is_plain, (*each.operands, each.output)))
            if alone and takes == wanted and (each.output.kind, each.output.shape) == ("array", ("m", "n")):
                yield each.name, each.limits["m"][1] if "m" in each.limits else None


def _is_plain(operand: Operand) -> bool:
    """Whether its type and format are the cell's."""
    return not (operand.dtype or operand.format)


def aligned(x: Any) -> Any:
    """x, or a copy of it that is dense and begins at a multiple of 16 bytes."""
    x = x.detach()
    return (
        x if x.is_contiguous() and x.data_ptr() % 16 == 0 else x.clone(memory_format=torch.contiguous_format)
    )
