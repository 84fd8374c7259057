"""Artifact folders that are damaged, or at odds with the loader: a typed error, and nothing is run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wootz
from wootz import modules
from wootz.errors import ArgumentError, ArtifactError
from wootz.formulas import compile_formula, spell
from wootz.once import Once

from tests.null import loader_tools as tools

F32 = np.float32
random, quantized = tools.random, tools.quantized


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    return wootz.load(
        tools.cpu_folder(tmp_path_factory.mktemp("art") / "a folder, with spaces", tools.image())
    )


# ---- damaged folders


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"index\.json does not exist"):
        wootz.load(tmp_path / "nowhere")


def damage(folder: Path, how: Callable[[Path], Any]) -> Callable[[], Any]:
    kernel = wootz.load(folder).kernel("copy", dtype="f16")
    how(folder / "cpu" / "kernels.so")
    return lambda: kernel(np.zeros(4, np.float16))


def edit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda path: path.unlink(), "kernels.so is missing"),
    "truncated": (
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        "kernels.so has .* bytes, the index says",
    ),
    "emptied": (lambda path: path.write_bytes(b""), "kernels.so has 0 bytes"),
    "edited": (edit, "kernels.so was changed: its sha256 is"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "kernels.so cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_artifacts(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "_modules", Once())
    how, message = DAMAGE[name]
    call = damage(tools.cpu_folder(tmp_path / "a", tools.image()), how)
    with pytest.raises(ArtifactError, match=message):
        call()


@pytest.mark.parametrize(
    "name",
    [
        "../secret.so",
        "/etc/passwd",
        "cpu/../../secret.so",
        "",
        "c:\\x.so",
        "cpu\\..\\x.so",
        "a\0b",
        "link.so",
        "dir/x.so",
    ],
)
def test_paths_out_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = tools.Folder(tmp_path / "a")
    record = folder.file("cpu/kernels.so", tools.image())
    (tmp_path / "secret.so").write_bytes(tools.image())
    (folder.path / "link.so").symlink_to(tmp_path / "secret.so")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.so").write_bytes(tools.image())
    (folder.path / "dir").symlink_to(tmp_path / "other")
    folder.add_all("cpu", [{**record, "sha256": "0" * 64, "file": name}])
    kernel = wootz.load(folder.write()).kernel("copy", dtype="f16")
    with pytest.raises(ArtifactError, match=r"no path inside its folder|outside its folder"):
        kernel(np.zeros(4, np.float16))


@pytest.mark.parametrize("wrong", [{"file": 5}, {"isa": 5}, {"size": "x"}, {"sha256": None}])
def test_a_files_record_that_is_none(tmp_path: Path, wrong: dict[str, Any]) -> None:
    folder = tools.Folder(tmp_path / "a")
    folder.add_all("cpu", [{**folder.file("cpu/kernels.so", tools.image()), **wrong}])
    kernel = wootz.load(folder.write()).kernel("copy", dtype="f16")
    with pytest.raises(ArtifactError, match=f"whose {next(iter(wrong))} is"):
        kernel(np.zeros(4, np.float16))


def test_links_inside_and_to_the_folder(tmp_path: Path) -> None:
    folder = tools.Folder(tmp_path / "a")
    record = folder.file("store/blob", tools.image())
    (folder.path / "cpu").mkdir()
    (folder.path / "cpu" / "k.so").symlink_to(folder.path / "store" / "blob")
    folder.add_all("cpu", [{**record, "file": "cpu/k.so"}])
    folder.write()
    (tmp_path / "link").symlink_to(folder.path)
    lib = wootz.load(tmp_path / "link")
    assert lib.path == folder.path.resolve()
    lib.kernel("copy", dtype="f16")(np.zeros(4, np.float16))


def test_a_binary_that_is_none(tmp_path: Path) -> None:
    kernel = wootz.load(tools.cpu_folder(tmp_path / "a", b"\x7fELF but not really")).kernel(
        "copy", dtype="f16"
    )
    with pytest.raises(ArtifactError, match=r"cpu/kernels\.so cannot be loaded"):
        kernel(np.zeros(4, np.float16))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"symbol": "nothing"}, r"cpu/\w+\.so has no symbol nothing"),
        ({"args": [["x", "ptr", "in"], ["y", "ptr", "out"], ["n", "i7", "shape"]]}, "an argument of type i7"),
        ({"args": [["x", "ptr", "in"], ["q", "u32", "shape"]]}, "argument 'q' of unknown role 'shape'"),
        ({"args": [["x", "ptr", "in"], ["has_x", "u32", "shape"]]}, "argument 'has_x' of unknown role"),
        ({"args": [["x", "ptr", "sideways"]]}, "unknown role 'sideways'"),
        ({"args": [["n", "u32", "shape"]] * 65}, "65 arguments"),
        ({"grid": [["pow", "n", 2], 1, 1]}, "does not know"),
        ({"grid": ["z", 1, 1]}, "uses 'z'; known are n, sms"),
        ({"grid": [["div", "n", 0], 1, 1]}, "divides by zero"),
        ({"grid": [1, 1]}, "an entry that cannot be read"),
        ({"block": "x"}, "an entry that cannot be read"),
        ({"block": [0, 1, 1]}, "an entry that cannot be read"),
        ({"symbol": 5}, "an entry that cannot be read"),
    ],
)
def test_entries_at_odds_with_the_loader(tmp_path: Path, change: Any, message: str) -> None:
    folder = tools.Folder(tmp_path / "a")
    entry = {**tools.ENTRIES["copy"][0], **change}
    folder.cell("copy", "-", "f16", "cpu", [folder.file("cpu/kernels.so", tools.image())], entries=[entry])
    kernel = wootz.load(folder.write()).kernel("copy", dtype="f16")
    with pytest.raises(ArtifactError, match=message):
        kernel(np.zeros(4, np.float16))


@pytest.mark.parametrize(
    "grid", [[0, 1, 1], [["sub", "n", 100], 1, 1], [2**31, 2, 1], [2**40, 1, 1], [1, 2**16, 2**16]]
)
def test_grids_out_of_range(tmp_path: Path, grid: Any) -> None:
    folder = tools.Folder(tmp_path / "a")
    entry = {**tools.ENTRIES["copy"][0], "grid": grid}
    folder.cell("copy", "-", "f16", "cpu", [folder.file("cpu/kernels.so", tools.image())], entries=[entry])
    kernel = wootz.load(folder.write()).kernel("copy", dtype="f16")
    with pytest.raises(ArgumentError, match=r"grid|blocks"):
        kernel(np.zeros(4, np.float16))


def test_many_binaries_at_once(tmp_path: Path) -> None:
    """Each is loaded from memory under a name of its own: none is taken for an earlier one."""
    images = [tools.shared_object(tmp_path, many=each) for each in (1, 2, 3)]
    zero = np.zeros((2, 8), F32)
    for number, each in enumerate(images):
        lib = wootz.load(tools.cpu_folder(tmp_path / str(number), each))
        y = lib.kernel("qgemv", format="toy")(zero, quantized(lib, 3, 8))
        assert y.min() == number + 1


# ---- formulas


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (7, "7"),
        ("n", "n"),
        (["ceildiv", "n", ["mul", "k", 2]], "ceildiv(n, k * 2)"),
        (["eq", ["mod", "k", 8], 0], "(k % 8) == 0"),
        (["or", ["eq", "r", 1], ["eq", "r", "m"]], "(r == 1) or (r == m)"),
    ],
)
def test_formulas_are_spelt(formula: Any, text: str) -> None:
    assert spell(formula) == text


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        (7, 7), ("n", 10), (["ceildiv", "n", 4], 3), (["ceildiv", 0, 4], 0),
        (["mul", "n", ["add", "k", 1]], 40),
        (["sub", "n", "k"], 7), (["min", "n", "k"], 3), (["max", "n", "k"], 10), (["div", "n", "k"], 3),
        (["mod", "n", "k"], 1), (["le", "k", 3], 1), (["lt", "k", 3], 0), (["eq", "k", 3], 1),
        (["ge", "k", 4], 0),
        (["gt", "n", 3], 1), (["and", 1, 0], 0), (["or", 2, 0], 1),
    ],
)  # fmt: skip
def test_formulas(formula: Any, value: int) -> None:
    assert compile_formula(formula, {"n", "k"})({"n": 10, "k": 3}) == value
