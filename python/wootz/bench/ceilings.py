"""The two ceilings of a device, measured: bandwidth of memory, and the rate of matrix products.

On a GPU: a reduction over 2 GiB, a copy of 1 GiB, and torch's matrix products. On a CPU: NumPy's reductions
and copies by one core, and the product of the BLAS that NumPy has.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays import parse_device
from .timing import Launch, measure

GPU_READ, CPU_READ = 2 << 30, 1 << 30
"""Bytes."""
GPU_SIDE, CPU_SIDE = 8192, 1024
"""Of square matrices; of float32 half of it on a GPU."""


@dataclass
class Ceilings:
    """Of a device by name. read_gb_s: 1e9 bytes a second; copy_gb_s: both those read and those written.
    matrix_tflops: by dtype, of those that were asked for. Each is measured once, when it is first needed."""

    device: str
    _found: dict[str, float] = field(default_factory=dict)
    matrix_tflops: dict[str, float] = field(default_factory=dict)

    @property
    def read_gb_s(self) -> float:
        return self._once("read", _gpu_read, _cpu_read)

    @property
    def copy_gb_s(self) -> float:
        return self._once("copy", _gpu_copy, _cpu_copy)

    def tflops(self, dtype: str) -> float:
        """Of products of the dtype; the CPU's are all those of float32."""
        gpu = parse_device(self.device)[0] == "cuda"
        name = dtype if gpu and dtype in _PRODUCTS else "f32"
        if name not in self.matrix_tflops:
            self.matrix_tflops[name] = _gpu_rate(self.device, name) if gpu else _cpu_rate(self.device)
        return self.matrix_tflops[name]

    def _once(self, name: str, gpu: Callable[[str], float], cpu: Callable[[str], float]) -> float:
        if name not in self._found:
            self._found[name] = (gpu if parse_device(self.device)[0] == "cuda" else cpu)(self.device)
        return self._found[name]

    def take(self, other: Ceilings) -> None:
        """What another process has measured of the device."""
        self._found.update(other._found)
        self.matrix_tflops.update(other.matrix_tflops)

    def to_json(self) -> dict[str, Any]:
        """read_gb_s, matrix_tflops; copy_gb_s where it was needed."""
        found = {"read_gb_s": self.read_gb_s, "matrix_tflops": dict(self.matrix_tflops)}
        return found | ({"copy_gb_s": self._found["copy"]} if "copy" in self._found else {})


def _us(launches: Sequence[Launch], device: str) -> float:
    return measure([launches], device).us[0]


# ---- CUDA


def _gpu_read(device: str) -> float:
    torch: Any = importlib.import_module("torch")
    data = torch.randint(0, 2**31 - 1, (GPU_READ // 4,), dtype=torch.int32, device=device)
    data = data.view(torch.float32)
    return GPU_READ / _us([lambda: torch.amax(data)] * 3, device) / 1e3


def _gpu_copy(device: str) -> float:
    torch: Any = importlib.import_module("torch")
    data = torch.randint(0, 2**31 - 1, (GPU_READ // 8,), dtype=torch.int32, device=device)
    to = torch.empty_like(data)
    # In a graph copy_ is the driver's own copy, which a kernel's may pass by half.
    copies: tuple[Launch, ...] = (lambda: to.copy_(data), lambda: torch.bitwise_not(data, out=to))
    return max(GPU_READ / _us([each] * 3, device) / 1e3 for each in copies)


def _floats(torch: Any, device: str, dtype: Any, side: int) -> Launch:
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    out = torch.empty(side, side, device=device, dtype=dtype)
    return lambda: torch.mm(a, b.T, out=out)


def _bytes(torch: Any, device: str, dtype: Any, side: int) -> Launch:
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    one = torch.ones((), device=device)
    return lambda: torch._scaled_mm(a, b.T, one, one, out_dtype=torch.bfloat16)


def _integers(torch: Any, device: str, dtype: Any, side: int) -> Launch:
    a, b = (torch.randint(-128, 128, (side, side), device=device, dtype=dtype) for _ in range(2))
    return lambda: torch._int_mm(a, b.T)


_PRODUCTS: dict[str, tuple[Callable[[Any, str, Any, int], Launch], str, int]] = {
    "bf16": (_floats, "bfloat16", GPU_SIDE),
    "f16": (_floats, "float16", GPU_SIDE),
    "f32": (_floats, "float32", GPU_SIDE // 2),
    "e4m3": (_bytes, "float8_e4m3fn", GPU_SIDE),
    "i8": (_integers, "int8", GPU_SIDE),
}
"""By dtype: what makes torch's product, torch's type, the side of the matrices."""


def _gpu_rate(device: str, dtype: str) -> float:
    torch: Any = importlib.import_module("torch")
    make, name, side = _PRODUCTS[dtype]
    launch = make(torch, device, getattr(torch, name), side)
    return float(2 * side**3 / _us([launch] * 4, device) / 1e6)


# ---- CPU


def _cpu_read(device: str) -> float:
    words = np.random.default_rng(0).integers(0, 1 << 62, CPU_READ // 8, dtype=np.uint64)
    floats = (words & np.uint64(0x3FFFFFFF3FFFFFFF)).view(np.float32)  # finite ones
    readers: tuple[Launch, ...] = (lambda: np.bitwise_or.reduce(words), lambda: np.maximum.reduce(floats))
    return max(CPU_READ / _us([each], device) / 1e3 for each in readers)


def _cpu_copy(device: str) -> float:
    data = np.random.default_rng(0).integers(0, 1 << 62, CPU_READ // 16, dtype=np.uint64)
    to = np.empty_like(data)
    return CPU_READ / _us([lambda: np.copyto(to, data)], device) / 1e3


def _cpu_rate(device: str) -> float:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((CPU_SIDE, CPU_SIDE), np.float32) for _ in range(2))
    out = np.empty_like(a)
    return float(2 * CPU_SIDE**3 / _us([lambda: np.matmul(a, b, out=out)] * 4, device) / 1e6)
