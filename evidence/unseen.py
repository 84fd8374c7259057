"""Writes a manifest of formats that kernels.yaml does not have, for the matrix kernels.

    evidence/unseen.py FILE

The formats are some of tests/unseen/hand_written.yaml: zero points, codebooks, two levels of scales, bit
planes, interleaved fields, blocks that end anywhere. Targets are kernels.yaml's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
FORMATS = ("gptq3", "awq4", "bnb_fp4", "gguf5", "kquant6", "kquant4", "marlin_like", "odd7")
TARGETS = ("sm_90", "sm_90a")
KERNELS = {
    "dequant": {"dtypes": ["f32"], "formats": "all"},
    "prepack": {"dtypes": ["i8"], "formats": "all"},
    "qgemv": {"dtypes": ["f16", "bf16"], "formats": "all"},
    "qmm": {"dtypes": ["f16", "bf16"], "formats": "all"},
    "qmm_packed": {"dtypes": ["f16", "bf16"], "formats": "all"},
}


def manifest() -> dict[str, Any]:
    """The manifest as data; profile `default` is for sm_90a, `portable` for the templates of older chips."""
    formats = yaml.safe_load((ROOT / "tests/unseen/hand_written.yaml").read_text(encoding="utf-8"))
    targets = yaml.safe_load((ROOT / "kernels.yaml").read_text(encoding="utf-8"))["targets"]
    rows = {name: {k: v for k, v in targets[name].items() if k != "kernels"} for name in TARGETS}
    return {
        "version": 1,
        "targets": rows,
        "formats": {name: formats[name] for name in FORMATS},
        "kernels": KERNELS,
        "profiles": {"default": {"targets": ["sm_90a"]}, "portable": {"targets": ["sm_90"]}},
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(yaml.safe_dump(manifest(), sort_keys=False), encoding="utf-8")
