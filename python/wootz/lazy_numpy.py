"""NumPy, imported where it is first used: arrays of other libraries do without it.

`from .lazy_numpy import np` stands for `import numpy as np`. What a module evaluates while it is imported
must not reach into `np`.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, TypeGuard

__all__ = ["is_ndarray", "np"]

if TYPE_CHECKING:
    import numpy as np
else:

    class _Numpy:
        """NumPy's attributes. Each is looked up once: then it lies here, as in a module."""

        def __getattr__(self, name: str) -> Any:
            value = getattr(importlib.import_module("numpy"), name)
            self.__dict__[name] = value
            return value

    np = _Numpy()


def is_ndarray(array: object) -> TypeGuard[np.ndarray[Any, np.dtype[Any]]]:
    """isinstance(array, np.ndarray). Imports nothing: an array of NumPy's has loaded it."""
    return "numpy" in sys.modules and isinstance(array, np.ndarray)
