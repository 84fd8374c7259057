"""One cache of compiled texts for the whole session: pytest-xdist's workers inherit the variable."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lanes import cache

_FOLDER = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    if cache.VARIABLE not in os.environ:
        config.stash[_FOLDER] = os.environ[cache.VARIABLE] = tempfile.mkdtemp(prefix="wootz-exec-")


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(_FOLDER, None)
    if folder:
        os.environ.pop(cache.VARIABLE, None)
        shutil.rmtree(folder, ignore_errors=True)
