"""bitsandbytes, CuPy and Triton."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ... import arrays
from ._peer import OWN_CODES, Given, Made, Peer


def _nf4(given: Given) -> Made:
    """bitsandbytes' product of one row with weights in nf4, which it quantises itself."""
    functional = importlib.import_module("bitsandbytes.functional")
    count = min(len(given.placed.operands), 16)
    sets = [
        functional.quantize_4bit(given.dense("w", given.problem.dtype, i), blocksize=64, quant_type="nf4")
        for i in range(count)
    ]

    def run(o: Any, i: int) -> Any:
        codes, state = sets[i % count]
        return functional.gemv_4bit(o["x"], codes.t(), state=state)

    return Made(
        given.each(lambda o, i: lambda: run(o, i)), lambda: given.distance(run(given.placed.operands[0], 0))
    )


def _cupy(compute: Callable[[Any, dict[str, Any]], Any]) -> Callable[[Given], Made]:
    """On torch's current stream, arrays seen through DLPack."""

    def make(given: Given) -> Made:
        cupy: Any = importlib.import_module("cupy")
        out = given.blank()
        to = cupy.from_dlpack(out)

        def launch(o: Any) -> None:
            with arrays.on_stream(to, to.device.id, given.device.stream()):
                compute(cupy, {**o, "out": to})

        seen = [{n: cupy.from_dlpack(a) for n, a in o.items()} for o in given.placed.operands]

        def off() -> float:
            launch(seen[0])
            return given.distance(out)

        return Made(given.each(lambda _, i: lambda: launch(seen[i])), off)

    return make


def _triton_add(given: Given) -> Made:
    triton: Any = importlib.import_module("triton")
    kernel, block = importlib.import_module("._triton_kernels", __package__).add, 1024
    out = given.blank()
    grid = (triton.cdiv(out.numel(), block),)
    launches = given.each(lambda o, i: lambda: kernel[grid](o["a"], o["b"], out, out.numel(), block=block))
    return _into(given, launches, out)


def _triton_softmax(given: Given) -> Made:
    triton: Any = importlib.import_module("triton")
    kernel = importlib.import_module("._triton_kernels", __package__).softmax
    out = given.blank()
    m, n = out.shape
    block = triton.next_power_of_2(n)
    launches = given.each(lambda o, i: lambda: kernel[(m,)](o["x"], out, n, block=block, num_warps=8))
    return _into(given, launches, out)


def _into(given: Given, launches: list[Any], out: Any) -> Made:
    def off() -> float:
        launches[0]()
        return given.distance(out)

    return Made(launches, off)


_FLOATS = ("f16", "f32")
PEERS = (
    Peer(
        "bitsandbytes", "bitsandbytes", "cuda", ("qgemv",), "gemv_4bit, the same numbers in its nf4", _nf4,
        OWN_CODES, ("f16", "bf16"), ("nf4",),
    ),
    Peer(
        "cupy", "cupy", "cuda", ("binary.add",), "cupy.add",
        _cupy(lambda cp, o: cp.add(o["a"], o["b"], out=o["out"])), dtypes=_FLOATS,
    ),
    Peer(
        "cupy", "cupy", "cuda", ("unary.exp",), "cupy.exp",
        _cupy(lambda cp, o: cp.exp(o["x"], out=o["out"])), dtypes=_FLOATS,
    ),
    Peer("triton", "triton", "cuda", ("binary.add",), "a kernel of three loads and stores", _triton_add),
    Peer("triton", "triton", "cuda", ("softmax",), "a row in a block", _triton_softmax),
)  # fmt: skip
