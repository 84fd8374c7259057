"""A small target, and what the tests of the IR build on it."""

from __future__ import annotations

from gen.ir.dsl import Builder
from gen.manifest.target import Target

GPU = Target(
    "t", "cuda", features=frozenset({"simdgroup_matrix", "pdl"}), simd=32, max_threads=64, shared_bytes=256
)

IN_TURN = Target("t", "cuda", simd=32, max_threads=64, shared_bytes=256)
"""Launches do not overlap."""


def builder(threads: int = 32) -> Builder:
    return Builder("k", threads, GPU.simd)


def overlapping(b: Builder, *, alone: bool = False) -> None:
    """Reads w, waits, and then reads x and writes y, which are `alone` or not."""
    w = b.buffer("w", "f32")
    x, y = b.buffer("x", "f32", alone=alone), b.buffer("y", "f32", "out", alone=alone)
    weight = b.load(b.at(w, b.block()), b.thread())
    b.grid_wait((w,))
    b.grid_release()
    b.store(y, b.thread(), weight * b.load(x, b.thread()))


def staged(b: Builder) -> None:
    """Barriers and shuffles where a whole block or group agrees: on constants, blocks, arguments, groups."""
    x, n, s = b.buffer("x", "f32"), b.scalar("n"), b.shared("s", "f32", 8)
    with b.loop(b.block(), n, b.grid()) as i, b.when(b.load(x, i) > 0.0):
        b.barrier()
    with b.when((b.thread() // 32).eq(1)):
        b.lane_sum(b.load(s, b.thread() % 8))
    with b.loop(b.thread() // 64, 4):
        b.lane_sum(b.thread().cast("f32"))
