"""Decoders, emitted and compiled: every element and width, wherever the bits lie, all codes, bit for bit."""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import wootz
from numpy.typing import NDArray
from wootz.formats.sample import random_tensor

from gen.formats import axes
from gen.formats.axes import Element
from gen.formats.grammar import format_of
from gen.ir.decode import KINDS, decode, decode_less, decode_one, decode_wide, factor_of
from gen.ir.dsl import Builder
from gen.ir.nodes import Function
from gen.manifest.target import Target

sys.path.insert(0, str(Path(__file__).resolve().parent))
import host

F32, U32 = np.float32, np.uint32
WORDS, ITEMS = 3, 6000
"""32-bit words that one item decodes from, and how many items of random bits are decoded."""

Places = tuple[tuple[int, ...], ...]


# Elements


def integers() -> Iterator[Element]:
    for bits in range(1, 9):
        yield axes.integer(bits)
        yield axes.integer(bits, signed=False)
        yield from (axes.integer(bits, offset=o) for o in {1, 1 << (bits - 1), (1 << bits) - 1})
    yield axes.integer(5, symmetric=True)


def floats() -> Iterator[Element]:
    for exponent in range(1, 9):
        for mantissa in range(9 - exponent):
            for signed in (True, False):
                for specials in axes.SPECIALS:
                    for bias in (None, 20) if exponent < 6 and mantissa < 3 and signed else (None,):
                        try:
                            yield axes.floating(exponent, mantissa, bias, specials, signed)
                        except axes.AxesError:
                            continue


def codebooks() -> Iterator[Element]:
    rng = np.random.default_rng(3)
    for bits in range(1, 9):
        table = rng.standard_normal(1 << bits)
        table[:2] = -0.0, 1e-30
        yield axes.codebook([float(v) for v in table])


@cache
def elements() -> tuple[Element, ...]:
    return (*integers(), *floats(), *codebooks(), axes.power_of_two())


# Where their bits lie


def places(bits: int, short: bool) -> Places:
    """Codes in one piece at every bit of a word, over its end too, and in several pieces. short: some."""
    whole = [tuple(range(start, start + bits)) for start in range(0, 34, 5 if short else 1)]
    ends = [tuple(range(end - bits + 1, end + 1)) for end in (15, 16, 31, 32, 63)]
    rng = np.random.default_rng(bits)
    apart = [tuple(int(p) for p in rng.permutation(32 * WORDS)[:bits]) for _ in range(2 if short else 6)]
    backwards = [tuple(reversed(range(20, 20 + bits)))]
    cut = bits // 2
    planes = [
        (*range(7, 7 + cut), *range(40, 40 + bits - cut)),
        (*range(50, 50 + cut), *range(bits - cut)),
    ]
    return (*whole, *ends, *apart, *backwards, *planes)


CASES = [
    (element, target)
    for element in elements()
    for target in ((host.TARGET, host.PAIRS) if element.kind == "float" else (host.TARGET,))
]


def case(index: int) -> str:
    return f"case{index}"


def where(element: Element) -> Places:
    """All places for the usual kinds; fewer for the many floats."""
    return places(
        element.bits, short=element.kind == "float" and element.bias != (1 << (element.exponent - 1)) - 1
    )


def decoder(index: int, element: Element, target: Target) -> Function:
    """y[item][place] = the value at that place of the item's words."""

    def build(b: Builder) -> None:
        w, y, items = b.buffer("w", "u32"), b.buffer("y", "f32", "out"), b.scalar("items")
        some = where(element)
        with b.loop(0, items) as item:
            words = [b.load(w, item * WORDS + i) for i in range(WORDS)]
            for j, value in enumerate(decode(b, element, words, some, target)):
                b.store(y, item * len(some) + j, value * factor_of(element, target))

    return host.function(case(index), build, target)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> host.Library:
    functions = [decoder(i, *c) for i, c in enumerate(CASES)]
    return host.Library(tmp_path_factory.mktemp("decode"), functions, "-O0")


@cache
def random_words() -> NDArray[np.uint32]:
    return np.random.default_rng(11).integers(0, 1 << 32, (ITEMS, WORDS), U32)


def codes_at(positions: tuple[int, ...]) -> NDArray[np.uint32]:
    words = random_words()
    pieces = [(words[:, p // 32] >> U32(p % 32) & U32(1)) << U32(i) for i, p in enumerate(positions)]
    codes: NDArray[np.uint32] = np.bitwise_or.reduce(pieces)
    return codes


def bits_of(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    """With every NaN the same."""
    return np.where(np.isnan(values), U32(0x7FC00000), values.view(U32))


def table_of(element: Element) -> NDArray[np.uint32]:
    return np.array([axes.f32_bits(v) for v in element.values()], U32)


def test_every_code_everywhere(library: host.Library) -> None:
    wrong = []
    for index, (element, target) in enumerate(CASES):
        some = where(element)
        y = np.full((ITEMS, len(some)), 12345, F32)
        library.run(case(index), {"w": random_words(), "y": y}, items=ITEMS)
        for j, positions in enumerate(some):
            codes = codes_at(positions)
            assert len(np.unique(codes)) == 1 << element.bits, "not all codes occur"
            if (bits_of(y[:, j]) != table_of(element)[codes]).any():
                wrong.append((element, target.name, positions))
    assert not wrong, f"{len(wrong)} places, the first: {wrong[:3]}"


def test_the_cases_have_every_way_to_decode() -> None:
    used = set()
    for element, target in CASES:
        ways = [way for way in KINDS if way.kind == element.kind and way.applies(element, target)]
        used.add(KINDS.index(ways[0]))
    assert used == {i for i, way in enumerate(KINDS) if way.kind != "wide"}  # see test_natural_places
    assert {(e.kind, e.bits) for e in elements()} >= {
        (k, n) for k in ("int", "codebook") for n in range(1, 9)
    }
    assert {e.bits for e in elements() if e.kind == "float"} == set(range(1, 9))


def test_an_f16_holds_no_more_than_it_can() -> None:
    """The way through f16 is taken by what has at most its range; e5 without infinities has more."""
    through = next(way for way in KINDS if way.kind == "float")
    for element in floats():
        top = max(abs(v) for v in element.values() if math.isfinite(v))
        ratio = top * 2.0 ** -(15 - element.bias)
        if through.applies(element, host.PAIRS):
            assert ratio <= 65504
            assert not through.applies(element, host.TARGET)
    assert not through.applies(axes.floating(5, 1), host.PAIRS)
    assert through.applies(axes.floating(5, 2), host.PAIRS)
    assert through.applies(axes.floating(4, 3), host.PAIRS)


def one(index: int, element: Element) -> Function:
    """y[item] = the value of the code in a word's lowest bits."""

    def build(b: Builder) -> None:
        w, y, items = b.buffer("w", "u32"), b.buffer("y", "f32", "out"), b.scalar("items")
        with b.loop(0, items) as item:
            b.store(y, item, decode_one(b, element, [b.load(w, item)], range(element.bits), host.TARGET))

    return host.function(case(index), build)


def test_one_code_at_a_time(tmp_path: Path) -> None:
    """Small floats are looked up in a table, whose entries may be NaN, infinite and subnormal."""
    made = host.Library(tmp_path, [one(i, e) for i, e in enumerate(elements())], "-O0")
    for index, element in enumerate(elements()):
        codes, y = random_words()[:, 0].copy(), np.full(ITEMS, 12345, F32)
        made.run(case(index), {"w": codes, "y": y}, items=ITEMS)
        wanted = table_of(element)[codes & U32((1 << element.bits) - 1)]
        np.testing.assert_array_equal(bits_of(y), bits_of(wanted.view(F32)), str(element))


ZEROS = (-256.0, -1.0, 0.0, 1.0, 15.0, 255.0, 256.0)


def less(index: int, element: Element) -> Function:
    """y[item][place] = the value there, less z[item]."""

    def build(b: Builder) -> None:
        w, z = b.buffer("w", "u32"), b.buffer("z", "f32")
        y, items, some = b.buffer("y", "f32", "out"), b.scalar("items"), where(element)
        with b.loop(0, items) as item:
            words = [b.load(w, item * WORDS + i) for i in range(WORDS)]
            for j, value in enumerate(decode_less(b, element, words, some, b.load(z, item))):
                b.store(y, item * len(some) + j, value)

    return host.function(case(index), build)


def test_integers_less_zero_points(tmp_path: Path) -> None:
    """To the bit what a subtraction after decoding gives."""
    kinds = [e for e in integers() if e.bits in (1, 2, 4, 5, 8)]
    made = host.Library(tmp_path, [less(i, e) for i, e in enumerate(kinds)], "-O0")
    z = np.resize(np.array(ZEROS, F32), ITEMS)
    for index, element in enumerate(kinds):
        some = where(element)
        y = np.full((ITEMS, len(some)), 12345, F32)
        made.run(case(index), {"w": random_words(), "z": z, "y": y}, items=ITEMS)
        wanted = [table_of(element)[codes_at(positions)].view(F32) - z for positions in some]
        np.testing.assert_array_equal(y.view(U32), np.stack(wanted, 1).view(U32), str(element))


def test_powers_of_two_at_both_ends(library: host.Library) -> None:
    table = table_of(axes.power_of_two())
    assert (table[0], table[255]) == (0x00400000, 0x7FC00000)
    assert CASES[-1][0].kind == "exponent"


# 16-bit floats


def wide(type: str) -> Function:
    def build(b: Builder) -> None:
        w, y, items = b.buffer("w", "u32"), b.buffer("y", "f32", "out"), b.scalar("items")
        with b.loop(0, items) as i:
            b.store(y, i, decode_wide(b, axes.wide(type), b.load(w, i)))

    return host.function(f"wide_{type}", build)


def natural(type: str) -> Function:
    """Plain numbers where they lie in an array of theirs, two 16-bit ones a word."""

    def build(b: Builder) -> None:
        w, y, items = b.buffer("w", "u32"), b.buffer("y", "f32", "out"), b.scalar("items")
        element = axes.wide(type)
        places = [tuple(range(at, at + element.bits)) for at in range(0, 32, element.bits)]
        with b.loop(0, items) as i:
            for j, value in enumerate(decode(b, element, [b.load(w, i)], places, host.TARGET)):
                b.store(y, i * len(places) + j, value)

    return host.function(f"natural_{type}", build)


def cast(source: str, to: str) -> Function:
    def build(b: Builder) -> None:
        x, y, items = b.buffer("x", source), b.buffer("y", to, "out"), b.scalar("items")
        with b.loop(0, items) as i:
            b.store(y, i, b.load(x, i).cast(to))

    return host.function(f"{source}_to_{to}", build)


CASTS = [("f16", "f32"), ("bf16", "f32"), ("f32", "f16"), ("f32", "bf16")]
FLAGS = {"baseline": (), "f16c": ("-mf16c",)}


def has_f16c() -> bool:
    return platform.machine() in ("x86_64", "AMD64") and "f16c" in Path("/proc/cpuinfo").read_text()


@pytest.fixture(scope="module", params=[name for name in FLAGS if name == "baseline" or has_f16c()])
def casts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> host.Library:
    types = ("f16", "bf16", "f32")
    functions = [*(cast(*pair) for pair in CASTS), *map(wide, types), *map(natural, types)]
    return host.Library(tmp_path_factory.mktemp("casts"), functions, *FLAGS[request.param])


def converted(
    library: host.Library, name: str, x: NDArray[Any], to: Any, argument: str = "x"
) -> NDArray[Any]:
    y = np.zeros(x.size, to)
    library.run(name, {argument: x, "y": y}, items=x.size)
    return y


PATTERNS = np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize(("source", "numpy_type"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_widening_of_every_pattern(casts: host.Library, source: str, numpy_type: Any) -> None:
    wanted = PATTERNS.view(numpy_type).astype(F32)
    np.testing.assert_array_equal(
        bits_of(converted(casts, f"{source}_to_f32", PATTERNS, F32)), bits_of(wanted)
    )
    noise = (np.random.default_rng(1).integers(0, 1 << 16, PATTERNS.size, U32) << U32(16)) | PATTERNS
    for words in (PATTERNS.astype(U32), *([noise] if source == "f16" else [])):
        np.testing.assert_array_equal(
            bits_of(converted(casts, f"wide_{source}", words, F32, "w")), bits_of(wanted)
        )


@pytest.mark.parametrize(
    ("type", "numpy_type"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16), ("f32", F32)]
)
def test_natural_places(casts: host.Library, type: str, numpy_type: Any) -> None:
    x = np.random.default_rng(3).permutation(PATTERNS).view(numpy_type)
    y = np.zeros(x.size, F32)
    casts.run(f"natural_{type}", {"w": x.view(U32), "y": y}, items=x.nbytes // 4)
    np.testing.assert_array_equal(bits_of(y), bits_of(x.astype(F32)))


def dense(numpy_type: Any) -> NDArray[np.float32]:
    """Every number of a 16-bit type, every tie, what lies next to each; ends and specials; random bits."""
    numbers = np.sort(PATTERNS.view(numpy_type).astype(F32))
    numbers = numbers[np.isfinite(numbers)]
    middle = ((numbers[:-1].astype(np.float64) + numbers[1:]) / 2).astype(F32)
    low, high = PATTERNS.astype(U32), PATTERNS.astype(U32) << U32(16)
    exact = np.concatenate([numbers, middle, low.view(F32), high.view(F32)])
    exact = exact[~np.isnan(exact)]
    with np.errstate(over="ignore", under="ignore"):
        near = [np.nextafter(exact, F32(s)) for s in (-np.inf, np.inf)]
    ends = np.array(
        [65504, 65519.996, 65520, 65536, 3.4028235e38, np.inf, np.nan, 2**-24, 2**-25, 2**-26, 1e-45], F32
    )
    random = np.random.default_rng(2).integers(0, 1 << 32, 1 << 20, U32).view(F32)
    nans = (np.arange(0x7F800001, 0x7FFFFFFF, 9973).astype(U32) | U32(1)).view(F32)
    return np.concatenate([exact, *near, ends, -ends, nans, -nans, random])


@pytest.mark.parametrize(("to", "numpy_type"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_rounding(casts: host.Library, to: str, numpy_type: Any) -> None:
    """To nearest, ties to even, subnormals, overflow to infinity; NaN stays NaN, with its sign."""
    x = dense(numpy_type)
    with np.errstate(all="ignore"):
        found, wanted = converted(casts, f"f32_to_{to}", x, np.uint16), x.astype(numpy_type).view(np.uint16)
    nan = np.isnan(x)
    assert nan.sum() > 1000
    np.testing.assert_array_equal(found[~nan], wanted[~nan])
    assert np.isnan(found[nan].view(numpy_type).astype(F32)).all()
    assert ((found[nan] >> 15) == (x[nan].view(U32) >> 31)).all()


def test_f32_is_its_bits(casts: host.Library) -> None:
    x = dense(np.float16)
    np.testing.assert_array_equal(bits_of(converted(casts, "wide_f32", x.view(U32), F32, "w")), bits_of(x))


# Scales and zero points that are streams of bits


def streams() -> Iterator[tuple[str, dict[str, Any]]]:
    for bits in range(1, 8):
        scale = {"type": {"int": bits, "signed": False}}
        zero = {"type": f"uint{bits}"}
        yield f"scale{bits}", {"element": "int8", "block": 3, "scale": scale}
        yield (
            f"zero{bits}",
            {"element": f"uint{bits}", "block": 5, "scale": "f32", "zero": {**zero, "stored": "minus_one"}},
        )
        yield f"plain{bits}", {"element": "uint8", "block": 5, "scale": "f16", "zero": zero}
        both = {
            "type": f"{'int' if bits > 1 else 'uint'}{bits}",
            "block": 8,
            "scale": {"type": f"uint{bits}", "block": [2, 16], "scale": "f32"},
        }
        yield f"nested{bits}", {"element": f"int{bits}", "block": 4, "scale": both}


@pytest.fixture(scope="module")
def stream_library(tmp_path_factory: pytest.TempPathFactory) -> host.Library:
    formats = [format_of(name, body)[0] for name, body in streams()]
    functions = [host.kernel("dequant", fmt) for fmt in formats if fmt is not None]
    return host.Library(tmp_path_factory.mktemp("streams"), functions, "-O0")


@pytest.mark.parametrize(
    ("name", "body"), list(streams()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_streams_end_with_a_guard_byte(stream_library: host.Library, name: str, body: dict[str, Any]) -> None:
    """Every entry of every row, the last code ending anywhere in its byte; nothing past the arrays."""
    fmt, problems = format_of(name, body)
    assert fmt is not None, problems
    for k in range(1, 50):
        tensor = random_tensor(fmt, (3, k), np.random.default_rng(k), specials=True)
        arrays = {f"w.{field}": host.guarded(array) for field, array in tensor.fields.items()}
        y = np.full((3, k), np.nan, F32)
        chunks = -(-k // fmt.layout.chunk_elements)
        stream_library.run(
            name, {**arrays, "y": y}, n=3, k=k, blocks=3 * (chunks * fmt.layout.chunk_elements)
        )
        np.testing.assert_array_equal(bits_of(y), bits_of(tensor.dequantize()))


def test_minus_one_is_added_back(stream_library: host.Library) -> None:
    """By hand: code 5, stored zero 2, scale 0.5: (5 - 3) / 2."""
    fmt = format_of("zero3", dict(streams())["zero3"])[0]
    assert fmt is not None
    fields: dict[str, NDArray[Any]] = {
        "codes": np.zeros((1, fmt.layout.row_bytes(1)), np.uint8), "scale": np.full((1, 1), 0.5, F32),
        "zero": np.array([[2, 0]], np.uint8),
    }  # fmt: skip
    fields["codes"][0, 0] = 5
    tensor = wootz.QuantizedTensor(fmt, (1, 1), fields)  # type: ignore[arg-type]
    y = np.zeros((1, 1), F32)
    stream_library.run("zero3", {**{f"w.{n}": a for n, a in fields.items()}, "y": y}, n=1, k=1, blocks=1)
    assert y[0, 0] == tensor.dequantize()[0, 0] == 1.0
