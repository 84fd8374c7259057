"""The formats of test_unseen_formats.py go through qmm_packed for few rows of x as well, where group memory
has room for them: the same template, and a decoder that no one wrote."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "exec")]
from test_qgemv_sm90 import TARGET, built, operands, outcome  # noqa: E402
from test_unseen_formats import NAMES, bodies, made  # noqa: E402

from gen.kernels import _qgemv_sm90 as qgemv  # noqa: E402

SIZES = ({"m": 1, "n": 18, "k": 1304}, {"m": 3, "n": 18, "k": 1304})
F16_MAX = 65504.0


@pytest.mark.parametrize("name", NAMES)
def test_they_multiply(name: str) -> None:
    fmt = made(bodies()[name], name)
    past = np.abs(operands(fmt, SIZES[0], "bf16")["w"].dequantize()).max() > F16_MAX
    for dtype in ("bf16",) if past else ("f16", "bf16"):
        some = [i for i in qgemv.instances(fmt, dtype, TARGET) if i.suffix in ("v1", "v8")]
        with built(some, SIZES) as (program, instances):
            for symbol, instance in instances.items():
                size = SIZES[instance.suffix == "v8"]
                _, compared = outcome(program, instance, symbol, operands(fmt, size, dtype), dtype)
                assert compared.passed, (dtype, instance.suffix, compared)


def test_most_of_them_have_entries() -> None:
    found = [name for name in NAMES if [*qgemv.instances(made(bodies()[name], name), "bf16", TARGET)]]
    assert len(found) >= len(NAMES) - 5
