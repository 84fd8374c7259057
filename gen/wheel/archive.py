"""A wheel as bytes: the same for the same content, whatever the clock, the umask and the order of things.

The writer is of a few lines and ours: those of others (wheel's, flit's) take modes and times from files, or
give RECORD a mode of its own, and would be one more thing to install.
"""

from __future__ import annotations

import base64
import csv
import datetime
import hashlib
import io
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import __version__
from ..emit.provenance import MODE, BuildError
from .tags import ANY

EPOCH = "SOURCE_DATE_EPOCH"
_FIRST = datetime.datetime(1980, 1, 1, tzinfo=datetime.timezone.utc)  # that a zip file can say
_LAST = datetime.datetime(2107, 12, 31, 23, 59, 59, tzinfo=datetime.timezone.utc)
_METADATA = "2.4"

Moment = tuple[int, int, int, int, int, int]
"""As a zip file has it: year to second."""


@dataclass(frozen=True)
class Wheel:
    """A wheel to be: what it is called, what it says of itself, what is in it.

    name, version: normalised. files: content, or where it lies, by path in the wheel. extra: of the dist-info
    folder, likewise. points: of the group wootz.artifacts, by name.
    """

    name: str
    version: str
    platform: str
    summary: str
    requires: tuple[str, ...]
    files: Mapping[str, bytes | Path] = field(default_factory=dict)
    points: Mapping[str, str] = field(default_factory=dict)
    licence: str = ""
    extra: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version.replace('-', '_')}"

    @property
    def file_name(self) -> str:
        return f"{self.stem}-py3-none-{self.platform}.whl"


def metadata(wheel: Wheel) -> str:
    """Core metadata, version 2.4."""
    licences = sorted(name.removeprefix("licenses/") for name in wheel.extra if name.startswith("licenses/"))
    rows = [
        ("Metadata-Version", _METADATA),
        ("Name", wheel.name),
        ("Version", wheel.version),
        ("Summary", wheel.summary),
        *([("License-Expression", wheel.licence)] if wheel.licence else []),
        *(("License-File", name) for name in licences),
        ("Requires-Python", ">=3.10"),
        *(("Requires-Dist", each) for each in wheel.requires),
    ]
    return "".join(f"{key}: {value}\n" for key, value in rows)


def _dist_info(wheel: Wheel) -> dict[str, bytes]:
    said = [
        ("Wheel-Version", "1.0"),
        ("Generator", f"wootz {__version__}"),
        ("Root-Is-Purelib", "true" if wheel.platform == ANY else "false"),
        ("Tag", f"py3-none-{wheel.platform}"),
    ]
    points = "".join(f"{name} = {value}\n" for name, value in sorted(wheel.points.items()))
    files = {
        "METADATA": metadata(wheel).encode(),
        "WHEEL": "".join(f"{key}: {value}\n" for key, value in said).encode(),
        **({"entry_points.txt": f"[wootz.artifacts]\n{points}".encode()} if points else {}),
        **wheel.extra,
    }
    return {f"{wheel.stem}.dist-info/{name}": files[name] for name in sorted(files)}


def pack(wheel: Wheel, moment: Moment) -> bytes:
    """The wheel, its files sorted, its dist-info last as its specification has it. BuildError names a file
    that cannot be read."""
    content = {name: wheel.files[name] for name in sorted(wheel.files)} | _dist_info(wheel)
    rows, target = [], io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, source in content.items():
            data = source if isinstance(source, bytes) else read(source)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append((name, f"sha256={digest}", str(len(data))))
            _add(archive, name, data, moment)
        record = f"{wheel.stem}.dist-info/RECORD"
        _add(archive, record, _csv([*rows, (record, "", "")]), moment)
    return target.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes, moment: Moment) -> None:
    info = zipfile.ZipInfo(name, moment)
    info.create_system, info.external_attr = 3, (0o100000 | MODE) << 16  # of Unix, whoever packs
    archive.writestr(info, data, zipfile.ZIP_DEFLATED, 9)


def _csv(rows: Sequence[tuple[str, str, str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def read(path: Path) -> bytes:
    """A file's bytes. BuildError where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BuildError(f"{path}: cannot be read: {error.strerror or error}") from error


def epoch() -> datetime.datetime | None:
    """The time of SOURCE_DATE_EPOCH; None where it is not set. BuildError where it is none."""
    text = os.environ.get(EPOCH, "")
    wanted = f"{EPOCH}={text}: wanted a whole number of seconds since 1970, as `date +%s` has them"
    if text and not (text.isascii() and text.isdecimal()):
        raise BuildError(wanted)
    try:
        return datetime.datetime.fromtimestamp(int(text), datetime.timezone.utc) if text else None
    except (ValueError, OverflowError, OSError) as error:
        raise BuildError(f"{wanted} ({error})") from error


def moment() -> Moment:
    """The time that every file of a wheel gets: SOURCE_DATE_EPOCH within what a zip file can say, else the
    first of it. Raises as `epoch` does."""
    found = min(max(epoch() or _FIRST, _FIRST), _LAST)
    return found.year, found.month, found.day, found.hour, found.minute, found.second
