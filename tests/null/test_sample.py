"""Sampling from logits: Philox against its published vectors, weights against float64, frequencies against
probabilities, filters against a sort; ties, infinities, NaN; what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wootz
from scipy import special, stats
from wootz.checks import sample as check
from wootz.errors import ArgumentError, DtypeError

from gen.cli import main
from gen.ir.dsl import Builder
from gen.kernels._philox import below, philox
from gen.kernels._powers import Weights

sys.path.insert(0, str(Path(__file__).resolve().parent))
import host

MANIFEST = """\
version: 1
targets: {cpu: {backend: cpu, isa: [baseline], features: [f16, bf16]}}
formats: {}
kernels: {sample: {dtypes: [f32, f16]}}
profiles: {default: {}}
"""
Array = Any
Sample = Callable[..., Array]


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    folder = tmp_path_factory.mktemp("sample")
    (folder / "mine.yaml").write_text(MANIFEST)
    assert main(["build", "--manifest", str(folder / "mine.yaml"), "--out", str(folder / "out")]) == 0
    return wootz.load(folder / "out")


@pytest.fixture(scope="module")
def sample(lib: wootz.Library) -> Sample:
    kernel = lib.kernel("sample", dtype="f32")
    return lambda logits, *more, **named: kernel(np.asarray(logits, np.float32), *more, **named)


# ------------------------------------------------------------ random numbers
# counter, key, result: kat_vectors of Random123, philox4x32 with 10 rounds
VECTORS = [
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> host.Library:
    def words(b: Builder) -> None:
        x, y = b.buffer("x", "u32"), b.buffer("y", "u32", "out")
        a = [b.load(x, i) for i in range(6)]
        for i, word in enumerate(philox(b, (a[0], a[1], a[2], a[3]), (a[4], a[5]))):
            b.store(y, i, word)

    def product(b: Builder) -> None:
        x, y, ends = b.buffer("x", "u32"), b.buffer("y", "u64", "out"), b.buffer("ends", "u64")
        with b.loop(0, b.scalar("n")) as i:
            b.store(y, i, below(b, b.load(x, i * 2), b.load(x, i * 2 + 1), b.load(ends, i)))

    def powers(b: Builder) -> None:
        x, y, slope = b.buffer("x", "f32"), b.buffer("y", "u64", "out"), b.buffer("slope", "f32")
        weights = Weights(b, b.load(slope, 1), b.load(slope, 0))
        with b.loop(0, b.scalar("n")) as i:
            b.store(y, i, weights.of(b.load(x, i)))

    made = [host.function(each.__name__, each) for each in (words, product, powers)]
    return host.Library(tmp_path_factory.mktemp("philox"), made)


@pytest.mark.parametrize(("counter", "key", "wanted"), VECTORS)
def test_philox(
    library: host.Library, counter: tuple[int, ...], key: tuple[int, int], wanted: tuple[int, ...]
) -> None:
    assert check.philox(counter, key) == wanted
    found = np.zeros(4, np.uint32)
    library.run("words", {"x": np.array([*counter, *key], np.uint32), "y": found})
    assert tuple(found.tolist()) == wanted


def test_random_numbers_below_an_end(library: host.Library) -> None:
    rng = np.random.default_rng(1)
    ends = [1, 2, 3, 2**32 - 1, 2**32, 2**63, *(int(e) for e in rng.integers(1, 2**63, 60))]
    bits = [0, 2**64 - 1, 2**63, *(int(e) for e in rng.integers(0, 2**64, len(ends) - 3, np.uint64))]
    found = np.zeros(len(ends), np.uint64)
    words = np.array([half for r in bits for half in (r >> 32, r % 2**32)], np.uint32)
    library.run("product", {"x": words, "y": found, "ends": np.array(ends, np.uint64)}, n=len(ends))
    assert found.tolist() == [r * end >> 64 for r, end in zip(bits, ends)]


@pytest.mark.parametrize("heat", [0.31, 1.0, 1.9, 40.0])
def test_weights_are_powers(library: host.Library, heat: float) -> None:
    """Within 2.5 roundings of float32 for each of 1 and the exponent, and one of the whole number; and the
    kernel's are those of its check."""
    x = np.random.default_rng(2).uniform(-30, 3, 100000).astype(np.float32).astype(np.float64)
    angle = (x - 3.0) / float(np.float32(heat))
    wanted = np.exp(angle) * 2.0**check.SCALE
    weights = check.weights(x, 3.0, np.float32(heat))
    off = np.abs(weights.astype(np.float64) - wanted)
    assert (off <= wanted * 2.5 * 2.0**-24 * (1.0 + np.abs(angle)) + 1.0).all()
    numbers, found = (
        np.append(x, [-np.inf, np.nan, 3.0, -3e38]).astype(np.float32),
        np.zeros(len(x) + 4, np.uint64),
    )
    slope = np.array([np.float32(np.log2(np.e)) / np.float32(heat), 3.0], np.float32)
    library.run("powers", {"x": numbers, "y": found, "slope": slope}, n=len(numbers))
    assert found.tolist() == [*weights.tolist(), 0, 0, 2**check.SCALE, 0]


def test_fused_products_have_one_rounding() -> None:
    """Where two roundings, of float64 and float32, would go wrong."""
    a, b, c = (np.array([x], np.float32) for x in (1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60))
    tie = np.float32(1 + 2.0**-11)  # and 2^-24, half of a last place
    assert a.astype(np.float64) * b + c == float(tie) + 2.0**-24
    assert check.fma(a, b, c)[0] > tie
    assert check.fma(a, b, -c)[0] == tie


# ------------------------------------------------------------ what is drawn
LOGITS = np.array([1.0, -0.5, 2.0, 0.3, 2.0, -3.0, 0.0, 1.2, -1.0, 0.7, -np.inf, np.nan], np.float32)
DRAWS = 40000


def left(logits: Array, heat: float, k: int, p: float) -> Array:
    """The probabilities of what the filters leave, from a sort in float64."""
    x = np.where(np.isnan(logits), -np.inf, logits).astype(np.float64) / heat
    order = np.argsort(-x, kind="stable")[: k or None]
    share = special.softmax(x[order])
    order = order[: int(np.searchsorted(np.cumsum(share), p)) + 1] if p < 1 else order
    found = np.zeros(len(x))
    found[order] = special.softmax(x[order])
    return found


@pytest.mark.parametrize(
    ("heat", "k", "p"),
    [(1.0, 0, 1.0), (0.6, 0, 1.0), (2.5, 5, 1.0), (1.0, 0, 0.7), (1.3, 6, 0.85), (1.0, 1, 1.0), (1.0, 0, 0.0),
     (1.0, 0, 0.2), (1e6, 10, 0.95)],
)  # fmt: skip
@pytest.mark.parametrize("many", [1, 30])
def test_frequencies(sample: Sample, heat: float, k: int, p: float, many: int) -> None:
    """Chi-squared at a fixed seed; a column of no probability is never drawn. many: columns for each."""
    logits = np.repeat(LOGITS, many)
    wanted = left(logits, heat, k, p)
    rows = np.broadcast_to(logits, (DRAWS, len(logits))).copy()
    found = np.bincount(sample(rows, temperature=heat, top_k=k, top_p=p, seed=11), minlength=len(logits))
    assert not found[wanted == 0].any()
    if (wanted > 0).sum() > 1:
        assert stats.chisquare(found[wanted > 0], wanted[wanted > 0] * DRAWS).pvalue > 1e-3


def test_draws_are_of_the_seed_the_step_and_the_stream(sample: Sample) -> None:
    rows = np.random.default_rng(3).standard_normal((64, 500)).astype(np.float32)
    first = sample(rows, seed=1, step=5)
    assert np.array_equal(first, sample(rows, seed=1, step=5))
    assert (first.dtype, first.shape) == (np.int32, (64,))
    for other in ({"seed": 2, "step": 5}, {"seed": 1, "step": 6}):
        assert (sample(rows, **other) != first).mean() > 0.8
    order = np.random.default_rng(4).permutation(64)
    streams, ahead = order.astype(np.int32), np.full(64, 3, np.int32)
    assert np.array_equal(sample(rows[order], streams, seed=1, step=5), first[order])
    assert np.array_equal(sample(rows, steps=ahead, seed=1, step=2), first)
    assert np.array_equal(sample(rows, steps=-ahead, seed=1, step=8), first)


def test_settings_of_rows_are_those_of_the_call(sample: Sample) -> None:
    rows = np.random.default_rng(5).standard_normal((40, 300)).astype(np.float32) * 3
    for heat, k, p in ((0.0, 0, 1.0), (0.7, 40, 0.9), (1.0, 0, 0.5), (1.5, 7, 1.0)):
        each = np.tile(np.array([heat, k, p], np.float32), (40, 1))
        wanted = sample(rows, temperature=heat, top_k=k, top_p=p, seed=9)
        assert np.array_equal(sample(rows, settings=each, seed=9, top_k=3), wanted)


def test_types_of_logits_choose_alike(lib: wootz.Library, sample: Sample) -> None:
    rows = np.random.default_rng(6).standard_normal((50, 333)).astype(np.float16)
    for named in ({}, {"top_k": 20}, {"top_p": 0.4}, {"temperature": 0.0}):
        assert np.array_equal(lib.kernel("sample", dtype="f16")(rows, **named), sample(rows, **named))


# ------------------------------------------------------------ ties, infinities, nothing
def test_greedy_takes_the_first_of_the_largest(sample: Sample) -> None:
    nan, inf = np.nan, np.inf
    rows = [[1, 3, 3, nan], [-0.0, 0.0, -1, nan], [-inf, nan, -5, -inf], [2, inf, inf, nan], [nan] * 4]
    for named in ({"temperature": 0.0}, {"top_k": 1}, {"temperature": -1.0}, {"temperature": nan}):
        assert sample(rows, **named).tolist() == [1, 0, 2, 1, -1]


def test_ties_go_to_the_first_columns(sample: Sample) -> None:
    row = np.tile([0.0, -0.0, 1.0, -2.0], 250)
    rows = np.tile(row, (600, 1))
    assert set(sample(rows, top_k=253)) <= {*range(2, 1000, 4), 0, 1, 4}
    assert set(sample(rows, temperature=np.inf, top_k=3)) == {2, 6, 10}
    assert set(sample(np.zeros((900, 64)), top_p=0.05)) == {0, 1, 2, 3}, "4 of 64 reach 0.05"
    assert set(sample(np.zeros((900, 64)), top_k=8, top_p=0.5)) == {0, 1, 2, 3}


def test_what_is_not_finite(sample: Sample) -> None:
    nan, inf = np.nan, np.inf
    rows = np.tile(np.array([1, inf, nan, inf, -inf], np.float32), (400, 1))
    assert set(sample(rows)) == {1, 3}
    assert set(sample(rows, top_k=1)) == {1}
    assert set(sample(np.tile([nan, 0.0, -inf, 0.0], (400, 1)), top_k=3, top_p=0.99)) == {1, 3}
    for named in ({}, {"top_k": 2}, {"top_p": 0.5}, {"temperature": 0.0}):
        assert sample([[-inf] * 5, [nan] * 5, [nan, -inf, nan, -inf, nan]], **named).tolist() == [-1] * 3
    assert sample(np.zeros((0, 5))).shape == (0,)


# ------------------------------------------------------------ calls
def test_a_plan_reads_steps_from_memory(lib: wootz.Library, sample: Sample) -> None:
    """So that a captured graph draws anew each time."""
    plan = lib.plan("sample", dtype="f32", device="cpu", b=8, v=100, steps=True, seed=4, top_k=50)
    rows, steps = np.random.default_rng(7).standard_normal((8, 100)).astype(np.float32), np.zeros(8, np.int32)
    out = np.zeros(8, np.int32)
    for step in range(3):
        assert np.array_equal(plan(rows, steps=steps, out=out), sample(rows, seed=4, step=step, top_k=50))
        steps += 1


@pytest.mark.parametrize(
    ("operands", "named", "error", "message"),
    [
        ((np.zeros(5, np.float32),), {}, ArgumentError, "logits has 1 dimensions [5]"),
        (
            (np.zeros((2, 0), np.float32),),
            {},
            ArgumentError,
            "logits has v=0; sample takes v from 1 to 16777216",
        ),
        ((np.zeros((2, 5), np.float16),), {}, DtypeError, "logits has"),
        (
            (np.zeros((2, 5), np.float32),),
            {"streams": np.zeros(3, np.int32)},
            ArgumentError,
            "streams has b=3",
        ),
        ((np.zeros((2, 5), np.float32),), {"steps": np.zeros(2, np.int64)}, DtypeError, "steps has"),
        (
            (np.zeros((2, 5), np.float32),),
            {"settings": np.zeros((2, 4), np.float32)},
            ArgumentError,
            "settings",
        ),
        ((np.zeros((2, 5), np.float32),), {"top_k": -1}, ArgumentError, "top_k is -1; want a whole number"),
        ((np.zeros((2, 5), np.float32),), {"temperature": "hot"}, ArgumentError, "temperature"),
        ((np.zeros((2, 5), np.float32),), {"out": np.zeros(2, np.int64)}, DtypeError, "out has"),
    ],
)
def test_bad_operands(
    lib: wootz.Library, operands: Any, named: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        lib.kernel("sample", dtype="f32")(*operands, **named)
    assert message in str(caught.value)
