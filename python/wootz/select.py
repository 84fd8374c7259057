"""Which targets run on a device, best first. Pure functions over the target rows of the index; names are
never read.

The order on a CUDA device of capability M.m: the arch-specific binary of exactly M.m (suffix "a"), the
family-specific binary of the same M and the highest minor <= m (suffix "f"), the plain binary of the same M
and the highest minor <= m, then text (PTX) that the driver can compile. A binary never runs on another M.

Sources, where they are compiled on demand, follow the rules of text: those with a suffix hold instructions of
their own chip or family and are for no other, plain ones are for every device from their capability on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Device", "parse_version", "ptx_version", "rank", "rank_sources", "reason"]

Row = Mapping[str, Any]
Version = tuple[int, int]

# The newest PTX version of each CUDA release that did not raise it by one per minor release from (major -
# 4).0.
_PTX_OF_CUDA: dict[Version, Version] = {
    (12, 5): (8, 5),
    (12, 6): (8, 5),
    (12, 7): (8, 6),
    (12, 8): (8, 7),
    (12, 9): (8, 8),
}


@dataclass(frozen=True)
class Device:
    """What selection needs to know of a device.

    kind: "cpu", "cuda" or "metal". capability: (major, minor), CUDA only. isa: the newest PTX version of its
    driver. system: the version of the operating system, Metal only.
    """

    kind: str
    index: int = 0
    name: str = ""
    capability: Version = (0, 0)
    isa: Version = (0, 0)
    system: Version = (0, 0)
    sms: int = 1
    shared_bytes: int = 0

    def __str__(self) -> str:
        return f"cuda:{self.index}" if self.kind == "cuda" else self.kind

    def describe(self) -> str:
        """For messages: the device, its name and its capability."""
        if self.kind != "cuda":
            return str(self)
        return f"{self} ({self.name}, compute capability {self.capability[0]}.{self.capability[1]})"


def parse_version(text: str) -> Version | None:
    """(8, 5) of "8.5"; None if it is no such text."""
    parts = str(text).split(".")
    if not 1 <= len(parts) <= 2 or not all(part.isdecimal() for part in parts):
        return None
    return int(parts[0]), int(parts[1]) if len(parts) == 2 else 0


def ptx_version(driver: int) -> Version:
    """The newest PTX version that a driver compiles; `driver` is cuDriverGetVersion's number, 12040 for CUDA
    12.4.
    """
    cuda = driver // 1000, driver % 1000 // 10
    return _PTX_OF_CUDA.get(cuda, (cuda[0] - 4, cuda[1]))


def rank(rows: Iterable[Row], device: Device) -> list[Row]:
    """The rows that run on `device`, best first. Rows that are equally good keep the order of the index."""
    ranked = [
        (place, row) for row in rows if row["backend"] == device.kind and (place := _place(row, device))
    ]
    return [row for _, row in sorted(ranked, key=lambda pair: pair[0])]


def reason(target: str, rows: Iterable[Row], device: Device) -> str:
    """Why a target was taken on a device, in words."""
    order = [row["key"] for row in rank(rows, device)]
    better = order[: order.index(target)] if target in order else []
    if not better:
        return f"the best target for {device.describe()}"
    return f"the best target after {', '.join(better)}, which have no binary of it"


def rank_sources(rows: Iterable[Row], device: Device) -> list[tuple[Row, str]]:
    """The rows whose sources may be compiled for a CUDA device, best first, each with the architecture that
    the compiler is told: the device's, with the row's suffix.
    """
    if device.kind != "cuda":
        return []
    ranked = [
        ((_SUFFIXES.index(suffix), -capability[0], -capability[1]), row)
        for row in rows
        if row["backend"] == device.kind
        and (suffix := row.get("suffix") or "") in _SUFFIXES
        and (capability := _pair(row.get("capability"))) is not None
        and _reaches(row, capability, device, text=True)
    ]
    chip = "sm_{}{}".format(*device.capability)
    best = sorted(ranked, key=lambda pair: pair[0])
    return [(row, chip + (row.get("suffix") or "")) for _, row in best]


def _place(row: Row, device: Device) -> tuple[int, ...] | None:
    """A sort key, lower is better; None if the row does not run there."""
    if device.kind == "cuda":
        return _cuda_place(row, device)
    if device.kind == "metal":
        return _metal_place(row, device)
    return (0,)


def _cuda_place(row: Row, device: Device) -> tuple[int, ...] | None:
    capability = _pair(row.get("capability"))
    text, suffix = row.get("extension") == "ptx", row.get("suffix") or ""
    if capability is None or not _reaches(row, capability, device, text):
        return None
    if text and not _driver_reads(row, device):
        return None
    return (int(text), _SUFFIXES.index(suffix), -capability[0], -capability[1])


_SUFFIXES = ("a", "f", "")
"""The most specific first."""


def _reaches(row: Row, capability: Version, device: Device, text: bool) -> bool:
    """Whether code for `capability` is code for the device; text: it is yet to be compiled."""
    if any(_pair(denied) == device.capability for denied in row.get("deny") or ()):
        return False
    same_major = capability[0] == device.capability[0] and capability[1] <= device.capability[1]
    fits = {
        "a": capability == device.capability,
        "f": same_major,
        "": same_major or (text and capability <= device.capability),
    }
    return fits.get(row.get("suffix") or "", False)


def _driver_reads(row: Row, device: Device) -> bool:
    versions = [version for text in row.get("isa") or () if (version := parse_version(text))]
    return not versions or min(versions) <= device.isa


def _metal_place(row: Row, device: Device) -> tuple[int, ...] | None:
    needed = parse_version(row.get("min_os") or "0")
    if needed is None or needed > device.system:
        return None
    return (-needed[0], -needed[1])


def _pair(value: Any) -> Version | None:
    """A capability as the index writes it: [9, 0], or "9.0"."""
    if isinstance(value, str):
        return parse_version(value)
    return (int(value[0]), int(value[1])) if value else None
