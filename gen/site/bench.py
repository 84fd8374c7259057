"""Benchmark files -> rows to show. Nothing is worked out that a file does not say, but for rates, and 2·m·n·k
operations of a matrix product."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..emit.provenance import BuildError
from ..plan import name


@dataclass(frozen=True)
class Row:
    """One timing. us: microseconds. bytes, flops: the least that has to be moved and worked out. share: the
    floor's part of us. peers: microseconds of other packages; ratios: theirs over ours, timed in turn. cell:
    its key. None: not recorded."""

    kernel: str
    format: str
    dtype: str
    shape: Mapping[str, int]
    us: float
    bytes: float | None = None
    flops: float | None = None
    share: float | None = None
    peers: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    cell: str = ""
    notes: tuple[str, ...] = ()

    @property
    def unit(self) -> tuple[str, str, str] | None:
        """Kernel, format and target of its cell."""
        parts = self.cell.split("/")
        return (parts[0].partition(".")[0], parts[1], parts[3]) if len(parts) == 4 else None

    @property
    def tflops(self) -> float | None:
        """10^12 operations a second."""
        return self.flops / self.us / 1e6 if self.flops else None

    @property
    def gb_s(self) -> float | None:
        """10^9 bytes a second."""
        return self.bytes / self.us / 1e3 if self.bytes else None

    @property
    def intensity(self) -> float | None:
        """Operations a byte."""
        return self.flops / self.bytes if self.flops and self.bytes else None


@dataclass(frozen=True)
class Bench:
    """A file. read_gb_s, matrix_tflops (by type): the device's ceilings as it measured them. tables: figures
    of another kind: unit, then group -> name -> value."""

    label: str
    device: str
    date: str
    rows: tuple[Row, ...] = ()
    read_gb_s: float | None = None
    matrix_tflops: Mapping[str, float] = field(default_factory=dict)
    unit: str = ""
    tables: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def read(path: Path) -> Bench:
    """One file of `wootz bench --json`, or of the scripts in benchmarks/. BuildError where it is neither."""
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise BuildError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BuildError(f"{path}: cannot be read: {error}") from error
    try:
        return _bench(path.stem, found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        form = 'wanted {"device", "date", "ceilings", "rows"}, as wootz bench --json writes it'
        raise BuildError(f"{path}: is no benchmark file: {what}; {form}") from error


def _bench(label: str, found: Mapping[str, Any]) -> Bench:
    device, date = str(found.get("device", "")), str(found.get("date", ""))
    for unit in ("us", "ms"):
        if unit in found and "rows" not in found:
            tables = {g: {n: float(v) for n, v in row.items()} for g, row in found[unit].items()}
            return Bench(label, device, date, unit=unit, tables=tables)
    ceilings = found.get("ceilings", {})
    read_gb_s = ceilings.get("read_gb_s") or found.get("read_tb_s", 0) * 1000
    reader = _row if "ceilings" in found else _older(label)
    rows = tuple(map(reader, found["rows"]))
    if bad := next((row for row in rows if not row.us > 0), None):
        raise ValueError(f"{bad.kernel} took {bad.us} us")
    return Bench(label, device, date, rows, read_gb_s or None, _numbers(ceilings.get("matrix_tflops")))


def _row(row: Mapping[str, Any]) -> Row:
    notes = (*(["warm"] if row.get("cold") is False else []), *(["pdl"] if row.get("pdl") else []))
    fmt = str(row.get("format") or "")
    return Row(
        str(row["kernel"]),
        "" if fmt == name.NO_FORMAT else fmt,
        str(row.get("dtype") or ""),
        {str(k): int(v) for k, v in row["shape"].items()},
        float(row["us"]),
        _number(row.get("bytes")),
        _number(row.get("flops")),
        _number(row.get("share")),
        _numbers(row.get("peers")),
        _numbers(row.get("ratios")),
        cell=str(row.get("cell") or ""),
        notes=notes,
    )


def _numbers(values: Mapping[str, Any] | None) -> dict[str, float]:
    return {str(key): float(value) for key, value in (values or {}).items()}


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


# The scripts in benchmarks/, each with columns of its own


def _mnk(row: Mapping[str, Any]) -> dict[str, Any]:
    shape = {axis: int(row[axis]) for axis in ("m", "n", "k")}
    return {"shape": shape, "us": float(row["us"]), "flops": 2.0 * shape["m"] * shape["n"] * shape["k"]}


def _qgemv(row: Mapping[str, Any]) -> Row:
    peers = {"torch, bf16 weights": float(row["torch_bf16_us"])}
    share = 1 / float(row["floor"])
    return Row("qgemv", row["format"], "bf16", **_mnk(row), bytes=row["bytes"], share=share, peers=peers)


def _qmm(row: Mapping[str, Any]) -> Row:
    peers = {"torch, bf16 weights": float(row["torch_bf16_us"])}
    return Row("qmm_packed", row["format"], "bf16", **_mnk(row), peers=peers)


def _gemm(row: Mapping[str, Any]) -> Row:
    return Row("gemm", "", str(row["case"]), **_mnk(row), peers={"torch": float(row["torch_us"])})


def _rows(row: Mapping[str, Any]) -> Row:
    peers = {"torch": float(row["torch_us"]), "a copy": float(row["copy_us"])}
    shape = {axis: int(row[axis]) for axis in ("m", "n")}
    return Row(row["kernel"], "", row["dtype"], shape, float(row["us"]), share=row["of_copy"], peers=peers)


_OLDER: dict[str, Callable[[Mapping[str, Any]], Row]] = {
    "qgemv": _qgemv,
    "qmm": _qmm,
    "gemm": _gemm,
    "rows": _rows,
}


def _older(label: str) -> Callable[[Mapping[str, Any]], Row]:
    known = _OLDER.get(label.partition("-")[0])
    if known is None:
        raise ValueError("no 'ceilings'")
    return known
