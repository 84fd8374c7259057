"""Every public error: something raises it, it is what it says, and it crosses to another process whole."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wootz
from wootz import errors, profiling
from wootz.arrays import view
from wootz.formats import Descriptor
from wootz.jit import compiler
from wootz.program import Program
from wootz.select import Device

from tests.null import loader_tools as tools


def failing_driver(code: int, name: str) -> None:
    raise errors.driver_error(code, name, "cuMemAlloc", "text")


def without(module: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module, None)
        profiling._domain.cache_clear()
        profiling.nvtx(True)


def no_compiler() -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in ("cuda.core", "cuda.core.experimental"):
            patch.setitem(sys.modules, module, None)
        compiler._core()


def no_variant() -> None:
    Program("k", Device("cpu"), None, (), (), {}, "").recipe({"m": 1}, {})


# What raises it, its built-in base, a part of its message.
RAISED: dict[str, tuple[Callable[[wootz.Library], Any], type[Exception], str]] = {
    "ArgumentError": (lambda lib: view(None, "x"), ValueError, "x is a NoneType"),
    "ArtifactError": (lambda lib: wootz.load("/nonexistent"), Exception, "index.json does not exist"),
    "CompileError": (lambda lib: no_compiler(), RuntimeError, "jit=True needs cuda.core"),
    "DeviceError": (lambda lib: wootz.to_device(np.zeros(1), "cpu"), RuntimeError, "not to 'cpu'"),
    "DriverError": (lambda lib: failing_driver(719, "LAUNCH_FAILED"), RuntimeError, "LAUNCH_FAILED (719)"),
    "DtypeError": (lambda lib: view(np.zeros(1, "c8"), "x"), TypeError, "complex64"),
    "FormatError": (lambda lib: Descriptor.parse({}), ValueError, "wanted the key 'name'"),
    "MissingPackageError": (lambda lib: without("nvtx"), ImportError, "pip install nvtx"),
    "NoKernelError": (lambda lib: lib.kernel("copi"), LookupError, "did you mean 'copy'"),
    "NoVariantError": (lambda lib: no_variant(), ValueError, "k has no variant for m=1 on cpu"),
    "OutOfMemoryError": (lambda lib: failing_driver(2, "OUT_OF_MEMORY"), MemoryError, "free device memory"),
}


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    return wootz.load(tools.cuda_folder(tmp_path_factory.mktemp("errors") / "a"))


def test_the_table_has_every_error() -> None:
    classes = {
        name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)
    }
    assert classes == set(errors.__all__) == {*RAISED, "WootzError"}


@pytest.mark.parametrize("name", RAISED)
def test_error(lib: wootz.Library, name: str) -> None:
    raises, base, message = RAISED[name]
    with pytest.raises(errors.WootzError) as caught:
        raises(lib)
    error = caught.value
    assert type(error) is getattr(errors, name)
    assert isinstance(error, base)
    assert message in str(error)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))
        assert (type(again), str(again), again.args) == (type(error), str(error), error.args)
        assert vars(again) == vars(error)
    assert str(copy.copy(error)) == str(error)


def test_errors_of_the_extension_cross_too(tmp_path: Path) -> None:
    """Those that C++ raises are made by the same classes."""
    path = tools.cpu_folder(tmp_path / "a", b"no shared object")
    with pytest.raises(errors.ArtifactError, match="cannot be loaded") as caught:
        wootz.load(path).kernel("copy", dtype="f16")(np.zeros(4, np.float16))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
