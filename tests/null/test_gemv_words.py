"""The vector product of a lone thread: which layouts it takes, what its text is made for, and its sums where
K is ragged, beside plain float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wootz
from wootz.formats.sample import random_tensor

from gen.cli import main
from gen.kernels._gemv_words import LANES, words_of
from gen.manifest.reader import load

MANIFEST = """\
version: 1
targets: {cpu: {backend: cpu, isa: [baseline], features: [f16, bf16]}}
formats:
  levels: {element: e2m1, block: 16, scale: {type: e4m3, block: tensor, scale: f32}}
  zeros: {element: uint4, block: 128, scale: f16, zero: uint4}
  halves:
    element: {int: 4, offset: 8}
    block: 32
    scale: {type: f16, rule: signed_absmax}
    packing: {split: half}
    storage: [scale, codes]
  bytes: {element: e4m3, block: 32, scale: {type: e8m0, rule: nearest}}
  wide: {element: e5m2, block: 16, scale: f32}
kernels: {qgemv: {dtypes: [f32], formats: all}}
profiles: {default: {}}
"""
FORMATS = ("levels", "zeros", "halves", "bytes", "wide")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("words")
    (path / "mine.yaml").write_text(MANIFEST)
    assert main(["build", "--manifest", str(path / "mine.yaml"), "--out", str(path / "out")]) == 0
    return path / "out"


def test_the_layouts_that_are_taken_as_words() -> None:
    formats = load(Path("kernels.yaml")).formats
    found = {name: words_of(fmt) for name, fmt in formats.items()}
    assert {name for name, words in found.items() if words is None} == {
        name for name, fmt in formats.items() if fmt.element.bits not in (2, 4, 8)
    }
    for name in ("int8", "q8_0", "mxfp4", "q4_0"):
        words = found[name]
        assert words is not None
        bits = formats[name].element.bits
        assert words.places == tuple(range(0, 32, bits))
        assert words.group == LANES * 32 // bits
        assert sorted(e for word in words.elements for e in word) == list(range(words.piece))
        assert words.dense == (name not in ("q8_0", "q4_0"))


@pytest.mark.parametrize("format", FORMATS)
def test_loops_without_a_choice_and_codes_asked_for_ahead(folder: Path, format: str) -> None:
    text = (folder / "src" / "qgemv" / format / "cpu.cpp").read_text()
    size = 144 if format == "halves" else 128
    assert f"prefetch<2048, {size}>" in text
    assert f"< {LANES}u; ++" in text
    assert "< 2u) ?" not in text


def test_small_floats_are_taken_by_halves_of_words(folder: Path) -> None:
    for format in FORMATS:
        text = (folder / "src" / "qgemv" / format / "cpu.cpp").read_text()
        assert ("mad_halves<32>(" in text) == (format in ("levels", "bytes", "wide"))
    formats = load(Path("kernels.yaml")).formats
    words = [found for fmt in formats.values() if (found := words_of(fmt))]
    assert all(found.by_halves == (found.fmt.element.kind == "float") for found in words)
    specials = {found.fmt.element.specials for found in words if found.by_halves}
    assert specials == {"none", "nan", "ieee"}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("m", [1, 3, 8])
@pytest.mark.parametrize("k", [1, 31, 255, 256, 300, 13000])
def test_ragged_rows_and_tiles(folder: Path, format: str, m: int, k: int) -> None:
    lib, n = wootz.load(folder), 65
    rng: Any = np.random.default_rng([m, k])
    x = rng.standard_normal((m, k)).astype(np.float32)
    w = wootz.quantize(rng.standard_normal((n, k)).astype(np.float32), lib.format(format))
    wanted = x.astype(np.float64) @ np.asarray(w.dequantize(), np.float64).T
    y = lib.kernel("qgemv", format, "f32")(x, w)
    assert np.abs(y - wanted).max() <= 2e-6 * np.abs(wanted).max() + 1e-6


@pytest.mark.parametrize("format", ["bytes", "wide"])
@pytest.mark.parametrize("k", [128, 300, 13000])
def test_every_code(folder: Path, format: str, k: int) -> None:
    """Subnormals and both zeros in every row; rows are NaN or infinite where one of their codes is."""
    lib, n, m = wootz.load(folder), 70, 2
    rng: Any = np.random.default_rng(k)
    fmt = lib.format(format)
    values = np.asarray(fmt.element.values, np.float64)
    w = random_tensor(fmt, (n, k), rng)
    x = rng.standard_normal((m, k)).astype(np.float32) + np.float32(3)
    special = np.flatnonzero(~np.isfinite(values))
    rows = np.arange(0, n, 3)
    codes = np.asarray(w.fields["codes"])
    codes[rows, rng.choice([0, 1, 31, k // 2, k - 2, k - 1], rows.size)] = rng.choice(special, rows.size)
    with np.errstate(all="ignore"):
        weights = np.asarray(w.dequantize(), np.float64)
        wanted, size = x.astype(np.float64) @ weights.T, np.abs(x).astype(np.float64) @ np.abs(weights).T
    y = lib.kernel("qgemv", format, "f32")(x, w)
    plain = np.isfinite(wanted)
    assert (~plain).any(0).sum() == rows.size
    np.testing.assert_array_equal(y[~plain], wanted[~plain].astype(np.float32))
    assert (np.abs(y[plain] - wanted[plain]) <= 2e-6 * size[plain]).all()
