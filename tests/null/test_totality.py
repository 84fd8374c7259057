"""Every operation of the IR on every type, in every language: lowered, or refused by name and on the list of
gaps, tests/ratchet.json, which may only shrink."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gen.build import ninja
from gen.emit.text import RENDER
from gen.ir import passes
from gen.ir.nodes import OPS, Function
from gen.lower.walker import refused
from gen.manifest.target import BACKENDS, Target
from tests.null import operations

RATCHET = json.loads((Path(__file__).resolve().parents[1] / "ratchet.json").read_text())
FEATURES = {"cpu": frozenset(), "cuda": frozenset({"mma", "pdl"}), "metal": frozenset({"simdgroup_matrix"})}


def target(backend: str, without: str = "") -> Target:
    row = BACKENDS[backend]
    return Target(
        backend, backend, features=FEATURES[backend] - {without}, simd=row.simd, max_threads=row.max_threads,
        shared_bytes=row.shared_bytes,
    )  # fmt: skip


def sorted_out(backend: str, without: str = "") -> tuple[list[Function], dict[tuple[str, str], str]]:
    """The programs that a language takes, verified; and why it refuses the others. without: a feature."""
    taken, gaps = [], {}
    here = target(backend, without)
    for op, what, function in operations.programs(here):
        passes.launches_in_turn(function, here)
        reason = refused(function, RENDER[backend][1])
        if reason:
            gaps[op, what] = reason
        else:
            taken.append(passes.run(function, here))
    return taken, gaps


def listed(language: str, tried: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The gaps of tests/ratchet.json."""
    found = {case for case in tried if case[0] in RATCHET["unlowered"].get(language, ())}
    for key, types in RATCHET["conversions"].get(language, {}).items():
        op, source = key.split()
        found |= {(op, f"{source} {to}") for to in types.split()}
    for op, types in RATCHET["operands"].get(language, {}).items():
        found |= {case for case in tried if case[0] == op and case[1].split()[0] in types.split()}
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_lowered_or_refused_by_name(backend: str) -> None:
    language = RENDER[backend][1].name
    taken, gaps = sorted_out(backend)
    tried = {(op, what) for op, what, _ in operations.programs(target(backend))}
    assert {op for op, _ in tried} == set(OPS), "operations without a program"
    assert len(taken) + len(gaps) == len(tried)
    assert set(gaps) == listed(language, tried), "new gaps, or some that are none any more"
    for (op, _), reason in gaps.items():
        assert op in reason, reason
        assert language.split()[0] in reason, reason


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_lowered_is_written(backend: str) -> None:
    """All in one text, with one provenance; each name once."""
    taken, _ = sorted_out(backend)
    text = RENDER[backend][0](taken)
    assert all(text.count(f"{f.name}(") == 1 for f in taken)


def test_host_text_of_every_operation_compiles(tmp_path: Path) -> None:
    source = tmp_path / "operations.cpp"
    source.write_text(RENDER["cpu"][0](sorted_out("cpu")[0]))
    compiler = shutil.which("c++") or "c++"
    for flags in ((), ("-march=x86-64-v3",)):
        command = [compiler, *ninja.CXX_FLAGS, *flags, "-fsyntax-only", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
