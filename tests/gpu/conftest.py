"""What every test on a device starts from: a device, and the library that ships."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import wootz

sys.path.insert(0, str(Path(__file__).parent))  # needs.py


@pytest.fixture(scope="module")
def lib() -> Any:
    return wootz.load()
