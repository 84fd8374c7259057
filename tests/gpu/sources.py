"""Folders of sources with no binary, as a build without a compiler leaves them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def folder(path: Path, wanted: Iterable[tuple[str, Mapping[str, str]]]) -> Path:
    """Emits the sources of some (target, kernel -> format) and their index. Skips where the generator's
    packages are missing.
    """
    for package in ("yaml", "jsonschema"):
        pytest.importorskip(package)
    from gen.build import index
    from gen.build import stages as build
    from gen.emit import emission, provenance
    from gen.plan import cells as plan
    from gen.toolchain import find as toolchain

    manifest = plan.load(ROOT / "kernels.yaml")
    pairs = []
    for target, kernels in wanted:
        for kernel, fmt in kernels.items():
            selection = plan.select(manifest, plan.Request("release", (target,), (fmt,), (kernel,)))
            for unit in plan.units(manifest, selection):
                made = emission.rendered(unit)
                provenance.write(path / unit.source, made.text)
                pairs.append((unit, emission.record(unit, "", made)))
    sections = build._sections(pairs, build.cell_records(pairs, {}, toolchain.Toolchain(), {}))
    provenance.write_lines(path / "index.json", index.lines({}, sections))
    return path
