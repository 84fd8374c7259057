"""Compile on demand with no device: rules, cache, headers, the way to NVRTC; and NVRTC itself where it is
installed. What it does with a driver: fakecuda/on_demand.py.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import wootz
from wootz import errors
from wootz.jit import Cache, Limits, Nvrtc, cache_folder, compiler, headers
from wootz.jit.engine import key_of
from wootz.select import Device, rank_sources

from gen.build import elf, ninja, state
from gen.emit import emission
from gen.plan import cells as plan
from gen.toolchain import nvrtc
from tests.null.jit_tools import TEXT, Bench
from tests.null.test_driver import ROOT, build, child
from tests.null.test_select import ROWS

KEY, OTHER = "ab" * 32, "cd" * 32

# ---- which sources


@pytest.mark.parametrize(
    ("capability", "keys"),
    {
        (7, 0): [],
        (8, 6): ["eight-six+8.6", "eight+8.6", "seven-five+8.6"],
        (9, 0): ["hopper+9.0a", "nine+9.0", "eight-nine+9.0", "eight-six+9.0"],
        (10, 3): ["ten-three+10.3a", "ten-three-family+10.3f", "ten-family+10.3f", "nine+10.3"],
        (12, 1): ["twelve-family+12.1f", "nine+12.1", "eight-nine+12.1", "eight-six+12.1"],
        (13, 0): ["nine+13.0", "eight-nine+13.0", "eight-six+13.0", "eight+13.0"],
    }.items(),
)
def test_sources_for_a_device(capability: tuple[int, int], keys: list[str]) -> None:
    major, minor = capability
    binaries = [row for row in ROWS if row.get("extension") != "ptx"]  # a text's source ranks as a binary's
    found = rank_sources(binaries, Device("cuda", 0, "a device", capability))
    spelt = [f"{row['key']}+{arch.replace(f'sm_{major}{minor}', f'{major}.{minor}')}" for row, arch in found]
    assert spelt[:4] == keys


def test_sources_are_for_cuda_and_a_row_may_deny_a_device() -> None:
    assert rank_sources(ROWS, Device("cpu")) == []
    rows = [{**row, "deny": ["8.6"]} for row in ROWS]
    assert rank_sources(rows, Device("cuda", 0, "a device", (8, 6))) == []


# ---- keys


def test_a_key_depends_on_every_part() -> None:
    parts = ("source", {"fma": False}, "arch", "compiler", "headers")
    changed = ("x", {"fma": True}, "x", "x", "x")
    keys = {key_of(*parts)} | {
        key_of(*(changed[i] if i == at else part for i, part in enumerate(parts))) for at in range(5)
    }  # type: ignore[arg-type]
    assert len(keys) == 6
    assert key_of("s", {"a": 1, "b": 2}, "", "", "") == key_of("s", {"b": 2, "a": 1}, "", "", "")


# ---- the cache


def test_what_was_put_is_got(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "a" / "b")
    assert cache.get(KEY) is None
    assert cache.put(KEY, b"content") == 0
    assert cache.get(KEY) == Cache(cache.folder).get(KEY) == b"content"
    cache.remove(KEY)
    cache.remove(KEY)
    assert cache.get(KEY) is None
    assert not list(cache.folder.iterdir())


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, Limits(bytes=750))
    keys = [digit * 64 for digit in "abcde"]
    for age, key in enumerate(keys[:4]):
        cache.put(key, bytes(100))
        os.utime(cache._path(key), (age, age))
    assert cache.get(keys[0]) is not None  # now the newest
    assert cache.put(keys[4], bytes(100)) == 1
    assert [cache.get(key) is not None for key in keys] == [True, False, True, True, True]
    assert cache.put(KEY, bytes(1000)) == 4, "what is larger than the limit stays alone"
    assert cache.get(KEY) == bytes(1000)


def test_temporary_files_of_killed_processes_go(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    old, new, foreign = tmp_path / ".old.tmp", tmp_path / ".new.tmp", tmp_path / "readme"
    for path in (old, new, foreign):
        path.write_bytes(b"x")
    os.utime(old, (time.time() - 7200,) * 2)
    os.utime(foreign, (0, 0))
    cache.put(KEY, b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new.tmp", f"{KEY}.entry", "readme"]


def test_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    cache = Cache(tmp_path)
    monkeypatch.setattr(Path, "replace", full)
    with caplog.at_level(logging.WARNING, "wootz.jit"):
        cache.put(KEY, b"content")
        cache.put(OTHER, b"content")
    assert cache.held(KEY) == b"content"
    assert not list(tmp_path.iterdir())
    (record,) = caplog.records
    assert "No space left on device" in record.getMessage()


def test_where_the_cache_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WOOTZ_CACHE", "/named")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/named/jit")
    monkeypatch.delenv("WOOTZ_CACHE")
    assert cache_folder() == Path("/xdg/wootz/jit")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/wootz/jit")


def test_the_limit_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WOOTZ_CACHE_BYTES", "4096")
    assert Limits.from_environment().bytes == 4096
    monkeypatch.setenv("WOOTZ_CACHE_BYTES", "1 GB")
    with pytest.raises(errors.ArgumentError, match="WOOTZ_CACHE_BYTES is '1 GB'; want a number of bytes"):
        Cache(Path("/nowhere"))
    monkeypatch.delenv("WOOTZ_CACHE_BYTES")
    assert Limits.from_environment() == Limits()


RACE = """
import sys, time
from pathlib import Path
import wootz
from tests.null.fakecuda.standin import copy_on
from tests.null.jit_tools import FakeCompiler
from wootz.jit import Cache, Jit
folder, me, other = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
class Waiting(FakeCompiler):
    def compile(self, *what):
        me.touch()
        while not other.exists():
            time.sleep(0.01)
        return super().compile(*what)
jit = Jit(Waiting(), Cache(folder / "cache"))
copy_on(wootz.load(folder / "artifacts", jit=jit))
assert jit.counters == wootz.jit.Counters(compilations=1), jit.counters
print("passed")
"""


def test_two_processes_compile_the_same_and_both_work(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    libcuda = build(tmp_path_factory.mktemp("fakecuda"))
    made, marks = Bench(tmp_path), [str(tmp_path / name) for name in "ab"]
    environment = {
        **os.environ,
        "WOOTZ_LIBCUDA": str(libcuda),
        "PYTHONPATH": os.pathsep.join([ROOT, *sys.path]),
    }
    both = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(tmp_path), *names],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for names in (marks, marks[::-1])
    ]  # fmt: skip
    for process in both:
        text, _ = process.communicate(timeout=120)
        assert (process.returncode, text) == (0, "passed\n"), text
    (entry,) = made.entries()
    assert Cache(made.cache.folder).get(entry.stem) is not None


def test_opening_a_library_for_it_imports_no_compiler(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    Bench(tmp_path)
    code = (
        "import sys, wootz; wootz.load(sys.argv[1], jit=True).kernel('copy', dtype='f16');"
        "assert wootz.jit.counters() == wootz.jit.Counters(), wootz.jit.counters();"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'cuda']; print('passed')"
    )
    done = child("-c", code, str(tmp_path / "artifacts"), libcuda="/nowhere", WOOTZ_CACHE=str(tmp_path / "c"))
    assert done.stdout == "passed\n", done.stdout + done.stderr
    assert not (tmp_path / "c").exists()


def test_what_jit_is(tmp_path: Path) -> None:
    made = Bench(tmp_path)
    with pytest.raises(errors.ArgumentError, match=r"jit is 'yes'; want True, False or a wootz.jit.Jit"):
        wootz.load(made.folder.path, jit="yes")  # type: ignore[arg-type]
    assert wootz.load(made.folder.path).jit is None


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_leaves_no_lock_behind(tmp_path: Path) -> None:
    jit = Bench(tmp_path).jit()
    with jit._turns.of(KEY), jit._turns.of("counters"):
        child = os.fork()
        if not child:
            with jit._turns.of("counters"):
                pass
            os._exit(0 if jit._turns.of(KEY).acquire(timeout=5) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ---- headers


def test_headers_of_the_c_library_are_written_in_and_lines_stay() -> None:
    text = "// one\n#include <cstdint>\n  #  include <math.h>\n#include <cuda_fp16.h>\nuint32_t x;\n"
    expanded = headers.expand(text)
    assert len(expanded.splitlines()) == 5
    assert "typedef unsigned int uint32_t;" in expanded.splitlines()[1]
    assert "cstdint" not in expanded
    assert "math.h" not in expanded
    assert "#include <cuda_fp16.h>\n" in expanded


def test_every_header_that_sources_include_is_known() -> None:
    """Ours are written in; those of the toolkit are these two, and CUTLASS' are refused."""
    included = set()
    for path in [*Path(ROOT, "cutlass").glob("*.cuh"), *Path(ROOT, "gen/lower").glob("*.py")]:
        included |= set(headers._INCLUDE.findall(headers.expand(path.read_text())))
    ours = {path.name for path in Path(ROOT, "cutlass").iterdir()} | {"stub_abi.h"}
    theirs = {name for name in included - ours if not name.startswith(("cute/", "cutlass/", "$", "x"))}
    assert theirs <= {"cuda_fp16.h", "cuda_bf16.h"}


def test_the_digest_is_of_headers_and_what_they_include(tmp_path: Path) -> None:
    def digest() -> str:
        headers._digest.cache_clear()
        return headers.digest("#include <one.h>\n", (str(tmp_path),))

    (tmp_path / "one.h").write_text('#include "two.h"\n#include <one.h>\n#include <not_there>\n')
    (tmp_path / "two.h").write_text("2\n")
    before = digest()
    (tmp_path / "other.h").write_text("no part of it\n")
    assert digest() == before
    (tmp_path / "two.h").write_text("3\n")
    assert digest() != before


def test_folders_of_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel, home = tmp_path / "nvidia", tmp_path / "home"
    wanted = [wheel / "cu13/include", home / "include", home / "include/cccl"]
    for folder in (*wanted, wheel / "cu12/include"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(headers, "_wheels", lambda: [wheel])
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    assert headers.folders(13)[:3] == tuple(map(str, wanted))


# ---- the way to NVRTC


class Core:
    """Stands for cuda.core and the binding of NVRTC."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.text = self.said = ""
        self.error: Exception | None = None

    def install(self, monkeypatch: pytest.MonkeyPatch, name: str = "cuda.core") -> None:
        module: Any = types.ModuleType(name)
        module.ProgramOptions, module.Program = self._take, self._program
        binding: Any = types.ModuleType("cuda.bindings.nvrtc")
        binding.nvrtcVersion = lambda: (0, 13, 0)
        binding.nvrtcGetSupportedArchs = lambda: (0, [80, 90])
        parents = {part: types.ModuleType(part) for part in ("cuda", "cuda.core", "cuda.bindings")}
        for part, made in {**parents, name: module, "cuda.bindings.nvrtc": binding}.items():
            monkeypatch.setitem(sys.modules, part, made)

    def _take(self, **options: Any) -> dict[str, Any]:
        self.options = options
        return options

    def _program(self, text: str, kind: str, options: dict[str, Any]) -> Any:
        assert (kind, options) == ("c++", self.options)
        self.text = text
        return self

    def compile(self, kind: str, logs: Any) -> Any:
        assert kind == "cubin"
        logs.write(self.said)
        if self.error:
            raise self.error
        return types.SimpleNamespace(code=b"a cubin")


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Core]:
    (tmp_path / "cuda_fp16.h").write_text("")
    monkeypatch.setattr(headers, "folders", lambda major: (str(tmp_path),))
    compiler._version.cache_clear()
    yield Core()
    compiler._version.cache_clear()


@pytest.mark.parametrize("name", ["cuda.core", "cuda.core.experimental"])
def test_what_nvrtc_is_told(core: Core, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    core.install(monkeypatch, name)
    made = Nvrtc().compile("#include <cuda_fp16.h>\n", "src/x.cu", "sm_86", {"fma": False, "std": "c++17"})
    assert made == b"a cubin"
    assert core.options == {
        "name": "src/x.cu", "arch": "sm_86", "include_path": [str(tmp_path)], "fma": False, "std": "c++17"
    }  # fmt: skip
    assert Nvrtc().identity() == "NVRTC 13.0"


@pytest.mark.parametrize(("said", "log"), [("line 1: no", "line 1: no\n6: failed"), ("", "6: failed")])
def test_what_the_compiler_says_is_in_the_error(
    core: Core, monkeypatch: pytest.MonkeyPatch, said: str, log: str
) -> None:
    core.install(monkeypatch)
    core.said, core.error = said, RuntimeError("6: failed")
    with pytest.raises(
        errors.CompileError, match=r"src/x.cu does not compile for sm_90 \(NVRTC 13.0\)"
    ) as caught:
        Nvrtc().compile("", "src/x.cu", "sm_90", {})
    assert caught.value.log == log
    assert str(caught.value).endswith(log)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.log, again.arch) == (str(caught.value), log, "sm_90")
    with pytest.raises(errors.CompileError, match="this NVRTC knows no sm_130; install another"):
        Nvrtc().compile("", "src/x.cu", "sm_130", {})


def test_a_header_that_is_nowhere(core: Core, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    core.install(monkeypatch)
    with pytest.raises(
        errors.CompileError, match=r"includes cuda_bf16.h, and .*nvidia-cuda-runtime"
    ) as caught:
        Nvrtc().compile("#include <cstdint>\n#include <cuda_bf16.h>\n", "src/x.cu", "sm_90", {})
    assert str(tmp_path) in str(caught.value)


def test_no_cuda_core(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    core.install(monkeypatch)
    for name in ("cuda.core", "cuda.core.experimental"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(errors.CompileError, match=r"jit=True needs cuda.core, .*pip install 'wootz\[jit\]'"):
        Nvrtc().compile("", "src/x.cu", "sm_90", {})


def _absent() -> Any:
    raise RuntimeError('Failure finding "libnvrtc.so.13"\nand more')


@pytest.mark.parametrize(
    ("binding", "why"),
    [
        (None, "cannot be loaded"),
        (types.SimpleNamespace(nvrtcVersion=_absent), r'Failure finding "libnvrtc.so.13"\): pip'),
        (types.SimpleNamespace(nvrtcVersion=lambda: (7, 0, 0)), "does not say its version"),
    ],
)
def test_no_nvrtc(core: Core, monkeypatch: pytest.MonkeyPatch, binding: Any, why: str) -> None:
    core.install(monkeypatch)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", binding)
    with pytest.raises(errors.CompileError, match=why) as caught:
        Nvrtc().identity()
    assert "pip install 'wootz[jit]'" in str(caught.value)


# ---- what the index hands on


def test_options_are_those_of_nvcc() -> None:
    common = {flag for flag in ninja.NVCC_FLAGS if flag.startswith(("-std", "-D"))}
    for kind, options in nvrtc.KINDS.items():
        if kind == state.CUTLASS:
            assert isinstance(options, str)
            continue
        assert isinstance(options, dict)
        assert {*options} <= compiler.OPTIONS
        assert {f"-std={options['std']}", f"-D{options['define_macro']}"} == common
        assert options.get("fma", True) == ("-fmad=false" not in ninja.KIND_FLAGS[kind])
        relaxed = "--expt-relaxed-constexpr" in ninja.KIND_FLAGS[kind]
        assert options.get("device_as_default_execution_space", False) == relaxed
    assert {*nvrtc.KINDS} == {*state.KINDS}


# ---- NVRTC itself


@pytest.fixture(scope="module")
def real() -> Nvrtc:
    """NVRTC, which needs no device."""
    made = Nvrtc()
    try:
        importlib.import_module("cuda.core")
        made.identity()
    except (ImportError, errors.CompileError) as error:
        pytest.skip(f"no NVRTC: {error}")
    return made


@pytest.fixture(scope="module")
def units() -> Callable[[str, str, str], plan.Unit]:
    manifest = plan.load(Path(ROOT, "kernels.yaml"))

    def find(kernel: str, fmt: str, target: str) -> plan.Unit:
        request = plan.Request("release", (target,), (fmt,), (kernel,))
        return next(iter(plan.units(manifest, plan.select(manifest, request))))

    return find


BYTES = {"ptr": 8, "u64": 8, "u32": 4, "i32": 4, "f32": 4, "map": 128}
PLAIN = ("sm_86", "sm_103", "sm_120")
CASES = [
    *(
        (kernel, fmt, "sm_80", arch)
        for kernel, fmt in (("copy", "-"), ("dequant", "mxfp4"))
        for arch in PLAIN
    ),
    ("binary", "-", "sm_80", "sm_86"),
    ("qgemv", "int4", "sm_80", "sm_120"),
    ("qmm", "int4", "sm_80", "sm_86"),
    ("qmm", "nvfp4", "sm_80", "sm_121"),
    ("prepack", "q4_0", "sm_80", "sm_86"),
    ("gemv", "-", "sm_80", "sm_89"),
    ("quantize_activations", "nvfp4", "sm_120a", "sm_120a"),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("gemm", "-", "sm_80", "sm_86"),
            ("gemm_fp8", "-", "sm_89", "sm_120"),
            ("qmm_packed", "int4", "sm_80", "sm_86"),
            ("qmm_packed", "mxfp4", "sm_80", "sm_103"),
            ("qmm_packed", "int4", "sm_90a", "sm_90a"),
        )
    ),
]


@pytest.mark.parametrize(("kernel", "fmt", "target", "arch"), CASES)
def test_emitted_text_compiles(
    real: Nvrtc, units: Callable[[str, str, str], plan.Unit], kernel: str, fmt: str, target: str, arch: str
) -> None:
    unit = units(kernel, fmt, target)
    made = emission.rendered(unit)
    record, options = emission.record(unit, "", made), nvrtc.KINDS[made.kind]
    assert isinstance(options, dict)
    cubin = elf.parse(real.compile(made.text, unit.source, arch, options))
    assert elf.functions(cubin, dynamic=False) >= record.symbols
    for each in record.entries:
        sizes = [BYTES[kind] for _, kind, _ in each["entry"]["args"]]
        assert elf.parameters(cubin, each["entry"]["symbol"]) == sizes
    number = "".join(each for each in arch if each.isdigit())
    assert elf.cubin_number(cubin) == int(number)
    if elf.cubin_arch(cubin):
        assert elf.cubin_arch(cubin) == arch


def test_an_error_of_nvrtc(real: Nvrtc) -> None:
    with pytest.raises(errors.CompileError) as caught:
        real.compile(f"{TEXT}#include <cstdint>\nuint32_t f() {{ return x; }}\n", "src/x.cu", "sm_86", {})
    assert 'src/x.cu(3): error: identifier "x" is undefined' in caught.value.log
    with pytest.raises(errors.CompileError, match="this NVRTC knows no sm_999"):
        real.compile(TEXT, "src/x.cu", "sm_999", {})


@pytest.mark.slow
def test_the_wrong_chip_is_refused_by_the_compiler_too(
    real: Nvrtc, units: Callable[[str, str, str], plan.Unit]
) -> None:
    made = emission.rendered(units("qmm_packed", "mxfp4", "sm_90a"))
    options = nvrtc.KINDS[made.kind]
    assert isinstance(options, dict)
    with pytest.raises(errors.CompileError, match="wgmma"):
        real.compile(made.text, "src/x.cu", "sm_90", options)
