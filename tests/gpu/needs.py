"""Leaves out a module of tests where there is no device to run them on."""

from __future__ import annotations

import pytest
from wootz import _core
from wootz.errors import WootzError


def _devices() -> int:
    try:
        return int(_core.cuda_device_count())
    except WootzError:
        return 0


def device() -> None:
    """Skips the module that calls it at its top, on a machine with no CUDA device."""
    if not _devices():
        pytest.skip("no CUDA device on this machine", allow_module_level=True)


def capability() -> tuple[int, int]:
    """The compute capability of the first device."""
    major, minor = _core.cuda_device_info(0)["capability"]
    return int(major), int(minor)
