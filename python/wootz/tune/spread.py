"""Cases shared out over devices: one by one on a single one, else by dask.distributed, a worker a device."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from ..errors import ArgumentError, MissingPackageError
from .cases import Case
from .search import Manner, Outcome, search

__all__ = ["outcomes"]

_alone = threading.Lock()
"""Timings of one process wait for each other, however many threads its worker has."""


def outcomes(
    folder: str,
    cases: Sequence[Case],
    devices: Sequence[str],
    scheduler: str,
    manner: Manner,
) -> Iterator[Outcome]:
    """What came of each case, as they end. folder: of the artifacts; workers need to see it by this path.
    devices: as "cuda:0"; several have a process each. scheduler: the address of one that runs; its workers
    take `devices`, which is one, for what each of them sees; "": none.

    Raises MissingPackageError where dask is needed and missing, ArgumentError for a scheduler that does not
    answer, DriverError for a device that is lost.
    """
    if not scheduler and len(devices) == 1:
        yield from (run(case, folder, devices, manner) for case in cases)
        return
    distributed = _distributed()
    with _client(distributed, len(devices), scheduler) as client:
        fixed = {"folder": folder, "devices": list(devices), "manner": manner}
        waiting = client.map(run, cases, pure=False, **fixed)
        named = {future.key: case for future, case in zip(waiting, cases)}
        for future in distributed.as_completed(waiting):
            error = future.exception()
            yield Outcome(named[future.key], failed=_words(error)) if error else future.result()


def run(case: Case, folder: str, devices: Sequence[str], manner: Manner) -> Outcome:
    """One case, on this process' device: of several, that of the worker's number. Raises DriverError where it
    is lost, and with it all that this process could still do."""
    with _alone:
        return search(_library(folder), case, _device(devices[_number() % len(devices)]), manner)


def _number() -> int:
    """Of this dask worker, as a LocalCluster counts them; 0 elsewhere."""
    distributed = sys.modules.get("distributed")  # a worker has imported it
    try:
        name = str(distributed.get_worker().name) if distributed else ""
    except ValueError:
        return 0
    return int(name) if name.isdecimal() else 0


@cache
def _library(folder: str) -> Any:
    return importlib.import_module("wootz").load(folder)


@cache
def _device(name: str) -> Any:
    return importlib.import_module("wootz.bench").open_device(name)


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError:
        raise MissingPackageError(
            "several devices, and schedulers, need dask: pip install 'wootz[tune]'; or name one --device"
        ) from None


def _client(distributed: Any, workers: int, scheduler: str) -> Any:
    if scheduler:
        try:
            return distributed.Client(scheduler, timeout=30)
        except (OSError, ValueError, TimeoutError) as error:
            raise ArgumentError(f"--scheduler: {scheduler} does not answer: {_words(error)}") from error
    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
    ).get_client()


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
