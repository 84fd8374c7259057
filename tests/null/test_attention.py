"""Attention and its caches as the loader calls them, on the CPU: against softmax in float64 (scipy; torch's
own attention where it is installed), at the ends of what they take, and with indices that lead nowhere."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import wootz
from scipy import special
from wootz.caches import check_block_table, check_lengths
from wootz.errors import ArgumentError, DtypeError

from gen.cli import main

MANIFEST = """\
version: 1
targets: {cpu: {backend: cpu, isa: [baseline], features: [f16, bf16]}}
formats:
  int8: {element: {int: 8, symmetric: true}, block: 64, scale: f32}
kernels:
  attention: {dtypes: [f32]}
  attention_paged: {dtypes: [f32]}
  attention_quantised: {dtypes: [f32], formats: all}
  kv_append: {dtypes: [f32]}
  kv_append_paged: {dtypes: [f32]}
  kv_append_quantised: {dtypes: [f32], formats: all}
profiles: {default: {}}
"""
Array = Any
Call = Callable[..., Any]


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    folder = tmp_path_factory.mktemp("attention")
    (folder / "mine.yaml").write_text(MANIFEST)
    assert main(["build", "--manifest", str(folder / "mine.yaml"), "--out", str(folder / "out")]) == 0
    return wootz.load(folder / "out")


@pytest.fixture(scope="module")
def call(lib: wootz.Library) -> Call:
    formats = dict.fromkeys(("attention_quantised", "kv_append_quantised"), "int8")

    def run(kernel: str, *operands: Any, **named: Any) -> Any:
        return lib.kernel(kernel, format=formats.get(kernel), dtype="f32")(*operands, **named)

    return run


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def plain(
    q: Array, k: Array, v: Array, scale: float = 0, causal: bool = False, window: int = 0, sinks: Any = None
) -> Array:
    """By scipy's softmax, in float64, a query at a time."""
    b, h, s, d = q.shape
    n = k.shape[2]
    y = np.zeros(q.shape)
    for entry, head, i in np.ndindex(b, h, s):
        at = head // (h // k.shape[1])
        place = i + n - s
        seen = [j for j in range(n) if (not causal or j <= place) and (not window or abs(place - j) < window)]
        if not seen:
            continue
        keys, values = (a[entry, at, seen].astype(np.float64) for a in (k, v))
        scores = keys @ q[entry, head, i].astype(np.float64) * (scale or d**-0.5)
        if sinks is not None:
            scores, values = np.append(scores, sinks[head]), np.vstack([values, np.zeros(d)])
        y[entry, head, i] = special.softmax(scores) @ values
    return y


def close(found: Array, wanted: Array, most: float = 2e-5) -> None:
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=most, atol=most)


# ------------------------------------------------------------ against other packages
@pytest.mark.parametrize(
    "named", [{}, {"causal": True}, {"window": 1}, {"causal": True, "window": 3, "scale": 0.3}]
)
@pytest.mark.parametrize(
    "shape", [(2, 4, 2, 5, 9, 64), (1, 3, 1, 7, 3, 80), (1, 2, 2, 1, 33, 1), (1, 1, 1, 4, 6, 256)]
)
def test_against_scipy(call: Call, shape: tuple[int, ...], named: dict[str, Any]) -> None:
    b, h, hk, s, t, d = shape
    q, k, v, sinks = random(b, h, s, d), random(b, hk, t, d), random(b, hk, t, d) + 1, random(h)
    close(call("attention", q, k, v, **named), plain(q, k, v, **named))
    close(call("attention", q, k, v, sinks=sinks, **named), plain(q, k, v, sinks=sinks, **named))


def test_against_torch(call: Call) -> None:
    torch = pytest.importorskip("torch")
    attend = torch.nn.functional.scaled_dot_product_attention
    q, k, v = random(2, 6, 40, 96), random(2, 2, 40, 96), random(2, 2, 40, 96) - 1
    wide = [torch.from_numpy(a).double() for a in (q, k, v)]
    for causal in (False, True):
        wanted = attend(*wide, is_causal=causal, enable_gqa=True)
        close(call("attention", q, k, v, causal=causal), wanted.numpy())


def test_large_scores(call: Call) -> None:
    """About 1e4: the largest one takes nearly all; equal ones share."""
    q, k, v = random(1, 2, 3, 64) * 400, random(1, 2, 50, 64) * 30, random(1, 2, 50, 64)
    k[:, :, 7] = k[:, :, 3]
    close(call("attention", q, k, v, scale=1.0), plain(q, k, v, scale=1.0), 0.05)


# ------------------------------------------------------------ the ends
def test_queries_without_keys_give_zeros(call: Call) -> None:
    q, k = random(1, 2, 4, 8), random(1, 2, 2, 8)
    y = call("attention", q, k, k, causal=True)
    assert not y[:, :, :2].any(), "queries before the first key"
    assert y[:, :, 2:].all()
    assert not call("attention", q, k[:, :, :0].copy(), k[:, :, :0].copy()).any()
    assert not call("attention", q, k, k, lengths=np.int32([-3]), sinks=np.float32([-np.inf, 1])).any()
    assert call("attention", q[:, :, :0].copy(), k, k).shape == (1, 2, 0, 8)


def test_lengths(call: Call) -> None:
    q, k, v = random(4, 2, 3, 16), random(4, 1, 9, 16), random(4, 1, 9, 16)
    lengths = np.int32([9, 5, 0, 1000])
    found = call("attention", q, k, v, lengths=lengths, causal=True)
    k[1, :, 5:], v[1, :, 5:] = np.nan, np.nan  # never read
    assert call("attention", q, k, v, lengths=lengths, causal=True).tobytes() == found.tobytes()
    for entry, n in enumerate((9, 5, 0, 9)):
        one = slice(entry, entry + 1)
        close(found[one], plain(q[one], k[one, :, :n], v[one, :, :n], causal=True))


def test_what_is_not_a_number(call: Call) -> None:
    q, k, v = random(1, 1, 6, 8), random(1, 1, 6, 8), random(1, 1, 6, 8)
    wanted = call("attention", q, k, v, causal=True)
    q[0, 0, 0, 3], v[0, 0, 5, 1], k[0, 0, 4, 0] = np.nan, np.inf, np.nan
    found = call("attention", q, k, v, causal=True)
    assert np.isnan(found[0, 0, 0]).all()
    assert found[0, 0, 1:4].tobytes() == wanted[0, 0, 1:4].tobytes(), "they see neither key 4 nor key 5"
    assert np.isnan(found[0, 0, 4:]).all()


# ------------------------------------------------------------ caches
def paged(k: Array, page: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """A cache of pages in disorder with k [b, hk, t, d] in it, and its block table."""
    b, hk, t, d = k.shape
    blocks = -(-t // page)
    table = rng.permutation(b * blocks + 2)[: b * blocks].reshape(b, blocks).astype(np.int32)
    cache = np.full((b * blocks + 2, hk, page, d), np.nan, np.float32)
    for entry, token in np.ndindex(b, t):
        cache[table[entry, token // page], :, token % page] = k[entry, :, token]
    return cache, table


@pytest.mark.parametrize("page", [3, 16])
def test_pages_are_the_same_as_one_cache(call: Call, page: int) -> None:
    rng = np.random.default_rng(page)
    q, k, v, lengths = random(3, 4, 2, 24), random(3, 2, 37, 24), random(3, 2, 37, 24), np.int32([37, 20, 1])
    keys, table = paged(k, page, rng)
    values = np.full_like(keys, np.nan)
    for entry, token in np.ndindex(3, 37):
        values[table[entry, token // page], :, token % page] = v[entry, :, token]
    found = call("attention_paged", q, keys, values, table, lengths, causal=True)
    close(found, call("attention", q, k, v, lengths=lengths, causal=True), 1e-6)


def test_appended_rows_are_read_back(call: Call) -> None:
    """A prompt, then a token at a time, in both kinds of caches."""
    b, hk, page, blocks, d = 2, 2, 4, 3, 8
    whole = [np.zeros((b, hk, page * blocks, d), np.float32) for _ in "kv"]
    pages = [np.zeros((7, hk, page, d), np.float32) for _ in "kv"]
    table, q = np.int32([[6, 0, 2], [1, 5, 4]]), random(b, 4, 1, d)
    positions = other = np.zeros(b, np.int32)
    for s in (5, 1, 1):
        k, v = random(b, s, hk, d) + s, random(b, s, hk, d)
        positions = call("kv_append", k, v, positions, *whole)
        other = call("kv_append_paged", k, v, other, table, *pages)
        assert positions.tolist() == other.tolist()
        mine = call("attention", q, *whole, lengths=positions)
        assert mine.tobytes() == call("attention_paged", q, *pages, table, other).tobytes()
    assert (positions.dtype, positions.tolist()) == (np.int32, [7, 7])
    assert np.array_equal(whole[0][:, :, 6], k[:, 0])


def test_quantised_pages(call: Call, lib: wootz.Library) -> None:
    rng, heads, page, d = np.random.default_rng(3), 2, 16, 64
    q, k, v, lengths = (
        random(2, 4, 3, d),
        random(2, heads, 40, d),
        random(2, heads, 40, d),
        np.int32([40, 17]),
    )
    keys, table = paged(k, page, rng)
    values = np.zeros_like(keys)
    for entry, token in np.ndindex(2, 40):
        values[table[entry, token // page], :, token % page] = v[entry, :, token]
    rows = [np.nan_to_num(a).reshape(-1, d) for a in (keys, values)]
    coded = [wootz.quantize(a, lib.format("int8")) for a in rows]
    decoded = [a.dequantize().reshape(keys.shape) for a in coded]
    named = {"causal": True, "window": 9}
    found = call("attention_quantised", q, *coded, table, lengths, kv_heads=heads, page=page, **named)
    close(found, call("attention_paged", q, *decoded, table, lengths, **named), 1e-5)


def test_appended_rows_are_quantised(call: Call, lib: wootz.Library) -> None:
    """The bytes of wootz.quantize, in the rows of their places and nowhere else."""
    hk, page, d, table = 2, 16, 64, np.int32([[2, 0], [1, 5]])
    k, v, empty = random(2, 20, hk, d), random(2, 20, hk, d), np.zeros((3 * hk * page, d), np.float32)
    caches = [wootz.quantize(empty, lib.format("int8")) for _ in "kv"]
    before = caches[0].fields["codes"].copy()
    held = call("kv_append_quantised", k, v, np.int32([3, 0]), table, *caches, page=page)
    assert held.tolist() == [23, 20]
    for x, cache in ((k, caches[0]), (v, caches[1])):
        made = wootz.quantize(x.reshape(-1, d), lib.format("int8"))
        written = set()
        for entry, i, head in np.ndindex(2, 20, hk):
            token = i + (3, 0)[entry]
            number = table[entry, token // page]
            if number < 3:
                row = (number * hk + head) * page + token % page
                written.add(row)
                for field, array in cache.fields.items():
                    assert np.array_equal(array[row], made.fields[field][(entry * 20 + i) * hk + head])
        others = sorted(set(range(len(empty))) - written)
        assert np.array_equal(cache.fields["codes"][others], before[others])
    frozen = caches[1].map(np.copy)
    frozen.fields["codes"].setflags(write=False)
    with pytest.raises(ArgumentError, match=r"v_cache\.codes is read-only; the kernel writes to it"):
        call("kv_append_quantised", k, v, np.int32([3, 0]), table, caches[0], frozen, page=page)
    with pytest.raises(ArgumentError, match="shares memory with"):
        call("kv_append_quantised", k, v, np.int32([3, 0]), table, caches[0], caches[0], page=page)


def test_caches_are_written_as_ops_of_torch(call: Call, lib: wootz.Library) -> None:
    """Each has memory of its own in the schema, fields of tensors too."""
    torch = pytest.importorskip("torch")
    ops = importlib.import_module("wootz.torch").register(lib, "caches")
    k, v, positions, table = random(2, 3, 1, 64), random(2, 3, 1, 64), np.int32([4, 0]), np.int32([[1], [0]])
    whole = [np.zeros((2, 1, 9, 64), np.float32) for _ in "kv"]
    coded = [wootz.quantize(np.zeros((32, 64), np.float32), lib.format("int8")) for _ in "kv"]
    theirs = [torch.from_numpy(each.copy()) for each in whole]
    their_codes = [each.map(lambda a: torch.from_numpy(a.copy())) for each in coded]
    given = [torch.from_numpy(each) for each in (k, v, positions)]
    held = call("kv_append", k, v, positions, *whole)
    assert ops.kv_append(*given, *theirs).tolist() == held.tolist()
    call("kv_append_quantised", k, v, positions, table, *coded, page=16)
    ops.kv_append_quantised(*given, torch.from_numpy(table), *their_codes, page=16)
    for mine, its in zip(whole, theirs):
        assert np.array_equal(mine, its.numpy())
    for mine, its in zip(coded, their_codes):
        assert all(np.array_equal(mine.fields[name], its.fields[name].numpy()) for name in mine.fields)
    schema = str(torch.ops.caches.kv_append_quantised.default._schema)
    assert "Tensor(a!)[] k_cache" in schema
    assert "Tensor(b!)[] v_cache" in schema


# ------------------------------------------------------------ what leads nowhere, and what is refused
def test_indices_that_lead_nowhere(call: Call) -> None:
    """Pages that there are not: their keys are not seen, rows for them are left out; so are those of negative
    positions and those behind the end."""
    q, k, v, lengths = random(1, 1, 2, 8), random(1, 1, 12, 8), random(1, 1, 12, 8), np.int32([12])
    keys, values = (a.reshape(1, 3, 4, 8).swapaxes(0, 1).copy() for a in (k, v))
    for wrong in (-1, 3, 2**31 - 1, -(2**31)):
        table = np.int32([[0, wrong, 2]])
        seen = [0, 1, 2, 3, 8, 9, 10, 11]
        found = call("attention_paged", q, keys, values, table, lengths)
        close(found, plain(q, k[:, :, seen], v[:, :, seen]))
        before, row = keys.copy(), random(1, 9, 1, 8)
        held = call("kv_append_paged", row, row, np.int32([3]), table, keys, values.copy())
        assert held.tolist() == [12]
        assert np.array_equal(keys[0, 0, 3], row[0, 0, 0])
        assert np.array_equal(keys[2, 0], row[0, 5:, 0])
        assert np.array_equal(keys[1], before[1])
        keys = before
    cache, row = k.copy(), random(1, 3, 1, 8)
    assert call("kv_append", row, row, np.int32([-1]), cache, v.copy()).tolist() == [0]
    assert np.array_equal(cache, k)
    assert call("kv_append", row, row, np.int32([11]), cache, v.copy()).tolist() == [12]
    assert np.array_equal(cache[0, 0, 11], row[0, 0, 0])


@pytest.mark.parametrize(
    ("kernel", "shapes", "named", "error", "message"),
    [
        ("attention", ((1, 3, 1, 8), (1, 2, 1, 8), (1, 2, 1, 8)), {}, ArgumentError, "h % hk"),
        ("attention", ((1, 2, 1, 8), (1, 2, 1, 8), (1, 2, 2, 8)), {}, ArgumentError, "v has t=2, k has t=1"),
        ("attention", ((1, 1, 1, 264),) * 3, {}, ArgumentError, "q has d=264; attention takes d from 1"),
        ("attention", ((1, 1, 1, 8),) * 3, {"causal": "yes"}, ArgumentError, "causal is 'yes'"),
        ("attention", ((1, 1, 1, 8),) * 3, {"window": -1}, ArgumentError, "window is -1"),
        ("attention", ((1, 1, 1, 8),) * 3, {"lengths": np.zeros(1)}, DtypeError, "lengths has elements"),
        ("attention", ((1, 1, 1, 8),) * 3, {"sinks": np.ones(2, "f4")}, ArgumentError, "sinks has h=2"),
        ("kv_append", ((1, 0, 1, 8),) * 2, {}, ArgumentError, "k has s=0; kv_append takes s from 1"),
    ],
)  # fmt: skip
def test_bad_operands(
    call: Call, kernel: str, shapes: Any, named: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = [np.ones(shape, np.float32) for shape in shapes]
    if kernel == "kv_append":
        given += [np.zeros(1, np.int32), *(np.ones((1, 1, 4, 8), np.float32) for _ in "kv")]
    with pytest.raises(error) as caught:
        call(kernel, *given, **named)
    assert message in str(caught.value)


def test_a_cache_is_not_the_new_rows(call: Call) -> None:
    k, v, cache = random(1, 4, 1, 8), random(1, 4, 1, 8), random(1, 1, 4, 8)
    with pytest.raises(ArgumentError, match="k_cache shares memory with k"):
        call("kv_append", k, v, np.zeros(1, np.int32), k.reshape(1, 1, 4, 8), cache)
    frozen = cache.copy()
    frozen.setflags(write=False)
    with pytest.raises(ArgumentError, match="v_cache is read-only; the kernel writes to it"):
        call("kv_append", k, v, np.zeros(1, np.int32), cache, frozen)


def test_what_kernels_leave_out_is_named() -> None:
    table, lengths = np.int32([[0, 2, -1], [1, 7, 0]]), np.int32([8, 4])
    check_block_table(table, lengths, 3, 4)  # page -1 and page 7 have no token yet
    for lens, new, message in (
        ([9, 4], 0, r"block_table\[0, 2\]: wanted one of the cache's 3 pages, 0 to 2; got -1"),
        ([8, 4], 1, r"block_table\[0, 2\]"),
        ([0, 5], 0, r"block_table\[1, 1\]: .*; got 7"),
        ([13, 0], 0, r"lengths\[0\]: wanted 0 to 12; got 13"),
        ([0, -1], 0, r"lengths\[1\]: wanted 0 to 12; got -1"),
        ([0, 11], 2, r"lengths\[1\]: wanted 0 to 10, for there is room for 12 tokens and 2 are new; got 11"),
        ([1], 0, r"block_table: wanted a row for each of the 1 lengths; got 2"),
    ):
        with pytest.raises(ArgumentError, match=message):
            check_block_table(table, np.int32(lens), 3, 4, new)
    check_lengths(np.int32([0, 5]), 5)
    with pytest.raises(ArgumentError, match=r"lengths\[1\]: wanted 0 to 5; got 6"):
        check_lengths(np.int32([0, 6]), 5)
    with pytest.raises(DtypeError, match="lengths: wanted dtype int32; got int64"):
        check_lengths(np.zeros(2, np.int64), 5)
    with pytest.raises(ArgumentError, match=r"block_table: wanted 2 axes; got shape \(2,\)"):
        check_block_table(lengths, lengths, 3, 4)
