"""The index: what it refuses, what it finds, and how fast."""

from __future__ import annotations

import time
from typing import Any

import pytest
from wootz.errors import ArtifactError
from wootz.index import Index

from tests.null.loader_tools import index_bytes


def sections(cells: list[str]) -> dict[str, list[dict[str, Any]]]:
    return {
        "targets": [{"key": "cpu", "backend": "cpu"}],
        "kernels": [{"key": "copy"}, {"key": "qgemv"}],
        "formats": [],
        "cells": [{"key": key, "n": i} for i, key in enumerate(cells)],
    }


KEYS = ["copy/-/f32/cpu", "copy/-/f32/cpu2", "copy/-/f16/cpu", "a", "z/long/key", "copy/-/f32"]
GOOD = index_bytes(sections(KEYS))


def test_find() -> None:
    index = Index.parse(GOOD, "index.json")
    for i, key in enumerate(KEYS):
        assert index.find("cells", key) == {"key": key, "n": i}
    for key in ("", "b", "copy/-/f32/cpu1", "copy/-/f32/", "zz", "copy"):
        assert index.find("cells", key) is None
    assert index.find("formats", "copy") is None
    assert index.find("kernels", "copy") == {"key": "copy"}
    assert list(index.keys("cells")) == sorted(KEYS)
    assert list(index.keys("cells", "copy/-/f32/")) == ["copy/-/f32/cpu", "copy/-/f32/cpu2"]
    assert [record["key"] for record in index.records("targets")] == ["cpu"]
    assert index.count("cells") == len(KEYS)


@pytest.mark.parametrize("count", range(8))
def test_find_among_few(count: int) -> None:
    keys = [f"k{i}" for i in range(count)]
    index = Index.parse(index_bytes(sections(keys)), "index.json")
    assert [index.find("cells", key) is not None for key in keys] == [True] * count
    assert all(index.find("cells", key) is None for key in ("", "k", "k1x", "z"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is no index"),
        (b"hello\n", "is no index"),
        (b'{"other":1,\n', "has index version None"),
        (GOOD.replace(b'"wootz_index":2', b'"wootz_index":1'), "has index version 1, this wootz reads 2"),
        (GOOD.replace(b'"count":{', b'"counts":{'), "the header has no count of targets, but None"),
        (GOOD.replace(b'"cells":6', b'"cells":null'), "the header has no count of cells, but None"),
        (GOOD.replace(b'"cells":6', b'"cells":true'), "the header has no count of cells, but True"),
        (GOOD.replace(b'"cells":6', b'"cells":-1'), "the header has no count of cells, but -1"),
        (GOOD.replace(b'"spans":{"targets":[', b'"spans":{"targets":[Infinity,'), "truncated: its last line"),
        (
            GOOD.replace(b'{"key":"copy"},\n', b""),
            "damaged: section 'formats' is not where its last line says",
        ),
        (GOOD.replace(b'"key":"a"', b'"key":"ab"'), r"damaged: its sections end at byte \d+, its last line"),
        (GOOD.replace(b'"formats":[\n', b'"formets":[\n'), "damaged: section 'formats' is not where"),
        (GOOD.replace(b'"spans":', b'"spins":'), "truncated: its last line does not say"),
        (
            GOOD.replace(b'"spans":{"targets":[', b'"spans":{"targets":["'),
            "truncated: its last line does not",
        ),
    ],
)
def test_refused(data: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=f"index.json.* {message}|index.json: {message}"):
        Index.parse(data, "index.json")


def test_every_truncation_is_seen() -> None:
    whole = GOOD.rstrip()
    for size in range(len(whole)):
        with pytest.raises(ArtifactError):
            Index.parse(whole[:size], "index.json")
    Index.parse(whole, "index.json")


def test_duplicates_and_disorder_are_seen_on_access() -> None:
    index = Index.parse(index_bytes(sections(["a", "b", "b", "c"])), "index.json")
    assert index.find("cells", "a")
    with pytest.raises(ArtifactError, match="cells has 'b' twice"):
        index.find("cells", "b")
    with pytest.raises(ArtifactError, match="cells has 'b' out of order"):
        list(index.keys("cells"))


def test_a_damaged_record() -> None:
    index = Index.parse(GOOD.replace(b'"n":0}', b'"n":0!'), "index.json")
    with pytest.raises(ArtifactError, match=r"index\.json:\d+: not a JSON record"):
        index.find("cells", KEYS[0])
    index = Index.parse(GOOD.replace(b'{"key":"a"', b'{"Key":"a"'), "index.json")
    with pytest.raises(ArtifactError, match=r"index\.json:\d+: a record does not begin with its key"):
        list(index.keys("cells"))


def test_speed(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """100,000 cells: opened in under 100 ms, one found in under 20 us. The bounds for noise."""
    filler = {
        "source_sha256": "0" * 64,
        "entries": [{"symbol": "s" * 40, "args": [["x", "ptr", "in"]] * 8, "grid": [1, 1, 1]}],
    }
    content = sections([])
    content["cells"] = [{"key": f"k{i % 7}/f{i // 7:05d}/f32/t", **filler} for i in range(100_000)]
    (tmp_path / "index.json").write_bytes(index_bytes(content))
    opened = min(timed(lambda: Index.read(tmp_path)) for _ in range(10))
    index = Index.read(tmp_path)
    wanted = [f"k{i % 7}/f{i // 7:05d}/f32/t" for i in range(0, 100_000, 97)]
    batches = [wanted[i::20] for i in range(20)] * 5
    found = min(
        timed(lambda keys=keys: [index.find("cells", key) for key in keys]) / len(keys) for keys in batches
    )
    with capsys.disabled():
        print(
            f"\n100,000 cells, {len(index.data) / 1e6:.0f} MB: "
            f"opened in {opened * 1e3:.1f} ms, found in {found * 1e6:.1f} us"
        )
    assert opened < 0.3
    assert found < 60e-6


def timed(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
