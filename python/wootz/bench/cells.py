"""Which cells a command line asks for, and at which sizes."""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import verify
from ..arrays import parse_device
from ..errors import ArgumentError, NoKernelError, near
from .families import family
from .problems import symbols

Cell = Mapping[str, Any]


@dataclass(frozen=True)
class Wanted:
    """What to bench: names or globs of kernels (with or without their options), formats and dtypes, nothing
    for all; sizes as texts, "14336x4096", by the symbols of the kernel's family; extents that hold for all;
    rows of activations, one size for each."""

    kernels: Sequence[str] = ()
    formats: Sequence[str] = ()
    dtypes: Sequence[str] = ()
    shapes: Sequence[str] = ()
    extents: Mapping[str, int] = field(default_factory=dict)
    m: Sequence[int] = ()


def chosen(lib: Any, device: str, wanted: Wanted) -> list[Cell]:
    """The cells that the library would run on the device. Raises NoKernelError, naming what is not there."""
    kind, number = parse_device(device)
    cells: list[Cell] = [*verify.cells_for(lib, f"cuda:{number or 0}" if kind == "cuda" else kind)]
    cells = _narrowed("kernel", cells, wanted.kernels, lambda cell: (cell["kernel"], stem(cell)), device)
    formats = [*wanted.formats, *(["-"] if wanted.formats else [])]
    cells = _narrowed("format", cells, formats, lambda cell: (cell.get("format") or "-",), device)
    return _narrowed("dtype", cells, wanted.dtypes, lambda cell: (cell["dtype"],), device)


def stem(cell: Cell) -> str:
    """Kernel and options, as cell keys begin."""
    return str(cell["key"]).partition("/")[0]


def _narrowed(
    what: str, cells: Sequence[Cell], patterns: Sequence[str], names: Any, device: str
) -> list[Cell]:
    for pattern in patterns:
        found = any(fnmatch.fnmatchcase(name, pattern) for cell in cells for name in names(cell))
        if not found and pattern != "-":
            known = sorted({name for cell in cells for name in names(cell)})
            there = ", ".join(known) or "nothing"
            raise NoKernelError(f"no {what} {pattern!r} on {device}{near(pattern, known)}; there: {there}")
    return [
        cell
        for cell in cells
        if not patterns or any(fnmatch.fnmatchcase(n, p) for p in patterns for n in names(cell))
    ]


def sizes(lib: Any, cell: Cell, wanted: Wanted) -> list[dict[str, int]]:
    """The sizes of a cell: those asked for, else its family's. Raises ArgumentError for a text or a symbol
    that does not fit the kernel, and where nothing says how large a kernel's operands are.
    """
    known, of = symbols(lib, cell), family(cell["kernel"])
    for name in wanted.extents:
        if name not in known:
            raise ArgumentError(
                f"{cell['kernel']} has no extent {name!r}{near(name, known)}; it has {', '.join(known)}"
            )
    default = of.sizes[:1] if set(of.shape.split()) & set(wanted.extents) else of.sizes
    found = []
    for text in wanted.shapes or default or ("",):
        base = {**of.beside, **_read(cell["kernel"], of.shape, text), **wanted.extents}
        rows = [{"m": m} for m in wanted.m] if wanted.m and "m" in known else [{}]
        found += [_complete(cell["kernel"], {**base, **each}, known) for each in rows]
    return found


def _read(kernel: str, shape: str, text: str) -> dict[str, int]:
    names, extents = shape.split(), text.split("x") if text else []
    if text and (len(names) != len(extents) or not all(each.isdecimal() for each in extents)):
        wanted = f"{'x'.join(names)}, as {family(kernel).sizes[0]}" if names else "no --shapes: use --size"
        raise ArgumentError(f"{kernel}: shape {text!r}; want {wanted}")
    return dict(zip(names, map(int, extents)))


def _complete(kernel: str, size: Mapping[str, int], known: Sequence[str]) -> dict[str, int]:
    missing = [name for name in known if name not in size]
    if missing:
        raise ArgumentError(f"{kernel} needs {', '.join(missing)}: say --size {missing[0]}=...")
    return {name: size[name] for name in known}


# ---- programmatic dependent launch


class _Apart:
    """An index whose launches do not begin before the launch before them has ended."""

    def __init__(self, index: Any) -> None:
        self._index = index

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)

    def find(self, section: str, key: str) -> Any:
        return _without_early(self._index.find(section, key))

    def records(self, section: str, *rest: Any) -> Iterator[Any]:
        found: Iterable[Any] = self._index.records(section, *rest)
        return map(_without_early, found)


def _without_early(record: Any) -> Any:
    if not record or not record.get("entries"):
        return record
    return {**record, "entries": [{**entry, "pdl": False} for entry in record["entries"]]}


def apart(lib: Any) -> Any:
    """The library with its kernels launched one after the other, whatever its index allows."""
    made = copy.copy(lib)
    made.index = _Apart(lib.index)
    return made
