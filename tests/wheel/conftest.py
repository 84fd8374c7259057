"""The wheel under test: the one that WOOTZ_WHEEL names, else a small one, built here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from wheel_tools import ROOT, Clean, Wheel, once

SMALL = """\
version: 1
targets:
  cpu: {backend: cpu, isa: [x86-64-v3, baseline], features: [f16, bf16]}
  metal3.1: {backend: metal, min_os: "14.0", features: [f16, bf16]}
formats:
  mxfp4: {element: e2m1, block: 32, scale: {type: e8m0, rule: nearest}}
  q8_0: {element: int8, block: 32, scale: f16, storage: [scale, codes]}
kernels:
  copy: {dtypes: [f16, bf16, f32]}
  dequant: {dtypes: [f32], formats: all}
  qgemv: {dtypes: [f16, f32], formats: all}
profiles:
  default: {}
"""


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def wheel(shared: Path) -> Wheel:
    named = os.environ.get("WOOTZ_WHEEL")
    if named:
        return Wheel(Path(named))

    def build(folder: Path) -> None:
        manifest = folder / "small.yaml"
        manifest.write_text(SMALL)
        command = [sys.executable, "-m", "build", "--wheel", f"--config-setting=build-dir={folder / 'build'}"]
        environment = {**os.environ, "WOOTZ_MANIFEST": str(manifest)}
        subprocess.run([*command, "--outdir", str(folder), str(ROOT)], check=True, env=environment)

    return Wheel(next(once(shared / "wheel", build).glob("*.whl")))


@pytest.fixture(scope="session")
def clean(wheel: Wheel, shared: Path) -> Clean:
    """An environment with the wheel and what it requires, in a folder with a space in its name."""

    def make(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, str(wheel.path)], check=True)

    return Clean(once(shared / "a clean environment", make))
