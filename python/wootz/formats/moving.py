"""Arrays from one device, and one library, to another."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..lazy_numpy import is_ndarray, np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["array_mover", "to_numpy"]


def array_mover(device: str) -> Callable[[Any], Any]:
    """A function that brings any array to the device; see QuantizedTensor.to."""
    if device == "cpu":
        return to_numpy
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number or "0").isdecimal():
        raise ArgumentError(f'device: wanted "cpu" or "cuda:N"; got {device!r}')
    try:
        torch = importlib.import_module("torch")
        if torch.cuda.is_available():
            return lambda a: _torch_tensor(torch, a).to(f"cuda:{number or 0}")
    except ImportError:
        pass
    try:
        cupy = importlib.import_module("cupy")
    except ImportError:
        to_device = importlib.import_module("wootz.arrays").to_device
        return lambda a: to_device(to_numpy(a), device)

    def to_cupy(a: Any) -> Any:
        with cupy.cuda.Device(int(number or 0)):
            return cupy.asarray(a)

    return to_cupy


def _torch_tensor(torch: Any, a: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(a)) if is_ndarray(a) else torch.as_tensor(a)


def to_numpy(a: Any) -> NDArray[Any]:
    if is_ndarray(a):
        return a
    if hasattr(a, "detach"):
        return np.asarray(a.detach().cpu().numpy())
    for copy in ("get", "numpy"):
        if hasattr(a, copy):
            return np.asarray(getattr(a, copy)())
    return np.asarray(a)
