"""wootz: prebuilt kernels for quantised matrices.

    q = wootz.quantize(w, "int4")                              # w: float [N, K]
    qgemv = wootz.load().kernel("qgemv", format="int4", dtype="f32")
    y = qgemv(x, q)                                            # x: [M, K] -> y: [M, N]

Importing this package loads no binary, touches no driver and starts no thread: what needs the loader imports
it then.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal

from . import errors
from .formats import QuantizedTensor
from .formats import quantize as _quantize

if TYPE_CHECKING:
    from . import jit, profiling
    from .arrays import DeviceArray, to_device
    from .caches import check_block_table, check_lengths
    from .formats.bank import stack
    from .formats.packed import PackedTensor, prepack, unpack
    from .formats.tiles import TiledTensor, tile, untile
    from .groups import check_groups, check_indices
    from .kernel import Kernel
    from .library import Library, load
    from .plan import Plan

    __version__: str

__all__ = [
    "DeviceArray",
    "Kernel",
    "Library",
    "PackedTensor",
    "Plan",
    "QuantizedTensor",
    "TiledTensor",
    "check_block_table",
    "check_groups",
    "check_indices",
    "check_lengths",
    "errors",
    "jit",
    "load",
    "prepack",
    "profiling",
    "quantize",
    "stack",
    "tile",
    "to_device",
    "unpack",
    "untile",
]

_LAZY = {
    "DeviceArray": "arrays",
    "to_device": "arrays",
    "Kernel": "kernel",
    "Library": "library",
    "load": "library",
    "Plan": "plan",
    "stack": "formats.bank",
    "PackedTensor": "formats.packed",
    "prepack": "formats.packed",
    "unpack": "formats.packed",
    "TiledTensor": "formats.tiles",
    "tile": "formats.tiles",
    "untile": "formats.tiles",
    "check_block_table": "caches",
    "check_lengths": "caches",
    "check_groups": "groups",
    "check_indices": "groups",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in ("jit", "profiling"):
        return importlib.import_module(f".{name}", __name__)
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


def _version() -> str:
    metadata = importlib.import_module("importlib.metadata")
    try:
        return str(metadata.version("wootz"))
    except metadata.PackageNotFoundError:  # a source tree
        return "0+unknown"


def quantize(array: Any, format: Any, *, nan: Literal["error", "zero"] = "error") -> QuantizedTensor:
    """Quantise a matrix [N, K]; see wootz.formats.quantize. A format's name is looked up in the default
    library.

    Raises what that raises, and NoKernelError for an unknown name, ArtifactError when there is no default
    library.
    """
    if isinstance(format, str):
        from .library import default_library

        format = default_library().format(format)
    return _quantize(array, format, nan=nan)
