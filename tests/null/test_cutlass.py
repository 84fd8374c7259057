"""Finding CUTLASS and what else only the units of device templates need."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gen.manifest.target import Target
from gen.toolchain import cutlass, install, nvcc
from gen.toolchain import find as toolchain
from gen.toolchain.find import Names, Needs, Toolchain
from gen.toolchain.tool import Tool, ToolchainError

sys.path.insert(0, str(Path(__file__).resolve().parent))
import toy

TARGET = Target("t", "cuda", arch="sm_80", capability=(8, 0))
WANTED = ".".join(cutlass.pin().split(".")[:3])


class Machine:
    """A machine with no CUTLASS but what a test puts there."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self.patch, self.said = root, patch, list[str]()
        patch.setenv("WOOTZ_CACHE", str(root / "cache"))
        patch.setenv("PATH", str(root / "bin"))
        patch.setattr(cutlass, "site_packages", lambda: iter([root / "site", root / "site2"]))
        patch.setattr(nvcc, "site_packages", lambda: iter([root / "site"]))
        patch.setattr(nvcc, "_USUAL", root / "usual")
        patch.setattr(install, "_run", self.pip)
        self.commands: list[list[str]] = []
        self.offers = ""

    def pip(self, command: list[str]) -> tuple[int, str]:
        self.commands.append(command)
        if self.offers:
            self.put(Path(command[command.index("--target") + 1]), self.offers)
        return (0, "") if self.offers else (1, "ERROR: no matching distribution")

    def put(self, folder: Path, version: str = WANTED) -> Path:
        """A copy of the headers, as the package has them."""
        root = folder / "cutlass_library/source"
        path = cutlass.version_file(root)
        path.parent.mkdir(parents=True)
        parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."))
        path.write_text("".join(f"#define CUTLASS_{part} {number}\n" for part, number in parts))
        return root

    def find(self, named: str = "") -> cutlass.Headers:
        return cutlass.find(named, self.said.append)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_the_installed_package_is_taken(machine: Machine) -> None:
    root = machine.put(machine.root / "site2")
    found = machine.find()
    assert found.version == WANTED
    assert found.folders == (str(root / "include"), str(root / "tools/util/include"))
    assert (machine.said, machine.commands) == ([], [])


def test_another_release_is_passed_over_and_the_pinned_one_installed_once(machine: Machine) -> None:
    machine.put(machine.root / "site", "3.9.2")
    machine.offers = WANTED
    found = machine.find()
    cached = machine.root / f"cache/cutlass-{cutlass.pin()}/cutlass_library/source/include"
    assert found.folders[0] == str(cached)
    (command,) = machine.commands
    assert "--no-deps" in command
    assert f"nvidia-cutlass=={cutlass.pin()}" in command
    assert any("passed over: " in said and "CUTLASS 3.9.2" in said for said in machine.said)
    assert machine.find() == found
    assert len(machine.commands) == 1


def test_a_named_folder_is_taken_or_refused(machine: Machine) -> None:
    good, old = machine.put(machine.root / "a"), machine.put(machine.root / "b", "4.1.0")
    assert machine.find(str(good)).version == WANTED
    with pytest.raises(ToolchainError, match=rf"CUTLASS 4\.1\.0; the templates are written against {WANTED}"):
        machine.find(str(old))
    with pytest.raises(ToolchainError, match=r"WOOTZ_CUTLASS=/nowhere: no CUTLASS there"):
        machine.find("/nowhere")
    cutlass.version_file(good).write_text("#define CUTLASS_MAJOR 4\n")
    with pytest.raises(ToolchainError, match="does not say which CUTLASS it is"):
        machine.find(str(good))


def test_without_network_the_error_gives_the_command(machine: Machine) -> None:
    with pytest.raises(ToolchainError) as error:
        machine.find()
    assert "no CUTLASS, and the pinned one could not be installed (ERROR: no matching" in str(error.value)
    assert f"-m pip install --no-deps nvidia-cutlass=={cutlass.pin()}" in str(error.value)
    assert "WOOTZ_CUTLASS" in str(error.value)
    assert list((machine.root / "cache").iterdir()) == []


def test_only_what_is_needed_is_looked_for(machine: Machine) -> None:
    tool = Tool((str(toy.tool(machine.root / "bin", "fake_nvcc.py", "nvcc")),), "13.0.88")
    tools = Toolchain(nvcc=tool, host=Tool(("c++",), "12"))

    def complete(needs: Needs, tools: Toolchain = tools) -> Toolchain:
        return toolchain.complete(tools, needs, TARGET, Names(), machine.said.append)

    assert complete(Needs()) == tools
    assert complete(Needs(True, True, True), Toolchain()) == Toolchain()  # nothing is compiled on such a host
    with pytest.raises(ToolchainError, match=r"no cuobjdump .* pip install 'wootz\[gen\]'"):
        complete(Needs(gates=True))
    with pytest.raises(ToolchainError, match="no CUTLASS"):
        complete(Needs(cutlass=True))
    machine.put(machine.root / "site")
    found = complete(Needs(cutlass=True))
    assert found.versions() == {"c++": "12", "nvcc": "13.0.88", "cutlass": WANTED}


def test_the_order_of_disassemblers(machine: Machine) -> None:
    tool = Tool((str(machine.root / "home/nvcc"),), "13.0.88")
    folders = ("home", "site/nvidia/cu13/bin", "bin", "usual/bin")
    places = [toy.tool(machine.root / folder, "fake_cuobjdump.py", "cuobjdump") for folder in folders]
    assert nvcc.disassembler_candidates(tool) == []  # nvdisasm is nowhere
    for folder in folders[:2]:
        toy.tool(machine.root / folder, "fake_cuobjdump.py", "nvdisasm")
    assert nvcc.disassembler_candidates(tool) == places[:2]
    toy.tool(machine.root / "bin", "fake_cuobjdump.py", "nvdisasm")
    assert nvcc.disassembler_candidates(tool) == places
    assert nvcc.find_disassembler(tool) == Tool(
        (str(places[0]),), "13.0.85", nvcc.find_disassembler(tool).identity
    )
    places[0].write_text("#!/bin/sh\nexit 1\n")
    assert nvcc.find_disassembler(tool).command == (str(places[1]),)
