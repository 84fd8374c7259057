"""Ways in which a process ends, or an object: what the driver is told last.

`python ends.py NAME`, one process a way: test_driver.py reads the log of the calls (FAKECUDA_LOG), and what
was printed. Some end badly.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

WAYS: dict[str, tuple[Callable[[], Any], int, bool]] = {}
"""By name: what is run, the exit status, whether the contexts are given back."""


def way(status: int = 0, released: bool = True) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def note(run: Callable[[], Any]) -> Callable[[], Any]:
        WAYS[run.__name__] = run, status, released
        return run

    return note


def use() -> tuple[Any, Any, Any]:
    """Both devices are used. Returns a kernel, an array of each device, and a launch."""
    import wootz

    from tests.null.fakecuda.standin import Driver, library

    Driver().device(count=2)
    kernel = library().kernel("copy", dtype="f16")
    arrays = [wootz.to_device(np.zeros(16, np.float16), f"cuda:{n}") for n in range(2)]
    outputs = [wootz.to_device(array.numpy(), f"cuda:{array.device_id}") for array in arrays]
    for array, output in zip(arrays, outputs):
        kernel(array, out=output)
    return kernel, arrays, lambda: kernel(arrays[0], out=outputs[0])


def refused(call: Callable[[], Any]) -> None:
    """Says on standard output how a call after the end is refused."""
    try:
        call()
    except RuntimeError as error:
        print(type(error).__name__, error)


KEPT: Any = None


@way()
def nothing_is_alive() -> None:
    use()


@way()
def a_global_is_alive() -> None:
    global KEPT
    KEPT = use()


@way()
def a_cycle_is_alive() -> None:
    made: list[Any] = [use()]
    made.append(made)


@way()
def an_object_of_another_module_is_alive() -> None:
    sys.modules["late"] = use()  # type: ignore[assignment]


@way()
def handlers_before_and_after() -> None:
    """Those registered before the package was loaded run after the driver was given back."""
    late: list[Any] = []
    atexit.register(lambda: refused(late[0]))
    kept = use()
    late.append(kept[2])
    atexit.register(lambda: print(kept[1][0].numpy().shape))


@way(status=1)
def an_exception() -> None:
    kept = use()
    raise ValueError(f"not caught, with {len(kept)} objects in its frame")


@way(status=3)
def sys_exit() -> None:
    kept = use()
    sys.exit(len(kept))


@way(status=5, released=False)
def os_exit() -> None:
    kept = use()
    print(len(kept), flush=True)
    os._exit(5)


@way(status=-9, released=False)
def killed() -> None:
    kept = use()
    os.kill(os.getpid(), 9)
    print(kept)


@way()
def sys_exit_in_a_thread() -> None:
    thread = threading.Thread(target=lambda: sys.exit(len(use())))
    thread.start()
    thread.join()


@way()
def used_in_a_thread_alone() -> None:
    """Python waits for it before it ends."""
    threading.Thread(target=use).start()


@way()
def a_daemon_calls_all_the_time() -> None:
    """Python before 3.14 ends it where it comes back from a call."""
    from wootz import _core

    kept, begun = use(), threading.Event()

    def run() -> None:
        while True:
            try:
                _core.cuda_synchronize(0, 1)
            except RuntimeError:
                return
            begun.set()

    for _ in range(4):
        threading.Thread(target=run, daemon=True).start()
    begun.wait()
    del kept


@way(released=False)
def a_daemon_hangs_in_a_call() -> None:
    """Its context must not go while it is in it; the process ends all the same."""
    from tests.null.fakecuda.standin import Driver, wait_for

    driver, (_, _, launch) = Driver(), use()
    driver.block("cuLaunchKernel")
    threading.Thread(target=launch, daemon=True).start()
    wait_for(driver.blocked)


@way()
def an_object_launches_when_it_dies() -> None:
    _, _, launch = use()

    class Late:
        def __del__(self, refused: Callable[..., None] = refused) -> None:
            refused(launch)

    sys.modules["late"] = Late()  # type: ignore[assignment]


@way()
def a_fork_ends_first() -> None:
    """A child that was forked after the first use gives nothing back."""
    import wootz

    kept = use()
    pid = os.fork()
    if pid == 0:
        refused(lambda: wootz.to_device(np.zeros(4)))
        sys.exit(0)  # with Python's whole end
    assert os.waitpid(pid, 0)[1] == 0
    kept[2]()


@way(released=False)
def never_used() -> None:
    import wootz

    print(wootz.to_device, wootz.load)


if __name__ == "__main__":
    WAYS[sys.argv[1]][0]()
