"""Compile on demand on a device: a folder of sources alone, NVRTC, and the reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import needs
import pytest
import sources
import wootz
from wootz import staging, verify
from wootz.jit import Cache, Counters, Jit

pytestmark = pytest.mark.gpu
needs.device()
pytest.importorskip("cuda.core")

PLAIN = {
    "copy": "-", "dequant": "mxfp4", "qgemv": "int4", "qmm": "nvfp4", "prepack": "int4_g128",
    "qmm_packed": "int4_g128", "gemm": "-",
}  # fmt: skip
"""Kernel -> format, of sources that are for every device from their capability on."""

AGAIN = """
import json, sys, numpy as np, wootz
from pathlib import Path
from wootz.jit import Cache, Jit
jit = Jit(cache=Cache(Path(sys.argv[2])))
lib = wootz.load(sys.argv[1], jit=jit)
x = np.arange(1000, dtype=np.float16)
y = lib.kernel("copy", dtype="f16")(wootz.to_device(x))
assert (y.numpy() == x).all()
print(json.dumps(jit.counters.to_json()))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sources.folder(tmp_path_factory.mktemp("sources"), [("sm_80", PLAIN)])


@pytest.fixture(scope="module")
def jit(tmp_path_factory: pytest.TempPathFactory) -> Jit:
    return Jit(cache=Cache(tmp_path_factory.mktemp("cache")))


def check_all(path: Path, jit: Jit) -> list[verify.Row]:
    """A row for each cell of the folder, compiled for the device."""
    lib, where, rows = wootz.load(path, jit=jit), staging.memory("cuda:0"), []
    for cell in lib.cells():
        name = None if cell["format"] in (None, "-") else cell["format"]
        format = lib.format(name) if name else None
        call = lib.kernel(cell["kernel"], name, cell["dtype"], "cuda:0", **cell["options"])
        rows.append(verify.check_cell(call, cell, lib.index.find("kernels", cell["kernel"]), format, where))
    return rows


def test_sources_of_another_chip_give_what_the_reference_gives(folder: Path, jit: Jit) -> None:
    rows = check_all(folder, jit)
    assert rows
    assert not [f"{row.cell}: {row.message}" for row in rows if not row.passed]
    counted = jit.counters
    assert counted.compilations == len(PLAIN), "one a source"
    assert counted.memory_hits == len(rows) - len(PLAIN), "one a further cell of the same source"
    assert (counted.failures, counted.removals) == (0, 0)


def test_another_process_finds_them(folder: Path, jit: Jit) -> None:
    wootz.load(folder, jit=jit).kernel("copy", dtype="f16").preload("cuda:0")
    command = [sys.executable, "-c", AGAIN, str(folder), str(jit.cache.folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert Counters(**json.loads(done.stdout)) == Counters(disk_hits=1)


def test_the_driver_judges_what_is_kept(folder: Path, tmp_path: Path) -> None:
    made = Jit(cache=Cache(tmp_path))
    wootz.load(folder, jit=made).kernel("copy", dtype="f16").preload("cuda:0")
    (entry,) = tmp_path.iterdir()
    lib = wootz.load(folder)
    cell = next(cell for cell in lib.cells() if cell["kernel"] == "copy")
    text, options = (folder / cell["source"]).read_text(), lib.index.header["nvrtc"][cell["source_kind"]]
    for wrong in (made.compiler.compile(text, "copy", "sm_80", options), b"no binary at all"):
        made.cache.put(entry.stem, wrong)
        again = Jit(cache=Cache(tmp_path))
        wootz.load(folder, jit=again).kernel("copy", dtype="f16").preload("cuda:0")
        assert again.counters == Counters(disk_hits=1, compilations=1, removals=1)


def test_the_chips_own_source(tmp_path: Path) -> None:
    if needs.capability() != (9, 0):
        pytest.skip("the manifest's sources with instructions of one chip are for another")
    path = sources.folder(tmp_path / "own", [("sm_80", PLAIN), ("sm_90a", {"qmm_packed": "int4_g128"})])
    made = Jit(cache=Cache(tmp_path / "cache"))
    lib = wootz.load(path, jit=made)
    (cell,) = [c for c in lib.cells() if c["target"] == "sm_90a" and c["dtype"] == "bf16"]
    call = lib.kernel("qmm_packed", "int4_g128", "bf16", "cuda:0")
    signature, where = lib.index.find("kernels", "qmm_packed"), staging.memory("cuda:0")
    row = verify.check_cell(call, cell, signature, lib.format("int4_g128"), where)
    assert row.passed, row.message
    assert made.counters == Counters(compilations=1)


def test_a_device_that_is_served_compiles_nothing(lib: Any, tmp_path: Path) -> None:
    made = Jit(cache=Cache(tmp_path / "cache"))
    wootz.load(lib.path, jit=made).kernel("copy", dtype="f16").preload("cuda:0")
    assert made.counters == Counters()
    assert not (tmp_path / "cache").exists()
