"""The loader on the CPU: results, threads, the package. Kernels are compiled by the host compiler."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import wootz
from wootz import errors, library
from wootz.errors import ArgumentError, NoKernelError

from tests.null import loader_tools as tools

F32 = np.float32
random, quantized = tools.random, tools.quantized


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    return wootz.load(
        tools.cpu_folder(tmp_path_factory.mktemp("art") / "a folder, with spaces", tools.image())
    )


# ---- results


@pytest.mark.parametrize("m", [1, 2, 8])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (33, 70), (64, 128)])
def test_qgemv(lib: wootz.Library, m: int, n: int, k: int) -> None:
    x, q = random(m, k), quantized(lib, n, k)
    for kernel in (
        lib.kernel("qgemv", format="toy"),
        lib.kernel("qgemv", format="toy", dtype="f32", device="cpu"),
    ):
        y = kernel(x, q)
        assert (type(y), y.dtype, y.shape) == (np.ndarray, F32, (m, n))
        np.testing.assert_allclose(y, x @ q.dequantize().T, rtol=1e-4, atol=1e-4)


def test_no_rows_is_an_early_return(lib: wootz.Library) -> None:
    q, kernel = quantized(lib, 5, 8), lib.kernel("qgemv", format="toy")
    assert kernel(np.empty((0, 8), F32), q).shape == (0, 5)
    out = np.empty((0, 5), F32)
    assert kernel(np.empty((0, 8), F32), q, out=out) is out
    with pytest.raises(ArgumentError, match="w has k=8, x has k=7"):
        kernel(np.empty((0, 7), F32), q)


def test_dequant_and_out(lib: wootz.Library) -> None:
    q, out = quantized(lib, 7, 13), np.empty((7, 13), F32)
    assert lib.kernel("dequant", format="toy")(q, out=out) is out
    np.testing.assert_array_equal(out, q.dequantize())


@pytest.mark.parametrize("shape", [(1,), (1000,), (3, 4, 5), (2, 0)])
def test_flat_kernels_take_any_rank(lib: wootz.Library, shape: tuple[int, ...]) -> None:
    a, b = random(*shape), random(*shape)
    np.testing.assert_array_equal(lib.kernel("binary", op="add")(a, b), a + b)


def test_in_place_where_the_kernel_allows_it(lib: wootz.Library) -> None:
    a, b = random(300), random(300)
    wanted = a + b
    assert lib.kernel("binary", op="add")(a, b, out=a) is a
    np.testing.assert_array_equal(a, wanted)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_copy_allocates_the_dtype(lib: wootz.Library, dtype: Any) -> None:
    x = random(513, dtype=dtype)
    y = lib.kernel("copy", dtype="f16" if dtype is np.float16 else "bf16")(x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y.view(np.uint16), x.view(np.uint16))


class Exported:
    """A CPU array of another library."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_arrays_by_dlpack(lib: wootz.Library) -> None:
    kernel, x, q = lib.kernel("qgemv", format="toy"), random(2, 16), quantized(lib, 3, 16)
    out = np.empty((2, 3), F32)
    kernel(Exported(x), q.map(Exported), out=Exported(out))
    np.testing.assert_allclose(out, x @ q.dequantize().T, rtol=1e-4, atol=1e-4)
    with pytest.raises(ArgumentError, match="pass out="):
        kernel(Exported(x), q)


def test_the_first_variant_whose_conditions_hold(tmp_path: Path) -> None:
    many = tools.shared_object(tmp_path, many=100)
    lib = wootz.load(tools.cpu_folder(tmp_path / "a", many))
    kernel, q = lib.kernel("qgemv", format="toy"), quantized(lib, 3, 8)
    assert np.abs(kernel(np.zeros((1, 8), F32), q)).max() == 0
    assert kernel(np.zeros((2, 8), F32), q).min() == 100
    with pytest.raises(
        ArgumentError,
        match=r"qgemv/toy/f32 has no variant for m=2, k=4100, n=1 on cpu: it takes "
        r"m <= 1; \(m > 1\) and \(k <= 4096\)",
    ):
        kernel(np.zeros((2, 4100), F32), quantized(lib, 1, 4100))


def test_the_first_instruction_set_that_runs(tmp_path: Path) -> None:
    folder = tools.Folder(tmp_path / "a")
    never = folder.file("cpu/never.so", b"not for this machine", "z80")
    folder.cell(
        "dequant", "toy", "f32", "cpu", [never, folder.file("cpu/base.so", tools.image(), "baseline")]
    )
    lib = wootz.load(folder.write())
    q = quantized(lib, 2, 8)
    np.testing.assert_array_equal(lib.kernel("dequant", format="toy")(q), q.dequantize())
    folder.cells[0]["files"] = [never]
    kernel = wootz.load(folder.write()).kernel("dequant", format="toy")
    with pytest.raises(NoKernelError, match="dequant/toy/f32 has no binary for cpu; it is shipped for: cpu"):
        kernel(q)


@pytest.mark.parametrize("threads", ["1", "2", "7"])
def test_threads(lib: wootz.Library, threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WOOTZ_NUM_THREADS", threads)
    x, q = random(8, 512), quantized(lib, 2000, 512)
    y = lib.kernel("qgemv", format="toy")(x, q)
    np.testing.assert_allclose(y, x @ q.dequantize().T, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("threads", ["0", "-1", "many", "1e3", "99999"])
def test_bad_thread_counts(lib: wootz.Library, threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WOOTZ_NUM_THREADS", threads)
    with pytest.raises(ArgumentError, match=f'WOOTZ_NUM_THREADS is "{threads}"'):
        lib.kernel("dequant", format="toy")(quantized(lib, 2, 8))


def test_calls_from_many_threads(lib: wootz.Library) -> None:
    kernel, q = lib.kernel("qgemv", format="toy"), quantized(lib, 40, 64)
    results: dict[int, np.ndarray[Any, Any]] = {}

    def work(i: int) -> None:
        for _ in range(50):
            results[i] = kernel(np.full((1, 64), i, F32), q)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    sums = q.dequantize().sum(1)
    for i, y in results.items():
        np.testing.assert_allclose(y[0], i * sums, rtol=1e-3, atol=1e-3)


# ---- the package


def child(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    full = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=full, timeout=120)


def test_the_default_folder(lib: wootz.Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WOOTZ_ARTIFACTS", str(lib.path))
    assert wootz.load().path == lib.path
    with pytest.raises(ArgumentError, match=r"^path is a int; want a folder, or the name of a package$"):
        wootz.load(3)  # type: ignore[arg-type]
    assert library.default_library() is library.default_library()
    assert wootz.quantize(random(2, 8), "toy").format == lib.format("toy")
    with pytest.raises(NoKernelError, match="did you mean 'toy'"):
        wootz.quantize(random(2, 8), "toys")
    monkeypatch.delenv("WOOTZ_ARTIFACTS")
    assert library.default_folder().name == "artifacts"


def test_import_touches_no_driver_and_little_else() -> None:
    code = (
        "import sys, wootz, wootz.library, wootz.kernel\n"
        "maps = open('/proc/self/maps').read() if sys.platform == 'linux' else ''\n"
        "assert 'libcuda' not in maps, maps\n"
        "import threading; assert threading.active_count() == 1\n"
        "heavy = {'torch', 'cupy', 'yaml', 'jsonschema', 'wootz.gen', 'ml_dtypes'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = child(code, WOOTZ_LIBCUDA="/nonexistent/libcuda.so")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_after_a_parallel_launch(lib: wootz.Library) -> None:
    code = (
        "import os, numpy as np, wootz\n"
        f"lib = wootz.load({str(lib.path)!r})\n"
        "q = wootz.quantize(np.ones((4000, 256), np.float32), lib.format('toy'))\n"
        "kernel = lib.kernel('qgemv', format='toy'); x = np.ones((8, 256), np.float32)\n"
        "before = kernel(x, q)\n"
        "pid = os.fork()\n"
        "if pid == 0: os._exit(0 if (kernel(x, q) == before).all() else 1)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
    )
    done = child(code, WOOTZ_NUM_THREADS="3")
    assert done.returncode == 0, done.stderr


def test_errors_are_the_builtin_kinds_too() -> None:
    assert issubclass(errors.ArgumentError, ValueError)
    assert issubclass(errors.DtypeError, TypeError)
    assert issubclass(errors.NoKernelError, LookupError)
    assert issubclass(errors.DriverError, errors.DeviceError)
    assert issubclass(errors.OutOfMemoryError, MemoryError)
    again = pickle.loads(
        pickle.dumps(errors.driver_error(2, "CUDA_ERROR_OUT_OF_MEMORY", "cuMemAlloc", "out of memory"))
    )
    assert isinstance(again, errors.OutOfMemoryError)
    assert (again.code, again.name, again.call) == (2, "CUDA_ERROR_OUT_OF_MEMORY", "cuMemAlloc")


def test_versions_and_names() -> None:
    assert isinstance(wootz.__version__, str)
    assert set(wootz.__all__) <= set(dir(wootz))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = wootz.nothing


def test_a_format_may_be_a_tensors(lib: wootz.Library) -> None:
    name = lib.formats()[0]
    by_name, by_tensor = (lib.kernel("dequant", format=f, dtype="f32") for f in (name, lib.format(name)))
    assert by_name.name == by_tensor.name


@pytest.mark.parametrize("wrong", [{"name": 3}, {"format": 3}, {"dtype": np.float32}, {"name": "copy\ud800"}])
def test_names_are_names(lib: wootz.Library, wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="want a name"):
        lib.kernel(**{"name": "dequant", "format": lib.formats()[0], **wrong})
