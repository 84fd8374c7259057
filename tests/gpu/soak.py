"""Threads that make plans, call them and drop them, for minutes: results stay right, and memory stays put.

    python tests/gpu/soak.py [--seconds 240] [--threads 8] [--devices 1] [--out soak.json]

Each thread has two streams of torch, and for each the outputs of every case. It takes a case, makes its plan,
calls it CALLS times on both streams in turn, compares with what the kernel gave at first (which was compared
with the reference), drops the plan, and takes the next case. Memory of the devices and of the process is
sampled each second. Exit status 1: a result differed, a thread died, or memory grew by more than the slack
between the end of the warm-up (the first quarter) and the end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import wootz

STREAMS, CALLS = 2, 50
PAGE = 4096
MIB = 1 << 20
WARM_UP = 0.25  # of the time
SLACK = {"device": 32 * MIB, "process": 64 * MIB}
"""Bytes: what allocators and lazily made parts of the driver may still take after the warm-up."""


@dataclass(frozen=True)
class Case:
    """A plan's arguments, its operands on a device, and what it has to give."""

    arguments: dict[str, Any]
    operands: tuple[Any, ...]
    want: Any


@dataclass
class State:
    """What the threads share."""

    stop: threading.Event = field(default_factory=threading.Event)
    problems: list[str] = field(default_factory=list)
    plans: Iterator[int] = field(default_factory=lambda: itertools.count())
    checks: Iterator[int] = field(default_factory=lambda: itertools.count())


def weights(n: int, k: int, format: str) -> Any:
    return wootz.quantize(np.random.default_rng(n + k).standard_normal((n, k)).astype(np.float32), format)


def close(y: Any, want: Any) -> bool:
    got = y.double().cpu().numpy()
    return bool(np.abs(got - want).max() <= 2e-2 * np.abs(want).max())


def cases(lib: Any, torch: Any, device: str) -> list[Case]:
    """With a workspace and without, quantised and dense, few rows and many; each compared with NumPy."""
    made = []
    for name, m, n, k, format in (
        ("qgemv", 1, 512, 1024, "mxfp4"),
        ("qgemv", 4, 1024, 512, "int4"),
        ("qmm_packed", 16, 1024, 1024, "int4"),
        ("qmm_packed", 200, 512, 1024, "mxfp4"),
        ("gemm", 256, 512, 512, None),
    ):
        x = (
            torch.from_numpy(np.random.default_rng(m).standard_normal((m, k)).astype(np.float32))
            .to(device)
            .bfloat16()
        )
        if format is None:
            dense = torch.randn(n, k, device=device).bfloat16()
            w, numbers, options = dense, dense.double().cpu().numpy(), {"out": "same"}
        else:
            q = weights(n, k, format)
            numbers, options = q.dequantize().astype(np.float64), {}
            w = (wootz.prepack(q) if name == "qmm_packed" else q).to(device)
        kind = {
            "dtype": "bf16",
            "device": device,
            **({} if format is None else {"format": format}),
            **options,
        }
        want = lib.kernel(name, **kind)(x, w)
        if not close(want, x.double().cpu().numpy() @ numbers.T):
            raise SystemExit(f"{name} {format}: wrong before the soak began")
        made.append(Case({"name": name, **kind, "m": m, "n": n, "k": k}, (x, w), want))
    torch.cuda.synchronize(device)
    return made


def work(number: int, lib: Any, torch: Any, every: list[Case], state: State) -> None:
    """One thread's loop."""
    device = every[0].want.device
    torch.cuda.set_device(device)
    streams = [torch.cuda.Stream(device) for _ in range(STREAMS)]
    outputs = [[torch.empty_like(case.want) for _ in streams] for case in every]
    different = torch.zeros((), dtype=torch.int64, device=device)
    torch.cuda.synchronize(device)
    for turn in itertools.count(number):
        if state.stop.is_set():
            return
        case, ys = every[turn % len(every)], outputs[turn % len(every)]
        plan = lib.plan(**case.arguments)
        next(state.plans)
        for call in range(CALLS):
            with torch.cuda.stream(streams[call % STREAMS]):
                plan(*case.operands, out=ys[call % STREAMS])
        for stream, y in zip(streams, ys):
            with torch.cuda.stream(stream):
                different += (y != case.want).any()
            stream.synchronize()
            y.zero_()
            next(state.checks)
        torch.cuda.current_stream(device).synchronize()
        del plan
        if int(different):
            state.problems.append(f"thread {number}, turn {turn}: {case.arguments} gave another result")
            state.stop.set()


def guarded(run: Callable[..., None], number: int, *rest: Any) -> None:
    try:
        run(number, *rest)
    except BaseException:
        rest[-1].problems.append(f"thread {number} died:\n{traceback.format_exc()}")
        rest[-1].stop.set()


def sample(torch: Any, devices: int, start: float, state: State) -> dict[str, Any]:
    used = []
    for device in range(devices):
        free, total = torch.cuda.mem_get_info(device)
        used.append(total - free)
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    return {"seconds": round(time.monotonic() - start, 1), "device": used, "process": resident}


def grown(samples: list[dict[str, Any]], seconds: float) -> list[str]:
    """What grew by more than its slack: the median of the last samples against that after the warm-up."""
    after = [each for each in samples if each["seconds"] >= seconds * WARM_UP]
    width = max(len(after) // 4, 1)
    problems = []

    def compare(what: str, slack: int, read: Callable[[dict[str, Any]], int]) -> None:
        first, last = (
            float(np.median([read(each) for each in part])) for part in (after[:width], after[-width:])
        )
        print(f"{what}: {first / MIB:.1f} MiB after the warm-up, {last / MIB:.1f} MiB at the end")
        if last - first > slack:
            problems.append(f"{what} grew by {(last - first) / MIB:.1f} MiB; slack {slack / MIB:.0f} MiB")

    for device in range(len(samples[0]["device"])):
        compare(f"cuda:{device}", SLACK["device"], lambda each, device=device: each["device"][device])  # type: ignore[misc]
    compare("process", SLACK["process"], lambda each: each["process"])
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--devices", type=int, default=1, help="threads are spread over so many")
    parser.add_argument("--out", type=Path, default=Path("soak.json"))
    options = parser.parse_args()
    import torch

    lib, state = wootz.load(), State()
    every = [cases(lib, torch, f"cuda:{device}") for device in range(options.devices)]
    threads = [
        threading.Thread(target=guarded, args=(work, n, lib, torch, every[n % options.devices], state))
        for n in range(options.threads)
    ]
    start, samples = time.monotonic(), []
    for each in threads:
        each.start()
    while not state.stop.wait(1) and time.monotonic() - start < options.seconds:
        samples.append(sample(torch, options.devices, start, state))
    state.stop.set()
    for each in threads:
        each.join()
    problems = state.problems + (grown(samples, options.seconds) if samples else ["no sample was taken"])
    plans, checks = next(state.plans), next(state.checks)
    record = {"device": torch.cuda.get_device_name(0), "threads": options.threads, "streams": STREAMS,
              "calls": plans * CALLS, "plans": plans, "checks": checks, "slack": SLACK, "samples": samples,
              "problems": problems}  # fmt: skip
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(
        f"{plans} plans, {plans * CALLS} calls, {checks} checks in {options.seconds:.0f} s",
        *problems,
        sep="\n",
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
