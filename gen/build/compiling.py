"""The compile stage: run the compilers over what changed, and look into what they made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ..emit import provenance
from ..emit.provenance import BuildError
from ..plan import cells as plan
from ..plan import name
from ..scale import costs, launcher, measured, pools
from ..toolchain import find as toolchain
from . import audit, gate, ninja, runner, state, wrapping
from .options import Options, Output, Progress
from .state import ArtifactRecord, Known, UnitRecord

Pair = tuple[plan.Unit, UnitRecord]


@dataclass
class Compiled:
    """What came of the compile stage: artifacts by path, as they ship; the paths that compilers made in this
    run; failures by unit key."""

    artifacts: dict[str, ArtifactRecord]
    made: set[str]
    failures: dict[str, str]
    read: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Wanted:
    """One artifact to be: its unit, the record of its source, its path."""

    unit: plan.Unit
    record: UnitRecord
    path: str

    @property
    def is_stub(self) -> bool:
        """Whether it is the unit's host stub."""
        return self.path == self.record.stub

    @property
    def source_sha256(self) -> str:
        """Of what it is compiled from."""
        return self.record.stub_sha256 if self.is_stub else self.record.sha256


def _trusted(out: Path, wanted: Iterable[Wanted], saved: Known) -> Known:
    """The artifacts that are as the last audit left them, and of the present source; all others are deleted.

    So what is there after the compilers have run is either known from before, or new.
    """
    known = {}
    for item in wanted:
        record = saved.get(item.path)
        if record and record.describes(out / item.path) and record.source_sha256 == item.source_sha256:
            known[item.path] = record
        else:
            provenance.remove(out / item.path)
    return known


def _audit_new(
    options: Options, wanted: Sequence[Wanted], known: Known, tools: toolchain.Toolchain
) -> dict[str, str]:
    """Check the artifacts that are new, delete the bad ones, note the good ones; gives what is wrong by
    unit."""
    out, problems = options.out, dict[str, str]()
    with ThreadPoolExecutor(options.jobs) as pool:  # most of the time is that of disassemblers
        for stubs in (False, True):  # a stub is compared with its cubin
            new = [item for item in wanted if item.is_stub == stubs and _is_new(out, item, known)]
            for item, found in zip(new, pool.map(lambda item: _judge(out, item, tools), new)):
                if found.problem:
                    known.pop(item.path, None)
                    provenance.remove(out / item.path)
                    problems.setdefault(item.unit.key, f"{item.path}: {found.problem}")
                else:
                    known[item.path] = audit.recorded(out / item.path, item.source_sha256, found.left_out)
    return problems


def _is_new(out: Path, item: Wanted, known: Known) -> bool:
    """Whether there is a file that no audit has seen. A stub whose cubin is not there is deleted."""
    found, old = state.stat_of(out / item.path), known.get(item.path)
    if found is None or (old and found == (old.size, old.time)):
        return False
    if item.is_stub and item.record.compiled[0] not in known:
        provenance.remove(out / item.path)
        return False
    return True


def _judge(out: Path, item: Wanted, tools: toolchain.Toolchain) -> gate.Verdict:
    """What is wrong with a new artifact, and with entries of it."""
    record, target, path = item.record, item.unit.target, out / item.path
    if item.is_stub:
        (cubin,) = record.compiled
        entries = [e["entry"] for e in record.entries]
        return gate.Verdict(audit.stub_problem(path, out / cubin, target, entries, record.sha256))
    if wrong := audit.problem(path, target, record.symbols):
        return gate.Verdict(wrong)
    if target.compiled == "cubin" and (own := item.unit.kernel.own) and own.written:
        entries = [e["entry"] for e in record.entries]
        if wrong := audit.signature_problem(path, entries):
            return gate.Verdict(wrong)
    return gate.judge(path, record.entries, tools.disassembler) if tools.disassembler else gate.Verdict()


def compile_all(
    options: Options, pairs: Sequence[Pair], tools: toolchain.Toolchain, keep: int, output: Output
) -> Compiled:
    """Run the compilers over what changed, audit what they made, and wrap what ships wrapped. Interrupted, it
    keeps what is whole.

    `keep`: the lock's descriptor. BuildError where ninja stopped without saying why.
    """
    out = options.out
    wanted = [Wanted(unit, record, path) for unit, record in pairs for path in outputs(unit, record, tools)]
    wraps = [wrap for unit, _ in pairs if tools.builds(unit.target) for wrap in wrapping.of(unit)]
    saved = state.load_artifacts(out)
    known = _trusted(out, wanted, saved)
    before = dict(known)
    binary = toolchain.find_ninja()
    _write_graph(options, pairs, tools)
    outcome, cached = runner.Outcome(), launcher.counts(options.launcher)
    try:
        if wanted:
            held = () if options.launcher else (keep,)  # a cache's server would hold the lock for ever
            runner.run(binary, out, options.jobs, held, _step(output.progress), outcome)
    finally:
        costs.remember(out, {p: cost for p, cost in outcome.costs.items() if p not in outcome.failures})
        _sweep(out, wanted)
        problems = _audit_new(options, wanted, known, tools)
        wrapped, unwrapped = wrapping.wrap_all(out, wraps, known, saved, tools.fatbinary, options.jobs)
        state.save_artifacts(out, {**known, **wrapped})
    for note in outcome.notes:
        output.say(note)
    if cached and (now := launcher.counts(options.launcher)):
        output.say(now.since(cached))
    failures = {**_missing(wanted, known, outcome), **_failures(outcome, wanted), **unwrapped, **problems}
    if outcome.status and not failures:
        raise BuildError(f"{out}: ninja stopped with status {outcome.status}; build again")
    made = {path for path in known if known[path] != before.get(path)}
    plain = {path: known[path] for path in known.keys() - {wrap.cubin for wrap in wraps}}
    return Compiled({**plain, **wrapped}, made, failures, runner.files_read(binary, out) if wanted else set())


def _missing(wanted: Iterable[Wanted], known: Known, outcome: runner.Outcome) -> dict[str, str]:
    text = f"was not built (ninja: status {outcome.status})"
    return {item.unit.key: f"{item.path}: {text}" for item in wanted if item.path not in known}


def _step(progress: Progress) -> runner.Progress:
    return lambda done, of, what: progress("compile", done, of, what)


def built(unit: plan.Unit, tools: toolchain.Toolchain) -> list[tuple[str, str]]:
    """(instruction set, path) of what this host compiles of a unit; nothing where it lacks the compiler."""
    return ninja.built_artifacts(unit) if tools.builds(unit.target) else []


def shipped(unit: plan.Unit, record: UnitRecord, tools: toolchain.Toolchain) -> list[str]:
    """Every path that this host makes of a unit, for an index to name: its artifacts, and its host stub."""
    paths = [path for _, path in built(unit, tools)]
    return [*paths, record.stub] if paths and record.stub else paths


def outputs(unit: plan.Unit, record: UnitRecord, tools: toolchain.Toolchain) -> list[str]:
    """What compilers make of it: in the place of a wrapped artifact, what is in it."""
    return [name.compiled(path) for path in shipped(unit, record, tools)]


def _write_graph(options: Options, pairs: Sequence[Pair], tools: toolchain.Toolchain) -> None:
    for backend, tool in (("cuda", tools.nvcc), ("cpu", tools.host), ("metal", tools.xcrun)):
        if tool:
            provenance.write(options.out / ninja.tool_file(backend), tool.identity)
    if tools.cutlass:
        provenance.write(options.out / ninja.tool_file("cutlass"), tools.cutlass.version)
    records = {record.unit: record for _, record in pairs}
    units = [unit for unit, _ in pairs]
    provenance.write(options.out / ninja.MEASURE, measured.script())
    forecast = costs.forecast(options.manifest, options.costs, options.out)
    memory = pools.available_memory()
    text = ninja.render(units, tools, options.jobs, memory, options.launcher, records, forecast)
    provenance.write(options.out / name.BUILD_FILE, text)


def _sweep(out: Path, wanted: Iterable[Wanted]) -> None:
    """Delete what stopped compilers left."""
    for item in wanted:
        for made in (item.path, name.intermediate(item.path, "air")):
            for suffix in (".tmp", ".d"):
                provenance.remove(out / f"{made}{suffix}")


def _failures(outcome: runner.Outcome, wanted: Iterable[Wanted]) -> dict[str, str]:
    """Ninja's failures by unit; where several artifacts of a unit failed, the first one's message."""
    owner = {item.path: item.unit.key for item in wanted}
    found: dict[str, str] = {}
    for path, text in outcome.failures.items():
        artifact = path.removeprefix(f"{name.WORK}/").removesuffix(".air")
        key = owner.get(path) or owner.get(artifact) or path
        found.setdefault(key, f"{path}: its compiler failed: {text.strip() or 'it printed nothing'}")
    return found
