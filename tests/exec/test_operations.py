"""A text with every operation on every type compiles, as CUDA and as Metal."""

from __future__ import annotations

import sys
from pathlib import Path

import cells
import pytest
from lanes import build

sys.path.insert(0, str(Path(__file__).parents[1] / "null"))
import test_totality

from gen.emit.text import RENDER


@pytest.mark.parametrize("backend", cells.BACKENDS)
def test_every_operation_compiles(backend: str) -> None:
    taken, _ = test_totality.sorted_out(backend)
    assert build.library(RENDER[backend][0](taken), backend, (), None).exists()
