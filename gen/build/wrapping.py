"""Cubins -> what ships of them: fat binaries of one compressed cubin each, which the driver unpacks.

They are made after the audit, of the very bytes that it saw, and again where those or the tool have changed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from ..emit import provenance
from ..plan import name
from ..plan.cells import Unit
from ..toolchain.tool import Tool, ToolchainError, run_tool
from . import audit, index
from .state import Known

FLAGS = ("--compress-mode=size",)
"""The other modes leave a cubin as it is."""

_HEAD, _MAGIC = struct.Struct("<IHHQ"), 0xBA55ED50
"""Of a fat binary: the magic number, its version, bytes of the head, bytes behind it."""


@dataclass(frozen=True)
class Wrap:
    """A fat binary to be: its unit's key, the cubin in it and its architecture, its own path."""

    unit: str
    arch: str
    cubin: str
    path: str


def of(unit: Unit) -> Iterator[Wrap]:
    """Those of a unit; none where its artifacts ship as compilers make them."""
    for _, path in unit.artifacts:
        if (cubin := name.compiled(path)) != path:
            yield Wrap(unit.key, unit.target.arch, cubin, path)


def command(fatbinary: Sequence[str], wrap: Wrap, suffix: str = "") -> list[str]:
    """To run in the artifact folder: names there have no character that the option takes apart."""
    image = f"--image3=kind=elf,sm={wrap.arch.removeprefix('sm_')},file={wrap.cubin}"
    return [*fatbinary, f"--create={wrap.path}{suffix}", *FLAGS, image]


def wrap_all(
    out: Path, wraps: Sequence[Wrap], cubins: Known, saved: Known, tool: Tool | None, jobs: int
) -> tuple[Known, dict[str, str]]:
    """Wrap the audited cubins that are not wrapped yet; gives all that are, and what went wrong by unit.

    saved: of the last build. tool: may be None where there is nothing to wrap. A fat binary is deleted where
    its cubin is not as it was audited, or gone."""
    if tool is None:
        assert not wraps
        return {}, {}
    known, pending, problems = Known(), dict[Wrap, str](), dict[str, str]()
    for wrap in wraps:
        cubin, record = cubins.get(wrap.cubin), saved.get(wrap.path)
        if cubin is None or not cubin.describes(out / wrap.cubin):
            provenance.remove(out / wrap.path)
            continue
        origin = index.sha256("\0".join((tool.identity, *FLAGS, cubin.sha256)).encode())
        if record and record.source_sha256 == origin and record.describes(out / wrap.path):
            known[wrap.path] = replace(record, left_out=cubin.left_out)
        else:
            pending[wrap] = origin
    with ThreadPoolExecutor(jobs) as pool:
        for wrap, problem in zip(pending, pool.map(lambda wrap: _wrap(out, wrap, tool), pending)):
            if problem:
                provenance.remove(out / wrap.path)
                problems.setdefault(wrap.unit, f"{wrap.path}: {problem}")
            else:
                left_out = cubins[wrap.cubin].left_out
                known[wrap.path] = audit.recorded(out / wrap.path, pending[wrap], left_out)
    return known, problems


def _wrap(out: Path, wrap: Wrap, tool: Tool) -> str | None:
    """Make one; gives what is wrong."""
    provenance.make_folder((out / wrap.path).parent)
    temporary = out / f"{wrap.path}.tmp"
    try:
        code, text = run_tool(command(tool.command, wrap, ".tmp"), out)
        if code:
            return f"cannot be made of {wrap.cubin} ({tool.command[0]}: status {code}): {text.strip()[:200]}"
        data = temporary.read_bytes()
        if problem := _problem(data):
            return problem
        provenance.rewrite(out / wrap.path, data)
        return None
    except FileNotFoundError:
        return f"was not made ({tool.command[0]} reported success)"
    except ToolchainError as error:
        return str(error)
    finally:
        provenance.remove(temporary)


def _problem(data: bytes) -> str | None:
    if len(data) < _HEAD.size:
        return f"is no fat binary: it has {len(data)} bytes"
    magic, _, head, body = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        return f"is no fat binary: it begins with {magic:#010x}"
    if head + body != len(data):
        return f"is a fat binary of {head + body} bytes, of which {len(data)} are there"
    return None
