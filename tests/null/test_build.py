"""The build over a toy emitter: what is done, what is not done again, and what happens when things go
wrong."""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gen.build import elf, index, metallib, options
from gen.build import stages as build
from gen.plan import cells as plan
from gen.toolchain import find as toolchain

sys.path.insert(0, str(Path(__file__).resolve().parent))
import toy

CUBINS = ("copy", "dequant/a4", "dequant/b4")
TOY = str(Path(__file__).resolve().parent / "toy.py")


class Bench:
    """A manifest, doubles of the compilers, and the command line over them."""

    def __init__(self, root: Path) -> None:
        self.root, self.out = root, root / "out"
        self.log, self.wraps = root / "nvcc.log", root / "fatbinary.log"
        toy.tool(root / "bin", "fake_nvcc.py", "nvcc")
        toy.tool(root / "bin", "fake_fatbinary.py", "fatbinary")
        toy.tool(root / "bin", "fake_xcrun.py", "xcrun")
        self.manifest = root / "m.yaml"
        self.formats({"a4": 32, "b4": 64})

    def formats(self, formats: dict[str, int]) -> None:
        toy.manifest(self.manifest, formats)

    def command(self, *args: str, verb: str = "build") -> list[str]:
        nvcc = ["--nvcc", str(self.root / "bin/nvcc"), "-j", "4"] if verb == "build" else []
        fixed = [
            "--manifest",
            str(self.manifest),
            "--out",
            str(self.out),
            "--evidence",
            str(self.root / "evidence"),
        ]
        return [sys.executable, TOY, verb, *fixed, *nvcc, *args]

    def environment(self, **changes: str) -> dict[str, str]:
        xcrun = str(self.root / "bin/xcrun")
        logs = {"FAKE_NVCC_LOG": str(self.log), "FAKE_FATBINARY_LOG": str(self.wraps)}
        fixed = {"WOOTZ_XCRUN": xcrun, **logs, "TMPDIR": str(self.root)}
        return toy.environment(**{**fixed, **changes})

    def run(
        self, *args: str, verb: str = "build", child: Callable[[], None] | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        for log in (self.log, self.wraps):
            log.unlink(missing_ok=True)
        return subprocess.run(
            self.command(*args, verb=verb),
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            preexec_fn=child,
            check=False,
        )

    def build(self, *args: str, **environment: str) -> dict[str, int]:
        """A build that must succeed; gives the total of each count."""
        done = self.run(*args, "--json", **environment)
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)["rows"]
        return {key: sum(row[key] for row in rows) for key in rows[0] if isinstance(rows[0][key], int)}

    def compiled(self) -> set[str]:
        """What the double of nvcc compiled in the last run."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return {word for line in lines for word in line.split() if word.endswith(".cu")}

    def wrapped(self) -> list[str]:
        """What the double of fatbinary was given in the last run: a line of cubin, architecture and mode."""
        return sorted(self.wraps.read_text().splitlines()) if self.wraps.exists() else []

    def files(self) -> dict[str, bytes]:
        """Everything in the folder that is shipped."""
        inside = {p: p.relative_to(self.out) for p in self.out.rglob("*") if p.is_file()}
        mine = ("cubin", ".wootz", "build.ninja")
        return {str(name): p.read_bytes() for p, name in inside.items() if name.parts[0] not in mine}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_build_makes_every_artifact_and_a_valid_index(bench: Bench) -> None:
    counts = bench.build()
    assert counts["jobs"] == counts["compiled"] == 3 * 2 * 4  # copy, two dequant; two dtypes; four targets
    assert index.validate(bench.out) == []
    cells = index.cell_keys(index.read(bench.out / "index.json")["cells"])
    assert len(cells) == 24
    cell = cells["dequant/a4/f32/sm_90a"]
    assert cell["files"][0]["file"] == "fatbin/dequant/a4/sm_90a.fatbin"
    assert cell["source"] == "src/dequant/a4/sm_90a.cu"
    assert cell["source_size"] == (bench.out / cell["source"]).stat().st_size
    assert cell["source_kind"] in index.read(bench.out / "index.json")["nvrtc"]
    assert cell["evidence"] == ["emitted", "compiled"]
    assert [e["symbol"] for e in cell["entries"]] == ["wootz_dequant_a4_f32"]
    assert cells["copy/-/f32/cpu"]["format"] is None
    assert {p.stat().st_mode & 0o777 for p in bench.out.rglob("*.*") if p.is_file()} == {0o644}
    library = metallib.parse((bench.out / "metallib/dequant/a4/metal3.1.metallib").read_bytes())
    assert library.os_version == (14, 0)
    assert library.fake  # and so a release check can tell


def test_every_source_begins_with_its_provenance(bench: Bench) -> None:
    assert bench.run(verb="generate").returncode == 0
    sources = sorted((bench.out / "src").rglob("*.*"))
    assert len(sources) == 12
    first = (bench.out / "src/dequant/a4/sm_90a.cu").read_text().splitlines()[0]
    assert first == "// Generated by wootz 0.1.0: kernel dequant, format a4, target sm_90a. Do not edit."
    for path in sources:
        head, text = path.read_text().split("\n", 1)
        assert head.startswith("// Generated by wootz "), path
        assert str(bench.root) not in head + text
    assert not (bench.out / "index.json").exists()


def test_a_second_build_runs_no_command_and_is_quick(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.build()
    before = _times(bench.out)
    start, used = time.monotonic(), _work_of_children()
    counts = bench.build()
    assert min(time.monotonic() - start, _work_of_children() - used) < 1.0  # the machine may be busy
    assert (counts["compiled"], counts["current"]) == (0, 24)
    assert _times(bench.out) == before

    toy.install(monkeypatch)
    for variable, value in bench.environment().items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(subprocess, "Popen", None)  # any command would be an error
    names = toolchain.Names.from_environment(str(bench.root / "bin/nvcc"))
    wanted = options.Options(bench.manifest, plan.Request(), bench.out, bench.root / "evidence", 4, names)
    summary = build.build(wanted, options.Output(lambda text: None, lambda *step: None))
    assert sum(row.current for row in summary.rows) == 24


def _work_of_children() -> float:
    """Seconds of CPU that ended children have taken."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _times(folder: Path) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


def test_one_more_format_compiles_that_format_only(bench: Bench) -> None:
    bench.build()
    before = bench.files()
    bench.formats({"a4": 32, "b4": 64, "fresh": 16})
    counts = bench.build()
    assert (counts["compiled"], counts["current"]) == (8, 24)
    assert bench.compiled() == {"src/dequant/fresh/sm_80.cu", "src/dequant/fresh/sm_90a.cu"}
    after = bench.files()
    assert {f for f in after if before.get(f) != after[f] and "/fresh/" not in f} == {"index.json"}


def test_a_changed_format_is_built_again_and_a_removed_one_is_not_shipped(bench: Bench) -> None:
    bench.build()
    bench.formats({"a4": 128})
    counts = bench.build()
    assert (counts["jobs"], counts["compiled"], counts["current"]) == (16, 8, 8)
    assert bench.compiled() == {"src/dequant/a4/sm_80.cu", "src/dequant/a4/sm_90a.cu"}
    assert not [f for f in bench.files() if "b4" in f]
    assert not (bench.out / "cubin/dequant/b4").exists()
    assert not (bench.out / "fatbin/dequant/b4").exists()


def test_files_that_are_not_the_builds_own_stay(bench: Bench) -> None:
    bench.out.mkdir()
    mine = bench.out / "src" / "notes.txt"
    mine.parent.mkdir()
    mine.write_text("keep me")
    bench.build()
    bench.formats({"a4": 32})
    bench.build()
    assert mine.read_text() == "keep me"


@pytest.mark.parametrize("verb", ["build", "generate"])
@pytest.mark.parametrize("name", ["index.json", "build.ninja"])
def test_a_folder_of_another_program_is_left_alone(bench: Bench, name: str, verb: str) -> None:
    bench.out.mkdir()
    (bench.out / name).write_text("{}")
    done = bench.run(verb=verb)
    assert (done.returncode, done.stderr) == (
        1, f"wootz: {bench.out}: holds {name}, which no build of wootz wrote; choose another --out\n"
    )  # fmt: skip
    assert [path.read_text() for path in bench.out.iterdir()] == ["{}"]


def test_a_folder_without_the_builds_records_is_built_in(bench: Bench) -> None:
    bench.build()
    before = bench.files()
    shutil.rmtree(bench.out / ".wootz")
    bench.build()
    assert bench.files() == before


@pytest.mark.parametrize(
    "path",
    [
        "fatbin/copy/sm_80.fatbin",
        "cubin/copy/sm_80.cubin",
        "src/copy/sm_80.cu",
        "index.json",
        ".wootz/units.jsonl",
    ],
)
@pytest.mark.parametrize("damage", ["edit", "remove"])
def test_damage_is_repaired(bench: Bench, path: str, damage: str) -> None:
    bench.build()
    before, cubin = bench.files(), bench.out / "cubin/copy/sm_80.cubin"
    audited = cubin.read_bytes()
    if damage == "edit":
        (bench.out / path).write_bytes(b"#error edited")
    else:
        (bench.out / path).unlink()
    bench.build()
    assert (bench.files(), cubin.read_bytes()) == (before, audited)


def test_another_version_of_a_compiler_compiles_again(bench: Bench) -> None:
    bench.build()
    (bench.root / "bin/nvcc").touch()
    assert bench.build(FAKE_NVCC_VERSION="13.1.0")["compiled"] == 12
    assert index.read(bench.out / "index.json")["compilers"]["nvcc"] == "13.1.0"


def test_a_changed_header_compiles_again(bench: Bench) -> None:
    """The second build is not fooled by its stamp: what a compiler read is part of it."""
    header = bench.root / "nvcc.h"
    header.write_text("1")
    script = bench.root / "bin/nvcc"
    note = f"for a; do case $a in *.cubin.d) printf '%s: %s\\n' \"${{a%.d}}\" {header} > $a;; esac; done"
    script.write_text(script.read_text().replace("exec ", "") + f"code=$?\n{note}\nexit $code\n")
    assert bench.build()["compiled"] == 24
    assert bench.build()["compiled"] == 0
    header.write_text("2")
    assert bench.build()["compiled"] == 12


def test_two_folders_hold_the_same_bytes(bench: Bench) -> None:
    bench.build()
    first = bench.files()
    bench.out = bench.root / "another place" / "deeper"
    bench.build()
    assert bench.files() == first
    assert not [f for f, data in first.items() if str(bench.root).encode() in data]


def test_a_narrower_request_leaves_what_it_asks_for(bench: Bench) -> None:
    bench.build()
    assert bench.build("--targets", "sm_80", "--formats", "a4")["current"] == 2
    assert set(bench.files()) == {"index.json", "src/dequant/a4/sm_80.cu", "fatbin/dequant/a4/sm_80.fatbin"}


def test_metal_is_emitted_where_nothing_compiles_it(bench: Bench) -> None:
    if sys.platform == "darwin":
        pytest.skip("this host compiles Metal")
    counts = bench.build(WOOTZ_XCRUN="")
    assert (counts["compiled"], counts["emitted"]) == (18, 6)
    cells = index.cell_keys(index.read(bench.out / "index.json")["cells"])
    metal = cells["copy/-/f32/metal3.1"]
    assert (metal["files"], metal["evidence"]) == ([], ["emitted"])
    assert (bench.out / metal["source"]).is_file()
    assert index.validate(bench.out) == []
    assert bench.build("--targets", "metal3.1", WOOTZ_XCRUN="")["emitted"] == 6  # no ninja to run at all


def test_evidence_is_picked_up_while_its_hash_matches(bench: Bench) -> None:
    bench.build()
    source = index.cell_keys(index.read(bench.out / "index.json")["cells"])["copy/-/f32/sm_80"][
        "source_sha256"
    ]
    rows = [
        {"cell": "copy/-/f32/sm_80", "source_sha256": source, "pass": True},
        {"cell": "copy/-/f16/sm_80", "source_sha256": "0" * 64, "pass": True},
    ]
    (bench.root / "evidence").mkdir()
    (bench.root / "evidence/gpu.json").write_text(json.dumps({"device": "A GPU", "cells": rows}))
    assert bench.build()["compiled"] == 0
    cells = index.cell_keys(index.read(bench.out / "index.json")["cells"])
    assert cells["copy/-/f32/sm_80"]["evidence"] == ["emitted", "compiled", "executed:A GPU"]
    assert cells["copy/-/f16/sm_80"]["evidence"] == ["emitted", "compiled"]


def test_the_real_compilers_make_the_same_bytes_in_any_folder(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "another place" / "deeper"]
    for out in folders:
        plain = [sys.executable, "-m", "gen", "build", "--out", str(out)]
        which = ["--targets", "cpu", "sm_90a", "--kernels", "copy", "--evidence", str(tmp_path)]
        done = subprocess.run(
            plain + which, cwd=toy.ROOT, env=toy.environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert index.validate(out) == []
    shipped = [
        p.relative_to(folders[0])
        for p in folders[0].rglob("*")
        if p.suffix in (".cu", ".cpp", ".cubin", ".fatbin", ".so", ".json")
    ]
    shipped = [p for p in shipped if ".wootz" not in p.parts]
    assert {p.suffix for p in shipped} == {".cu", ".cpp", ".cubin", ".fatbin", ".so", ".json"}
    for path in shipped:
        data = (folders[0] / path).read_bytes()
        assert data == (folders[1] / path).read_bytes(), path
        assert str(tmp_path).encode() not in data, path
    cubin, fatbin = (folders[0] / f"{kind}/copy/sm_90a.{kind}" for kind in ("cubin", "fatbin"))
    assert elf.cubin_arch(elf.parse(cubin.read_bytes())) == "sm_90a"
    assert 2 * fatbin.stat().st_size < cubin.stat().st_size
    libraries = [elf.needed(elf.parse(p.read_bytes())) for p in (folders[0] / "cpu").rglob("*.so")]
    assert all(not re.search("torch|cuda|stdc", " ".join(names)) for names in libraries)


# Failures


def _nothing_half_written(bench: Bench) -> None:
    left = [p for p in bench.out.rglob("*") if p.name.endswith((".tmp", ".d")) or p.name.startswith(".index")]
    assert left == []


def test_a_compiler_that_fails_is_quoted_and_the_rest_is_built(bench: Bench) -> None:
    bench.build()
    bench.formats({"a4": 32, "bad": 32, "b4": 64, "more": 32})
    done = bench.run()
    assert done.returncode == 1
    for target in ("cpu", "metal3.1", "sm_80", "sm_90a"):
        line = next(
            line for line in done.stderr.splitlines() if line.startswith(f"wootz: dequant/bad/{target}: ")
        )
        assert "its compiler failed" in line
    assert "error: #error directive: planted" in done.stderr
    assert "4 of the plan's parts could not be built" in done.stderr
    assert (bench.out / "cubin/dequant/more/sm_90a.cubin").is_file()
    assert not (bench.out / "cubin/dequant/bad/sm_90a.cubin").exists()
    assert not (bench.out / "fatbin/dequant/bad/sm_90a.fatbin").exists()
    assert not (bench.out / "index.json").exists()
    _nothing_half_written(bench)
    bench.formats({"a4": 32, "b4": 64, "more": 32})
    assert bench.build()["current"] == 32  # what was built stays built


def test_what_a_compiler_that_succeeds_prints_is_passed_on(bench: Bench) -> None:
    script = bench.root / "bin/nvcc"
    script.write_text(script.read_text().replace("exec ", "echo ptxas warning: spills >&2; exec "))
    done = bench.run("--targets", "sm_80", "--kernels", "copy")
    assert (done.returncode, done.stderr) == (0, "wootz: nvcc copy/-/sm_80: ptxas warning: spills\n")


def test_a_failure_leaves_no_artifact_of_an_earlier_compiler(bench: Bench) -> None:
    bench.build()
    (bench.root / "bin/nvcc").touch()
    done = bench.run(FAKE_NVCC_VERSION="13.1.0", FAKE_NVCC_MODE="nothing")
    assert done.returncode == 1
    assert [p for p in bench.out.rglob("*") if p.suffix in (".cubin", ".fatbin")] == []


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("nothing", "its compiler failed: it made no file, and reported success"),
        ("wrong_arch", "was built for sm_52, wanted sm_80"),
        ("no_entry", "lacks the entry wootz_copy_f16"),
        ("truncated", "section table ends at byte"),
    ],
)
def test_a_status_of_0_proves_nothing(bench: Bench, mode: str, expected: str) -> None:
    done = bench.run(FAKE_NVCC_MODE=mode)
    assert done.returncode == 1
    message = next(line for line in done.stderr.splitlines() if line.startswith("wootz: copy/-/sm_80: "))
    assert expected in message
    assert [p for p in bench.out.rglob("*") if p.suffix in (".cubin", ".fatbin")] == []
    _nothing_half_written(bench)
    assert bench.build()["jobs"] == 24


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("empty", "lacks the entry wootz_copy_f16"), ("new_os", "needs OS 99.0, wanted 14.0 or older")],
)
def test_metal_libraries_are_looked_into(bench: Bench, mode: str, expected: str) -> None:
    done = bench.run("--targets", "metal3.1", FAKE_XCRUN_MODE=mode)
    assert done.returncode == 1
    assert f"wootz: copy/-/metal3.1: metallib/copy/metal3.1.metallib: {expected}" in done.stderr


def test_two_builds_at_once(bench: Bench) -> None:
    with subprocess.Popen(
        bench.command(), env=bench.environment(FAKE_NVCC_MODE="slow"), stderr=subprocess.DEVNULL
    ) as first:
        _wait_for(lambda: list(bench.out.rglob("*.cubin.tmp")))
        second = bench.run()
        assert second.returncode == 1
        assert second.stderr.splitlines()[-1] == (
            f"wootz: {bench.out}: another wootz (process {first.pid}) is building or packing here; "
            "wait, or use another --out"
        )
        first.send_signal(signal.SIGINT)
        assert first.wait(20) == 130
    assert bench.build()["jobs"] == 24


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_can_be_taken_up_again(bench: Bench, number: signal.Signals) -> None:
    process = subprocess.Popen(
        bench.command(), env=bench.environment(FAKE_NVCC_MODE="slow"), stderr=subprocess.PIPE, text=True
    )
    _wait_for(lambda: list(bench.out.rglob("*.cubin.tmp")))
    process.send_signal(number)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130
    assert error.splitlines()[-1] == "wootz: interrupted"
    assert not (bench.out / "index.json").exists()
    assert list(bench.out.rglob("*.cubin")) == []
    _nothing_half_written(bench)
    assert bench.build()["jobs"] == 24
    assert index.validate(bench.out) == []


def _wait_for(condition: Callable[[], object]) -> None:
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def _obey_permissions() -> None:
    """Take from root what lets it write anywhere (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH)."""
    for capability in (1, 2):
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="drops Linux capabilities")
@pytest.mark.parametrize("verb", ["build", "generate"])
def test_a_folder_that_cannot_be_written(bench: Bench, verb: str) -> None:
    bench.out.mkdir()
    bench.out.chmod(0o555)
    done = bench.run(verb=verb, child=_obey_permissions)
    assert done.returncode == 1
    assert done.stderr == (
        f"wootz: {bench.out}/.wootz: cannot make the folder: Permission denied; "
        "check the folder's permissions and the space left, or choose another --out\n"
    )
    assert list(bench.out.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="drops Linux capabilities")
def test_a_subfolder_that_cannot_be_written(bench: Bench) -> None:
    bench.build()
    folder = bench.out / "src/dequant/a4"
    folder.chmod(0o555)
    bench.formats({"a4": 128, "b4": 64})
    done = bench.run(child=_obey_permissions)
    assert done.returncode == 1
    assert f"wootz: {folder}/" in done.stderr
    assert "Permission denied" in done.stderr
    assert not (bench.out / "index.json").exists()


def test_an_output_that_is_a_file(bench: Bench) -> None:
    bench.out.write_text("")
    done = bench.run()
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cannot make the folder: " in done.stderr


def test_a_full_disk(bench: Bench) -> None:
    """A limit on the size of files stands for a full disk: a write stops in its middle."""
    bench.formats({f"f{i}": 32 for i in range(20)})
    done = bench.run(
        "--targets", "sm_80", child=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"wootz: {bench.out}/" in done.stderr
    assert "cannot write: File too large" in done.stderr
    assert not (bench.out / "index.json").exists()
    assert [p for p in bench.out.rglob("*") if p.name.endswith(".tmp")] == []
    assert bench.build("--targets", "sm_80")["jobs"] == 42


def test_a_disk_that_fills_while_compiling(bench: Bench) -> None:
    if sys.platform != "linux":
        pytest.skip("the double of nvcc is told its limit by the shell")
    script = bench.root / "bin/nvcc"
    script.write_text(script.read_text().replace("exec ", "ulimit -f 0; exec "))
    done = bench.run("--targets", "sm_80")
    assert done.returncode == 1
    assert "wootz: copy/-/sm_80: cubin/copy/sm_80.cubin: its compiler failed" in done.stderr
    _nothing_half_written(bench)


def test_no_compiler_and_no_network(bench: Bench) -> None:
    environment = bench.environment(
        PIP_NO_INDEX="1", WOOTZ_CACHE=str(bench.root / "cache"), WOOTZ_NVCC="/nowhere/nvcc"
    )
    command = [word for word in bench.command() if word not in ("--nvcc", str(bench.root / "bin/nvcc"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "wootz: /nowhere/nvcc: no such nvcc (--nvcc, WOOTZ_NVCC)\n")
    assert not bench.out.exists()


def test_a_ninja_that_dies_is_no_success(bench: Bench) -> None:
    """All artifacts of the last build are there, and yet nothing says that they are up to date."""
    bench.build()
    site = bench.root / "site"
    (site / "ninja").mkdir(parents=True)
    toy.tool(site / "ninja", "nothing", "ninja").write_text("#!/bin/sh\nkill -9 $$\n")
    (site / "ninja/__init__.py").write_text(f"BIN_DIR = {str(site / 'ninja')!r}\n")
    (bench.out / ".wootz/stamp.json").unlink()
    done = bench.run(PYTHONPATH=str(site))
    assert done.returncode == 1
    assert done.stderr == f"wootz: {bench.out}: ninja stopped with status -9; build again\n"
    assert not (bench.out / "index.json").exists()
    bench.formats({"a4": 128, "b4": 64})
    assert bench.run(PYTHONPATH=str(site)).returncode == 1
    assert not list(bench.out.glob("*bin/dequant/a4/*"))  # they were of another source
    counts = bench.build()
    assert (counts["compiled"], counts["current"]) == (8, 16)


# What ships of cubins


WRAPS = [f"cubin/{cell}/{sm}.cubin {sm[3:]} size" for cell in CUBINS for sm in ("sm_80", "sm_90a")]


def test_cubins_ship_compressed(bench: Bench) -> None:
    counts = bench.build()
    assert bench.wrapped() == WRAPS
    cell = index.cell_keys(index.read(bench.out / "index.json")["cells"])["copy/-/f32/sm_90a"]
    cubin = (bench.out / "cubin/copy/sm_90a.cubin").read_bytes()
    data = (bench.out / "fatbin/copy/sm_90a.fatbin").read_bytes()
    assert data[16:] == cubin  # the double's; fatbinary compresses it
    told = {"file": "fatbin/copy/sm_90a.fatbin", "size": len(data), "sha256": index.sha256(data), "isa": ""}
    assert cell["files"] == [told]
    others = [p for p in bench.out.rglob("*") if p.suffix in (".fatbin", ".so", ".metallib")]
    assert counts["bytes"] == sum(p.stat().st_size for p in others)  # of what ships
    assert (bench.build()["current"], bench.wrapped()) == (24, [])


def test_only_what_changed_is_wrapped_again(bench: Bench) -> None:
    bench.build()
    bench.formats({"a4": 32, "b4": 64, "fresh": 16})
    bench.build()
    assert [line.split("/")[2] for line in bench.wrapped()] == ["fresh", "fresh"]
    (bench.root / "bin/fatbinary").touch()
    assert bench.build(FAKE_FATBINARY_VERSION="13.1.0")["compiled"] == 0
    assert len(bench.wrapped()) == len(WRAPS) + 2


def test_a_folder_whose_cubins_shipped_plain_is_wrapped_and_not_compiled(bench: Bench) -> None:
    """As builds left them before there were fat binaries."""
    bench.build()
    before = bench.files()
    shutil.rmtree(bench.out / "fatbin")
    units, artifacts = (bench.out / f".wootz/{file}" for file in ("units.jsonl", "artifacts.json"))
    units.write_text(re.sub(r'"inputs":"\w+"', '"inputs":""', units.read_text()).replace("fatbin", "cubin"))
    rows = json.loads(artifacts.read_text())
    artifacts.write_text(json.dumps({path: row for path, row in rows.items() if "fatbin" not in path}))
    (bench.out / ".wootz/stamp.json").unlink()
    counts = bench.build()
    assert (counts["compiled"], counts["current"], bench.compiled()) == (0, 24, set())
    assert bench.wrapped() == WRAPS
    assert bench.files() == before


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("fails", r"cannot be made of cubin/copy/sm_80\.cubin \(.*fatbinary: status 1\): .* planted"),
        ("nothing", r"was not made \(.*fatbinary reported success\)"),
        ("half", r"is a fat binary of \d+ bytes, of which \d+ are there"),
        ("other", "is no fat binary: it begins with 0x464c457f"),
    ],
)
def test_a_cubin_that_cannot_be_wrapped(bench: Bench, mode: str, expected: str) -> None:
    done = bench.run(FAKE_FATBINARY_MODE=mode)
    assert done.returncode == 1
    assert re.search(rf"wootz: copy/-/sm_80: fatbin/copy/sm_80\.fatbin: {expected}", done.stderr)
    assert list(bench.out.rglob("*.fatbin")) == []
    assert not (bench.out / "index.json").exists()
    _nothing_half_written(bench)
    assert bench.build()["compiled"] == 0  # the cubins were good
    assert bench.wrapped() == WRAPS


def test_a_build_that_is_killed_leaves_no_half_of_a_fat_binary(bench: Bench) -> None:
    command, environment = bench.command(), bench.environment(FAKE_FATBINARY_MODE="slow")
    with subprocess.Popen(
        command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL
    ) as first:
        _wait_for(lambda: list(bench.out.rglob("*.fatbin.tmp")))
        os.killpg(first.pid, signal.SIGKILL)
    assert list(bench.out.rglob("*.fatbin")) == []
    assert bench.build()["jobs"] == 24
    assert bench.wrapped() == WRAPS
    assert index.validate(bench.out) == []
    _nothing_half_written(bench)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("old", "bin/fatbinary: fatbinary 13.0.88 has no --compress-mode, which cubins ship with"),
        ("gone", "bin/nvcc: no fatbinary beside it, which compresses cubins"),
    ],
)
def test_a_toolkit_that_cannot_wrap(bench: Bench, mode: str, expected: str) -> None:
    if mode == "gone":
        (bench.root / "bin/fatbinary").unlink()
    done = bench.run(FAKE_FATBINARY_MODE=mode)
    assert done.returncode == 1
    assert expected in done.stderr
    assert "CUDA 12.8 or newer" in done.stderr
    assert not bench.out.exists()
    assert bench.build("--targets", "cpu", FAKE_FATBINARY_MODE=mode)["failed"] == 0  # which needs none


# Prebuilt folders


def test_a_prebuilt_folder_is_checked_against_the_manifest(bench: Bench) -> None:
    bench.build()
    assert bench.run("--prebuilt").returncode == 0
    bench.formats({"a4": 128, "c4": 64})
    done = bench.run("--prebuilt")
    assert done.returncode == 1
    assert "wootz: dequant/a4/f32/sm_80: was built from another source" in done.stderr
    assert "wootz: dequant/c4/f32/sm_80: is not in the index" in done.stderr
    assert "wootz: dequant/b4/f32/sm_80: is in the index, but not in the plan" in done.stderr
    assert bench.compiled() == set()


def test_a_prebuilt_folder_is_audited(bench: Bench) -> None:
    bench.build()
    (bench.out / "fatbin/copy/sm_80.fatbin").write_bytes(b"edited")
    done = bench.run("--prebuilt")
    assert done.returncode == 1
    assert "fatbin/copy/sm_80.fatbin is not the file that was indexed" in done.stderr


def test_a_prebuilt_folder_that_ships_plain_cubins_is_refused(bench: Bench) -> None:
    """A wheel takes folders by their names, and there is none for these."""
    bench.build()
    path = bench.out / "index.json"
    path.write_text(re.sub(r"fatbin/(\S+?)\.fatbin", r"cubin/\1.cubin", path.read_text()))
    done = bench.run("--prebuilt")
    assert done.returncode == 1
    wanted = "ships as cubin/copy/sm_80.cubin, wanted fatbin/copy/sm_80.fatbin"
    assert f"wootz: copy/-/f16/sm_80: {wanted}" in done.stderr


def test_a_plan_of_nothing_is_an_error(bench: Bench) -> None:
    done = bench.run("--kernels", "copy", "--formats", "a4")
    assert done.returncode == 2
    assert "nothing to build: no kernel of copy is for a target of cpu, sm_80" in done.stderr
    assert not bench.out.exists()


# --- kernels of device templates: gates and host stubs ---

STUBS = {"TOY_STUBS": toy.STUB}


@pytest.fixture
def stubbed(bench: Bench) -> Bench:
    toy.tool(bench.root / "bin", "fake_cuobjdump.py", "cuobjdump")
    toy.tool(bench.root / "bin", "fake_cuobjdump.py", "nvdisasm")
    return bench


def test_a_host_stub_is_built_and_indexed(stubbed: Bench) -> None:
    counts = stubbed.build(**STUBS)
    assert counts["failed"] == 0
    assert index.validate(stubbed.out) == []
    cell = index.cell_keys(index.read(stubbed.out / "index.json")["cells"])["dequant/a4/f32/sm_90a"]
    path = stubbed.out / cell["stub"]["file"]
    assert cell["stub"]["file"] == "stub/dequant/a4/sm_90a.so"
    assert (path.stat().st_size, path.stat().st_mode & 0o777) == (cell["stub"]["size"], 0o644)
    stub = ctypes.CDLL(str(path))
    stub.wootz_stub_build.restype = ctypes.c_char_p
    assert stub.wootz_stub_build().decode() == cell["source_sha256"]
    text = (stubbed.out / "src/dequant/a4/sm_90a.stub.cpp").read_text()
    assert text.startswith("// Generated by wootz")
    noted = (stubbed.out / cell["source"]).read_text().splitlines()[1]  # evidence is of the stub, too
    body = "".join(text.partition("#include")[1:]).partition('\nextern "C"')[0]
    assert noted == f"// Host stub: {index.sha256(body.encode())}"
    assert cell["entries"][0]["stub"] == "wootz_dequant_a4_f32"
    assert elf.needed(elf.parse(path.read_bytes())) == []
    assert stubbed.build(**STUBS)["current"] == counts["jobs"]
    assert stubbed.compiled() == set()


def test_a_stub_goes_with_its_unit_and_comes_back(stubbed: Bench) -> None:
    stubbed.build(**STUBS)
    stub = stubbed.out / "stub/dequant/a4/sm_90a.so"
    before = stub.read_bytes()
    stub.unlink()
    stubbed.build(**STUBS)
    assert stub.read_bytes() == before
    assert stubbed.compiled() == set()  # the cubin stays
    stubbed.formats({"b4": 64})
    stubbed.build(**STUBS)
    assert not stub.exists()
    assert not (stubbed.out / "src/dequant/a4").exists()
    stubbed.formats({"b4": 32})
    stubbed.build()  # and now without a stub
    assert not (stubbed.out / "stub/dequant").exists()
    assert not list(stubbed.out.glob("src/dequant/*/*.stub.cpp"))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("no_mma", r"sm_90a\.cubin: wootz_copy_f16 has no instruction .*HMMA.* \(gate hmma\)"),
        (
            "frame",
            r"sm_90a\.cubin: has wootz_copy_f16: a stack frame of 48 bytes .*; wootz_copy_f32: .*; no other",
        ),
        ("params", r"sm_90a\.so: fills 64 bytes for wootz_copy_f16; its kernel takes 80"),
        ("wrong_suffix", r"sm_90a\.cubin: holds the text 'ERROR : Arch conditional MMA'"),
    ],
)
def test_a_cubin_that_is_not_what_it_claims_is_refused(stubbed: Bench, mode: str, expected: str) -> None:
    done = stubbed.run("--kernels", "copy", FAKE_NVCC_MODE=mode, **STUBS)
    assert done.returncode == 1
    assert re.search(expected, done.stderr), done.stderr
    assert not (stubbed.out / "index.json").exists()
    fault = "stub/copy/sm_90a.so" if mode == "params" else "cubin/copy/sm_90a.cubin"
    assert not (stubbed.out / fault).exists()


FAST = {"TOY_FAST": '["le", "n", 8]', **STUBS}


def test_a_variant_that_spills_is_left_out_where_another_does_its_job(stubbed: Bench) -> None:
    mode, reason = (
        {"FAKE_NVCC_MODE": "frame:f16_fast$"},
        "a stack frame of 48 bytes a thread (spills, or arrays)",
    )
    done = stubbed.run("--kernels", "copy", "--json", **FAST, **mode)
    assert done.returncode == 0, done.stderr
    wanted = {"wootz_copy_f16_fast": f"{reason}, 0 declared"}
    assert json.loads(done.stdout)["left_out"] == {
        f"fatbin/copy/{target}.fatbin": wanted for target in ("sm_80", "sm_90a")
    }
    said = f"wootz: fatbin/copy/sm_80.fatbin: wootz_copy_f16_fast is left out: {reason}, 0 declared\n"
    assert said in done.stderr
    cells = index.cell_keys(index.read(stubbed.out / "index.json")["cells"])
    cell = cells["copy/-/f16/sm_90a"]
    assert ([e["symbol"] for e in cell["entries"]], cell["left_out"]) == (["wootz_copy_f16"], wanted)
    whole = cells["copy/-/f32/sm_90a"]
    assert [e["symbol"] for e in whole["entries"]] == ["wootz_copy_f32_fast", "wootz_copy_f32"]
    assert "left_out" not in whole
    assert index.validate(stubbed.out) == []

    again = stubbed.run("--kernels", "copy", **FAST, **mode)  # nothing to do; still said
    assert (stubbed.compiled(), said in again.stderr) == (set(), True)
    (stubbed.out / "index.json").unlink()
    again = stubbed.run("--kernels", "copy", **FAST, **mode)  # another index, of the same artifacts
    assert (stubbed.compiled(), said in again.stderr) == (set(), True)
    assert index.cell_keys(index.read(stubbed.out / "index.json")["cells"]) == cells


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("frame:f16$", "no other variant takes the place of wootz_copy_f16 at n=17"),
        ("frame:f16", "no other variant takes the place of wootz_copy_f16_fast at n=1"),
    ],
)
def test_a_variant_that_spills_and_has_no_other_fails(stubbed: Bench, mode: str, expected: str) -> None:
    done = stubbed.run("--kernels", "copy", FAKE_NVCC_MODE=mode, **FAST)
    assert done.returncode == 1
    assert expected in done.stderr
    assert not (stubbed.out / "index.json").exists()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("launch[0] = 64", "launch[0] = 72", r"\.so: fills 72 bytes for wootz_copy_f16; its kernel takes 64"),
        (
            "return 0; }\nAPI",
            "return 1; }\nAPI",
            r"\.so: wootz_copy_f16_query takes none of the sample problems",
        ),
        ("_fill(", "_filled(", r"\.so: lacks the entry wootz_copy_f16_fill, wootz_copy_f32_fill"),
        ("launch[0] = 64", "*(volatile int*)8 = 1", r"\.so: cannot be asked for its sizes \(status -11\)"),
        ("launch[0] = 64", "this is no C++", r"stub\.cpp:.*error"),
        ("launch[0] = 64", "extern void gone(); gone()", "undefined reference to .*gone"),
    ],
)
def test_a_stub_that_is_not_what_it_claims_is_refused(
    stubbed: Bench, old: str, new: str, expected: str
) -> None:
    assert old in toy.STUB
    done = stubbed.run("--kernels", "copy", TOY_STUBS=toy.STUB.replace(old, new, 1))
    assert done.returncode == 1
    assert re.search(expected, done.stderr), done.stderr
    assert not (stubbed.out / "stub/copy/sm_90a.so").exists()
    assert not (stubbed.out / "index.json").exists()


def test_a_stub_of_another_build_is_refused(stubbed: Bench) -> None:
    planted = 'API const char* wootz_stub_build(void) { return "00"; }\n#define wootz_stub_build other\n'
    stub = f"{toy.STUB}#ifndef PLANTED\n#define PLANTED\n{planted}#endif\n"
    done = stubbed.run("--kernels", "copy", TOY_STUBS=stub)
    wanted = r"\.so: was made with another source than its cubin \(00, wanted [0-9a-f]{12}\)"
    assert re.search(wanted, done.stderr), done.stderr
