"""Builds of the shipped manifest by the real compilers: what is done again, what another folder gets."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS, KERNELS, FORMATS = ["cpu", "sm_90a"], ["copy", "dequant", "qgemv"], ["mxfp4", "q8_0"]
ANOTHER = "  another_5: {element: {int: 5, symmetric: true}, block: 24, scale: bf16}\n"


@dataclass(frozen=True)
class Built:
    folder: Path
    manifest: Path

    def command(self, *formats: str) -> list[str]:
        wanted = ["--targets", *TARGETS, "--kernels", *KERNELS, "--formats", "-", *formats]
        fixed = ["--manifest", str(self.manifest), "--out", str(self.folder), "--json"]
        return [sys.executable, "-m", "gen", "build", *wanted, *fixed]

    def build(self, *formats: str) -> Mapping[str, int]:
        """Counts of cells, summed."""
        done = subprocess.run(self.command(*formats), cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)["rows"]
        return {key: sum(row[key] for row in rows) for key in ("jobs", "compiled", "current", "failed")}

    def files(self, *suffixes: str) -> dict[str, bytes]:
        """What is shipped, by its path inside the folder."""
        found = (p for p in self.folder.rglob("*") if p.is_file() and ".wootz" not in p.parts)
        return {str(p.relative_to(self.folder)): p.read_bytes() for p in found if p.suffix in suffixes}

    def times(self) -> dict[str, int]:
        return {str(p): p.stat().st_mtime_ns for p in self.folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Built:
    root = tmp_path_factory.mktemp("first")
    shutil.copy(ROOT / "kernels.yaml", root / "kernels.yaml")
    built = Built(root / "out", root / "kernels.yaml")
    counts = built.build(*FORMATS)
    assert counts["compiled"] == counts["jobs"] > 0 == counts["failed"]
    return built


def test_two_folders_get_the_same_bytes(first: Built, tmp_path: Path) -> None:
    second = Built(tmp_path / "another folder" / "deeper" / "out", tmp_path / "kernels.yaml")
    shutil.copy(first.manifest, second.manifest)
    second.build(*FORMATS)
    kinds = (".cubin", ".fatbin", ".cu", ".cpp", ".so", ".json")
    one, two = first.files(*kinds), second.files(*kinds)
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []
    for kind in kinds[:2]:
        assert sum(name.endswith(kind) for name in one) == len(FORMATS) * 2 + 1


def test_nothing_changed_and_nothing_is_done(first: Built) -> None:
    before = first.times()
    start = time.monotonic()
    counts = first.build(*FORMATS)
    elapsed = time.monotonic() - start
    assert counts["compiled"] == 0 < counts["jobs"] == counts["current"]
    assert first.times() == before
    assert elapsed < 1.0


def test_one_more_format_compiles_its_cells_and_no_others(first: Built, tmp_path: Path) -> None:
    more = Built(tmp_path / "out", tmp_path / "kernels.yaml")
    shutil.copytree(first.folder, more.folder)  # keeps times, as a build looks at them
    shutil.copy(first.manifest, more.manifest)
    old = more.times()
    text = more.manifest.read_text()
    more.manifest.write_text(text.replace("\nkernels:\n", f"\n{ANOTHER}\nkernels:\n"))
    counts = more.build(*FORMATS, "another_5")
    assert counts["compiled"] == 3 * 2 * len(TARGETS)  # dtypes, dequant and qgemv
    kept = {path: changed for path, changed in more.times().items() if "/.wootz/" not in path and path in old}
    assert {Path(p).name for p, changed in kept.items() if changed != old[p]} <= {"index.json", "build.ninja"}
