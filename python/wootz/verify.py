"""wootz verify: run every kernel of a library that fits a device, and compare it with the float64 reference.

Each cell runs on random data that is different in every block and seeded by the cell's key, at sizes that
are no multiple of anything. Outputs are filled with NaN before the call and have guard bytes around them.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import hashlib
import importlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from glob import escape as glob_escape
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import checks, command_line, files, reference
from .errors import ArgumentError, NoVariantError
from .formats import Descriptor
from .layouts import made_fields
from .operands import contents, copied, fetched, moved, read_only, shareable, short
from .own_checks import check_of
from .reference import Comparison
from .select import Device, rank
from .staging import Memory, Output, memory

BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""What the libraries under NumPy read, once, when they are loaded."""


# ------------------------------------------------------------ one cell
@dataclass(frozen=True)
class Row:
    """The result of one cell. error and tolerance are relative (see reference.compare); message says why it
    failed. variants: how many were run one by one; idle: those whose conditions no size of the check meets.
    check_sha256: of the check that the kernel ships; of our own kernels nothing.
    """

    cell: str
    source_sha256: str
    error: float
    tolerance: float
    passed: bool
    shapes: int
    message: str = ""
    variants: int = 0
    idle: tuple[str, ...] = ()
    check_sha256: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON has no infinity: an error that is no number becomes null."""
        record: dict[str, Any] = {
            "cell": self.cell,
            "source_sha256": self.source_sha256,
            "error": self.error if np.isfinite(self.error) else None,
            "tolerance": self.tolerance,
            "pass": self.passed,
            "shapes": self.shapes,
        }
        more = {
            "check_sha256": self.check_sha256,
            "message": self.message,
            "variants": self.variants,
            "not_run": list(self.idle),
        }
        return record | {name: value for name, value in more.items() if value}


def blank(record: Mapping[str, Any], value: Any, shape: tuple[int, ...], dtype: str, where: Memory) -> Output:
    """What a kernel is to write to, filled with poison. record: its output's; value: of an operand that is
    the output, what it holds; for an output that is a tensor, one of its shape, whose written fields are then
    read as one row of bytes."""
    made = made_fields(record.get("kind", "array"))
    if not made:
        return where.output(shape, dtype, value)
    parts = {n: where.output(a.shape, short(a), None) for n, a in value.fields.items() if n in made}
    rest = {n: where.put(a, short(a)) for n, a in value.fields.items() if n not in parts}
    tensor = type(value)(value.format, value.shape, {n: part.array for n, part in parts.items()} | rest)

    def read() -> tuple[NDArray[Any], bool]:
        found = [part.read() for part in parts.values()]
        row = np.concatenate([np.ravel(array).view(np.uint8) for array, _ in found])
        return row.reshape(shape), all(whole for _, whole in found)

    return Output(tensor, read)


@dataclass(frozen=True)
class _Wanted:
    """What a check expects of one call: of the output, of operands that are written to, and to the bit."""

    output: reference.Expected
    updates: Mapping[str, reference.Expected]
    bits: Mapping[str, NDArray[Any]]


def run_once(
    call: Callable[..., Any],
    cell: Mapping[str, Any],
    signature: Mapping[str, Any],
    values: Mapping[str, Any],
    where: Memory,
    check: checks.Check,
) -> tuple[Comparison, str]:
    """A call that writes to memory of its own, then one for each operand whose memory its output may be."""
    asked = values, cell["dtype"], cell.get("options") or {}
    wanted = _Wanted(
        check.expect(*asked), _more(check, "updated", *asked), _more(check, "bits", *asked)
    )  # before any call: it might spoil the values
    result, why = _launch(call, cell, signature, values, where, wanted)
    types = operand_dtypes(signature, cell)
    for name in shareable(signature, values, types, wanted.output.value.shape):
        if why:
            break
        again, why = _launch(call, cell, signature, values, where, wanted, name)
        result, why = result.worst(again), f"with out={name}: {why}" if why else ""
    return result, why


def _launch(
    call: Callable[..., Any],
    cell: Mapping[str, Any],
    signature: Mapping[str, Any],
    values: Mapping[str, Any],
    where: Memory,
    wanted: _Wanted,
    shared: str = "",
) -> tuple[Comparison, str]:
    """One call and what is wrong with what it wrote. shared: the operand whose memory its output is."""
    types, output = operand_dtypes(signature, cell), signature["output"]
    dtype = "u8" if made_fields(output.get("kind", "array")) else types[output["name"]]
    held = values.get(shared or output["name"])
    out = blank(output, held, wanted.output.value.shape, dtype, where)
    changed = {n.partition(".")[0] for n in wanted.updates}
    own = {n: copied(v) if n in changed else v for n, v in values.items() if n != output["name"]}
    there = {n: moved(v, types.get(n, ""), where) for n, v in own.items()}
    in_place = output["name"] in [o["name"] for o in signature["operands"]]
    there |= {name: out.array for name in (shared, output["name"] if in_place else "out") if name}
    kept = [n for n in read_only(signature, values) if n != shared]
    before = {n: contents(values[n]) for n in kept}
    _call(call, signature, there)
    actual, whole = out.read()
    if spoilt := [n for n in kept if fetched(there[n], values[n], types[n], where) != before[n]]:
        return Comparison(float("inf"), 0.0, False), f"wrote to its operand {spoilt[0]}"
    result = reference.compare(actual, wanted.output, dtype)
    for name, expected in wanted.updates.items():
        part = "." in name
        dtype = short(checks.array_of(values, name)) if part else types[name]
        found = where.get(checks.array_of(there, name), dtype)
        found, dtype = (found.view(np.uint8), "u8") if part else (found, dtype)
        result = result.worst(reference.compare(found, expected, dtype))
    if not whole:
        return Comparison(float("inf"), 0.0, False), "wrote outside its output"
    for name, bits in wanted.bits.items():
        found = where.get(there[name], types[name]) if name in wanted.updates else actual
        if found.tobytes() != bits.tobytes():
            return Comparison(result.error, 0.0, False), f"{name} is not right bit for bit"
    return result, "" if result.passed else "outside the tolerance"


def _call(call: Callable[..., Any], signature: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Required operands by position, everything else by name."""
    required = [o["name"] for o in signature["operands"] if not o.get("optional")]
    rest = {name: value for name, value in values.items() if name not in required}
    call(*(values[name] for name in required), **rest)


def _more(
    check: checks.Check, what: str, values: Mapping[str, Any], dtype: str, options: Mapping[str, str]
) -> dict[str, Any]:
    """What a function says that not every check has, by name."""
    function = getattr(check, what, None)
    return function(values, dtype, options) if function else {}


def operand_dtypes(signature: Mapping[str, Any], cell: Mapping[str, Any]) -> dict[str, str]:
    """The element type of every array operand and of the output, from the records of kernel and cell."""
    own = cell.get("types") or {}
    each = [*signature["operands"], signature["output"]]
    return {o["name"]: own.get(o["name"]) or o.get("dtype") or cell["dtype"] for o in each}


def check_cell(
    call: Callable[..., Any],
    cell: Mapping[str, Any],
    signature: Mapping[str, Any],
    format: Descriptor | None,
    where: Memory,
    folder: Path | None = None,
    partial: bool = False,
) -> Row:
    """Run one kernel at all its shapes. An exception that the call raises is a failure with its text, not
    an end. folder: of the artifacts, for kernels that ship their check. partial: it is one variant, and
    shapes that it does not take are passed over.
    """
    key = str(cell["key"])
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")
    worst, message, count = Comparison(0.0, 0.0, True), "", 0
    try:
        check = check_of(folder, {"key": cell["kernel"], **signature})
        sizes = check.shapes(format)
        if not sizes:
            raise ArgumentError(f"the check of {cell['kernel']} gives no shapes: nothing was run")
        for i, size in enumerate(sizes):
            rng = np.random.default_rng([seed, i])
            values = check.operands(format, size, cell["dtype"], cell.get("options") or {}, rng)
            try:
                result, why = run_once(call, cell, signature, values, where, check)
            except NoVariantError:
                if partial:
                    continue
                raise
            if why and not message:
                message = f"{why} at {', '.join(f'{name} = {value}' for name, value in size.items())}"
            worst, count = worst.worst(result), count + 1
    except Exception as error:  # the next cells must still run
        message = f"{type(error).__name__}: {error}"
        worst = Comparison(float("inf"), 0.0, False)
    return Row(key, cell.get("source_sha256", ""), worst.error, worst.tolerance, not message, count, message)


def check_variants(
    kernel: Any,
    cell: Mapping[str, Any],
    signature: Mapping[str, Any],
    format: Descriptor | None,
    where: Memory,
    folder: Path | None = None,
) -> Row:
    """As `check_cell`, each variant of a Kernel by itself, at the shapes that it takes: the worst Row."""
    try:
        symbols = kernel.variants()
    except Exception as error:  # the next cells must still run
        message = f"{type(error).__name__}: {error}"
        return Row(cell["key"], cell.get("source_sha256", ""), float("inf"), 0.0, False, 0, message)
    rows = {
        s: check_cell(kernel.only(s), cell, signature, format, where, folder, partial=True) for s in symbols
    }
    symbol, worst = max(rows.items(), key=lambda pair: _used(pair[1]))
    count = sum(row.shapes for row in rows.values())
    message = f"{symbol}: {worst.message}" if worst.message else ""
    if not (count or message):
        message = "its variants take none of the check's shapes: nothing was run"
    return replace(
        worst,
        passed=not message,
        shapes=count,
        message=message,
        variants=len(rows),
        idle=tuple(symbol for symbol, row in rows.items() if not row.shapes and row.passed),
    )


# ------------------------------------------------------------ all of them
def verify(
    lib: Any,
    device: str = "cpu",
    pattern: str = "*",
    note: Callable[[str], None] | None = None,
    every: bool = False,
) -> Iterator[Row]:
    """One Row for each cell that the library would run on the device and whose key matches the glob.

    lib: what wootz.load gives. note(text): called before each cell. every: all variants of a cell, one by
    one, in place of the one that each shape would get. Raises DeviceError (no such device).
    """
    run = check_variants if every else check_cell
    where = memory(device)
    cells = [c for c in cells_for(lib, device) if fnmatch.fnmatchcase(c["key"], pattern)]
    for i, cell in enumerate(cells):
        if note:
            note(f"{i + 1} of {len(cells)}: {cell['key']}")
        name = cell.get("format") if cell.get("format") not in (None, "", "-") else None
        format = lib.format(name) if name else None
        call = lib.kernel(cell["kernel"], name, cell["dtype"], device, **(cell.get("options") or {}))
        signature = lib.index.find("kernels", cell["kernel"])
        shipped = signature.get("check")
        row = run(call, cell, signature, format, where, lib.folder(cell) if shipped else None)
        yield replace(row, check_sha256=shipped["sha256"]) if shipped else row


def cells_for(lib: Any, device: str) -> list[dict[str, Any]]:
    """The cells that the library would choose on the device: of equal ones, that of the best target."""
    order = [row["key"] for row in rank(lib.targets, _device(device))]
    best: dict[str, dict[str, Any]] = {}
    for cell in lib.cells():
        if not cell.get("files") or cell["target"] not in order:
            continue
        stem = cell["key"].rpartition("/")[0]
        if stem not in best or order.index(cell["target"]) < order.index(best[stem]["target"]):
            best[stem] = cell
    return sorted(best.values(), key=lambda cell: str(cell["key"]))


def _device(device: str) -> Device:
    if device == "cpu":
        return Device("cpu")
    kind, _, number = device.partition(":")
    found: Device = importlib.import_module("wootz.modules").resolve_device(kind, int(number or 0))
    return found


def report(rows: Sequence[Row], device: str, lib: Any) -> dict[str, Any]:
    """The JSON file: what ran where, and one record a cell."""
    name, driver = device_name(device)
    header: Mapping[str, Any] = lib.index.header
    return {
        "device": name,
        "driver": driver,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "generator": header.get("generator", ""),
        "compilers": header.get("compilers", {}),
        "host": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}",
        "cells": [row.to_json() for row in rows],
    }


def device_name(device: str) -> tuple[str, str]:
    if device == "cpu":
        return "cpu", ""
    info = importlib.import_module("wootz._core").cuda_device_info(int(device.partition(":")[2] or 0))
    version = int(info["driver_version"])
    return str(info["name"]), f"CUDA {version // 1000}.{version % 1000 // 10}"


# ------------------------------------------------------------ command line
def table(rows: Sequence[Row], verbose: bool) -> str:
    """A line for each kernel and format, or with verbose for each cell; then the failures."""
    lines = [f"{'cell':44} {'source':12} {'error':>10} {'tolerance':>10}  result"]
    shown = list(rows) if verbose else _summary(rows)
    for row in shown:
        result = "pass" if row.passed else "FAIL"
        lines.append(
            f"{row.cell:44} {row.source_sha256[:12]:12} {row.error:10.2e} {row.tolerance:10.2e}  {result}"
        )
    lines += [f"not run {row.cell}: {symbol}: its conditions are met by no size of the check"
              for row in rows for symbol in row.idle]  # fmt: skip
    lines += [f"FAIL {row.cell}: {row.message}" for row in rows if not row.passed]
    failed = sum(not row.passed for row in rows)
    return "\n".join([*lines, f"{len(rows) - failed} passed, {failed} failed"])


def _summary(rows: Sequence[Row]) -> list[Row]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        kernel, format, _, target = row.cell.split("/", 3)
        groups.setdefault(f"{kernel}/{format}/*/{target}", []).append(row)
    return [_worst_of(key, some) for key, some in groups.items()]


def _worst_of(key: str, rows: Sequence[Row]) -> Row:
    top = max(rows, key=_used)
    hashes = {r.source_sha256 for r in rows}
    return replace(top, cell=f"{key} ({len(rows)})", source_sha256=hashes.pop() if len(hashes) == 1 else "")


def _used(row: Row) -> tuple[bool, float]:
    """A failed one is worse than any other; else what used more of its tolerance."""
    return not row.passed, row.error / row.tolerance if row.tolerance else row.error


def _parser() -> argparse.ArgumentParser:
    parser = command_line.Parser(
        prog="wootz verify",
        description="Run every kernel that fits the device and compare it with the NumPy reference.",
    )
    parser.add_argument(
        "--artifacts",
        metavar="DIR",
        help="artifact folder, or the name of an installed package (default: wootz's own)",
    )
    parser.add_argument("--device", default="cpu", help='"cpu" (default) or "cuda:N"')
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--filter", default="*", metavar="GLOB", help='cells to run, as "qgemv/*/f16/*"')
    text = "of each cell: the one that a size would get (default), or all, one by one"
    parser.add_argument("--variants", choices=("chosen", "all"), default="chosen", help=text)
    parser.add_argument("--jobs", "-j", type=int, default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument("--verbose", action="store_true", help="a line for every cell")
    return parser


def main(argv: Sequence[str]) -> int:
    """The command. Exit status 0: all passed; 1: some failed; 2: bad use, or nothing to run."""
    return command_line.run(_parser(), argv, _run)


def _run(options: argparse.Namespace) -> int:
    lib = importlib.import_module("wootz").load(options.artifacts)
    if options.jobs < 1:
        raise ArgumentError(f"--jobs: wanted 1 or more; got {options.jobs}")
    files.check(options.json)
    every = options.variants == "all"
    if options.jobs > 1:
        rows = _shared_out(lib, options.device, options.filter, options.jobs, every)
    else:
        rows = _all_rows(lib, options.device, options.filter, every)
    if not rows:
        raise ArgumentError(f"no cell matches {options.filter!r} on {options.device}; see wootz list")
    results = report(rows, options.device, lib)
    print(table(rows, options.verbose))
    if options.json:
        files.write(options.json, json.dumps(results, indent=1, allow_nan=False) + "\n")
    return 0 if all(row.passed for row in rows) else 1


def _shared_out(lib: Any, device: str, pattern: str, jobs: int, every: bool) -> list[Row]:
    """The same rows, by several processes, each with a library of its own."""
    keys = [c["key"] for c in cells_for(lib, device) if fnmatch.fnmatchcase(c["key"], pattern)]
    work = [(lib.parts, device, key, every) for key in keys]
    with _threads(jobs), ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return list(pool.map(_one_cell, work))


def _cores() -> int:
    """Those that this process may run on."""
    allowed = getattr(os, "sched_getaffinity", None)  # which macOS lacks
    return len(allowed(0)) if allowed else os.cpu_count() or 1


@contextmanager
def _threads(jobs: int) -> Iterator[None]:
    """Processes started here leave each other cores: the BLAS of NumPy would have a thread a core in each,
    and its threads wait by spinning. What the user has set stays."""
    share = str(max(1, _cores() // jobs))
    added = {name: share for name in BLAS_THREADS if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _one_cell(work: tuple[Any, str, str, bool]) -> Row:
    parts, device, key, every = work
    (row,) = verify(_library(parts), device, glob_escape(key), every=every)
    return row


@cache
def _library(parts: Any) -> Any:
    return importlib.import_module("wootz").Library(parts)


def _all_rows(lib: Any, device: str, pattern: str, every: bool) -> list[Row]:
    live = sys.stderr.isatty()

    def note(text: str) -> None:
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    try:
        return list(verify(lib, device, pattern, note if live else None, every))
    finally:
        if live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
