"""What a report is about: an artifact folder, or a wheel (or other zip archive) that carries one."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..build import index, runner
from ..emit.provenance import BuildError
from ..plan import name

LEVEL = 6
"""Of deflate: what zipfile, and so the wheel back ends, use."""
_HEAD = b'{"wootz_index":'


@dataclass(frozen=True)
class Shipped:
    """`index`: the whole index. `read`: a file's bytes by its path in the index, None where it is not there.
    `compressed`: its bytes as a wheel stores them. `seconds`: of compiles, by artifact, where recorded."""

    label: str
    index: Mapping[str, Any]
    read: Callable[[str], bytes | None]
    compressed: Mapping[str, int]
    seconds: Mapping[str, float]


def open_artifacts(path: Path) -> Shipped:
    """A folder or an archive. BuildError where it has no index, or one that is damaged."""
    return _archive(path) if path.is_file() else _folder(path)


def files(found: Mapping[str, Any]) -> dict[str, int]:
    """Artifact -> bytes, of an index: binaries and host stubs, each once."""
    claims = (file for cell in found["cells"] for file in (*cell["files"], cell.get("stub", {})))
    return {str(file["file"]): int(file["size"]) for file in claims if "file" in file}


def _inside(path: str) -> bool:
    pure = PurePosixPath(path)
    return not (pure.is_absolute() or ".." in pure.parts)


def _folder(path: Path) -> Shipped:
    found = _checked(path / name.INDEX, index.read(path / name.INDEX))

    def read(file: str) -> bytes | None:
        try:
            return (path / file).read_bytes() if _inside(file) else None
        except OSError:
            return None

    seconds = {file: took for file, took in runner.seconds(path).items() if file in files(found)}
    return Shipped(path.name, found, read, _deflated(files(found), read), seconds)


def _deflated(paths: Iterable[str], read: Callable[[str], bytes | None]) -> dict[str, int]:
    """Bytes of each file that is there, compressed. zlib lets other threads run."""

    def one(path: str) -> int | None:
        data = read(path)
        return None if data is None else deflated(data)

    with ThreadPoolExecutor() as pool:
        ordered = sorted(paths)
        return {path: size for path, size in zip(ordered, pool.map(one, ordered)) if size is not None}


def deflated(data: bytes) -> int:
    """Bytes of a file in a wheel, without the headers of the archive."""
    squeeze = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return len(squeeze.compress(data)) + len(squeeze.flush())


def _archive(path: Path) -> Shipped:
    try:
        with zipfile.ZipFile(path) as archive:
            root = _root(path, archive)
            members = {i.filename[len(root) :]: i for i in archive.infolist() if i.filename.startswith(root)}
            text = archive.read(root + name.INDEX)
    except (OSError, zipfile.BadZipFile, RuntimeError, zlib.error, NotImplementedError) as error:
        raise BuildError(f"{path}: is no artifact folder, and no wheel: {error}") from error
    where = Path(f"{path}:{root}{name.INDEX}")
    found = _checked(where, _parsed(where, text))

    def read(file: str) -> bytes | None:
        try:
            with zipfile.ZipFile(path) as archive:
                return archive.read(members[file]) if file in members else None
        except (OSError, zipfile.BadZipFile, RuntimeError, zlib.error, NotImplementedError):
            return None

    sizes = {file: members[file].compress_size for file in files(found) if file in members}
    return Shipped(path.name, found, read, sizes, {})


def _root(path: Path, archive: zipfile.ZipFile) -> str:
    """The folder of an archive's index."""
    named = [n for n in archive.namelist() if PurePosixPath(n).name == name.INDEX]
    roots = [n[: -len(name.INDEX)] for n in named if archive.read(n).startswith(_HEAD)]
    if len(roots) != 1:
        wanted = f"wanted one {name.INDEX} of artifacts in it, found {len(roots)}"
        raise BuildError(f"{path}: {wanted}; unpack it, and name the folder of one index")
    return roots[0]


def _parsed(path: Path, text: bytes) -> Any:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BuildError(f"{path}: cannot be read: {error}") from error
    if not isinstance(found, dict) or found.get("wootz_index") != index.VERSION:
        raise BuildError(f"{path}: is no wootz index of version {index.VERSION}")
    return found


_CELL = {
    "kernel": str,
    "dtype": str,
    "target": str,
    "options": dict,
    "files": list,
    "source": str,
    "source_sha256": str,
    "evidence": list,
    "entries": list,
}
"""What a report reads of every cell."""


def _checked(path: Path, found: dict[str, Any]) -> dict[str, Any]:
    """The index. BuildError names the first thing that is missing."""
    problem = next(_problems(found), None)
    if problem:
        raise BuildError(f"{path}: is damaged: {problem}; build the folder again")
    return found


def _problems(found: Mapping[str, Any]) -> Iterator[str]:
    for section in index.SECTIONS:
        records = found.get(section)
        if not isinstance(records, list):
            yield f"it has no list {section!r}"
            return
        for i, record in enumerate(records):
            if not (isinstance(record, dict) and isinstance(record.get("key"), str)):
                yield f"{section}[{i}] has no key"
    targets = {record["key"] for record in found["targets"] if isinstance(record, dict) and "key" in record}
    for cell in found["cells"]:
        yield from _problems_of(cell, targets)


def _problems_of(cell: Mapping[str, Any], targets: Set[str]) -> Iterator[str]:
    for key, kind in _CELL.items():
        if not isinstance(cell.get(key), kind):
            came = type(cell.get(key)).__name__
            yield f"cell {cell['key']}: wanted {key!r} of type {kind.__name__}, came {came}"
            return
    if cell["target"] not in targets:
        yield f"cell {cell['key']}: there is no target {cell['target']}"
    for file in (*cell["files"], *([cell["stub"]] if "file" in cell.get("stub", {}) else [])):
        if not (isinstance(file.get("file"), str) and isinstance(file.get("size"), int)):
            yield f"cell {cell['key']}: a file of it has no name, or no size"
