"""NumPy's way, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...formats.packed import PackedTensor, unpack
from ._peer import Given, Made, Peer


def _dequantised(given: Given) -> Made:
    """Dequantise, then multiply."""

    def run(o: Any) -> Any:
        w = unpack(o["w"]) if isinstance(o["w"], PackedTensor) else o["w"]
        return o["x"] @ w.dequantize().T

    return _made(given, run)


def _made(given: Given, run: Callable[[Any], Any]) -> Made:
    def off() -> float:
        return given.distance(np.ascontiguousarray(run(given.placed.operands[0])))

    return Made(given.each(lambda o, i: lambda: run(o)), off)


def _softmax(o: Any) -> Any:
    with np.errstate(all="ignore"):
        e = np.exp(o["x"] - o["x"].max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)


def _rms_norm(o: Any) -> Any:
    with np.errstate(all="ignore"):
        x = o["x"]
        return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + np.float32(1e-6)) * o["weight"]


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "binary.add": lambda o: o["a"] + o["b"],
    "binary.mul": lambda o: o["a"] * o["b"],
    "softmax": _softmax,
    "rms_norm": _rms_norm,
    "dequant": lambda o: o["w"].dequantize(),
}


def _plain(run: Callable[[Any], Any]) -> Callable[[Given], Made]:
    return lambda given: _made(given, run)


def _peer(kernels: tuple[str, ...], computes: str, make: Callable[[Given], Made]) -> Peer:
    return Peer("numpy", "numpy", "cpu", kernels, computes, make, dtypes=("f32",))


PEERS = (
    _peer(("qgemv", "qmm"), "dequantises, then multiplies", _dequantised),
    *(_peer((name,), "NumPy's own", _plain(run)) for name, run in _FUNCTIONS.items()),
)
