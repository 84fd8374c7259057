"""What is drawn at random is the same each time, whichever modules were loaded before."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unseen"))
import grammar_cases


def test_the_modules_at_hand_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = grammar_cases.pool(80)
    path = tmp_path / "full_of_numbers.py"
    numbers = [*range(2, 90), *(n / 8 + 1e-2 for n in range(-30, 30))]
    path.write_text(f"NUMBERS = {numbers}\nWORDS = {[f'word{n}' for n in range(50)]}\n")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    monkeypatch.setitem(sys.modules, path.stem, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(sys.modules[path.stem])
    assert grammar_cases.pool(80) == before


def test_every_test_draws_alike_each_time() -> None:
    assert settings.default is not None
    assert (settings.default.derandomize, settings.default.database) == (True, None)
