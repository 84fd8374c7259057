"""Launches that no device of a target takes are refused when they are emitted, by kernel, value and limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gen.emit import text as emit
from gen.ir.dsl import Builder
from gen.manifest import reader as manifest
from gen.manifest.reader import KernelSpec
from gen.manifest.target import Target
from gen.variants import geometry
from gen.variants.family import Arg, Family, Instance, Launch, Operand, Variant

GPU = Target(
    "t", "cuda", features=frozenset({"f16"}), max_threads=512, shared_bytes=1024, shared_max=4096,
    grid=(100, 50, 20),
)  # fmt: skip
FITS: dict[str, Any] = {"threads": 512, "grid": (100, 50, 20)}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"threads": 513}, "k: 513 threads of a block; the target takes 1 to 512"),
        ({"threads": 0}, "k: 0 threads of a block; the target takes 1 to 512"),
        ({"grid": (101, 1, 1)}, "k: 101 blocks along x; the target takes 1 to 100"),
        ({"grid": ("m", 51, 1)}, "k: 51 blocks along y; the target takes 1 to 50"),
        ({"grid": (1, ["mul", "m", 9], 0)}, "k: 0 blocks along z; the target takes 1 to 20"),
        ({"static_shared": 1025}, "k: 1025 static bytes of shared memory; the target takes 0 to 1024"),
        ({"shared": 4097}, "k: 4097 bytes of shared memory; the target takes 0 to 4096"),
        ({"shared": 4096, "static_shared": 1}, "k: 4097 bytes of shared memory; the target takes 0 to 4096"),
        ({"cluster": (17, 1, 1)}, "k: 17 blocks of a cluster; the target takes 1 to 16"),
    ],
)
def test_beyond(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(geometry.Beyond) as caught:
        geometry.check("k", GPU, **{**FITS, **changed})
    assert str(caught.value) == message


def test_within() -> None:
    geometry.check("k", GPU, **FITS, shared=3072, static_shared=1024, cluster=(16, 1, 1))
    geometry.check("k", GPU, 1, ("m", ["ceildiv", "n", 4], 1), ["mul", "m", 1 << 20])


def emitted(monkeypatch: pytest.MonkeyPatch, variant: Variant | Instance) -> None:
    array = Operand("x", "array", ("n",))
    monkeypatch.setattr(emit, "family_of", lambda kernel: Family((array,), array, lambda *_: [variant]))
    emit._emit.cache_clear()
    try:
        emit.emit(KernelSpec("none", ("f16",)), None, GPU, ("f16",))
    finally:
        emit._emit.cache_clear()


def test_emission_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(b: Builder) -> None:
        b.store(b.buffer("y", "u32", "out"), 0, b.thread())

    with pytest.raises(geometry.Beyond, match=r"^wootz_none_f16: 101 blocks along x"):
        emitted(monkeypatch, Variant("", 32, (101, 1, 1), body))
    first = Variant("first", 32, (1, 51, 1), body)
    with pytest.raises(geometry.Beyond, match=r"^wootz_none_f16_first: 51 blocks along y"):
        emitted(monkeypatch, Variant("", 32, (1, 1, 1), body, before=first))
    text = 'extern "C" __global__ void $SYMBOL() {}'
    with pytest.raises(geometry.Beyond, match=r"^wootz_none_f16: 513 threads of a block"):
        emitted(monkeypatch, Instance("", (), text, (Arg("x", "ptr", "in"),), 513, (1, 1, 1)))
    before = Launch("pre", (), 32, (1, 1, 1), 5000)
    with pytest.raises(geometry.Beyond, match=r"^wootz_none_f16_pre: 5000 bytes of shared memory"):
        emitted(monkeypatch, Instance("", (), text, (), 32, (1, 1, 1), prologue=(before,)))


def test_limits_of_the_manifest(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    row = "{backend: cuda, capability: [9, 0], limits: {grid: [7, 8, 9]}}"
    path.write_text(
        f"version: 1\ntargets: {{sm_90: {row}, cpu: {{backend: cpu}}}}\n"
        "kernels: {copy: {dtypes: [f32]}}\n"
    )
    found = manifest.load(path).targets
    assert found["sm_90"].grid == (7, 8, 9)
    assert found["cpu"].grid == (2**31,) * 3
