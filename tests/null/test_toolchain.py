"""Finding compilers: the order of the search, versions that are too old, and a machine that has none."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import pytest

from gen.manifest.target import Target
from gen.toolchain import cutlass, install, nvcc
from gen.toolchain import find as toolchain
from gen.toolchain.find import Names
from gen.toolchain.tool import Tool, ToolchainError

sys.path.insert(0, str(Path(__file__).resolve().parent))
import toy

SM80 = Target("sm_80", "cuda", arch="sm_80", capability=(8, 0))
SM90A = Target("sm_90a", "cuda", arch="sm_90a", capability=(9, 0), suffix="a")
SM120A = Target("sm_120a", "cuda", arch="sm_120a", capability=(12, 0), suffix="a")
CPU = Target("cpu", "cpu", isa=("baseline",))
METAL = Target("metal3.1", "metal", arch="metal3.1", min_os="14.0")


class Machine:
    """A machine with nothing on it but what a test installs."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.patch, self.said = root, monkeypatch, list[str]()
        for variable in ("CUDA_HOME", "CUDA_PATH", "WOOTZ_NVCC", "CXX", "WOOTZ_XCRUN", "WOOTZ_CACHE"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("PATH", str(root / "bin"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(root / "none"))
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setattr(nvcc, "site_packages", lambda: iter([root / "site"]))
        monkeypatch.setattr(nvcc, "_USUAL", root / "usual")

    def nvcc(self, folder: str, version: str = "13.0.88", codes: str = "sm_80 sm_90 sm_90a sm_120a") -> Path:
        toy.tool(self.root / folder / "real", "fake_nvcc.py", "nvcc")
        path = self.root / folder / "nvcc"
        exports = f"FAKE_NVCC_VERSION={version} FAKE_NVCC_CODES={shlex.quote(codes)}"
        path.write_text(f'#!/bin/sh\n{exports} exec "${{0%/*}}/real/nvcc" "$@"\n')
        path.chmod(0o755)
        return path

    def wheel(self, folder: str) -> Path:
        path = self.nvcc(f"{folder}/nvidia/cu13/bin")
        for part in ("nvvm/bin/cicc", "include/cuda_runtime.h"):
            file = self.root / folder / "nvidia/cu13" / part
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        return path

    def find(self, *targets: Target, named: str = "") -> Tool:
        return nvcc.find_nvcc(targets, named, self.said.append)[0]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_the_order_of_the_search(machine: Machine) -> None:
    """Each place is taken once every place before it is empty."""
    places = [
        machine.wheel("site"),
        machine.nvcc("home/bin"),
        machine.nvcc("bin"),
        machine.nvcc("usual/bin"),
        machine.wheel(f"cache/wootz/cuda-toolkit-{nvcc.PIN}"),
    ]
    machine.patch.setenv("CUDA_HOME", str(machine.root / "home"))
    named = machine.nvcc("elsewhere")
    assert nvcc.nvcc_candidates() == places
    assert nvcc.nvcc_candidates(str(named)) == [named]
    for i, place in enumerate(places):
        assert machine.find(SM80).command == (str(place),), i
        place.unlink()


def test_an_incomplete_wheel_is_no_compiler(machine: Machine) -> None:
    machine.wheel("site")
    (machine.root / "site/nvidia/cu13/nvvm/bin/cicc").unlink()
    assert nvcc.nvcc_candidates() == []


def test_a_place_that_cannot_be_looked_into_is_passed_over(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name too long for the system, as a folder that nobody may enter: a question about it is an error."""
    hidden = machine.root / ("x" * 300)
    monkeypatch.setenv("CUDA_HOME", str(hidden))
    monkeypatch.setattr(nvcc, "site_packages", lambda: iter([hidden]))
    monkeypatch.setattr(cutlass, "site_packages", lambda: iter([hidden]))
    assert nvcc.nvcc_candidates() == []
    assert cutlass.candidates("") == []


def test_a_compiler_that_is_too_old_is_passed_over_and_said_to_be(machine: Machine) -> None:
    machine.nvcc("bin", "11.5.119", "sm_80")
    good = machine.nvcc("usual/bin")
    old = [str(machine.root / "bin/nvcc")]
    assert machine.find(SM80).command == tuple(old)
    assert machine.find(SM80, SM120A).command == (str(good),)
    good.unlink()
    with pytest.raises(ToolchainError, match="could not be installed"):
        machine.find(SM80, SM120A)
    assert any(
        "nvcc 11.5.119 does not know sm_120a: target sm_120a (sm_120a) needs CUDA 12.8" in s
        for s in machine.said
    )


def test_an_nvcc_that_cannot_compress_cubins_is_passed_over(machine: Machine) -> None:
    wrapped = replace(SM80, extension="fatbin")
    machine.nvcc("bin", "12.4.131")
    old = toy.tool(machine.root / "bin", "fake_fatbinary.py", "fatbinary")
    old.write_text(old.read_text().replace("exec", "FAKE_FATBINARY_MODE=old exec"))
    good = machine.nvcc("usual/bin")
    beside = toy.tool(machine.root / "usual/bin", "fake_fatbinary.py", "fatbinary")
    assert machine.find(SM80).command == (str(machine.root / "bin/nvcc"),)
    chosen = machine.find(wrapped)
    assert chosen.command == (str(good),)
    asked, run_tool = list[str](), nvcc.run_tool
    machine.patch.setattr(nvcc, "run_tool", lambda command: asked.append(command[0]) or run_tool(command))
    tools = toolchain.find([wrapped], Names(cxx=sys.executable), machine.said.append)
    assert (tools.nvcc, tools.fatbinary) == (chosen, Tool((str(beside),), "13.0.88", ANY))
    assert asked.count(str(beside)) == 2  # --version and --help
    assert nvcc.find_fatbinary(chosen, [SM80]) is None
    seen = toolchain.fingerprint(Names())
    beside.write_text(f"{beside.read_text()}# another\n")
    assert toolchain.fingerprint(Names()) != seen
    beside.write_text("#!/bin/sh\necho no such option\nexit 3\n")
    with pytest.raises(ToolchainError, match=r"is no fatbinary that works .*status 3.*no such option"):
        machine.find(wrapped, named=str(good))
    beside.unlink()
    with pytest.raises(ToolchainError, match="could not be installed"):
        machine.find(wrapped)
    said = "\n".join(machine.said)
    assert "bin/fatbinary: fatbinary 13.0.88 has no --compress-mode" in said
    assert "usual/bin/nvcc: no fatbinary beside it" in said


def test_the_fatbinary_of_an_nvcc_that_is_a_link(machine: Machine) -> None:
    real = machine.nvcc("toolkit")
    beside = toy.tool(machine.root / "toolkit", "fake_fatbinary.py", "fatbinary")
    link = machine.root / "bin/nvcc"
    link.parent.mkdir()
    link.symlink_to(real)
    assert nvcc.fatbinary_candidates(link) == [beside]


def test_a_named_compiler_is_taken_or_refused(machine: Machine) -> None:
    machine.nvcc("bin")
    old = machine.nvcc("old", "11.5.119", "sm_80")
    with pytest.raises(
        ToolchainError, match=r"does not know sm_90a: target sm_90a \(sm_90a\) needs CUDA 12\.0 or newer"
    ):
        machine.find(SM90A, named=str(old))
    with pytest.raises(ToolchainError, match="no such nvcc"):
        machine.find(SM80, named=str(machine.root / "nowhere"))
    broken = machine.root / "bin" / "broken"
    broken.write_text("#!/bin/sh\necho no such option\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(ToolchainError, match=r"is no nvcc that works .*status 3.*no such option"):
        machine.find(SM80, named=str(broken))


@pytest.mark.parametrize(
    ("capability", "suffix", "expected"),
    [
        ((9, 0), "a", "CUDA 12.0 or newer"),
        ((10, 0), "f", "CUDA 12.9 or newer"),
        ((12, 0), "a", "CUDA 12.8 or newer"),
        ((7, 0), "", "CUDA 12.9 or older (13.0 dropped everything before 7.5)"),
        ((13, 0), "a", "a newer CUDA (or the arch is misspelt)"),
    ],
)
def test_least_versions(capability: tuple[int, int], suffix: str, expected: str) -> None:
    assert nvcc.least_version(Target("t", "cuda", capability=capability, suffix=suffix)) == expected


def test_with_no_compiler_and_no_network_the_error_gives_the_command(machine: Machine) -> None:
    with pytest.raises(ToolchainError) as error:
        machine.find(SM80)
    assert f"run: {sys.executable} -m pip install '{nvcc.PINNED}'" in str(error.value)
    assert "--nvcc" in str(error.value)
    assert any("no nvcc on this machine: installing" in said for said in machine.said)
    assert list((machine.root / "cache/wootz").iterdir()) == []  # nothing half-installed


def test_the_pinned_compiler_is_installed_once(machine: Machine) -> None:
    def pip(command: list[str]) -> tuple[int, str]:
        staged = Path(command[command.index("--target") + 1])
        machine.wheel(str(staged.relative_to(machine.root)))
        return 0, ""

    machine.patch.setattr(install, "_run", pip)
    tool = machine.find(SM80)
    assert tool.command == (str(machine.root / f"cache/wootz/cuda-toolkit-{nvcc.PIN}/nvidia/cu13/bin/nvcc"),)
    assert any(nvcc.PINNED in said for said in machine.said)
    machine.said.clear()
    assert machine.find(SM80) == tool
    assert machine.said == []


def test_a_cache_that_cannot_be_written_is_an_error_of_its_own(machine: Machine) -> None:
    (machine.root / "cache").write_text("a file")
    with pytest.raises(ToolchainError, match=r"no nvcc, and .*cuda-toolkit-.*: Not a directory; run: "):
        machine.find(SM80)


def test_host_compilers(machine: Machine) -> None:
    with pytest.raises(ToolchainError, match=r"no C\+\+ compiler .* apt-get install g\+\+"):
        toolchain.find_host([CPU], "")
    with pytest.raises(ToolchainError, match="CXX=gpp: no such compiler"):
        toolchain.find_host([CPU], "gpp")
    with pytest.raises(ToolchainError, match=r'CXX=g.. ": No closing quotation; want a command'):
        toolchain.find_host([CPU], 'g++ "')
    script = machine.root / "bin" / "g++"
    script.parent.mkdir(exist_ok=True)
    script.write_text(
        '#!/bin/sh\ncase "$*" in *--version*) echo "g++ 9.1";; *march*) echo "bad value"; exit 1;; esac\n'
    )
    script.chmod(0o755)
    assert toolchain.find_host([CPU], "").version == "g++ 9.1"
    assert toolchain.find_host([CPU], "g++ -m64").command == ("g++", "-m64")
    machine.patch.setattr(toolchain.platform, "machine", lambda: "x86_64")
    with pytest.raises(ToolchainError, match="does not know x86-64-v3: bad value"):
        toolchain.find_host([Target("cpu", "cpu", isa=("x86-64-v3",))], "")


@pytest.mark.parametrize(
    ("isa", "machine_", "expected"),
    [
        ("baseline", "riscv64", True),
        ("x86-64-v3", "x86_64", True),
        ("x86-64-v3", "aarch64", False),
        ("", "any", True),
        ("armv8.2-a", "aarch64", True),
        ("armv8.2-a", "x86_64", False),
    ],
)
def test_instruction_sets(monkeypatch: pytest.MonkeyPatch, isa: str, machine_: str, expected: bool) -> None:
    monkeypatch.setattr(toolchain.platform, "machine", lambda: machine_)
    assert toolchain.runs_here(isa) is expected


def test_metal(machine: Machine) -> None:
    machine.patch.setattr(toolchain.platform, "system", lambda: "Linux")
    assert toolchain.find([METAL], Names(), machine.said.append) == toolchain.Toolchain()
    xcrun = toy.tool(machine.root / "bin", "fake_xcrun.py", "xcrun")
    tools = toolchain.find([METAL], Names(xcrun=str(xcrun)), machine.said.append)
    assert tools.versions() == {"metal": "FAKE metal version 0.0 (not Apple)"}
    machine.patch.setattr(toolchain.platform, "system", lambda: "Darwin")
    assert toolchain.find([METAL, SM80], Names(cxx=sys.executable), machine.said.append).builds(METAL)
    machine.patch.setenv("FAKE_XCRUN_MODE", "no_toolchain")
    with pytest.raises(
        ToolchainError, match=r"no Metal compiler: .*; run: xcodebuild -downloadComponent MetalToolchain"
    ):
        toolchain.find_xcrun("")


def test_the_fingerprint_moves_with_the_tools(machine: Machine) -> None:
    before = toolchain.fingerprint(Names())
    path = machine.nvcc("bin")
    after = toolchain.fingerprint(Names())
    assert before != after
    path.write_text("#!/bin/sh\n")
    assert toolchain.fingerprint(Names()) != after
    assert str(path) in [row[0] for row in after]
