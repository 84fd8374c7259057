"""A device that a launch can break for its process, as a GPU's fault does; here in memory of the CPU."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from wootz.bench.devices import Cpu

FAULT = "CUDA error: an illegal memory access was encountered\nCompile with something"
BREAKS, KILLS = 13, 14
"""Columns of the output that is the device's last, or the process'."""


class Sticky(Cpu):
    """After a fault every call fails."""

    fragile = True

    def __init__(self) -> None:
        super().__init__()
        self.broken = False

    def wait(self) -> None:
        if self.broken:
            raise RuntimeError(FAULT)

    def lost(self) -> bool:
        return self.broken

    def free(self) -> None:
        self.wait()

    def grown(self, raw: NDArray[Any], dtype: str, shape: Sequence[int], shift: int) -> Any:
        self.wait()
        return super().grown(raw, dtype, shape, shift)

    def sample(self, array: Any, dtype: str, places: Sequence[NDArray[np.int64]]) -> NDArray[Any]:
        """What comes back of the first launch."""
        if array.shape[-1] == KILLS:
            os.kill(os.getpid(), signal.SIGKILL)
        self.broken |= array.shape[-1] == BREAKS
        self.wait()
        return super().sample(array, dtype, places)


def open_sticky(name: str) -> Sticky:
    """In place of `open_device`."""
    assert name == "cpu"
    return Sticky()
