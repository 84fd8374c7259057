"""Every driver call that the loader makes, with every error: one story that makes them all, told again and
again with one fault in it.

As scenarios.py: `python faults.py NAME`. Each story runs in a child of its own, forked before the driver was
used.
"""

from __future__ import annotations

import atexit
import functools
import gc
import os
import re
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import wootz
from wootz import _core, errors, modules

from tests.null import loader_tools as tools
from tests.null import stub_tools as stubs
from tests.null.fakecuda.standin import F16, LAUNCHES, Driver, Interface, main, scenario, wait_for

CODES = [int(code) for code in re.findall(r"\{(\d+),", (Path(__file__).parent / "codes.inc").read_text())]

LIKELY = {
    "cuInit": (3, 34, 46, 100, 802, 803, 804, 805, 999),
    "cuDeviceGet": (3, 4, 101),
    "cuDevicePrimaryCtxRetain": (2, 46, 101, 214, 304, 805, 806, 807, 808, 809),
    "cuCtxPushCurrent": (4, 201, 709),
    "cuModuleLoadData": (2, 200, 209, 218, 221, 222, 223, 302, 700, 719, 901),
    "cuModuleGetFunction": (400, 500),
    "cuFuncSetAttribute": (1, 400),
    "cuLaunchKernel": (
        1,
        2,
        4,
        201,
        226,
        400,
        700,
        701,
        702,
        709,
        710,
        714,
        715,
        716,
        717,
        718,
        719,
        810,
        900,
    ),
    "cuLaunchKernelEx": (1, 700, 701, 801, 901, 912),
    "cuOccupancyMaxActiveClusters": (1, 912),
    "cuTensorMapEncodeTiled": (1, 801),
    "cuMemsetD8Async": (1, 700, 900),
    "cuMemAlloc": (2, 700, 801, 900),
    "cuMemcpyDtoH": (1, 700, 719, 906),
    "cuStreamSynchronize": (220, 700, 719, 911),
    "cuEventRecord": (400, 905, 907, 908),
    "cuStreamWaitEvent": (400, 905, 906),
}
"""What is known to happen where."""
STRIDE = 8
"""Of all other pairs, every so many-th: each call fails with several codes, each code at several calls."""

LEFT = {
    "cuCtxPopCurrent": "",
    "cuEventDestroy": "events",
    "cuMemFree": "memory",
    "cuModuleUnload": "modules",
    "cuStreamDestroy": "streams",
    "cuGraphDestroy": "graphs",
    "cuGraphExecDestroy": "execs",
    "cuDevicePrimaryCtxRelease": "contexts",
}
"""Calls that clean up after work that has succeeded: their failure is nobody's; this is what it leaves."""

HARMLESS = (
    "cuStreamIsCapturing", "cuThreadExchangeStreamCaptureMode", "cuStreamCreate", "cuStreamBeginCapture",
    "cuStreamGetCaptureInfo", "cuGraphKernelNodeGetParams", "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags", "cuGraphExecKernelNodeSetParams",
)  # fmt: skip
"""Calls for a graph in the place of launches; their failure is nobody's where a plan makes one by itself."""

ONCE = ("cuInit", "cuDevicePrimaryCtxRetain", "cuModuleLoadData", "cuFuncSetAttribute")
"""What took effect is not done again when a later call has failed."""

STORY: list[Callable[[Story], None]] = []


def step(run: Callable[[Story], None]) -> Callable[[Story], None]:
    STORY.append(run)
    return run


@functools.cache
def libraries() -> tuple[wootz.Library, wootz.Library]:
    """With a kernel that asks for shared memory, and with one of a template. Opened before the first fork,
    like the modules of the package.
    """
    plain = tools.Folder(Path(tempfile.mkdtemp()) / "a")
    entry = {**tools.ENTRIES["copy"][0], "shared": 65536}
    plain.cell(
        "copy", "-", "f16", "gpu90a", [plain.file("x.cubin", tools.fake_cubin([entry]))], entries=[entry]
    )
    space = {**stubs.ANY, "workspace": 384, "zeroed": True, "when": [["eq", "m", 1]]}
    template = stubs.folder([space, stubs.WIDE], stubs.stub())
    return wootz.load(plain.write()), wootz.load(template.write())


class Story:
    """What the steps hand on. A step that failed is simply run again."""

    def __init__(self) -> None:
        self.driver = Driver()
        plain, template = libraries()
        self.copy = plain.kernel("copy", dtype="f16")
        self.repeated = 0
        self.bound: Any = None
        self.bound_gemm: Any = None
        self.gemm = template.kernel("gemm", dtype="f16")
        self.arrays: dict[str, Any] = {}

    @step
    def count(self) -> None:
        assert _core.cuda_device_count() == 1

    @step
    def move(self) -> None:
        shapes = {"x": (4, 32), "one": (1, 32), "w": (24, 32), "z": (64,), "z2": (64,)}
        self.arrays |= {name: wootz.to_device(np.zeros(shape, F16)) for name, shape in shapes.items()}
        outputs = {"y": (4, 24), "y1": (1, 24)}
        self.arrays |= {name: wootz.to_device(np.zeros(shape, np.float32)) for name, shape in outputs.items()}

    @step
    def launch(self) -> None:
        self.copy(self.arrays["z"], out=self.arrays["z2"])

    @step
    def order(self) -> None:
        x, y = np.zeros(16, F16), np.zeros(16, F16)
        self.copy(Interface(x, self.driver, stream=55), out=Interface(y, self.driver), stream=66)

    @step
    def template(self) -> None:
        self.gemm(self.arrays["x"], self.arrays["w"], out=self.arrays["y"])

    @step
    def zeroed(self) -> None:
        self.gemm(self.arrays["one"], self.arrays["w"], out=self.arrays["y1"])

    @step
    def plans(self) -> None:
        plain, template = libraries()
        self.plan = plain.plan("copy", dtype="f16", device="cuda:0", n=64)
        self.gemm_plan = template.plan("gemm", dtype="f16", device="cuda:0", m=4, n=24, k=32)

    @step
    def repeat(self) -> None:
        for _ in range(10 - self.repeated):
            self.plan(self.arrays["z"], out=self.arrays["z2"], stream=5)
            self.repeated += 1

    @step
    def bind(self) -> None:
        self.bound = self.plan.bind(self.arrays["z"], out=self.arrays["z2"])

    @step
    def replay(self) -> None:
        self.bound(stream=5)

    @step
    def bind_template(self) -> None:
        self.bound_gemm = self.gemm_plan.bind(self.arrays["x"], self.arrays["w"], out=self.arrays["y"])

    @step
    def back(self) -> None:
        assert self.arrays["y"].numpy().shape == (4, 24)

    @step
    def drop(self) -> None:
        self.arrays.clear()
        for name in ("copy", "gemm", "plan", "gemm_plan", "bound", "bound_gemm"):
            setattr(self, name, None)
        gc.collect()
        modules._modules.clear()

    def tell(self) -> list[errors.DriverError]:
        """Runs all steps; one that fails is run once more. Returns what was raised."""
        caught = []
        for run in STORY:
            try:
                run(self)
            except errors.DriverError as error:
                caught.append(error.with_traceback(None))
                del error
                run(self)
        atexit._run_exitfuncs()
        return caught


def succeeded(log: list[str]) -> Counter[str]:
    return Counter(line.split()[0] for line in log if "failed=" not in line)


def launched(log: list[str]) -> list[str]:
    """The kernels that ran: not those that a graph was made of."""
    ran = [line.replace("cuGraphLaunch stream=5 ", "cuGraphLaunch ") for line in log if "failed=" not in line]
    return [line.split()[1] for line in ran if line.startswith(LAUNCHES) and " captured " not in line]


def in_child(run: Callable[[], None]) -> str:
    """What went wrong in `run`, in a process of its own; "" if nothing did."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            run()
            status = 0
        except BaseException:
            os.write(send, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(status)
    os.close(send)
    with os.fdopen(receive) as pipe:
        text = pipe.read()
    status = os.waitpid(pid, 0)[1]
    return text if status else ""


@functools.cache
def clean() -> list[str]:
    """The driver's log of the story without a fault."""
    libraries()
    gc.freeze()  # what a child collects is its own
    with tempfile.NamedTemporaryFile("r") as file:

        def run() -> None:
            story = Story()
            assert not story.tell()
            story.driver.check_balance()
            assert not any(story.driver.live().values()), story.driver.live()
            Path(file.name).write_text("\n".join(story.driver.log()))

        assert not (problem := in_child(run)), problem
        return Path(file.name).read_text().splitlines()


def tell_with(call: str, code: int, after: int) -> None:
    """The story with the `after`-th call of this name failing. Raises AssertionError for what is wrong."""
    story = Story()
    story.driver.fail(call, code, after, times=1)
    caught, log = story.tell(), story.driver.log()
    assert sum("failed=" in line for line in log) == 1, "the fault was not met"
    left = {name: count for name, count in story.driver.live().items() if count}
    if call == "cuCtxPushCurrent" and not caught:  # it was to clean up
        assert left in ({"memory": 1}, {"modules": 1}, {"graphs": 1, "execs": 1}), left
    elif not caught and quiet(call, log):
        assert not left, left
    elif call in LEFT:
        assert not caught, caught
        assert left == ({LEFT[call]: 1} if LEFT[call] else {})
    else:
        check_error(caught, call, code)
        assert not left, left
    assert launched(log) == launched(clean()), "each launch is made once"
    done, wanted = succeeded(log), succeeded(clean())
    assert {each: done[each] for each in ONCE} == {each: wanted[each] for each in ONCE}
    if call not in ("cuCtxPopCurrent", "cuEventDestroy"):
        story.driver.check_balance()


def quiet(call: str, log: list[str]) -> bool:
    """Whether a plan goes on without its graph: the fault came while it was made."""
    (place,) = [i for i, line in enumerate(log) if "failed=" in line]
    begun, ended = (
        sum(line.startswith(f"cuStream{what}Capture") for line in log[:place]) for what in ("Begin", "End")
    )
    return call in HARMLESS or begun > ended


def check_error(caught: list[errors.DriverError], call: str, code: int) -> None:
    assert len(caught) == 1, caught
    error, text = caught[0], str(caught[0])
    assert type(error) is (errors.OutOfMemoryError if code == 2 else errors.DriverError)
    assert (error.code, error.call) == (code, call)
    assert text.startswith(f"{call} failed: CUDA_ERROR_"), text
    assert f"({code})" in text
    assert errors._ADVICE.get(code, "") in text
    assert error.lost == ("restart the process" in text)


def cases() -> Iterator[tuple[str, int, int]]:
    """(call, code, how many calls of that name go before): pairs of calls and codes, and every single call of
    the story.
    """
    counts = Counter(line.split()[0] for line in clean())
    for i, (call, count) in enumerate(counts.items()):
        likely = LIKELY.get(call, ())
        yield from ((call, code, 0) for code in likely)
        yield from (
            (call, code, 0) for j, code in enumerate(CODES) if (i + j) % STRIDE == 0 and code not in likely
        )
        yield from ((call, 999, after) for after in range(1, count))


def harmless(case: tuple[str, int, int]) -> bool:
    """The code by which the driver says that there are no more parameters."""
    return case[:2] == ("cuFuncGetParamInfo", 1)


@scenario
def story_is_whole() -> None:
    """It makes every call of the loader's table."""
    table = (Path(__file__).parents[3] / "csrc" / "driver.hpp").read_text()
    known = {re.sub(r"_v2$", "", name) for name in re.findall(r'X\(\w+, "(\w+)"', table)}
    told = {line.split()[0] for line in clean()}
    assert known - told == {"cuGetErrorName", "cuGetErrorString", *ELSEWHERE}, known - told


ELSEWHERE = {
    # information.py
    "cuDevicePrimaryCtxGetState", "cuDeviceTotalMem", "cuMemGetInfo",
    # by another name
    "cuStreamGetCaptureInfo_v3",
    # a failure of it costs a push of the context, and no more
    "cuCtxGetCurrent",
}  # fmt: skip
"""Calls that are tested in other files."""


@scenario
def every_fault() -> None:
    clean()
    every = [case for case in cases() if not harmless(case)]
    problems = [f"{case}: {text}" for case in every if (text := in_child(lambda: tell_with(*case)))]  # noqa: B023
    assert not problems, f"{len(problems)} of {len(every)}:\n" + "\n".join(problems[:5])


@scenario
def python_runs_during_every_call() -> None:
    """A driver call that hangs keeps the thread that made it, and no other."""
    every = sorted({line.split()[0] for line in clean()} - {"cuDevicePrimaryCtxRelease"})
    problems = [f"{call}: {text}" for call in every if (text := in_child(lambda: tell_blocked(call)))]  # noqa: B023
    assert not problems, "\n".join(problems)


def tell_blocked(call: str) -> None:
    story = Story()
    story.driver.block(call)
    caught: list[Any] = []
    teller = threading.Thread(target=lambda: caught.extend(story.tell()))
    teller.start()
    wait_for(story.driver.blocked)  # the call was made, and this thread runs
    story.driver.block("")
    teller.join()
    assert not caught


@scenario
def every_code_is_explained() -> None:
    """What a loader can meet has advice; the others are of calls that it never makes."""
    assert set(errors._ADVICE) <= set(CODES)
    assert {code for codes in LIKELY.values() for code in codes} - set(errors._ADVICE) == {1, 302}
    assert set(errors._ADVICE) >= errors._LOST


if __name__ == "__main__":
    main()
