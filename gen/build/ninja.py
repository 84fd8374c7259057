"""The build graph as a ninja file: a small writer, one rule for each kind of compile, one edge an artifact.

Every command compiles to a temporary name and renames it, so a killed or failed compiler leaves no artifact
behind, neither half of a new one nor an old one that no longer fits its source.
"""

from __future__ import annotations

import platform
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..plan import name
from ..plan.cells import Unit
from ..scale import pools
from ..scale.pools import Task, pool_of
from ..toolchain.find import Toolchain, march, runs_here
from ..toolchain.tool import Tool
from . import state
from .state import UnitRecord

NVCC_FLAGS = ("-cubin", "-std=c++17", "-O3", "-DNDEBUG", "-allow-unsupported-compiler")
KIND_FLAGS = {
    state.DSL: ("-fmad=false",),  # the DSL says where it wants a fused multiply-add
    state.LEAN: ("--expt-relaxed-constexpr",),
    state.CUTLASS: ("--expt-relaxed-constexpr",),
}
STUB_FLAGS = (
    "-std=c++17",
    "-O1",
    "-DNDEBUG",
    "-fPIC",
    "-shared",
    "-fpermissive",  # device code, which is read here and never called
    "-w",
    "-fvisibility=hidden",
    "-s",
    "-Wl,--build-id=none",
    "-Wl,--as-needed",
    "-Wl,-z,defs",
)
CXX_FLAGS = (
    "-std=c++17",
    "-O3",
    "-DNDEBUG",
    "-fPIC",
    "-shared",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fvisibility=hidden",
)
_LINK = {"Linux": ("-s", "-Wl,--build-id=none", "-Wl,--as-needed"), "Darwin": ("-Wl,-x",)}
METAL_FLAGS = ("-x", "metal", "-O2", "-fno-fast-math")


def escape(text: str) -> str:
    """A path in a build line."""
    return text.replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


class Writer:
    """Builds the text of a ninja file, statement by statement."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def comment(self, text: str) -> None:
        """One line that ninja ignores."""
        self._lines.append(f"# {text}\n")

    def variable(self, key: str, value: str, indent: int = 0) -> None:
        """`value` may refer to other variables."""
        self._lines.append(f"{'  ' * indent}{key} = {value}\n")

    def pool(self, pool: str, depth: int) -> None:
        """At most `depth` edges of this pool run at once."""
        self._lines.append(f"\npool {pool}\n")
        self.variable("depth", str(depth), 1)

    def rule(self, rule: str, command: str, **variables: str) -> None:
        """Empty variables are left out."""
        self._lines.append(f"\nrule {rule}\n")
        self.variable("command", command, 1)
        for key, value in variables.items():
            if value:
                self.variable(key, value, 1)

    def build(
        self,
        outputs: Sequence[str],
        rule: str,
        inputs: Sequence[str],
        implicit: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """One edge."""
        after = f" | {' '.join(map(escape, implicit))}" if implicit else ""
        sides = (" ".join(map(escape, outputs)), " ".join(map(escape, inputs)))
        self._lines.append(f"\nbuild {sides[0]}: {rule} {sides[1]}{after}\n")
        for key, value in (variables or {}).items():
            self.variable(key, value, 1)

    def default(self, outputs: Sequence[str]) -> None:
        """What a plain `ninja` builds."""
        if outputs:
            self._lines.append("\ndefault " + " $\n  ".join(map(escape, outputs)) + "\n")

    def text(self) -> str:
        """The file."""
        return "".join(self._lines)


@dataclass(frozen=True)
class Edge:
    """One compile. `variables` are strings that end up in the command, shell-safe. isa: the instruction set,
    "" where the target names none."""

    rule: str
    output: str
    source: str
    variables: Mapping[str, str]
    isa: str = ""


Forecast = Callable[[Unit, Edge], Task]
"""What a compile is expected to take."""


def _shell(words: Iterable[str]) -> str:
    return shlex.join(words).replace("$", "$$")


MEASURE = f"{name.WORK}/measure"
"""A script that stands before a compiler and says what it took. The graph has no more of it than this name,
so that an environment of another Python compiles nothing anew."""

_BEFORE = "rm -f $out && "
_MEASURED = f"sh {MEASURE} $out "
_AFTER = (
    ' && { test -f $out.tmp || { echo "it made no file, and reported success"; false; }; }'
    " && mv -f $out.tmp $out || { rm -f $out.tmp $out.d; exit 1; }"
)


def _atomic(compile_command: str, measured: bool) -> str:
    return f"{_BEFORE}{_MEASURED if measured else ''}{compile_command}{_AFTER}"


def bare(command: str) -> str:
    """A rule's command without the shell that makes it atomic, and what measures it."""
    command = command.removeprefix(_BEFORE).removeprefix(_MEASURED).removesuffix(_AFTER)
    return command.replace("$out.tmp", "$out")


def commands(tools: Toolchain, launcher: Sequence[str] = ()) -> dict[str, str]:
    """Rule -> command, with ninja's variables in it. A tool that this host lacks goes by its plain name.
    Compiles through a launcher are not measured: it says nothing of the compiler."""

    def start(tool: Tool | None, plain: str) -> str:
        return _shell([*launcher, *(tool.command if tool else (plain,))])

    host = tools.host.command[0] if tools.host else "c++"
    depfile = "-MD -MF $out.d -MT $out"
    xcrun = f"{_shell(tools.xcrun.command if tools.xcrun else ('xcrun',))} -sdk macosx"
    nvcc = f"{start(tools.nvcc, 'nvcc')} -ccbin {_shell([host])} {_shell(NVCC_FLAGS)}"
    cxx = f"{start(tools.host, 'c++')} {_shell((*CXX_FLAGS, *_LINK.get(platform.system(), ())))}"
    headers = _headers(tools.cutlass.folders if tools.cutlass else ())
    stub = f"{start(tools.host, 'c++')} {_shell(STUB_FLAGS)} {_shell(_version(tools.nvcc))}{headers}"

    def cubin(kind: str, more: str = "") -> str:
        return f"{nvcc} {_shell(KIND_FLAGS[kind])}{more} -arch=$arch {depfile} -o $out.tmp $in"

    plain = {
        "cuda": cubin(state.DSL),
        "lean": cubin(state.LEAN),
        "cutlass": cubin(state.CUTLASS, headers),
        "stub": f"{stub}{_headers(tools.cuda)} {depfile} -o $out.tmp $in",
        "cpu": f"{cxx} $march {depfile} -o $out.tmp $in",
        "air": f"{xcrun} metal {_shell(METAL_FLAGS)} -std=$arch $minimum -c $in -o $out.tmp",
        "metal": f"{xcrun} metallib -o $out.tmp $in",
    }
    return {rule: _atomic(command, measured=not launcher) for rule, command in plain.items()}


def _headers(folders: Iterable[str]) -> str:
    return "".join(f" -isystem {_shell([folder])}" for folder in folders)


def _version(nvcc: Tool | None) -> tuple[str, ...]:
    """For stubs: the types of CUTLASS depend on the version of the compiler."""
    major, minor = (nvcc.version if nvcc else "0.0").split(".")[:2]
    return f"-DWOOTZ_NVCC_MAJOR={major}", f"-DWOOTZ_NVCC_MINOR={minor}"


RULES = {state.DSL: "cuda", state.LEAN: "lean", state.CUTLASS: "cutlass"}
"""Of a CUDA unit, by what its text is made of."""

_TOOLS = {"lean": ("cuda",), "cutlass": ("cuda", "cutlass"), "stub": ("cpu", "cuda", "cutlass")}


def edges(unit: Unit, record: UnitRecord | None = None) -> Iterator[Edge]:
    """The compiles of one unit, sources first. Instruction sets that this host cannot build are left out.
    Without the record of what was emitted, a unit counts as one of the DSL."""
    target = unit.target
    if record and record.stub:
        yield Edge("stub", record.stub, record.stub_source, {"unit": f"{unit.key} stub"})
    for isa, artifact in unit.artifacts:
        label = {"unit": f"{unit.key}{' ' if isa else ''}{isa}"}
        if target.backend == "cuda":
            rule = RULES[record.kind if record else state.DSL]
            yield Edge(rule, name.compiled(artifact), unit.source, {"arch": target.arch, **label})
        elif target.backend == "cpu" and runs_here(isa):
            yield Edge("cpu", artifact, unit.source, {"march": _shell(march(isa)), **label}, isa)
        elif target.backend == "metal":
            air = name.intermediate(artifact, "air")
            minimum = f"-mmacosx-version-min={target.min_os}" if target.min_os else ""
            yield Edge("air", air, unit.source, {"arch": target.arch, "minimum": minimum, **label})
            yield Edge("metal", artifact, air, label)


def expand(command: str, edge: Edge) -> str:
    """The command of one edge as the shell sees it."""
    for key, value in {"in": edge.source, "out": edge.output, **edge.variables}.items():
        command = command.replace(f"${key}", value)
    return " ".join(command.replace("$$", "$").split())


def tool_file(tool: str) -> str:
    """A file that holds what a compiler, or CUTLASS, says about itself; what it makes depends on it."""
    return f"{name.WORK}/{tool}.tool"


def render(
    units: Iterable[Unit],
    tools: Toolchain,
    jobs: int,
    memory: int,
    launcher: Sequence[str] = (),
    records: Mapping[str, UnitRecord] | None = None,
    forecast: Forecast = lambda unit, edge: Task(edge.rule),
) -> str:
    """The whole file. Every edge is in it, the longest first: ninja keeps to that order. The default builds
    those whose compiler this host has. memory: bytes. records: of what was emitted, by unit."""
    writer = Writer()
    writer.comment("Generated by wootz. Do not edit.")
    writer.variable("ninja_required_version", "1.8")
    writer.variable("builddir", name.WORK)
    found = [(unit, edge) for unit in units for edge in edges(unit, (records or {}).get(unit.key))]
    expected = {edge.output: forecast(unit, edge) for unit, edge in found}
    for pool, depth in pools.depths(pools.peaks(expected.values()), jobs, memory).items():
        writer.pool(pool, depth)
    _rules(writer, {edge.rule for _, edge in found}, commands(tools, launcher))
    for unit, edge in sorted(found, key=lambda pair: -expected[pair[1].output].milliseconds):
        implicit = [tool_file(t) for t in _tools(edge.rule, tools)] if tools.builds(unit.target) else []
        writer.build([edge.output], edge.rule, [edge.source], implicit, edge.variables)
    writer.default([e.output for unit, e in found if tools.builds(unit.target) and e.rule != "air"])
    return writer.text()


def _tools(rule: str, tools: Toolchain) -> Iterator[str]:
    """What the outputs of a rule depend on."""
    for tool in _TOOLS.get(rule, (pool_of(rule),)):
        if tool != "cutlass" or tools.cutlass:
            yield tool


def _rules(writer: Writer, rules: Iterable[str], text: Mapping[str, str]) -> None:
    labels = {"cuda": "nvcc", "lean": "nvcc", "cutlass": "nvcc", "cpu": "c++", "stub": "c++"}
    for rule in sorted(rules):
        pool = pool_of(rule)
        depfile = {"depfile": "$out.d", "deps": "gcc"} if pool != "metal" else {}
        description = f"{labels.get(rule, 'metal' if rule == 'air' else 'metallib')} $unit"
        writer.rule(rule, text[rule], description=description, pool=pool, **depfile)


def built_artifacts(unit: Unit) -> list[tuple[str, str]]:
    """(instruction set, path) of the artifacts that this host can build, best first."""
    return [(isa, path) for isa, path in unit.artifacts if unit.target.backend != "cpu" or runs_here(isa)]
