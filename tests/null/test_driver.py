"""The loader and a CUDA driver: scenarios with the stand-in of libcuda, each in a process of its own, and
with none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.null import loader_tools as tools
from tests.null.fakecuda import ends

HERE = Path(__file__).parent / "fakecuda"
NAMES = [
    (file, name)
    for file in (
        "scenarios.py",
        "failures.py",
        "templates.py",
        "information.py",
        "on_demand.py",
        "plans.py",
        "faults.py",
        "devices.py",
    )
    for name in re.findall(r"^@scenario\ndef (\w+)", (HERE / file).read_text(), re.M)
]
ROOT = str(Path(__file__).parents[2])


def build(folder: Path, *flags: str) -> Path:
    target = folder / "libcuda.so.1"
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-O1", "-shared", "-fPIC", *flags]
    subprocess.run([*command, str(HERE / "fakecuda.cpp"), "-o", str(target)], check=True)
    return target


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("fakecuda"))


FORKS = "-Wignore:This process:DeprecationWarning"  # from 3.12 on, of one that has threads


def child(*arguments: str, libcuda: Path | str, **more: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([ROOT, *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "WOOTZ_LIBCUDA": str(libcuda), **more}
    return subprocess.run(
        [sys.executable, FORKS, *arguments], capture_output=True, text=True, env=environment, timeout=120
    )


def passed(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == 0 and done.stdout.endswith("passed\n") and done.stderr == ""


@pytest.mark.parametrize(("file", "name"), [each for each in NAMES if each[1] not in ("exit_", "old")])
def test_scenario(fake: Path, file: str, name: str) -> None:
    done = child(str(HERE / file), name, libcuda=fake)
    assert passed(done), done.stdout + done.stderr


def test_exit_gives_the_context_back_and_calls_nothing_after(fake: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = child(str(HERE / "failures.py"), "exit_", libcuda=fake, FAKECUDA_LOG=str(log))
    assert passed(done), done.stdout + done.stderr
    lines = log.read_text().splitlines()
    assert lines[-1] == "cuDevicePrimaryCtxRelease 0"
    assert sum(line.startswith("cuDevicePrimaryCtxRe") for line in lines) == 2


SAYS = {
    "handlers_before_and_after": "(16,)\nDeviceError the CUDA driver was given back: the process is ending",
    "an_object_launches_when_it_dies": "Error the CUDA driver was given back: the process is ending",
    "a_fork_ends_first": "DeviceError CUDA was used before this process was forked",
}


@pytest.mark.parametrize("way", ends.WAYS)
def test_ends(fake: Path, tmp_path: Path, way: str) -> None:
    """Each context that was retained is given back once, after the last other call; or no call is made."""
    _, status, released = ends.WAYS[way]
    log = tmp_path / "log"
    log.touch()
    done = child(str(HERE / "ends.py"), way, libcuda=fake, FAKECUDA_LOG=str(log))
    assert done.returncode == status, done.stderr
    assert done.stderr == "" or way == "an_exception", done.stderr
    assert SAYS.get(way, "") in done.stdout
    lines = log.read_text().splitlines()
    count = sum(line.startswith("cuDevicePrimaryCtxRetain") for line in lines)
    assert count == (0 if way == "never_used" else 2)
    ends_with = ["cuDevicePrimaryCtxRelease 0", "cuDevicePrimaryCtxRelease 1"] if released else []
    assert [line for line in lines if line.startswith("cuDevicePrimaryCtxRelease")] == ends_with
    assert lines[len(lines) - len(ends_with) :] == ends_with, lines[-5:]


def test_a_driver_without_parameter_queries(tmp_path: Path) -> None:
    done = child(str(HERE / "scenarios.py"), "launch", libcuda=build(tmp_path, "-DFAKECUDA_OLD"))
    assert passed(done), done.stdout + done.stderr


def test_a_driver_without_clusters(tmp_path: Path) -> None:
    done = child(str(HERE / "templates.py"), "old", libcuda=build(tmp_path, "-DFAKECUDA_OLD"))
    assert passed(done), done.stdout + done.stderr


CODE = """
import numpy as np, wootz
from wootz import _core, errors
for _ in range(2):
    try:
        {call}
    except errors.DeviceError as error:
        assert not isinstance(error, errors.DriverError)
        assert {message!r} in str(error), error
    else:
        raise AssertionError("no error")
print("passed")
"""


@pytest.mark.parametrize(
    "call", ["_core.cuda_device_count()", "wootz.to_device(np.zeros(4))", "_core.CudaModule(0, b'')"]
)
def test_no_driver(call: str) -> None:
    code = CODE.format(call=call, message="the CUDA driver cannot be loaded: /nonexistent/libcuda.so.1")
    done = child("-c", code, libcuda="/nonexistent/libcuda.so.1")
    assert passed(done), done.stdout + done.stderr


def test_a_driver_that_is_too_old(tmp_path: Path) -> None:
    source = tmp_path / "old.cpp"
    source.write_text('extern "C" int cuInit(unsigned) { return 0; }\n')
    library = tmp_path / "libold.so"
    subprocess.run(
        [os.environ.get("CXX", "c++"), "-shared", "-fPIC", str(source), "-o", str(library)], check=True
    )
    code = CODE.format(
        call="_core.cuda_device_count()", message="the CUDA driver is too old: it lacks cuDriverGetVersion"
    )
    done = child("-c", code, libcuda=library)
    assert passed(done), done.stdout + done.stderr


@pytest.mark.parametrize("name", ["others", "numpys"])
def test_numpy_is_imported_for_its_own_arrays_alone(fake: Path, tmp_path: Path, name: str) -> None:
    folders = str(tools.cuda_folder(tmp_path / "a")), str(tools.cpu_folder(tmp_path / "b", tools.image()))
    done = child(str(HERE / "light.py"), name, *folders, libcuda=fake)
    assert passed(done), done.stdout + done.stderr
