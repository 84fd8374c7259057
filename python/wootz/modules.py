"""Devices and binaries: what a device is, and artifact files read, checked and loaded once a process and
device, by whichever thread asks first.
"""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from . import _core
from .errors import ArtifactError, DeviceError
from .log import event
from .once import Once
from .select import Device, Row, ptx_version, reason

__all__ = ["fits", "load_module", "load_stub", "read_artifact", "resolve_device"]

Module = Any  # _core.CpuModule, CudaModule or MetalModule
_modules: Once[tuple[str, str], Module] = Once()
"""By sha256 and device. Binaries stay loaded: a captured graph or a running kernel may still need them."""
_stubs: Once[tuple[str, str], Any] = Once()
"""By sha256 and the sha256 of the source."""


def resolve_device(kind: str, number: int | None) -> Device:
    """What selection has to know of a device. The first CUDA one initialises the driver. Raises DeviceError,
    DriverError.
    """
    return _MAKE[kind](number or 0)


@functools.cache
def _cpu(number: int) -> Device:
    return Device("cpu", name="the CPU", sms=_core.cpu_threads())


@functools.cache
def _cuda(number: int) -> Device:
    info = _core.cuda_device_info(number)
    _note_driver(info["driver_version"])
    return Device(
        "cuda", number, info["name"], info["capability"], ptx_version(info["driver_version"]),
        sms=info["sms"], shared_bytes=info["shared_bytes"],
    )  # fmt: skip


@functools.cache
def _note_driver(version: int) -> None:
    driver, ptx = f"{version // 1000}.{version % 1000 // 10}", "{}.{}".format(*ptx_version(version))
    event("driver_initialised", f"driver of CUDA {driver}, PTX up to {ptx}", driver=driver, ptx=ptx)


@functools.cache
def _metal(number: int) -> Device:
    if not hasattr(_core, "metal_system"):
        raise DeviceError('device "metal" exists on macOS only')
    return Device("metal", name="the default Metal device", system=_core.metal_system())


_MAKE: dict[str, Callable[[int], Device]] = {"cpu": _cpu, "cuda": _cuda, "metal": _metal}


def fits(file: Mapping[str, Any], device: Device) -> bool:
    """Whether one of a cell's files runs on the device: CPU files are for instruction sets."""
    return device.kind != "cpu" or _core.cpu_supports(file.get("isa") or "")


def artifact_path(folder: Path, name: str) -> Path:
    """The real path of an artifact. Raises ArtifactError when it is missing or leads out of the folder."""
    pure = PurePosixPath(name)
    if not name or pure.is_absolute() or ".." in pure.parts or "\\" in name or ":" in name or "\0" in name:
        raise ArtifactError(f"the index of {folder} names {name!r}, which is no path inside its folder")
    try:
        path = (folder / name).resolve(strict=True)
    except FileNotFoundError:
        raise ArtifactError(f"{folder / name} is missing; reinstall or rebuild the artifacts") from None
    except (OSError, RuntimeError) as error:
        raise ArtifactError(f"{folder / name} cannot be resolved: {error}") from error
    if not path.is_relative_to(folder):
        raise ArtifactError(f"{folder / name} is a link to {path}, outside its folder")
    return path


_FILE = {"file": str, "size": int, "sha256": str, "isa": str}


def check_file(file: Any, *without: str) -> Mapping[str, Any]:
    """A file's record of the index. Raises ArtifactError for one that is not of its form, which may lack the
    keys `without`.
    """
    if isinstance(file, Mapping):
        kinds = {key: kind for key, kind in _FILE.items() if key not in without}
        wrong = [key for key, kind in kinds.items() if not isinstance(file.get(key), kind)]
        if not wrong:
            return file
        raise ArtifactError(
            f"the index has a file whose {wrong[0]} is {file.get(wrong[0])!r}: build it again"
        )
    raise ArtifactError(f"the index has {file!r} where a file is wanted: build it again")


def read_artifact(folder: Path, file: Mapping[str, Any]) -> bytes:
    """The bytes of an artifact, checked against the index. Raises ArtifactError: missing, truncated or
    edited.
    """
    path = artifact_path(folder, file["file"])
    if path.exists() and not path.is_file():
        raise ArtifactError(f"{path} cannot be read: it is no regular file")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from error
    if len(data) != file["size"]:
        raise ArtifactError(
            f"{path} has {len(data)} bytes, the index says {file['size']}: truncated, or of another build"
        )
    found = hashlib.sha256(data).hexdigest()
    if found != file["sha256"]:
        raise ArtifactError(f"{path} was changed: its sha256 is {found}, the index says {file['sha256']}")
    return data


def load_module(folder: Path, file: Mapping[str, Any], device: Device) -> Module:
    """The loaded binary; read and checked once. A file with a `recipe` is made first. Raises ArtifactError,
    CompileError, DriverError, DeviceError.
    """
    if (recipe := file.get("recipe")) is not None:
        return recipe.load(device)
    return _modules.get((file["sha256"], str(device)), lambda: _load(folder, file, device))


def _load(folder: Path, file: Mapping[str, Any], device: Device) -> Module:
    start = time.perf_counter()
    module = _LOAD[device.kind](read_artifact(folder, file), file["file"], device)
    _note_module(file, device, 1e3 * (time.perf_counter() - start))
    return module


def _note_module(file: Mapping[str, Any], device: Device, milliseconds: float) -> None:
    name, size = file["file"], file["size"]
    message = f"{name} loaded on {device}: {size} bytes, {milliseconds:.1f} ms"
    event("module_loaded", message, file=name, bytes=size, milliseconds=milliseconds, device=str(device))


def note_choice(
    cell: Mapping[str, Any], file: Mapping[str, Any], device: Device, rows: Iterable[Row]
) -> None:
    """Logs which cell was taken, and why. rows: the targets of the index."""
    key, target, name, why = cell["key"], cell["target"], file["file"], reason(cell["target"], rows, device)
    message = f"{key} on {device}: {name}, {why}"
    event("cell_chosen", message, cell=key, target=target, device=str(device), file=name, reason=why)


def load_stub(folder: Path, cell: Mapping[str, Any]) -> Any:
    """The loaded stub of a cell (_core.Stub), checked against the index before any of its code runs; None
    where the cell has none. Raises ArtifactError, also for a stub of another build than the cell's binary.
    """
    if cell.get("stub") is None:
        return None
    file, build = check_file(cell["stub"], "isa"), str(cell.get("source_sha256") or "unknown")
    return _stubs.get(
        (file["sha256"], build), lambda: _core.Stub(read_artifact(folder, file), file["file"], build)
    )


_UNPACKS = 12040
"""The oldest driver, by cuDriverGetVersion's number, that unpacks compressed fat binaries."""


def _cuda_module(image: bytes, name: str, device: Device) -> Module:
    if name.endswith(".fatbin") and device.isa < ptx_version(_UNPACKS):
        newest = "{}.{}".format(*device.isa)
        raise DeviceError(
            f"{name} is compressed, which takes a driver of CUDA 12.4 or newer; "
            f"that of {device} is older (PTX up to {newest}): update it"
        )
    return _core.CudaModule(device.index, image)


_LOAD: dict[str, Callable[[bytes, str, Device], Module]] = {
    "cpu": lambda image, name, device: _core.CpuModule(image, name),
    "cuda": _cuda_module,
    "metal": lambda image, name, device: _core.MetalModule(image, name),
}
