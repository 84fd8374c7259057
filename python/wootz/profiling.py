"""For profilers: named ranges around calls, and the stretch of a program that a profiler records.

Both use packages of others, imported only when asked for. A kernel or plan that is got while ranges are off
has none, ever, and costs nothing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from .errors import DeviceError, MissingPackageError, driver_error

__all__ = ["capture", "nvtx", "traced"]

ENVIRONMENT = "WOOTZ_NVTX"
_on = os.environ.get(ENVIRONMENT, "") not in ("", "0")

Target = TypeVar("Target", bound=Callable[..., Any])


# ---- ranges


def nvtx(on: bool = True) -> contextlib.AbstractContextManager[None]:
    """From now on, or for the life of a `with`: kernels and plans that a library hands out put a range of
    NVTX's domain "wootz", with their name, around each call. WOOTZ_NVTX=1 does it from the start.

    Raises MissingPackageError when the package nvtx is not installed.
    """
    global _on
    if on:
        _domain()
    before, _on = _on, on
    return _restoring(before)


class _restoring(contextlib.AbstractContextManager[None]):
    def __init__(self, before: bool) -> None:
        self._before = before

    def __exit__(self, *raised: object) -> None:
        global _on
        _on = self._before


@functools.cache
def _domain() -> Any:
    try:
        return importlib.import_module("nvtx").get_domain("wootz")
    except ImportError:
        raise MissingPackageError("ranges for profilers need the package nvtx: pip install nvtx") from None


def traced(target: Target, name: str) -> Target:
    """`target` itself while ranges are off; else something that acts like it and marks its calls."""
    return _Traced(target, name) if _on else target  # type: ignore[return-value]


class _Traced:
    """A callable in a range. Everything else is the callable's own."""

    def __init__(self, target: Callable[..., Any], name: str) -> None:
        domain = _domain()
        self._target, self._name = target, name
        self._range = domain.get_event_attributes(message=name)
        self._push, self._pop = domain.push_range, domain.pop_range

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self._push(self._range)
        try:
            return self._target(*arguments, **named)
        finally:
            self._pop()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if name == "bind":  # of a plan: calls of what it binds are in the same range
            return lambda *operands, **named: _Traced(found(*operands, **named), self._name)
        return found

    def __repr__(self) -> str:
        return repr(self._target)


# ---- what a profiler records


@contextlib.contextmanager
def capture() -> Iterator[None]:
    """What runs inside is recorded by a profiler that waits for it (nsys -c cudaProfilerApi, ncu
    --profile-from-start off).

    Through torch or CuPy, where the program has imported one, or else cuda-bindings. It does not wait for the
    device: do so before the end. Raises MissingPackageError when there is none of them, DeviceError when the
    profiler cannot be started.
    """
    start, stop = _profiler()
    _check(start, "cudaProfilerStart")
    try:
        yield
    finally:
        _check(stop, "cudaProfilerStop")


_LOADED = (
    ("torch", "torch.cuda.profiler", "start", "stop"),
    ("cupy", "cupy.cuda.runtime", "profilerStart", "profilerStop"),
)
_BINDINGS = "cuda.bindings.runtime"


def _profiler() -> tuple[Callable[[], Any], Callable[[], Any]]:
    for package, module, start, stop in _LOADED:
        if package in sys.modules:
            found = importlib.import_module(module)
            return getattr(found, start), getattr(found, stop)
    try:
        runtime = importlib.import_module(_BINDINGS)
    except ImportError:
        raise MissingPackageError(
            "profiling.capture needs torch or CuPy, imported, or cuda-bindings: pip install cuda-bindings"
        ) from None
    return runtime.cudaProfilerStart, runtime.cudaProfilerStop


def _check(call: Callable[[], Any], name: str) -> None:
    """Calls it. The bindings return a tuple of a status, the others raise."""
    try:
        result = call()
    except Exception as error:
        raise DeviceError(f"{name} failed: {error}") from error
    status = result[0] if isinstance(result, tuple) else 0
    if int(status):
        raise driver_error(int(status), getattr(status, "name", "an unknown error"), name)
