"""Generated decoders, compiled for the host: every code of every format at every place, for both types."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from wootz.formats import QuantizedTensor
from wootz.formats.bits import from_bf16, to_bf16
from wootz.formats.dequantize import combine_scales, decode, decode_exact, expand, scale_block, zero_values
from wootz.formats.packed import prepack
from wootz.formats.sample import random_tensor
from wootz.formats.tensor import pack_rows, side_entries, unpack_rows

from gen.formats.axes import Format
from gen.lower.functor import KINDS, functor
from gen.manifest.target import Target
from gen.plan import cells as plan

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "unseen")]
import functor_host as host  # noqa: E402
import test_unseen_formats as unseen_formats  # noqa: E402

ROOT = HERE.parents[1]
TYPES = ("f16", "bf16")
Case = tuple[Format, str, Target]


# What is expected


def to_type(x: NDArray[Any], activations: str) -> NDArray[np.uint16]:
    """Raw 16-bit numbers, rounded once."""
    with np.errstate(all="ignore"):
        raw: NDArray[np.uint16] = (
            to_bf16(x) if activations == "bf16" else x.astype(np.float16).view(np.uint16)
        )
    return raw


def from_type(raw: NDArray[np.uint16], activations: str) -> NDArray[np.float32]:
    with np.errstate(invalid="ignore"):  # signalling NaN
        return from_bf16(raw) if activations == "bf16" else raw.view(np.float16).astype(np.float32)


def same(raw: NDArray[np.uint16], wanted: NDArray[np.uint16], activations: str) -> NDArray[np.bool_]:
    """Bit for bit; any NaN like any other."""
    both = np.isnan(from_type(raw, activations)) & np.isnan(from_type(wanted, activations))
    equal: NDArray[np.bool_] = (raw == wanted) | both
    return equal


def every_code(fmt: Format, seed: int = 1) -> QuantizedTensor:
    """A matrix of whole units in which every place of a unit has every code; scales of all kinds."""
    d = host.descriptor(fmt)
    bits, columns = d.element.bits, int(d.raw["packed"]["unit_k"])
    across = 2
    tiles = max(1 << bits, 4) // across
    shape = (16 * tiles, columns * across)
    drawn = random_tensor(d, shape, np.random.default_rng(seed), specials=True)
    unit = np.repeat(np.repeat(np.arange(tiles * across).reshape(tiles, across), 16, 0), columns, 1)
    place = np.arange(shape[0])[:, None] % 16 * 37 + np.arange(shape[1]) % columns * 11
    codes = ((unit + place) % (1 << bits)).astype(np.uint8)
    return with_codes(drawn, codes)


def with_codes(q: QuantizedTensor, codes: NDArray[np.uint8]) -> QuantizedTensor:
    out = np.zeros_like(q.fields["codes"])
    inline = [i.field for i in q.format.layout.inline]
    entries = side_entries(q)
    pack_rows(q.format, codes, {name: entries[name] for name in inline}, out)
    return QuantizedTensor(q.format, q.shape, {**q.fields, "codes": out})


def decoded_values(q: QuantizedTensor, dtype: Any) -> NDArray[Any]:
    """What codes are before scales, zero points of codes subtracted, in some precision."""
    d, entries = q.format, side_entries(q)
    v = d.element.values.astype(dtype)[unpack_rows(q, 0, q.shape[0])]
    if d.zero is not None and d.zero.domain == "code":
        z = zero_values(d, entries)
        assert z is not None
        with np.errstate(all="ignore"):
            v = v - expand(z.astype(dtype), d.block, q.shape, 0, q.shape[0])
    return v


def f32_scales(q: QuantizedTensor, run: int) -> NDArray[np.float32]:
    d = q.format
    s = expand(
        combine_scales(d, side_entries(q), q.shape, np.float32), scale_block(d), q.shape, 0, q.shape[0]
    )
    out: NDArray[np.float32] = s[:, ::run]
    return out


def check(functors: host.Functors, name: str, case: Case) -> None:
    fmt, activations, _ = case
    q = every_code(fmt)
    got, known = functors.run(name, prepack(q)), functors.constants(name)
    back = 2.0 ** -known["exponent"]
    plain = decoded_values(q, np.float64)
    wanted = to_type(plain * back, activations)
    ok = same(got.decoded, wanted, activations)
    if not known["exact"]:  # a difference may be rounded to f32 first
        rough = decoded_values(q, np.float32).astype(np.float64)
        ok |= same(got.decoded, to_type(rough * back, activations), activations)
    assert ok.all(), f"{name}: {(~ok).sum()} of {ok.size} decoded numbers are wrong"
    if known["exact"]:
        with np.errstate(invalid="ignore"):
            numbers = from_type(got.decoded, activations).astype(np.float64) / back
        assert ((numbers == plain) | (np.isnan(numbers) & np.isnan(plain))).all(), f"{name}: not exact"
    with np.errstate(all="ignore"):
        scales = f32_scales(q, known["run"]) * np.float32(2.0 ** known["exponent"])
    assert np.array_equal(got.scales, scales, equal_nan=True), f"{name}: scales"
    ok = same(got.folded, to_type(decode(q), activations), activations)
    ok |= same(got.folded, to_type(decode_exact(q), activations), activations)
    assert ok.all(), f"{name}: {(~ok).sum()} of {ok.size} folded numbers are wrong"


# Formats


@cache
def shipped() -> dict[str, Format]:
    return dict(plan.load(ROOT / "kernels.yaml").formats)


@cache
def unseen() -> dict[str, Format]:
    """Formats that are in no manifest, half written by hand and half drawn."""
    return {name: unseen_formats.made(body, name) for name, body in unseen_formats.bodies().items()}


@cache
def converted() -> dict[str, Case]:
    """Formats of the manifest whose functor is another one where the hardware converts."""
    found = {}
    for name, fmt in shipped().items():
        for a in TYPES:
            if functor(fmt, a, host.TARGET) != functor(fmt, a, host.CONVERTS):
                found[f"{name}_converted_to_{a}"] = (fmt, a, host.CONVERTS)
    return found


@cache
def cases() -> dict[str, Case]:
    formats = {**shipped(), **unseen()}
    plain = {f"{name}_in_{a}": (fmt, a, host.TARGET) for name, fmt in formats.items() for a in TYPES}
    return {**plain, **converted()}


GROUPS = 8
"""Parts that are compiled one by one, each in a test of its own, so that workers share the work."""


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_code_at_every_place(group: int, tmp_path: Path) -> None:
    some = dict(list(cases().items())[group::GROUPS])
    functors, problems = host.Functors(tmp_path, some), []
    for name, case in some.items():
        try:
            check(functors, name, case)
        except AssertionError as error:
            problems.append(str(error).partition("\n")[0])
    assert not problems


def test_the_cases_are_many() -> None:
    known = cases()
    assert {f"{name}_in_{a}" for name in (*shipped(), *unseen()) for a in TYPES} <= set(known)
    assert {f"bits {case[0].element.bits}" for case in known.values()} == {f"bits {n}" for n in range(1, 9)}
    assert any("converted" in name for name in known)


# Texts


def known(name: str, activations: str) -> dict[str, int]:
    """The constants of a functor of the manifest, from its text."""
    text = functor(shipped()[name], activations, host.TARGET)
    words = {"true": 1, "false": 0}
    found = re.findall(r"static constexpr (?:int|bool) (\w+) = (-?\w+);", text)
    return {key: words[value] if value in words else int(value) for key, value in found}


def test_what_kernels_read_of_a_functor() -> None:
    wanted = {"bits": 4, "unit_k": 256, "steps": 16, "vectors": 4, "words": 16, "code_bytes": 2048, "run": 64}
    plain = known("int4", "bf16")
    assert {key: plain[key] for key in wanted} == wanted
    assert (plain["unit_bytes"], plain["runs"], plain["tensors"], plain["exponent"]) == (2048 + 256, 4, 0, 0)
    flags = ("scaled", "zeroed", "value_zero", "fold_only", "exact")
    assert [plain[f] for f in flags] == [1, 0, 0, 0, 1]
    assert [known("uint4_z", "f16")[f] for f in flags] == [1, 1, 0, 0, 1]
    assert [known("affine4", "f16")[f] for f in flags] == [1, 0, 1, 1, 1]
    assert [known("nf4", "bf16")[f] for f in flags] == [1, 0, 0, 0, 0]
    assert [known("mxfp8_e5m2", "f16")[f] for f in flags] == [1, 0, 0, 0, 1]
    assert (known("nvfp4", "f16")["tensors"], known("nvfp4", "f16")["exponent"]) == (1, 14)
    assert known("nvfp4", "bf16")["exponent"] == 0


def flags_of(body: dict[str, Any], activations: str) -> tuple[bool, bool]:
    """(fold_only, exact) of a format."""
    text = functor(unseen_formats.made(body), activations, host.TARGET)
    return "fold_only = true" in text, "exact = true" in text


FLOAT6 = {"float": {"exponent": 6, "mantissa": 1}}
FLAGS: list[tuple[Any, Any, tuple[bool, bool], tuple[bool, bool]]] = [
    ("int4", None, (False, True), (False, True)),
    ("uint8", "uint8", (False, True), (False, True)),
    ("uint8", "e4m3", (False, False), (False, False)),
    ("uint4", {"type": "f16", "domain": "code"}, (False, False), (False, False)),
    ("uint4", {"type": "f32", "domain": "code"}, (True, False), (False, False)),
    ("uint4", {"type": "f16", "domain": "value"}, (True, True), (True, True)),
    (FLOAT6, None, (True, False), (False, True)),
    ({"codebook": [0.0, 1.0, 2.0, -3.0]}, None, (False, True), (False, True)),
    ({"codebook": [0.0, 0.1, 2.0, -3.0]}, None, (False, False), (False, False)),
]
"""(element, zero point, (fold_only, exact) in f16, the same in bf16)."""


@pytest.mark.parametrize(("element", "zero", "f16", "bf16"), FLAGS)
def test_which_formats_are_exact_and_which_only_fold(
    element: Any, zero: Any, f16: tuple[bool, bool], bf16: tuple[bool, bool]
) -> None:
    body = {"element": element, "block": 16, "scale": "f16", **({"zero": zero} if zero else {})}
    assert (flags_of(body, "f16"), flags_of(body, "bf16")) == (f16, bf16)
    short = {**body, "block": 8}
    assert flags_of(short, "bf16") == (True, bf16[1])


MUTANTS = [
    ("int4", "f16", "w[0] >> 8", "w[0] >> 7"),
    ("int8", "bf16", "0x00800080", "0x00800000"),
    ("fp4", "bf16", "0x7e807e80", "0x7e007e00"),
    ("fp8_e4m3", "f16", "0x40004000", "0x40000000"),
    ("fp8_e5m2", "bf16", "Half::high(pair))", "Half::low(pair))"),
    ("nf4", "f16", "0xfbea", "0xfbeb"),
    ("uint4_z", "f16", "(g * runs + j) * 2 + half", "(g * runs + j) * 2"),
    ("mxfp4", "f16", "0x46800000u", "0x46000000u"),
    ("affine4", "f16", "Type::fma2(a[r], re", "Type::fma2(a[0], re"),
    ("mxint4", "bf16", "value * 0.0f + value", "value"),
]
"""(format, type, text, what it is replaced by): one wrong bit, place or special number."""


@pytest.mark.parametrize(("name", "activations", "text", "wrong"), MUTANTS)
def test_a_planted_bug_is_found(name: str, activations: str, text: str, wrong: str, tmp_path: Path) -> None:
    case = {"planted": (shipped()[name], activations, host.TARGET)}

    def plant(source: str) -> str:
        assert text in source
        return source.replace(text, wrong)

    with pytest.raises(AssertionError, match="planted"):
        check(host.Functors(tmp_path, case, plant), "planted", case["planted"])


# The types


@pytest.mark.parametrize("activations", TYPES)
def test_rounding_of_the_generator_is_numpys(activations: str) -> None:
    kind = KINDS[activations]
    rng = np.random.default_rng(1)
    some = np.array([0x0000, 0x0001, 0x007F, 0x0080, 0x03FF, 0x0400, 0x3C00, 0x7BFF, 0x7F7F], np.uint16)
    every = np.concatenate([some, rng.integers(0, 1 << 15, 500).astype(np.uint16)])
    single = from_type(np.concatenate([every, every | 0x8000]), activations)
    x = single[np.isfinite(single)].astype(np.float64)
    halfway = np.nextafter(np.repeat(x, 3) * (1 + 2.0**-kind.digits), np.tile([-np.inf, 0, np.inf], x.size))
    for value in (*x, *halfway, np.nan, np.inf, -np.inf, 1e39, -1e-50):
        wanted = int(to_type(np.array([value]), activations)[0])
        assert kind.bits(float(value)) == wanted or np.isnan(value), value
        exact = float(from_type(np.array([wanted], np.uint16), activations)[0])
        assert kind.value(wanted) == exact or np.isnan(value)
        assert kind.holds(float(value)) == (exact == value or np.isnan(value))
