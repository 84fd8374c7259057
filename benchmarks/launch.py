"""What a launch costs on the host: medians of microseconds a call, of plans and of what else launches.

One kernel (qgemv, M = 1, small, so that the device keeps up) with the same four arrays is launched as a bound
plan, as a plan called on torch's tensors with and without out=, as a Kernel, and by cuda.core's launch() of
the very same function of the very same cubin. torch's own add and a Triton kernel that does nothing stand
beside them where they are installed, and, where nvcc is, the driver's own calls from C++ (launch_floor.cu): a
kernel's launch, and that of a graph of one kernel. Rounds of all of them alternate; every few launches the
device is waited for, outside the time taken, so that no queue ever fills. Everything is measured on CUDA's
default stream, and on one of torch's own. No launch may begin before the last has ended; then the bound plan
and the plan as they ship, where this kernel may begin early: of such a one a plan makes no graph.

python benchmarks/launch.py [--format mxfp4] [--json FILE] [--artifacts DIR]
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import wootz
from wootz.bench.cells import apart

N, K = 256, 512
BURST, ROUNDS, WARM = 50, 200, 20

Call = Callable[[], object]


def microseconds(call: Call) -> tuple[float, float]:
    """A call's, over one burst: on the host, and until the device has done it all."""
    start = time.perf_counter()
    for _ in range(BURST):
        call()
    taken = time.perf_counter() - start
    torch.cuda.synchronize()
    return taken * 1e6 / BURST, (time.perf_counter() - start) * 1e6 / BURST


def measure(calls: dict[str, Call]) -> dict[str, tuple[float, float]]:
    """The medians of each, over rounds in which they take turns."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for round in range(WARM + ROUNDS):
        for name, call in calls.items():
            taken = microseconds(call)
            if round >= WARM:
                times[name].append(taken)
    return {
        name: (statistics.median(host for host, _ in rows), statistics.median(whole for _, whole in rows))
        for name, rows in times.items()
    }


def core() -> Any:
    """cuda.core, or its older name; None where neither is installed."""
    for name in ("cuda.core", "cuda.core.experimental"):
        try:
            found = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(found, "ObjectCode"):
            return found
    return None


def core_launch(lib: Any, plan: Any, arrays: list[Any]) -> Call:
    """cuda.core's launch of the function that the plan launches, with the plan's arguments."""
    cuda = core()
    told = plan.describe()
    cell = lib.index.find("cells", f"{plan.name}/{told['target']}")
    (entry,) = [each for each in cell["entries"] if each["symbol"] == told["symbol"]]
    views = dict(zip(told["operands"], arrays))
    values: list[Any] = []
    for name, kind, role in entry["args"]:
        number = views[name].data_ptr() if role in ("in", "out") else 0
        if role in ("shape", "pitch"):
            number = plan.shapes[name] if role == "shape" else views[name].shape[-1]
        values.append({"ptr": int, "u64": np.uint64, "u32": np.uint32, "f32": np.float32}[kind](number))
    image = (lib.path / told["file"]).read_bytes()
    kernel = cuda.ObjectCode.from_fatbin(image).get_kernel(told["symbol"])
    device = cuda.Device(0)
    device.set_current()

    class Current:
        """torch's stream, by the protocol."""

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, torch.cuda.current_stream().cuda_stream

    stream = device.create_stream(Current())
    config = cuda.LaunchConfig(
        grid=tuple(told["grid"]), block=tuple(told["block"]), shmem_size=told["shared_bytes"]
    )
    return lambda: cuda.launch(stream, config, kernel, *values)


def triton_launch(arrays: list[Any]) -> Call:
    nothing = importlib.import_module("triton_kernels").nothing
    return lambda: nothing[(1,)](*arrays)


def calls(lib: Any, format: str) -> tuple[dict[str, Call], dict[str, Any]]:
    """What is measured, and what the plan says of itself."""
    shipped, lib = lib, apart(lib)
    rng = np.random.default_rng(7)
    q = wootz.quantize(rng.standard_normal((N, K)).astype(np.float32), lib.format(format)).to("cuda:0")
    x, y = torch.randn(1, K, device="cuda"), torch.empty(1, N, device="cuda")
    wanted = {"format": format, "dtype": "f32", "device": "cuda:0"}
    plan, kernel = lib.plan("qgemv", m=1, n=N, k=K, **wanted), lib.kernel("qgemv", **wanted)
    early = shipped.plan("qgemv", m=1, n=N, k=K, **wanted)
    arrays = [x, *q.fields.values(), y]
    found: dict[str, Call] = {
        "bound plan": plan.bind(x, q, out=y),
        "plan, out=": lambda: plan(x, q, out=y),
        "plan": lambda: plan(x, q),
        "kernel, out=": lambda: kernel(x, q, out=y),
        "bound plan, early": early.bind(x, q, out=y),
        "plan, early, out=": lambda: early(x, q, out=y),
        "torch.add, out=": lambda: torch.add(y, y, out=y),
    }
    for name, make in (
        ("cuda.core launch", lambda: core_launch(lib, plan, arrays)),
        ("triton", lambda: triton_launch(arrays)),
    ):
        try:
            found[name] = make()
            found[name]()
        except (ImportError, AttributeError) as error:
            found.pop(name, None)
            print(f"{name}: not measured ({error})")
    want = plan(x, q)
    for name in found:
        if name not in ("plan", "torch.add, out=", "triton"):
            y.fill_(float("nan"))
            found[name]()
            torch.cuda.synchronize()
            assert torch.equal(y, want), f"{name} computes something else"
    return found, plan.describe()


def driver_alone() -> dict[str, float]:
    """The driver's calls from C++, on its default stream and on one of their own; empty without nvcc."""
    source = Path(__file__).with_name("launch_floor.cu")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "floor"
        try:
            subprocess.run(["nvcc", "-O2", "-o", program, source, "-lcuda"], check=True, capture_output=True)
            done = subprocess.run([program], check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"driver alone: not measured ({error})")
            return {}
    lines = (line.split() for line in done.stdout.splitlines())
    return {f"{what} {stream}": float(us) for stream, what, us in lines}


def on_stream(name: str, lib: Any, format: str) -> tuple[dict[str, tuple[float, float]], str]:
    """Of one stream: what each call takes, and the symbol launched."""
    stream = torch.cuda.default_stream() if name == "default" else torch.cuda.Stream()
    with torch.cuda.stream(stream):
        found, told = calls(lib, format)
        return measure(found), str(told["symbol"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--format", default="mxfp4")
    parser.add_argument("--artifacts", help="artifact folder (default: the installed one)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lib, alone, us, through = wootz.load(options.artifacts), driver_alone(), {}, {}
    print(f"{torch.cuda.get_device_name(0)}: four arrays; median microseconds a call")
    for stream in ("default", "own"):
        found, symbol = on_stream(stream, lib, options.format)
        through[stream] = {name: whole for name, (_, whole) in found.items()}
        times = {name: host for name, (host, _) in found.items()}
        times |= {f"{w}, from C++": alone[f"{w} {stream}"] for w in ("launch", "graph") if alone}
        us[stream], reference = times, times.get("cuda.core launch")
        print(f"{stream + ' stream':>18} {'us':>7} {'x cuda.core':>12} {'through, us':>12}")
        for name, taken in times.items():
            ratio = f"{taken / reference:12.2f}" if reference else f"{'':>12}"
            print(f"{name:>18} {taken:7.2f} {ratio} {through[stream].get(name, float('nan')):12.2f}")
    if options.json:
        report = {
            "device": torch.cuda.get_device_name(0),
            "date": datetime.date.today().isoformat(),
            "torch": torch.__version__,
            "symbol": symbol,
            "us": us,
            "through": through,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
