"""What a large manifest costs. (A large index: test_loader_index.)"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FORMATS, SECONDS, BYTES = 10_000, 20.0, 2 << 30


def formats() -> Iterator[str]:
    """Entries as a generator of variants writes them: every combination of a few axes, all distinct."""
    elements = [f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 9)] + [
        "e2m1",
        "e3m2",
        "e4m3",
        "e5m2",
    ]
    scales = ["f16", "bf16", "f32", "{type: e8m0, rule: nearest}", "{type: e4m3, block: tensor, scale: f32}"]
    packings = [
        "{}",
        "{word: 32}",
        "{order: msb}",
        "{word: 16, order: msb}",
        "{unit: 32, split: {parts: 2, over: 32}}",
    ]
    i = 0
    for block in range(8, 1 << 16):
        for element in elements:
            for scale in scales:
                for packing in packings:
                    if i == FORMATS:
                        return
                    axes = f"element: {element}, block: {32 * block}, scale: {scale}, packing: {packing}"
                    yield f"  f{i:05}: {{{axes}}}\n"
                    i += 1


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped targets and formats, three kernels, and 10,000 formats more."""
    parts = yaml.safe_load((ROOT / "kernels.yaml").read_text())
    parts["kernels"] = {name: parts["kernels"][name] for name in ("copy", "dequant", "qgemv")}
    parts["targets"] = {name: row for name, row in parts["targets"].items() if "kernels" not in row}
    parts["profiles"] = {"release": {}}
    known = "".join(f"  {name}: {json.dumps(axes)}\n" for name, axes in parts.pop("formats").items())
    path = tmp_path_factory.mktemp("growth") / "kernels.yaml"
    path.write_text(f"{yaml.safe_dump(parts)}formats:\n{known}{''.join(formats())}")
    return path


def test_listing_ten_thousand_formats(
    manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "list.json"
    command = [
        sys.executable,
        "-m",
        "gen",
        "list",
        "--json",
        "--profile",
        "release",
        "--manifest",
        str(manifest),
    ]
    start = time.perf_counter()
    with out.open("w") as sink:
        child = subprocess.Popen(command, cwd=ROOT, stdout=sink)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = status
    seconds, cpu = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
    size = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    assert os.waitstatus_to_exitcode(status) == 0
    rows = json.loads(out.read_bytes())
    with capsys.disabled():
        print(
            f"\n{FORMATS} formats, {len(rows)} cells, {out.stat().st_size >> 20} MiB: "
            f"{seconds:.1f} s ({cpu:.1f} s of CPU), {size >> 20} MiB of memory"
        )
    assert len({row["key"] for row in rows}) == len(rows) > 6 * 3 * 2 * FORMATS
    assert min(seconds, cpu) < SECONDS  # a busy machine is not the program's fault
    assert size < BYTES


def test_memory_of_a_child_is_measured() -> None:
    """The measurement above sees what a child allocates."""
    child = subprocess.Popen([sys.executable, "-c", "x = bytearray(300 << 20)"])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = status
    assert isinstance(usage, resource.struct_rusage)
    assert usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) > 300 << 20
