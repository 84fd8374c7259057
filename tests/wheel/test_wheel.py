"""The built wheel, opened; and installed where there is nothing but it and NumPy."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import wootz
from wheel_tools import ARTIFACTS, ROOT, USE, Clean, Wheel, once
from wootz import verify
from wootz.reference import DTYPES

import gen

# ------------------------------------------------------------ opened


def test_every_file_that_the_index_names_is_there_unchanged(wheel: Wheel) -> None:
    named = set(wheel.named())
    assert named
    for file, sha256, size in named:
        data = wheel.read(ARTIFACTS + file)
        assert hashlib.sha256(data).hexdigest() == sha256, file
        assert size in (None, len(data)), file


def test_no_artifact_is_there_that_the_index_does_not_name(wheel: Wheel) -> None:
    assert wheel.artifacts() == {"index.json", *(file for file, _, _ in wheel.named())}


def test_every_cell_of_a_target_that_this_host_builds_has_its_artifact(wheel: Wheel) -> None:
    backends = {row["key"]: row["backend"] for row in wheel.index["targets"]}
    without = {backends[cell["target"]] for cell in wheel.index["cells"] if not cell["files"]}
    assert without <= ({"cuda"} if sys.platform == "darwin" else {"metal"})


def test_modes(wheel: Wheel) -> None:
    for name, info in wheel.files.items():
        mode = info.external_attr >> 16 & 0o7777
        wanted = (0o644,) if name.startswith(ARTIFACTS) else (0o644, 0o755)
        assert mode in wanted, f"{name}: {mode:o}"


def test_nothing_is_there_that_does_not_belong(wheel: Wheel) -> None:
    kinds = re.compile(
        r"artifacts/.*|(gen/|formats/)?(\w+/)*\w+\.py|_core\.pyi|py\.typed|_core\.[\w-]+\.so|.*\.json"
        r"|cutlass/(\w+\.(cuh|h|hpp)|requirements\.txt)|cmake/\w+\.cmake|LICENSES/[\w-]+\.(txt|md)"
        r"|gen/(kernels\.yaml|site/page\.(html|css|js)|project/template/([\w@-]+/)*[\w@-]+(\.\w+)*\.in)"
    )
    strange = [
        name
        for name in wheel.files
        if not re.match(r"wootz-[^/]+\.dist-info/", name)
        and not kinds.fullmatch(name.removeprefix("wootz/"))
        and name != "wootz/kernels.yaml"
    ]
    assert not strange


def test_the_generator_finds_its_templates(wheel: Wheel) -> None:
    for name in ("stub_abi.h", "requirements.txt"):
        assert f"wootz/cutlass/{name}" in wheel.files
    here = {path.name for path in (ROOT / "cutlass").glob("*.*") if path.suffix in (".cuh", ".h", ".hpp")}
    assert here <= {Path(name).name for name in wheel.files if name.startswith("wootz/cutlass/")}


def linked(text: str) -> set[str]:
    """The libraries that ldd names, without versions: libm of libm.so.6."""
    return {match[1] for match in re.finditer(r"^\s*(?:\S*/)?([\w+-]+?)(?:-linux\S*)?\.so", text, re.M)}


@pytest.mark.skipif(sys.platform != "linux", reason="ldd is Linux's")
def test_shared_objects_need_the_system_only(wheel: Wheel, tmp_path: Path) -> None:
    objects = [name for name in wheel.files if name.endswith(".so")]
    wheel.archive.extractall(tmp_path, objects)
    done = subprocess.run(
        ["ldd", *(str(tmp_path / name) for name in objects)], capture_output=True, text=True, check=True
    )
    assert "not found" not in done.stdout
    found = linked("\n".join(line for line in done.stdout.splitlines() if not line.endswith(":")))
    assert found - {"linux-vdso", "ld"} <= {"libc", "libm", "libdl", "libpthread", "libstdc++", "libgcc_s"}
    assert "libc" in found


def test_the_check_of_libraries_itself() -> None:
    text = "\tlibcuda.so.1 => /usr/lib/libcuda.so.1 (0x0)\n\t/lib64/ld-linux-x86-64.so.2 (0x0)\n"
    assert linked(text) == {"libcuda", "ld"}


def test_no_path_of_this_machine_is_in_any_file(wheel: Wheel) -> None:
    homes = {
        str(ROOT),
        str(Path.home()),
        sys.prefix,
        str(Path(sys.executable).parent),
        str(wheel.path.parent),
    }
    known = [re.escape(folder).encode() for folder in homes if folder != "/"]
    here = re.compile(rb"(?<![\w./-])(?:" + b"|".join(known) + rb")/")
    somewhere = re.compile(rb"/(?:tmp|root|home/\w+|Users/\w+)/[\w.-]{3,}|/site-packages/")
    for name in wheel.files:
        data = wheel.read(name)
        assert not here.search(data), name
        if not name.endswith((".py", "METADATA")):
            assert not somewhere.search(data), name


def test_metadata(wheel: Wheel) -> None:
    meta = wheel.metadata
    assert (meta["Name"], meta["Version"]) == ("wootz", gen.__version__)
    assert meta["License-Expression"] == "Apache-2.0 AND BSD-3-Clause"
    assert meta["Requires-Python"] == ">=3.10"
    always = [need for need in meta.get_all("Requires-Dist") or [] if "extra ==" not in need]
    assert [re.match(r"[\w-]+", need)[0] for need in always] == ["numpy"]  # type: ignore[index]
    assert wheel.index["generator"] == gen.__version__
    tag = wheel.path.stem.split("-")[2:]
    assert tag[0] == f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert tag[2] != "any"


# ------------------------------------------------------------ installed


def test_it_runs_with_numpy_alone_and_no_compiler(clean: Clean) -> None:
    names = clean.python(
        "import importlib.metadata as m; print(*sorted(d.name.lower() for d in m.distributions()))"
    )
    assert set(names.split()) - {"pip", "setuptools"} == {"numpy", "wootz"}
    assert (
        clean.python("import shutil; print(*map(shutil.which, ['c++', 'cc', 'nvcc', 'ld']))").split()
        == ["None"] * 4
    )
    assert Path(clean.python(USE).strip()).is_relative_to(clean.folder)


def test_the_package_may_be_copied_and_moved(clean: Clean, wheel: Wheel, tmp_path: Path) -> None:
    first, second = tmp_path / "unzipped here", tmp_path / "moved" / "élsewhere"
    wheel.archive.extractall(first)
    second.parent.mkdir()
    for folder, before in ((first, None), (second, first)):
        if before:
            before.rename(folder)
        printed = clean.python(USE, PYTHONPATH=str(folder), PYTHONDONTWRITEBYTECODE="1", PYTHONUTF8="1")
        assert Path(printed.strip()) == folder / "wootz/__init__.py"


def test_import_is_light(clean: Clean) -> None:
    code = """
import sys, numpy, threading
before = set(sys.modules)
import wootz
new = {name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(*sorted(new | {'numpy'}), 'wootz._core' in sys.modules, threading.active_count())
"""
    assert clean.python(code).split() == ["numpy", "wootz", "False", "1"]


STANDIN = """
#include <cstdio>
#include <cstdlib>
__attribute__((constructor)) static void loaded() { std::fclose(std::fopen(std::getenv("MARK"), "w")); }
"""


ASK = """
import numpy as np, wootz
try: wootz.to_device(np.zeros(1))
except wootz.errors.DeviceError: pass
"""


@pytest.fixture
def standin(tmp_path: Path) -> Path:
    """A folder with a libcuda.so.1 that, once loaded, makes the file named in MARK."""
    (tmp_path / "standin.cpp").write_text(STANDIN)
    compiler = os.environ.get("CXX", "c++").split()
    subprocess.run(
        [*compiler, "-shared", "-fPIC", "standin.cpp", "-o", "libcuda.so.1"], cwd=tmp_path, check=True
    )
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="the driver's library has another name")
def test_neither_import_nor_the_cpu_touches_the_driver(clean: Clean, standin: Path) -> None:
    mark = standin / "mark"
    environment = {"LD_LIBRARY_PATH": str(standin), "MARK": str(mark)}
    clean.python(USE, **environment)
    assert not mark.exists()
    clean.python(ASK, **environment)
    assert mark.exists()  # so the check can fail


def test_verify_passes(clean: Clean, wheel: Wheel, tmp_path: Path) -> None:
    name, report = wheel.index["formats"][0]["key"], tmp_path / "verify.json"
    wanted = re.compile(rf'"key":"(\w+/{name}/f32/cpu)"')
    cells = wanted.findall(wheel.read(f"{ARTIFACTS}index.json").decode())
    options = ["--device", "cpu", "--filter", f"*/{name}/f32/*", "--json", str(report), "-j", "2"]
    done = clean.run(clean.command, "verify", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{len(cells)} passed, 0 failed"
    assert [cell["cell"] for cell in json.loads(report.read_text())["cells"]] == cells != []


def test_info_needs_the_wheel_alone(clean: Clean, wheel: Wheel) -> None:
    done = clean.run(str(clean.folder / "bin/python"), "-m", "wootz", "info", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    facts = json.loads(done.stdout)
    assert facts["library"]["cells"] == len(wheel.index["cells"])
    runs = {cell["key"] for cell in wheel.index["cells"] if cell["target"] == "cpu" and cell["files"]}
    (cpu,) = (each for each in facts["coverage"] if each["device"] == "cpu")
    assert cpu["served"] == len(runs)
    name = wheel.index["formats"][0]["key"]
    done = clean.run(clean.command, "info", "dequant", "--format", name, "--dtype", "f32", "--device", "cpu")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"dequant/{name}/f32/cpu on cpu\n  target    cpu: ")


def test_a_tensor_to_write_to_gets_its_scale_too(wheel: Wheel, shared: Path) -> None:
    """The codes of one tensor under the scale of another would be wrong numbers."""
    folder = once(shared / "unzipped", wheel.archive.extractall)
    lib = wootz.load(folder / ARTIFACTS)
    format, rng = lib.format("nvfp4"), np.random.default_rng(0)
    small, large = (wootz.quantize(rng.standard_normal((20, 64)) * size, format) for size in (1, 50))
    prepack = lib.kernel("prepack", format="nvfp4", dtype="i8")
    out = prepack(small)
    assert prepack(large, out=out) is out
    np.testing.assert_array_equal(out.dequantize(), large.dequantize())


@pytest.mark.parametrize(
    "pattern",
    [
        *("copy/*", "binary.*", "dequant/*", "gemv*", "prepack/*", "quantize_activations/*"),
        *(
            f"{kernel}/*/{d}/*"
            for kernel in ("qgemv", "qmm")
            for d in DTYPES
            if (kernel, d) != ("qmm", "f32")
        ),
    ],
)
def test_every_cell_of_the_cpu_passes(pattern: str, wheel: Wheel, shared: Path) -> None:
    """With ml_dtypes, which bf16 needs, and so in this process's environment."""
    folder = once(shared / "unzipped", wheel.archive.extractall)
    lib = wootz.load(folder / ARTIFACTS)
    cells = [cell["key"] for cell in lib.cells() if cell["target"] == "cpu"]
    rows = list(verify.verify(lib, "cpu", pattern))
    assert [row.cell for row in rows] == sorted(fnmatch.filter(cells, pattern))
    assert [(row.cell, row.message) for row in rows if not row.passed] == []


@pytest.mark.parametrize(
    "command",
    [
        *("list --json", "build --out x", "generate --out x", "check x", "explain a b c"),
        "pack --artifacts x --name x --version 1",
        *("diff a b", "sbom a --name n --version 1"),
    ],
)
def test_the_generator_says_what_it_lacks(clean: Clean, command: str) -> None:
    done = clean.run(clean.command, *command.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"wootz: this command needs the package \w+: run: pip install 'wootz\[gen\]'\n", done.stderr
    )


def test_version_and_help_need_nothing(clean: Clean) -> None:
    assert clean.run(clean.command, "--version").stdout == f"wootz {gen.__version__}\n"
    assert "verify" in clean.run(clean.command, "--help").stdout


def test_a_damaged_artifact_is_refused(clean: Clean, wheel: Wheel, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel.path) as archive:
        archive.extractall(tmp_path)
    shutil.rmtree(tmp_path / "wootz/artifacts/cpu/copy")
    code = """
import numpy as np, wootz
try: wootz.load().kernel("copy")(np.zeros(4, np.float32))
except wootz.errors.ArtifactError as error: print(error)
"""
    assert "is missing; reinstall or rebuild" in clean.python(code, PYTHONPATH=str(tmp_path))
