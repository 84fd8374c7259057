"""The command line is a contract: exit status, one line an error, JSON that other tools read."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gen import cli

sys.path.insert(0, str(Path(__file__).resolve().parent))
import toy

SHIPPED = toy.ROOT / "kernels.yaml"


def wootz(*args: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gen", *map(str, args)]
    return subprocess.run(
        command, cwd=toy.ROOT, env=toy.environment(**environment), capture_output=True, text=True, check=False
    )


def rows(*args: str) -> list[dict[str, Any]]:
    done = wootz("list", "--json", *args)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_check(tmp_path: Path) -> None:
    done = wootz("check", SHIPPED)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{SHIPPED}: valid: ")
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        toy.manifest(bad, {"a4": 32}).read_text().replace("int: 4", "int: 9").replace("scale:", "scael:")
    )
    done = wootz("check", bad)
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith(f"{bad}:") and line.split(":")[1].isdigit() for line in lines)
    assert any("scale" in line for line in lines)  # the near miss


def test_every_cell_of_release_has_a_state_and_a_reason() -> None:
    found = rows("--profile", "release")
    assert len({row["key"] for row in found}) == len(found) > 1000
    for row in found:
        assert set(row) == {
            "key",
            "kernel",
            "options",
            "format",
            "dtype",
            "target",
            "state",
            "reason",
            "file",
            "symbol",
            "evidence",
        }
        assert row["state"] in ("job", "skip", "refused")
        job = row["state"] == "job"
        assert (row["reason"] == "") is job
        assert bool(row["file"]) is bool(row["symbol"]) is job


def test_list_filters() -> None:
    every = rows()
    some = rows("--targets", "cpu", "--kernels", "qgemv", "--state", "job")
    assert {(row["kernel"], row["target"], row["state"]) for row in some} == {("qgemv", "cpu", "job")}
    assert len(some) < len(every)
    assert rows("--targets", "cpu,cpu", "--kernels", "qgemv", "--state", "job") == some


def test_list_as_a_table() -> None:
    done = wootz("list", "--targets", "cpu", "--formats", "-", "--kernels", "copy", "binary")
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        "kernel",
        "format",
        "dtype",
        "target",
        "state",
        "reason",
        "file",
        "symbol",
        "evidence",
    ]
    assert any(line.split()[:5] == ["binary.add", "-", "f32", "cpu", "job"] for line in lines)
    assert lines[-1].startswith("# 21 cells: 21 job")


def test_list_shows_the_evidence_of_a_built_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = wootz("build", "--targets", "cpu", "--kernels", "copy", "--out", out)
    assert done.returncode == 0, done.stderr
    found = rows("--targets", "cpu", "--kernels", "copy", "--artifacts", str(out))
    assert {tuple(row["evidence"][:2]) for row in found} == {("emitted", "compiled")}
    for row in found:
        assert (out / row["file"]).is_file()
    other = tmp_path / "other.yaml"  # the same names, another target
    other.write_text(SHIPPED.read_text().replace("isa: [x86-64-v3, baseline]", "isa: [baseline]"))
    found = rows("--manifest", str(other), "--targets", "cpu", "--kernels", "copy", "--artifacts", str(out))
    assert found
    assert not any(row["evidence"] for row in found)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["list", "--formats", "nosuch"], "format 'nosuch': not in the manifest"),
        (["list", "--profile", "relaese"], "did you mean 'release'?"),
        (["build", "--out", "x", "--targets", "cpuu"], "did you mean 'cpu'?"),
        (["explain", "qgemv", "-", "cpu"], "qgemv has no cells with format -"),
        (["explain", "copy", "nosuch", "cpu"], "format 'nosuch'"),
        (["build"], "--out"),
        (["frobnicate"], "frobnicate"),
        (["build", "--out", "x", "-j", "0"], "'0': wanted a whole number, 1 or more"),
        (["build", "--out", "x", "-j", "many"], "'many': wanted a whole number, 1 or more"),
        ([], "COMMAND"),
    ],
)
def test_bad_input_is_one_line_and_status_2(args: list[str], expected: str) -> None:
    done = wootz(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert expected in done.stderr
    assert not (toy.ROOT / "x").exists()


@pytest.mark.parametrize("verb", ["check", "list", "build", "generate", "explain"])
def test_a_manifest_that_is_not_there(tmp_path: Path, verb: str) -> None:
    missing = tmp_path / "none.yaml"
    args: dict[str, list[str | Path]] = {
        "check": [missing],
        "list": ["--manifest", missing],
        "explain": ["copy", "-", "cpu", "--manifest", missing],
    }
    done = wootz(verb, *args.get(verb, ["--manifest", missing, "--out", tmp_path / "out"]))
    assert done.returncode in (1, 2)
    assert len(done.stderr.splitlines()) == 1
    assert str(missing) in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"'{sys.executable}' -m gen list --profile release | head -2"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=toy.ROOT,
        env=toy.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 2


def redirected(redirection: str, *args: str) -> subprocess.CompletedProcess[str]:
    """A command under a shell's redirection, which may close its streams."""
    command = f"'{sys.executable}' -m gen {' '.join(args)} {redirection}"
    return subprocess.run(
        ["bash", "-c", command],
        cwd=toy.ROOT,
        env=toy.environment(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("args", [("list", "--kernels", "copy"), ("check", "kernels.yaml"), ("--version",)])
def test_no_standard_output_is_one_clean_line(args: tuple[str, ...]) -> None:
    done = redirected(">&-", *args)
    assert done.returncode == 1
    assert done.stderr == "wootz: standard output is closed: redirect it to a file, or to /dev/null\n"


def test_no_standard_error_is_no_error() -> None:
    done = redirected("2>&-", "list", "--kernels", "copy", "--targets", "cpu")
    assert (done.returncode, len(done.stdout.splitlines()) > 3) == (0, True)
    done = redirected("2>&-", "list", "--kernels", "copi")
    assert (done.returncode, done.stdout) == (2, "")


def test_explain(tmp_path: Path) -> None:
    fact = json.loads(wootz("explain", "binary", "-", "cpu", "--json").stdout)
    assert fact["source"] == "src/binary/cpu.cpp"
    assert {cell["key"] for cell in fact["cells"]} >= {"binary.add/-/f32/cpu", "binary.max/-/bf16/cpu"}
    assert any("-ffp-contract=off" in command for command in fact["commands"])
    assert len(fact["entries"]) >= 18
    text = wootz("explain", "qgemv", "mxfp4", "sm_90a").stdout
    for part in (
        "element",
        "src/qgemv/mxfp4/sm_90a.cu",
        "nvcc",
        "-arch=sm_90a",
        "grid (",
        "qgemv/mxfp4/f32/sm_90a  job",
    ):
        assert part in text
    assert wootz("explain", "qgemv", "mxfp4", "metal3.1").stdout.count("xcrun -sdk macosx") == 2


@pytest.mark.parametrize("command", ["verify", "bench", "tune", "info"])
def test_run_time_commands_are_handed_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    class Module:
        @staticmethod
        def main(argv: list[str]) -> int:
            print(argv)
            return 3

    monkeypatch.setattr(cli.importlib, "import_module", lambda name: {f"wootz.{command}": Module}[name])
    assert cli.main([command, "--device", "cpu"]) == 3
    assert capsys.readouterr().out == "['--device', 'cpu']\n"

    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name="wootz")

    monkeypatch.setattr(cli.importlib, "import_module", missing)
    assert cli.main([command]) == 2
    assert f"{command} needs the wootz package" in capsys.readouterr().err


def test_without_the_generators_packages_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['yaml'] = None; from gen.cli import main; sys.exit(main(['list']))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=toy.ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "pip install 'wootz[gen]'" in done.stderr


def test_help_and_version() -> None:
    assert wootz("--version").stdout == "wootz 0.1.0\n"
    done = wootz("build", "--help")
    assert done.returncode == 0
    assert "--targets" in done.stdout


@pytest.mark.parametrize(
    ("variable", "named", "said"),
    [
        ("WOOTZ_LAUNCHER", "nosuch -x", "no such command; name a compile cache, or unset it"),
        ("WOOTZ_LAUNCHER", "env '", "No closing quotation; want a command as a shell reads it"),
        ("CXX", "g++ '", "No closing quotation; want a command as a shell reads it"),
    ],
)
def test_a_bad_command_in_the_environment_is_one_line(
    variable: str, named: str, said: str, tmp_path: Path
) -> None:
    asked = ("build", "--targets", "cpu", "--kernels", "copy", "--out", tmp_path / "out")
    done = wootz(*asked, **{variable: named})
    assert (done.returncode, done.stderr) == (1, f"wootz: {variable}={named}: {said}\n")
    assert not (tmp_path / "out").exists()


def test_a_file_that_nobody_may_read_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(args: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", "folder/file")

    monkeypatch.setattr("gen.commands.size.run", run)
    assert cli.main(["size"]) == 1
    said = "wootz: folder/file: Permission denied; check the name, and that you may use it\n"
    assert capsys.readouterr().err == said
    monkeypatch.setenv("WOOTZ_DEBUG", "1")
    with pytest.raises(PermissionError):
        cli.main(["size"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_standard_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gen", "list", "--targets", "cpu"],
            cwd=toy.ROOT, env=toy.environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "wootz: standard output: No space left on device\n")
