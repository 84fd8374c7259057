"""Sizes in bytes, as people write them: "100 MB" is 10^8 bytes, "64 MiB" is 2^26."""

from __future__ import annotations

import re

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = re.compile(rf"(\d{{1,12}}(?:\.\d{{1,6}})?) ?({'|'.join(UNITS)})", re.ASCII)
WANTED = f"wanted a size, a number and one of {', '.join(UNITS)}, as 100 MB"


def parse(text: object) -> int | None:
    """Bytes; None where it is no size."""
    found = _SIZE.fullmatch(text) if isinstance(text, str) else None
    return round(float(found[1]) * UNITS[found[2]]) if found else None


def show(count: int) -> str:
    """In the largest decimal unit that leaves a number of 1 or more: "12.3 MB"."""
    unit = next((u for u in ("GB", "MB", "KB") if count >= UNITS[u]), "B")
    return f"{count} B" if unit == "B" else f"{count / UNITS[unit]:.1f} {unit}"
