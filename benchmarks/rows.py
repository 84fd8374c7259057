"""Elementwise, reduction and row kernels on a CUDA device, and those that move: bytes moved against those of
a copy, and torch.

Each case rotates over enough arrays to outgrow the L2; graphs of ours, of torch's and of a device-to-device
copy are replayed in turn, because the clock follows the power that they draw. `of_copy`: bytes read and
written a second, over the copy's; the medians of ratios of neighbours.

python benchmarks/rows.py [--dtypes f16,bf16,f32] [--shape 8192x8192] [--only softmax,...] [--json FILE]
                          [--artifacts DIR]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import common
import torch
import wootz

ROTATE_BYTES = 300 << 20
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
functional = torch.nn.functional


@dataclass(frozen=True)
class Case:
    """traffic: arrays of [m, n] that are read or written, at least. operands, theirs: of (x, beside), what is
    passed to our kernel, and torch's call."""

    kernel: str
    options: dict[str, str]
    traffic: float
    operands: Callable[[Any, dict[str, Any]], tuple[Any, ...]]
    theirs: Callable[[Any, dict[str, Any]], Any]


def _x(x: Any, beside: dict[str, Any]) -> tuple[Any, ...]:
    return (x,)


def _normed(x: Any, beside: dict[str, Any]) -> Any:
    return functional.rms_norm(x, (x.shape[1],), beside["weight"], 1e-6)


def _added(x: Any, beside: dict[str, Any]) -> Any:
    beside["residual"].add_(x)
    return _normed(beside["residual"], beside)


def _turned(x: Any, beside: dict[str, Any]) -> Any:
    one, two = x.view(x.shape[0], -1, 128).split(64, dim=-1)
    cosine, sine = beside["cosines"], beside["sines"]
    return torch.cat((one * cosine - two * sine, two * cosine + one * sine), dim=-1)


CASES = (
    Case("unary", {"op": "gelu"}, 2, _x, lambda x, _: functional.gelu(x)),
    Case("unary", {"op": "silu"}, 2, _x, lambda x, _: functional.silu(x)),
    Case("unary", {"op": "tanh"}, 2, _x, lambda x, _: x.tanh()),
    Case("binary_broadcast", {"op": "add"}, 2, lambda x, b: (x, b["weight"]), lambda x, b: x + b["weight"]),
    Case("reduce", {"op": "sum"}, 1, _x, lambda x, _: x.sum(1)),
    Case("reduce", {"op": "argmax"}, 1, _x, lambda x, _: x.argmax(1)),
    Case("reduce_all", {"op": "sum"}, 1, lambda x, _: (x.view(-1),), lambda x, _: x.sum()),
    Case("cumsum", {"mode": "inclusive"}, 2, _x, lambda x, _: x.cumsum(1)),
    Case("softmax", {}, 2, _x, lambda x, _: x.softmax(1)),
    Case("log_softmax", {}, 2, _x, lambda x, _: x.log_softmax(1)),
    Case("rms_norm", {}, 2, lambda x, b: (x, b["weight"]), _normed),
    Case(
        "layer_norm", {}, 2, lambda x, b: (x, b["weight"], b["bias"]),
        lambda x, b: functional.layer_norm(x, (x.shape[1],), b["weight"], b["bias"]),
    ),
    Case("add_rms_norm", {}, 4, lambda x, b: (x, b["residual"], b["weight"]), _added),
    Case(
        "swiglu", {}, 1.5, _x,
        lambda x, _: functional.silu(x[:, : x.shape[1] // 2]) * x[:, x.shape[1] // 2 :],
    ),
    Case(
        "rope", {"layout": "half"}, 2, lambda x, b: (x.view(x.shape[0], -1, 128), b["positions"]),
        _turned,
    ),
    Case("gather", {}, 2, lambda x, b: (x, b["order"]), lambda x, b: x.index_select(0, b["order"])),
    Case(
        "scatter", {}, 2, lambda x, b: (x, b["order"], b["residual"]),
        lambda x, b: b["residual"].index_copy_(0, b["long order"], x),
    ),
    Case("transpose", {}, 2, lambda x, _: (x[None],), lambda x, _: x.T.contiguous()),
    Case("copy_strided", {}, 2, lambda x, _: (x.T,), lambda x, _: x.T.contiguous()),
)  # fmt: skip


def run(lib: Any, case: Case, dtype: str, m: int, n: int) -> dict[str, Any]:
    """Microseconds of ours, torch's and a copy of [m, n], and what follows from them."""
    bytes_each = m * n * TYPES[dtype].itemsize
    count = max(2, ROTATE_BYTES // (2 * bytes_each))
    kernel = lib.kernel(case.kernel, dtype=dtype, device="cuda:0", **case.options)
    kernel.preload("cuda:0")
    random = [torch.randn(m, n, device="cuda").to(TYPES[dtype]) for _ in range(count)]
    beside = {name: torch.randn(n, device="cuda").to(TYPES[dtype]) for name in ("weight", "bias")}
    beside |= {"residual": random[-1].clone(), "positions": torch.arange(m, device="cuda", dtype=torch.int32)}
    order = torch.randperm(m, device="cuda")
    beside |= {"order": order.int(), "long order": order}
    angles = torch.rand(m, 1, 64, device="cuda")
    beside |= {"cosines": angles.cos().to(TYPES[dtype]), "sines": angles.sin().to(TYPES[dtype])}
    copies = [torch.empty_like(x) for x in random]
    outs = [kernel(*case.operands(x, beside)) for x in random]
    ours = [lambda x=x, y=y: kernel(*case.operands(x, beside), out=y) for x, y in zip(random, outs)]
    theirs = [lambda x=x: case.theirs(x, beside) for x in random]
    copy = [lambda x=x, y=y: y.copy_(x) for x, y in zip(random, copies)]
    times = common.measure(ours, theirs, copy)
    us, torch_us, copy_us = times.us
    name = ".".join((case.kernel, *case.options.values()))
    return {
        "kernel": name, "dtype": dtype, "m": m, "n": n, "us": round(us, 1), "torch_us": round(torch_us, 1),
        "copy_us": round(copy_us, 1), "of_copy": round(case.traffic / 2 * times.ratios[2], 3),
        "of_torch": round(times.ratios[1], 2),
    }  # fmt: skip


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--dtypes", default="f16,bf16,f32")
    parser.add_argument("--shape", default="8192x8192")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    m, n = map(int, options.shape.split("x"))
    lib, rows = wootz.load(options.artifacts), []
    only = [name for name in options.only.split(",") if name]
    for case in (c for c in CASES if not only or c.kernel in only):
        for dtype in options.dtypes.split(","):
            rows.append(run(lib, case, dtype, m, n))
            print(rows[-1], flush=True)
    common.write(options.json, rows)


if __name__ == "__main__":
    main()
