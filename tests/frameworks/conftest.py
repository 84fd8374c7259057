"""A small artifact folder for the CPU, for tests with other people's array libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import wootz

ROOT = Path(__file__).resolve().parents[2]

MANIFEST = """\
version: 1
targets:
  cpu: {backend: cpu, isa: [baseline], features: [f16, bf16]}
formats:
  plain: {element: int4, block: 128, scale: f16}
  levels: {element: e2m1, block: 16, scale: {type: e4m3, block: tensor, scale: f32}}
  brain: {element: int4, block: 32, scale: bf16}
kernels:
  dequant: {dtypes: [f16, f32], formats: [plain, levels]}
  qgemv: {dtypes: [f16, f32], formats: all}
  qmm: {dtypes: [f16], formats: [plain, levels]}
  prepack: {dtypes: [i8], formats: [plain, levels]}
  gemv: {dtypes: [f16]}
  conv: {dtypes: [f32]}
  qconv: {dtypes: [f32], formats: [levels]}
  binary_broadcast: {dtypes: [f32], options: {op: [add]}}
  where: {dtypes: [f32]}
  reduce: {dtypes: [f32], options: {op: [sum, any]}}
  add_rms_norm: {dtypes: [f32]}
  gather: {dtypes: [f32]}
  scatter: {dtypes: [f32]}
  copy_strided: {dtypes: [f32]}
  qgemv_batched: {dtypes: [f32], formats: [levels]}
  moe_gather_qgemv: {dtypes: [f32], formats: [levels]}
  quantize_activations: {dtypes: [f32], formats: [levels]}
  quantize: {dtypes: [f32], formats: [plain, levels]}
  dequant_gather: {dtypes: [f32], formats: [plain]}
profiles:
  default: {}
"""


@pytest.fixture(scope="session")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("frameworks")
    (folder / "small.yaml").write_text(MANIFEST)
    command = [
        sys.executable,
        "-m",
        "gen",
        "build",
        "--manifest",
        folder / "small.yaml",
        "--out",
        folder / "a",
    ]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return wootz.load(folder / "a")
