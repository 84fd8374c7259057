"""A small target, and what the tests of the IR build on it."""

from __future__ import annotations

from gen.ir.dsl import Builder
from gen.manifest.target import Target

GPU = Target("t", "cuda", features=frozenset({"simdgroup_matrix"}), simd=32, max_threads=64, shared_bytes=256)


def builder(threads: int = 32) -> Builder:
    return Builder("k", threads, GPU.simd)


def staged(b: Builder) -> None:
    """Barriers and shuffles where a whole block or group agrees: on constants, blocks, arguments, groups."""
    x, n, s = b.buffer("x", "f32"), b.scalar("n"), b.shared("s", "f32", 8)
    with b.loop(b.block(), n, b.grid()) as i, b.when(b.load(x, i) > 0.0):
        b.barrier()
    with b.when((b.thread() // 32).eq(1)):
        b.lane_sum(b.load(s, b.thread() % 8))
    with b.loop(b.thread() // 64, 4):
        b.lane_sum(b.thread().cast("f32"))
