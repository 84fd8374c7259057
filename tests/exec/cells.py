"""Every cell of a manifest whose text is CUDA or Metal, executed on the CPU and compared with the reference.

test_cells.py asks for each cell, evidence.py writes down which passed, and `run_format` takes a format that
no manifest has. One text holds all dtypes, options and variants of kernel x format; the texts of several CUDA
targets that are the same run once.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from inputs import Array, Size, absent, arguments, completed, names, sizes, strided_names
from lanes import ORDERS, CompileError, Entry, ExecutionError, Program, evaluate, poisoned
from wootz import checks, reference, verify
from wootz.formats import Descriptor
from wootz.reference import Comparison
from wootz.staging import underlying

from gen.build import index
from gen.emit import emission
from gen.emit import text as emit
from gen.formats.axes import Format
from gen.formats.fragment import STEP, fragment
from gen.lower.templates import uses_cutlass
from gen.manifest.reader import Manifest
from gen.plan import cells as plan
from gen.variants.family import family

ROOT = Path(__file__).parents[2]
BACKENDS = ("cuda", "metal")
LAUNCH_SECONDS = 120
RELEASE = plan.Request("release")


@cache
def repository() -> Manifest:
    return plan.load(ROOT / "kernels.yaml")


@dataclass(frozen=True)
class Subject:
    """kernel x format x backend, what one test runs: the units of one backend's targets."""

    units: tuple[plan.Unit, ...]

    @property
    def kernel(self) -> str:
        return self.units[0].kernel.name

    @property
    def format(self) -> Format | None:
        return self.units[0].format

    @property
    def backend(self) -> str:
        return self.units[0].target.backend

    def __str__(self) -> str:
        return f"{self.kernel}-{self.units[0].format_name or '-'}-{self.backend}"


@dataclass(frozen=True)
class Text:
    """A source without its provenance line. entries: those of each cell, by (dtype, options), in the order in
    which they are tried; cells: the (key, sha256 of the whole source) that this text stands for; types: of
    operands and output, where they are not the cell's dtype.
    """

    body: str
    entries: Mapping[tuple[str, tuple[tuple[str, str], ...]], tuple[Entry, ...]]
    cells: Mapping[tuple[str, tuple[tuple[str, str], ...]], tuple[tuple[str, str], ...]]
    types: Mapping[tuple[str, tuple[tuple[str, str], ...]], Mapping[str, str]]


@dataclass(frozen=True)
class Result:
    """The outcome of one cell at all sizes. proof: see `proof_of`. error and tolerance are relative
    (wootz.reference.compare)."""

    cell: str
    source_sha256: str
    proof: str
    error: float
    tolerance: float
    passed: bool
    shapes: int
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        """As wootz verify writes it."""
        record = {**asdict(self), "error": self.error if np.isfinite(self.error) else None}
        record["pass"] = record.pop("passed")
        return record if self.message else {k: v for k, v in record.items() if k != "message"}


# What there is to run


def candidates(source: Manifest, request: plan.Request = RELEASE) -> list[Subject]:
    """Every kernel x format x backend of a request that has a cell to build as CUDA or Metal text."""
    found: dict[tuple[str, str | None, str], list[plan.Unit]] = {}
    for unit in plan.units(source, plan.select(source, request)):
        if unit.target.backend in BACKENDS and unit.jobs:
            found.setdefault((unit.kernel.name, unit.format_name, unit.target.backend), []).append(unit)
    return [Subject(tuple(units)) for units in found.values()]


def subjects(source: Manifest, request: plan.Request = RELEASE) -> list[Subject]:
    """The candidates of which a CPU can run a text, with the units that have one."""
    able = (tuple(filter(executable, each.units)) for each in candidates(source, request))
    return [Subject(units) for units in able if units]


def executable(unit: plan.Unit) -> bool:
    """Whether a CPU can run the text: nothing of CUTLASS, no tensor maps, no parameters that a stub fills."""
    whole, records = emission.render(unit)
    entries = [record["entry"] for record in records]
    return not any(e.get("maps") or e.get("stub") for e in entries) and not uses_cutlass(whole)


def packing(subject: Subject) -> tuple[Any, ...]:
    """What decides how a text finds the bits of a tensor; formats that share it are loaded alike."""
    fmt = subject.format
    if fmt is None:
        return ()
    declared = family(subject.kernel)
    if all(o.kind != "quantised" for o in (*declared.operands, declared.output)):
        packed = fragment(fmt)
        return (packed.columns, packed.run < STEP, fmt.zero is not None)
    layout = fmt.layout
    sides = tuple(
        (f.bits if f.bits % 8 else 0, f.block is not None and f.block[0] != 1) for f in layout.fields[1:]
    )
    return (layout.positions, layout.inline, layout.chunk, layout.load, sides)


FEW = 3


def sample(everything: Sequence[Subject]) -> list[Subject]:
    """What the sanitizers run over: of each language every kernel with a few packings, and every packing with
    a few kernels; other packings with each kernel."""
    chosen: dict[tuple[Any, ...], Subject] = {}
    kernels, packings = Counter[Any](), Counter[Any]()
    for name, group in groupby(everything, key=lambda s: s.kernel):
        subjects = list(group)
        first = zlib.crc32(name.encode()) % len(subjects)
        for subject in (*subjects[first:], *subjects[:first]):
            kernel, kind = (name, subject.backend), (packing(subject), subject.backend)
            if (*kernel, *kind) in chosen or min(kernels[kernel], packings[kind]) >= FEW:
                continue
            chosen[(*kernel, *kind)] = subject
            kernels[kernel] += 1
            packings[kind] += 1
    return list(chosen.values())


def texts(subject: Subject) -> list[Text]:
    """The distinct texts of a subject, each with the cells of all targets that share it."""
    found: dict[str, Text] = {}
    for unit in subject.units:
        whole, records = emission.render(unit)
        sha256 = hashlib.sha256(whole.encode()).hexdigest()
        body = whole.partition("\n")[2]
        known = found.get(body)
        entries: dict[Any, tuple[Entry, ...]] = {}
        types: dict[Any, Mapping[str, str]] = {}
        for record in records:
            cell = (record["dtype"], tuple(record["options"].items()))
            entries[cell] = (*entries.get(cell, ()), Entry.from_json(record["entry"]))
            types[cell] = record.get("types", {})
        if known and known.entries != entries:
            raise AssertionError(f"{unit.key}: the same text as another target's, but other entries")
        cells = {(c.dtype, c.options): (c.key, sha256) for c in unit.jobs}
        before = known.cells if known else {}
        both = {cell: (*before.get(cell, ()), key) for cell, key in cells.items()}
        found[body] = Text(body, entries, both, types)
    return list(found.values())


# What is known


@cache
def checker(kernel: str) -> str:
    """A digest of the code that decides what a kernel's text is run on, how, and what is right."""
    here, package = Path(__file__).parent, ROOT / "python/wootz"
    named = [here / "cells.py", here / "inputs.py"]
    named += [package / name for name in ("broadcast.py", "reference.py", "verify.py")]
    lanes = [path for path in (here / "lanes").rglob("*.*") if path.suffix != ".pyc"]
    digest = hashlib.sha256()
    for path in sorted({*named, *lanes, *(package / "formats").glob("*.py"), *_check_files(kernel)}):
        digest.update(f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _check_files(kernel: str) -> set[Path]:
    """The kernel's check and, of the same folder, what it imports."""
    folder = ROOT / "python/wootz/checks"
    found, waiting = set[Path](), [folder / "__init__.py", folder / f"{kernel}.py"]
    while waiting:
        path = waiting.pop()
        if path in found or not path.is_file():
            continue
        found.add(path)
        names = re.findall(r"^from \.(\w*) import (.+)$", path.read_text(encoding="utf-8"), re.M)
        modules = (each for name, some in names for each in ([name] if name else re.findall(r"\w+", some)))
        waiting += [folder / f"{module}.py" for module in modules]
    return found


def proof_of(text: Text, kernel: str, cell: tuple[str, tuple[tuple[str, str], ...]]) -> str:
    """What a result depends on beside the text: the checker, and how the cell is launched."""
    launches = f"{checker(kernel)} {text.entries[cell]} {dict(text.types[cell])}"
    return hashlib.sha256(launches.encode()).hexdigest()


def known(subject: Subject, text: Text, records: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether records (by key, of cells that passed) have every cell of a text, as it and its checker are."""
    return all(
        (record := records.get(key, {})).get("source_sha256") == sha256
        and record.get("proof") == proof_of(text, subject.kernel, cell)
        for cell, keys in text.cells.items()
        for key, sha256 in keys
    )


# Running


class Wrong(Exception):
    """A launch went well and its result is not right."""


@dataclass
class Cell:
    """One cell of a text while it runs."""

    text: Text
    kernel: Mapping[str, Any]
    format: Descriptor | None
    dtype: str
    options: tuple[tuple[str, str], ...]

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.text.entries[self.dtype, self.options]

    @property
    def seed(self) -> int:
        stem = self.text.cells[self.dtype, self.options][0][0].rpartition("/")[0]
        return int.from_bytes(hashlib.sha256(stem.encode()).digest()[:8], "little")

    @property
    def types(self) -> dict[str, str]:
        """The dtype of every operand, and of the output."""
        return verify.operand_dtypes(self.kernel, {"dtype": self.dtype, "types": self._types})

    @property
    def _types(self) -> Mapping[str, str]:
        return self.text.types[self.dtype, self.options]

    def entry(self, names: Mapping[str, int]) -> Entry:
        """The first whose conditions hold, as the loader takes it."""
        return next(e for e in self.entries if all(evaluate(formula, names) for formula in e.when))

    def blanks(
        self, entry: Entry, given: Mapping[str, Any], expected: reference.Expected
    ) -> dict[str, Array]:
        """The arrays to write to, by the names of arguments, in the order in which `expected` has them."""
        name, kind = self.kernel["output"]["name"], self.kernel["output"].get("kind", "array")
        updated = {o["name"] for o in self.kernel["operands"] if o.get("updated")}
        if name in updated:
            return {name: given[name].copy()}
        wanted = [a.name for a in entry.args if a.role == "out" and a.name.partition(".")[0] not in updated]
        if kind != "array" and name in given:  # a tensor to write to
            parts = {f"{name}.{field}": a for field, a in given[name].fields.items()}
            return {key: poisoned(a.shape, a.dtype) for key, a in parts.items() if key in wanted}
        storage = np.uint8 if kind != "array" else reference.DTYPES[self.types[name]][2]
        return {wanted[0]: poisoned(expected.value.shape, storage)}

    def compare(
        self, program: Program, size: Size, orders: Sequence[int], seed: Sequence[int]
    ) -> tuple[Comparison, str]:
        """Run at one size in each order; gives the entry's symbol too. Wrong, ExecutionError."""
        rng, options = np.random.default_rng(seed), dict(self.options)
        drawn = checks.check(self.kernel["key"]).operands(self.format, size, self.dtype, options, rng)
        expected = checks.expect(self.kernel["key"], options, drawn, self.dtype)
        given = completed(self.kernel, drawn)
        known = names(self.kernel, given, size)
        entry = self.entry(known)
        given |= {name: underlying(given[name])[0] for name in strided_names(self.kernel)}
        blanks = self.blanks(entry, given, expected)
        updates = checks.updates(self.kernel["key"], options, drawn, self.dtype)
        changing = ((name, checks.array_of(given, name)) for name in updates)
        values = arguments(given, known, *blanks.items(), *changing) | absent(entry.args, given)
        results = []
        for order in orders:
            found = program.run(entry, values, order, LAUNCH_SECONDS)
            results.append([found[key, "out"] for key in (*blanks, *updates)])
        for order, result in zip(orders[1:], results[1:]):
            if any(a.tobytes() != b.tobytes() for a, b in zip(result, results[0])):
                raise Wrong(f"order {order} gives other bits than order {orders[0]}")
        made, changed = results[0][: len(blanks)], results[0][len(blanks) :]
        whole = made[0] if len(blanks) == 1 else np.concatenate([a.ravel().view(np.uint8) for a in made])
        kind = self.kernel["output"].get("kind", "array")
        dtype = "u8" if kind != "array" else self.types[self.kernel["output"]["name"]]
        compared = reference.compare(whole.reshape(expected.value.shape), expected, dtype)
        for (name, wanted), array in zip(updates.items(), changed):
            found, dtype = (array.view(np.uint8), "u8") if "." in name else (array, self.types[name])
            compared = compared.worst(reference.compare(found, wanted, dtype))
        if not compared.passed:
            raise Wrong(f"error {compared.error:.3g}, tolerance {compared.tolerance:.3g}")
        there = {**dict(zip(updates, changed)), self.kernel["output"]["name"]: whole}
        for name, bits in checks.exact(self.kernel["key"], options, drawn, self.dtype).items():
            if there[name].tobytes() != bits.tobytes():
                raise Wrong(f"{name} is not right bit for bit")
        return compared, entry.symbol

    def run(self, program: Program, orders: Sequence[int], brief: bool) -> tuple[Comparison, int, str]:
        """(worst, sizes run, message) over all sizes; the message is "" where all is right."""
        worst, used = Comparison(0.0, 0.0, True), set()
        everything = sizes(self.kernel["key"], self.format, brief)
        for i, size in enumerate(everything):
            try:
                found, symbol = self.compare(program, size, orders, [self.seed, i])
                worst = worst.worst(found)
                used.add(symbol)
            except (Wrong, ExecutionError) as error:
                at = ", ".join(f"{axis} = {extent}" for axis, extent in size.items())
                return Comparison(float("inf"), 0.0, False), i, f"at {at}: {error}"
        idle = [e.symbol for e in self.entries if e.symbol not in used]
        return worst, len(everything), f"no size here launches {', '.join(idle)}" if idle else ""


def run_text(
    subject: Subject,
    text: Text,
    sanitizer: str | None = None,
    orders: Sequence[int] = ORDERS,
    brief: bool = False,
) -> list[Result]:
    """A Result for each cell that the text stands for. One that does not compile fails all of its cells."""
    record = emit.kernel_record(subject.units[0].kernel)
    descriptor = Descriptor.parse(index.format_record(subject.format)) if subject.format else None
    results: list[Result] = []
    entries = [each for some in text.entries.values() for entry in some for each in (*entry.prologue, entry)]
    try:
        program = Program.build(text.body, subject.backend, entries, sanitizer)
    except CompileError as error:
        nothing, message = Comparison(float("inf"), 0.0, False), f"does not compile: {error}"
        return [r for cell in text.cells for r in _results(subject, text, cell, nothing, 0, message)]
    with program:
        for dtype, options in text.cells:
            cell = Cell(text, record, descriptor, dtype, options)
            worst, count, message = cell.run(program, orders, brief)
            results += _results(subject, text, (dtype, options), worst, count, message)
    return results


def _results(
    subject: Subject,
    text: Text,
    cell: tuple[str, tuple[tuple[str, str], ...]],
    worst: Comparison,
    count: int,
    message: str,
) -> list[Result]:
    proof = proof_of(text, subject.kernel, cell)
    return [
        Result(key, sha256, proof, worst.error, worst.tolerance, not message, count, message)
        for key, sha256 in text.cells[cell]
    ]


def run_subject(subject: Subject, sanitizer: str | None = None) -> list[Result]:
    """Every cell of a subject. Without a sanitizer in all orders at all sizes, with one in one order at a
    few.
    """
    orders, brief = (ORDERS, False) if sanitizer is None else (ORDERS[2:], True)
    some = texts(subject if sanitizer is None else Subject(subject.units[:1]))
    return [result for text in some for result in run_text(subject, text, sanitizer, orders, brief)]


def failures(results: Sequence[Result]) -> str:
    """What went wrong, and in which cells; "" where nothing did."""
    by_message: dict[str, list[str]] = {}
    for result in results:
        if not result.passed:
            by_message.setdefault(result.message, []).append(result.cell)
    return "\n".join(f"{', '.join(keys)}: {message}" for message, keys in by_message.items())


def run_format(fmt: Format, backend: str) -> float:
    """Take a format that no manifest has through every kernel of one backend's first target.

    Returns the largest relative error found. AssertionError names the cells that fail, and how.
    """
    known = repository()
    target = next(t.name for t in known.targets.values() if t.backend == backend)
    with_format = replace(known, formats={fmt.name: fmt})
    chosen = subjects(with_format, plan.Request("release", targets=(target,), formats=(fmt.name,)))
    results = [result for subject in chosen for result in run_subject(subject)]
    if problems := failures(results):
        raise AssertionError(problems)
    return max(result.error for result in results)
