"""GEMMs on a CUDA device against torch's own, in the same run.

A GPU's clock falls as it warms, so the two alternate: graphs of a few launches are replayed in turn, and the
ratio is the median over the rounds. Results are checked against float64 first.

python benchmarks/gemm.py [--cases bf16,fp8,...] [--shapes 8192x8192x8192,...] [--json FILE] [--artifacts DIR]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import common
import torch
import wootz
from common import Launch

ROUND_US = 6000.0
BLOCK = 128
FP8 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Case:
    """ours and torch's launch of one problem, our output, and its float64 value."""

    ours: Launch
    other: Launch
    y: torch.Tensor
    want: Callable[[], torch.Tensor]


def _matrices(m: int, n: int, k: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    if dtype == torch.int8:
        a, b = (torch.randint(-128, 128, (rows, k), device="cuda", dtype=dtype) for rows in (m, n))
        return a, b
    a, b = (torch.randn(rows, k, device="cuda").to(dtype) for rows in (m, n))
    return a, b


def dense(lib: Any, m: int, n: int, k: int, dtype: torch.dtype, name: str) -> Case:
    """Floats of 16 bits."""
    a, b = _matrices(m, n, k, dtype)
    y, z = (torch.empty(m, n, device="cuda", dtype=dtype) for _ in range(2))
    kernel = lib.kernel("gemm", dtype=name, device="cuda:0", out="same")
    other = lambda: torch.matmul(a, b.T, out=z)  # noqa: E731
    return Case(lambda: kernel(a, b, out=y), other, y, lambda: a.double() @ b.double().T)


def integers(lib: Any, m: int, n: int, k: int) -> Case:
    """8-bit integers; torch asks for more than 16 rows."""
    a, b = _matrices(m, n, k, torch.int8)
    y = torch.empty(m, n, device="cuda", dtype=torch.int32)
    kernel = lib.kernel("gemm", dtype="i8", device="cuda:0", out="same")
    other = lambda: torch._int_mm(a, b.T)  # noqa: E731
    return Case(lambda: kernel(a, b, out=y), other, y, lambda: a.double() @ b.double().T)


def scaled(lib: Any, m: int, n: int, k: int, rows: bool) -> Case:
    """8-bit floats with a scale of the tensor or of each row, sums as exact as torch's default."""
    a, b = _matrices(m, n, k, FP8)
    left, right = (torch.rand(r if rows else 1, device="cuda") + 0.5 for r in (m, n))
    y = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    kernel = lib.kernel("gemm_fp8", dtype="e4m3", device="cuda:0", out="bf16")
    scales = {"scale_a": left.view(-1, 1), "scale_b": right.view(1, -1)} if rows else {}
    scales = scales or {"scale_a": left.view(()), "scale_b": right.view(())}
    other = lambda: torch._scaled_mm(a, b.T, out_dtype=torch.bfloat16, **scales)  # noqa: E731
    want = lambda: (a.double() @ b.double().T) * left.double()[:, None] * right.double()  # noqa: E731
    return Case(lambda: kernel(a, b, left, right, out=y), other, y, want)


def blocks(lib: Any, m: int, n: int, k: int) -> Case:
    """8-bit floats with scales of blocks, against torch's with one scale of the tensor."""
    a, b = _matrices(m, n, k, FP8)
    columns = -(-k // BLOCK)
    left = torch.rand(columns, -(-m // 4) * 4, device="cuda") + 0.5
    right = torch.rand(-(-n // BLOCK), columns, device="cuda") + 0.5
    y = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    kernel = lib.kernel("gemm_fp8_block", dtype="e4m3", device="cuda:0", out="bf16")
    one = torch.ones((), device="cuda")
    other = lambda: torch._scaled_mm(a, b.T, one, one, out_dtype=torch.bfloat16)  # noqa: E731

    def want() -> torch.Tensor:
        along = left.T[:m].repeat_interleave(BLOCK, 1)[:, :k].double()
        whole = right.repeat_interleave(BLOCK, 0)[:n].repeat_interleave(BLOCK, 1)[:, :k].double()
        return (a.double() * along) @ (b.double() * whole).T

    return Case(lambda: kernel(a, b, left, right, out=y), other, y, want)


CASES: dict[str, Callable[[Any, int, int, int], Case]] = {
    "bf16": lambda lib, m, n, k: dense(lib, m, n, k, torch.bfloat16, "bf16"),
    "f16": lambda lib, m, n, k: dense(lib, m, n, k, torch.float16, "f16"),
    "i8": integers,
    "fp8": lambda lib, m, n, k: scaled(lib, m, n, k, False),
    "fp8-rows": lambda lib, m, n, k: scaled(lib, m, n, k, True),
    "fp8-blocks": blocks,
}


def measure(case: Case) -> common.Times:
    """Ours, and torch's."""
    count = common.count_for(case.ours, ROUND_US)
    return common.measure([case.ours] * count, [case.other] * count)


def error(case: Case) -> float:
    """Relative L2 distance to float64."""
    case.y.zero_()
    case.ours()
    want = case.want()
    return float((case.y.double() - want).norm() / want.norm())


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--cases", default=",".join(CASES))
    shapes = "8192x8192x8192,4096x14336x4096,1024x14336x4096,512x4096x4096,128x14336x4096,64x14336x4096"
    parser.add_argument("--shapes", default=shapes, help="M x N x K, comma separated")
    options = parser.parse_args()
    lib = wootz.load(options.artifacts)
    rows = []
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}")
    print(
        f"{'case':>11} {'M x N x K':>17} {'us':>8} {'torch us':>9} {'TFLOP/s':>8} {'x torch':>8} {'error':>9}"
    )
    for shape, (m, n, k) in common.extents(options.shapes):
        for name in options.cases.split(","):
            case = CASES[name](lib, m, n, k)
            off, times = error(case), measure(case)
            (us, torch_us), ratio = times.us, times.ratios[1]
            tflops = 2e-6 * m * n * k / us
            row = {"case": name, "m": m, "n": n, "k": k, "us": us, "torch_us": torch_us, "ratio": ratio}
            rows.append({**row, "tflops": tflops, "error": off})
            print(
                f"{name:>11} {shape:>17} {us:8.1f} {torch_us:9.1f} {tflops:8.1f} {ratio:8.3f} {off:9.1e}",
                flush=True,
            )
    common.write(options.json, rows)


if __name__ == "__main__":
    main()
