"""What this machine has, what a library ships for it, and which binary a kernel would get: the facts behind
`wootz info`.

All results are JSON-able. What of the machine cannot be found out (no driver, a broken one) and a library
that cannot be opened are each a `problem`, a text in place of the facts, and no exception.
"""

from __future__ import annotations

import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core, packages
from .arrays import parse_device
from .errors import ArtifactError, NoKernelError, WootzError, near
from .formulas import spell
from .library import Library, default_folder, load
from .modules import check_file, fits, resolve_device
from .select import Device, ptx_version, rank, reason

__all__ = ["environment", "machine", "picked", "served"]

Facts = dict[str, Any]


def environment(folder: str | None = None, ask_memory: bool = False) -> Facts:
    """The machine, the library in a folder (None: the default one), and what the one has for the other;
    who ships what wootz.load finds by a name.

    ask_memory: of devices that this process does not use yet, too, which makes a context on each.
    """
    lib, library = _library(folder)
    found, coverage = machine(ask_memory, () if lib is None else lib.targets), []
    if lib is not None:
        usable = [each["device"] for each in found["devices"] if "problem" not in each]
        try:
            coverage = [*served(lib, usable)]
        except WootzError as error:
            library["problem"] = str(error)
    return {**found, "library": library, "coverage": coverage, "packages": packages.installed()}


# ---- the machine


def machine(ask_memory: bool = False, targets: Iterable[Mapping[str, Any]] = ()) -> Facts:
    """Versions, the driver and the devices. targets: whose instruction sets the CPU is asked about."""
    driver, devices = _cuda(ask_memory)
    return {
        "wootz": sys.modules[__package__].__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "driver": driver,
        "devices": [*devices, *_metal(), {"device": "cpu", **_or_problem(_cpu, targets)}],
    }


def _or_problem(find: Callable[..., Facts], *arguments: Any) -> Facts:
    try:
        return find(*arguments)
    except WootzError as error:
        return {"problem": str(error)}


def _cuda(ask_memory: bool) -> tuple[Facts, list[Facts]]:
    """The driver, and its devices."""
    try:
        count = _core.cuda_device_count()
    except WootzError as error:
        return {"problem": str(error)}, []
    devices = [
        {"device": f"cuda:{number}", **_or_problem(_cuda_device, number, ask_memory)}
        for number in range(count)
    ]
    return _driver(devices), devices


def _cuda_device(number: int, ask_memory: bool) -> Facts:
    info = _core.cuda_device_info(number)
    total, free, integrated = _core.cuda_device_memory(number, ask_memory)
    return {
        "name": info["name"],
        "capability": "{}.{}".format(*info["capability"]),
        "sms": info["sms"],
        "shared_bytes": info["shared_bytes"],
        "memory_bytes": total,
        "free_bytes": free if free >= 0 else None,
        "integrated": integrated,
        "driver_version": info["driver_version"],
    }


def _driver(devices: Iterable[Facts]) -> Facts:
    version = next((each["driver_version"] for each in devices if "driver_version" in each), 0)
    if not version:
        return {"problem": "the driver has no usable device"}
    return {
        "cuda": f"{version // 1000}.{version % 1000 // 10}",
        "ptx": "{}.{}".format(*ptx_version(version)),
    }


def _metal() -> list[Facts]:
    if not hasattr(_core, "metal_system"):
        return []
    return [{"device": "metal", **_or_problem(_metal_device)}]


def _metal_device() -> Facts:
    return {"system": "{}.{}".format(*_core.metal_system())}


def _cpu(targets: Iterable[Mapping[str, Any]]) -> Facts:
    sets = [isa for row in targets if row["backend"] == "cpu" for isa in row.get("isa") or ()]
    return {"threads": _core.cpu_threads(), "isa": {isa: _core.cpu_supports(isa) for isa in sets}}


# ---- the library


def _library(folder: str | None) -> tuple[Library | None, Facts]:
    try:
        lib = load(folder)
        return lib, {
            "path": lib.where,
            "generator": lib.index.header.get("generator", ""),
            **{section: lib.index.count(section) for section in ("cells", "kernels", "formats")},
            "targets": [row["key"] for row in lib.targets],
        }
    except WootzError as error:
        return None, {"path": str(folder or default_folder()), "problem": str(error)}


@dataclass(frozen=True)
class _Cell:
    """What counting has to know of a cell. stem: its key without the target."""

    stem: str
    target: str
    files: tuple[Mapping[str, Any], ...]
    executed: tuple[str, ...]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> _Cell:
        if not isinstance(record.get("files"), list):
            raise ArtifactError(f"{record['key']}: the index has no list of files: build it again")
        marks = (str(mark).partition(":") for mark in record.get("evidence") or ())
        files = tuple(map(check_file, record["files"]))
        stem, _, target = record["key"].rpartition("/")
        return cls(stem, target, files, tuple(where for rung, _, where in marks if rung == "executed"))


def served(lib: Library, devices: Iterable[str]) -> Iterator[Facts]:
    """For each device: its targets, best first, with the number of kernels × formats × dtypes that each
    serves and where those cells were executed; and how many no target serves, by reason. Raises
    ArtifactError, DeviceError, DriverError.
    """
    stems: dict[str, list[_Cell]] = {}
    for cell in map(_Cell.of, lib.index.records("cells")):
        stems.setdefault(cell.stem, []).append(cell)
    for name in devices:
        yield _served_on(_device(name), lib, stems)


def _device(name: str) -> Device:
    kind, number = parse_device(name)
    return resolve_device(kind, number)


def _served_on(device: Device, lib: Library, stems: Mapping[str, Sequence[_Cell]]) -> Facts:
    order = [row["key"] for row in rank(lib.targets, device)]
    chosen = {target: Counter[str]() for target in order}
    counts, reasons = Counter[str](), Counter[str]()
    for cells in stems.values():
        best = _best(cells, order, device)
        if best is None:
            reasons[_why_none(cells, order)] += 1
        else:
            counts[best.target] += 1
            chosen[best.target].update(best.executed or ["nowhere"])
    targets = [{"target": each, "serves": counts[each], "executed": dict(chosen[each])} for each in order]
    return {
        "device": str(device),
        "wanted": len(stems),
        "served": sum(counts.values()),
        "targets": targets,
        "unserved": dict(reasons.most_common()),
    }


def _best(cells: Iterable[_Cell], order: Sequence[str], device: Device) -> _Cell | None:
    there = [
        each for each in cells if each.target in order and any(fits(file, device) for file in each.files)
    ]
    return min(there, key=lambda each: order.index(each.target), default=None)


def _why_none(cells: Iterable[_Cell], order: Sequence[str]) -> str:
    built = [each.target for each in cells if each.files]
    if not built:
        return "built for no target"
    if set(built) & set(order):
        return "needs an instruction set that this CPU lacks"
    return f"built for {', '.join(built)} only"


# ---- one kernel


def picked(
    lib: Library, device: str, kernel: str, format: str | None = None, dtype: str | None = None
) -> list[Facts]:
    """What each format and dtype of a kernel (with or without its options, as "binary" or "binary.add") would
    run on a device: cell, target and why it, file, entry points with their conditions, evidence; or the
    problem. Raises NoKernelError when no cell is of that description, DeviceError, DriverError.
    """
    where = _device(device)
    return [_picked(lib, where, cell) for cell in _matching(lib, kernel, format, dtype)]


def _matching(lib: Library, kernel: str, format: str | None, dtype: str | None) -> list[Facts]:
    """One cell for each stem."""
    stems: dict[str, str] = {}
    for key in lib.index.keys("cells", kernel):
        name, form, kind, _ = key.split("/", 3)
        if (name == kernel or name.startswith(f"{kernel}.")) and (format or form, dtype or kind) == (
            form,
            kind,
        ):
            stems.setdefault(key.rpartition("/")[0], key)
    if not stems:
        wanted = "/".join((kernel, format or "*", dtype or "*"))
        known = kernel.partition(".")[0] in lib.kernels()
        hint = near(format or "", lib.formats()) if known else near(kernel, lib.kernels())
        raise NoKernelError(f"no cell {wanted} in {lib.where}{hint}; its cells() lists them")
    return [record for key in stems.values() if (record := lib.index.find("cells", key))]


def _picked(lib: Library, device: Device, like: Facts) -> Facts:
    format = None if like["format"] in (None, "", "-") else like["format"]
    try:
        kernel = lib.kernel(like["kernel"], format, like["dtype"], str(device), **(like.get("options") or {}))
        cell, file = kernel._choose(device)
    except WootzError as error:
        return {"cell": like["key"].rpartition("/")[0], "device": str(device), "problem": str(error)}
    stub = cell.get("stub")
    return {
        "cell": cell["key"],
        "device": str(device),
        "target": cell["target"],
        "reason": reason(cell["target"], lib.targets, device),
        "file": file["file"],
        "bytes": file["size"],
        "stub": stub["file"] if stub else None,
        "entries": [_entry(entry) for entry in cell["entries"]],
        "evidence": cell.get("evidence") or [],
    }


def _entry(entry: Mapping[str, Any]) -> Facts:
    """An entry point. They are tried in order: the first whose conditions all hold is launched, after others
    where there are such.
    """
    return {
        "symbol": entry.get("symbol"),
        "when": [spell(condition) for condition in entry.get("when") or ()],
        "after": [each.get("symbol") for each in entry.get("prologue") or ()],
    }
