"""What a program that has no array of NumPy's imports: `python light.py NAME FOLDER-FOR-CUDA FOLDER-FOR-CPU`.

Nothing here, nor what it imports, may import NumPy: standin.py does.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import wootz

SIZE = 16
UNWANTED = ("numpy", "importlib.metadata", "difflib", "tempfile", "subprocess", "wootz.jit.engine")


class Array:
    """float16 of a device's, by __cuda_array_interface__."""

    def __init__(self, driver: Any) -> None:
        self.memory = (ctypes.c_uint16 * SIZE)()
        address = ctypes.addressof(self.memory)
        driver.fake_own(ctypes.c_uint64(address), ctypes.c_size_t(2 * SIZE), 0)
        self.shape = (SIZE,)
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": self.shape,
            "typestr": "<f2",
            "data": (address, False),
            "strides": None,
            "stream": None,
        }


def others(cuda: str, cpu: str) -> None:
    driver = ctypes.CDLL(os.environ["WOOTZ_LIBCUDA"])
    lib = wootz.load(cuda)
    x, out = Array(driver), Array(driver)
    plan = lib.plan("copy", dtype="f16", device="cuda:0", n=SIZE)
    assert plan(x, out=out) is out
    assert plan.bind(x, out=out)() is out
    assert lib.kernel("copy", dtype="f16")(x, out=out) is out
    formatted = wootz.load(cpu).plan("qgemv", format="toy", device="cpu", m=2, n=5, k=16)
    assert formatted.describe()["symbol"]
    found = [name for name in UNWANTED if name in sys.modules]
    assert not found, f"imported: {found}"


def numpys(_: str, cpu: str) -> None:
    """NumPy's arrays work where the first array that was seen was another's."""
    lib = wootz.load(cpu)
    plan = lib.plan("binary", op="add", device="cpu", n=SIZE)
    message = ""
    try:
        plan(object(), object())
    except wootz.errors.ArgumentError as error:
        message = str(error)
    assert "want an array" in message, message
    assert "numpy" not in sys.modules
    import numpy as np

    a, b = np.arange(SIZE, dtype=np.float32), np.ones(SIZE, np.float32)
    assert np.array_equal(plan(a, b), a + b)
    assert isinstance(plan(a, b), np.ndarray)
    assert np.array_equal(lib.kernel("binary", op="add")(a, b), a + b)
    q = wootz.quantize(np.ones((5, 16), np.float32), lib.format("toy"))
    x = np.ones((2, 16), np.float32)
    y = lib.plan("qgemv", format="toy", device="cpu", m=2, n=5, k=16)(x, q)
    assert np.allclose(y, x @ q.dequantize().T)


if __name__ == "__main__":
    {"others": others, "numpys": numpys}[sys.argv[1]](*sys.argv[2:])
    print("passed")
