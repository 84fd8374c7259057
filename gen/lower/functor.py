"""The decode functor of a format: C++ text for cutlass/fragment.cuh, from packed words to operands.

`functor` writes a struct whose functions turn a lane's words (gen/formats/fragment.py) into registers of
the m16n8k16 product: how codes become numbers is in `pairs`, here is what they need of scales and zero
points.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import cached_property

from ..formats.axes import Element, Format, f32_bits
from ..formats.fragment import PERIOD, STEP, Side
from ..formats.layout import SCALE_FIELDS
from ..manifest.target import Target
from .pairs import KINDS, Plan, by_mantissa, code_pieces, gather, integer_of, magic, subnormal, table_text
from .weights import Weights

__all__ = [
    "KINDS", "Weights", "added_in_type", "functor", "functor_of", "placed", "stored_value", "subnormals",
    "zero_bits",
]  # fmt: skip


def stored_value(element: Element, code: str, table: str) -> str:
    """The f32 value of a stored scale or zero point; `table` names a codebook's numbers."""
    if element.kind == "wide":
        wide = {
            "f16": "fragment::half_f32({})",
            "bf16": "fragment::as_float(static_cast<uint32_t>({}) << 16)",
        }
        return wide.get(element.type, "{}").format(code)
    if element.kind == "int":
        flipped, offset = integer_of(element)
        return f"fragment::int_f32<{flipped}, {offset}>({code})"
    if element.kind == "exponent":
        return f"fragment::power_f32({code})"
    if element.kind == "codebook":
        return f"fragment::as_float({table}[{code}])"
    payload = element.exponent + element.mantissa
    top = {"none": 1 << payload, "nan": (1 << payload) - 1}.get(
        element.specials, ((1 << element.exponent) - 1) << element.mantissa
    )
    infinite, signed = str(element.specials == "ieee").lower(), str(element.signed).lower()
    axes = f"{element.exponent}, {element.mantissa}, {element.bias}, {top}, {infinite}, {signed}"
    return f"fragment::float_f32<{axes}>({code})"


_STORED = {"f16": "uint16_t", "bf16": "uint16_t", "f32": "float", "": "uint8_t"}


def _f32_table(name: str, element: Element) -> str:
    return table_text(name, "uint32_t", [f"0x{f32_bits(v):08x}" for v in element.values()])


class _Text(Weights):
    """The text of one functor."""

    @classmethod
    def of(cls, weights: Weights) -> _Text:
        return cls(*(getattr(weights, each.name) for each in fields(Weights)))

    def tables(self) -> Iterator[str]:
        """Declarations in memory: numbers of the type, and f32 numbers of codebooks."""
        yield from self.plan.tables
        if not self.plan.exact:
            yield _f32_table(f"{self.name}_values", self.fmt.element)
        for i, level in enumerate(self.fmt.scales):
            if level.element.kind == "codebook":
                yield _f32_table(f"{self.name}_{SCALE_FIELDS[i]}", level.element)
        if self.fmt.zero is not None and self.fmt.zero.element.kind == "codebook":
            yield _f32_table(f"{self.name}_zero", self.fmt.zero.element)

    def constants(self) -> Iterator[str]:
        """What kernels read of the struct at compile time."""
        f = self.layout
        numbers = {
            "bits": f.bits, "unit_k": f.columns, "steps": f.steps, "vectors": f.words // 4, "words": f.words,
            "code_bytes": f.code_bytes, "unit_bytes": f.unit_bytes, "run": f.run, "runs": f.runs,
            "tensors": len(f.tensors), "exponent": self.plan.exponent,
        }  # fmt: skip
        flags = {
            "scaled": bool(self.fmt.scales), "zeroed": self.code_zero is not None,
            "value_zero": self.value_zero, "fold_only": self.fold_only, "exact": self.exact,
        }  # fmt: skip
        yield from (f"static constexpr int {name} = {value};" for name, value in numbers.items())
        yield from (f"static constexpr bool {name} = {str(value).lower()};" for name, value in flags.items())

    def steps(self, head: str, made: Plan) -> Iterator[str]:
        """A function that runs a plan for one step, whose texts repeat after a few steps."""
        per_step = made.steps or tuple(
            tuple(f"a[{r}] = {text};" for r, text in enumerate(made.pairs[i : i + 4]))
            for i in range(0, len(made.pairs), 4)
        )
        bits = self.layout.bits
        period = len(per_step)
        if made.pairs:
            places = self.layout.positions
            period = next(p for p in (1, 2, 4) if _repeats(places, p, bits))
        yield "template <int Step>"
        yield f"static WOOTZ_FN void {head}(const uint32_t* words, uint32_t (&a)[4]) {{"
        words = period * bits // 4
        start = "Step" if period == 1 else f"Step / {period}"
        yield f"    const uint32_t* w = words + {start if words == 1 else f'{start} * {words}'};"
        for i, lines in enumerate(per_step[:period]):
            indent = "    "
            if period > 1:
                test = f"if constexpr (Step % {period} == {i}) {{" if i < period - 1 else "{"
                yield f"    {'} else ' if i else ''}{test}"
                indent *= 2
            yield from (indent + line for line in lines)
        if period > 1:
            yield "    }"
        yield "}"

    # -- scales and zero points: entries of sides are indexed by at(g, j, half) -----------------------------
    def side(self, name: str) -> Side:
        """A side by name."""
        return next(s for s in self.layout.sides if s.name == name)

    def stored(self, name: str, j: str) -> str:
        """The stored entry of a side in run `j`."""
        side = self.side(name)
        offset = side.offset - self.layout.code_bytes
        type = _STORED[side.element.type]
        if type == "uint8_t":
            return f"sides[{f'{offset} + ' if offset else ''}at(g, {j}, half)]"
        base = f"(sides + {offset})" if offset else "(sides)"
        return f"reinterpret_cast<const {type}*>{base}[at(g, {j}, half)]"

    def value(self, name: str, element: Element, j: str = "j") -> str:
        """The f32 value of an entry of a side."""
        return stored_value(element, self.stored(name, j), f"{self.name}_{name}")

    def levels(self) -> Iterator[str]:
        """The f32 scale as every backend computes it, level by level, and with the decoder's power of two."""
        parameters = "(const uint8_t* sides, const float* tensor, int g, int j, int half) {"
        yield "static WOOTZ_FN int at(int g, int j, int half) { return (g * runs + j) * 2 + half; }"
        yield f"static WOOTZ_FN float level{parameters}"
        text = ""
        for name, level in zip(SCALE_FIELDS, self.fmt.scales, strict=False):
            tensors = self.layout.tensors
            one = f"tensor[{tensors.index(name)}]" if name in tensors else self.value(name, level.element)
            text = f"{text} {'/' if level.op == 'divide' else '*'} {one}" if text else one
        yield f"    return {text or '1.0f'};"
        yield "}"
        yield f"static WOOTZ_FN float scale{parameters}"
        factor = f" * {_power(self.plan.exponent)}" if self.plan.exponent else ""
        yield f"    return level(sides, tensor, g, j, half){factor};"
        yield "}"
        yield "template <int Level>"
        yield "static WOOTZ_FN float tensor_level(const void* field) {"
        for i, name in enumerate(self.layout.tensors):
            element = self.fmt.scales[SCALE_FIELDS.index(name)].element
            code = f"*static_cast<const {_STORED[element.type]}*>(field)"
            if element.bits < 8:
                code = f"({code} & {(1 << element.bits) - 1})"
            yield f"    if constexpr (Level == {i}) {{"
            yield f"        return {stored_value(element, code, f'{self.name}_{name}')};"
            yield "    }"
        yield "    return 1.0f;"
        yield "}"

    def zero(self) -> Iterator[str]:
        """The zero point as f32."""
        if self.fmt.zero is not None:
            one = " + 1.0f" if self.fmt.zero.stored == "minus_one" else ""
            yield "static WOOTZ_FN float zero(const uint8_t* sides, int g, int j, int half) {"
            yield f"    return {self.value('zero', self.fmt.zero.element)}{one};"
            yield "}"

    # -- registers ------------------------------------------------------------------------------------------
    @property
    def run_of(self) -> str:
        """The run of register r's first code."""
        run = self.layout.run
        if run >= STEP:
            return f"{STEP} * Step / run"
        k = f"{STEP} * Step + 8 * (r >> 1)" + (" + 2 * (lane & 3)" if run < 8 else "")
        return k if run == 1 else f"({k}) / run"

    @property
    def second(self) -> str:
        """The run of register r's second code, where `j` is its first's."""
        return "j + 1" if self.layout.run == 1 else "j"

    def each(self, first: str, body: Callable[[], Iterator[str]]) -> Iterator[str]:
        """A statement that fills the registers, and a loop over them; its body may use g, half and j."""
        lines = list(body())
        text = "\n".join(lines)
        if re.search(r"\bg\b", text):
            yield "    const int g = lane >> 2;"
        yield f"    {first};"
        yield "    WOOTZ_UNROLL"
        yield "    for (int r = 0; r < 4; ++r) {"
        if re.search(r"\bhalf\b", text):
            yield f"        const int half = r & 1, j = {self.run_of};"
        yield from ("        " + line for line in lines)
        yield "    }"

    def packed_bits(self, one: Callable[[str], str]) -> str:
        """A packed pair from an expression for 16 bits, by run."""
        low, high = one("j"), one(self.second)
        return f"{low} * 0x10001u" if low == high else f"({low} | {high} << 16)"

    def packed_f32(self, one: Callable[[str], str]) -> str:
        """A packed pair from an expression for an f32, by run."""
        return f"Type::round({one('j')}, {one(self.second)})"

    def packed_zero(self) -> str:
        """The zero points of a register in the type; fused, with the power that integers are decoded with."""
        zero = self.fmt.zero
        assert zero is not None
        if self.fused is not None or zero.element.type == self.kind.name:
            return self.packed_bits(self.zero_of)
        return self.packed_f32(lambda j: f"zero(sides, g, {j}, half)")

    def zero_of(self, j: str) -> str:
        """The bits of run `j`'s zero point in the type, as of `packed_zero`."""
        zero = self.fmt.zero
        assert zero is not None
        if self.fused is not None:
            flipped, _ = integer_of(zero.element)
            change = f" ^ {flipped}u" if flipped else ""
            return f"(({self.stored('zero', j)}{change}) + {self.fused}u)"
        if zero.element.type == self.kind.name:
            return self.stored("zero", j)
        return f"(Type::round(zero(sides, g, {j}, half), 0.0f) & 0xffff)"

    def packed_scale(self) -> str:
        """The scales of a register in the type."""
        if self.fmt.scales[0].element.type == self.kind.name:
            return self.packed_bits(lambda j: self.stored("scale", j))
        return self.packed_f32(lambda j: f"level(sides, tensor, g, {j}, half)")

    @property
    def numbers(self) -> str:
        """A statement that makes the registers what `f32` takes: numbers, or codes where the type rounds."""
        return f"{'values' if self.plan.exact else 'codes'}<Step>(words, a)"

    def codes(self) -> Iterator[str]:
        """A function for bare codes, where numbers come from a table of f32."""
        if not self.plan.exact:
            bare = tuple(gather(code_pieces(p)) for p in self.layout.positions)
            yield from self.steps("codes", Plan(True, 0, bare))

    def f32(self, which: str) -> str:
        """The number of a code of register r as f32, whole."""
        if not self.plan.exact:
            code = "a[r] & 0xffff" if which == "low" else "a[r] >> 16"
            return f"fragment::as_float({self.name}_values[{code}])"
        text = f"Type::{which}(a[r])"
        return text if self.whole or not self.plan.exponent else f"{text} * {_power(self.plan.exponent)}"

    @cached_property
    def whole(self) -> str:
        """A statement that brings the decoder's power of two into register r; none where the type cannot."""
        power = 2.0**self.plan.exponent
        if not self.plan.exact or not self.plan.exponent:
            return ""
        fits = all(map(self.kind.holds, (*self.fmt.element.values(), power)))
        return f"a[r] = Type::mul2(a[r], {self.kind.pair(power)});" if fits else ""

    def decode(self) -> Iterator[str]:
        """Registers without scale: numbers, less zero points."""
        first = self.numbers
        if self.fused is not None:
            yield from self.placed()
            first = "placed<Step>(words, a)"
        yield "template <int Step>"
        yield "static WOOTZ_FN void decode(const uint32_t* words, const uint8_t* sides, int lane,"
        yield "                            uint32_t (&a)[4]) {"
        if self.code_zero is None:
            yield "    values<Step>(words, a);"
        else:
            yield from self.each(first, self._subtract_zeros)
        yield "}"

    def placed(self) -> Iterator[str]:
        """A function for integers with `excess`."""
        yield from self.steps("placed", Plan(True, 0, tuple(magic(self.question, [0] * PERIOD))))

    def _subtract_zeros(self) -> Iterator[str]:
        if self.fused is not None or self.in_type:
            yield f"a[r] = Type::sub2(a[r], {self.packed_zero()});"
            return
        back = f" * {_power(-self.plan.exponent)}" if self.plan.exponent else ""
        if self.whole:
            yield self.whole
        parts = [
            f"({self.f32(which)} - zero(sides, g, {j}, half)){back}"
            for which, j in (("low", "j"), ("high", self.second))
        ]
        yield f"a[r] = Type::round({', '.join(parts)});"

    @property
    def folds_in_type(self) -> bool:
        """Whether the type has every scale (and zero point) and the arithmetic in it rounds only once."""
        if not self.exact or len(self.fmt.scales) != 1 or self.layout.tensors:
            return False
        if self.plan.exponent and (not self.whole or self.code_zero is not None):
            return False
        zero = self.fmt.zero
        addend = zero is None or not self.value_zero or self._in_type(zero.element)
        return addend and self._in_type(self.fmt.scales[0].element)

    def _in_type(self, element: Element) -> bool:
        if element.kind == "wide":
            return element.type == self.kind.name
        return all(map(self.kind.holds, element.values()))

    def folded(self) -> Iterator[str]:
        """Registers of weights: in the type where that rounds only once, else in f32."""
        fmt = self.fmt
        yield "template <int Step>"
        yield "static WOOTZ_FN void decode_folded(const uint32_t* words, const uint8_t* sides,"
        yield "                                   const float* tensor, int lane, uint32_t (&a)[4]) {"
        if not fmt.scales and fmt.zero is None and not self.plan.exponent:
            yield "    values<Step>(words, a);"
        elif self.folds_in_type:
            whole = "decode<Step>(words, sides, lane, a)" if self.code_zero else "values<Step>(words, a)"
            yield from self.each(whole, self._fold_in_type)
        else:
            yield from self.each(self.numbers, self._fold_in_f32)
        yield "}"

    def _fold_in_type(self) -> Iterator[str]:
        if self.whole:
            yield self.whole
        if self.value_zero:
            yield f"a[r] = Type::fma2(a[r], {self.packed_scale()}, {self.packed_zero()});"
        else:
            yield f"a[r] = Type::mul2(a[r], {self.packed_scale()});"

    def _fold_in_f32(self) -> Iterator[str]:
        fmt = self.fmt
        if self.whole:
            yield self.whole
        for i, j in enumerate(("j", self.second)):
            value = self.f32("high" if i else "low")
            scale, zero = f"level(sides, tensor, g, {j}, half)", f"zero(sides, g, {j}, half)"
            if fmt.zero is not None and self.value_zero:
                value = f"__builtin_fmaf({value}, {scale}, {zero})" if fmt.scales else f"{value} + {zero}"
            else:
                value = f"({value} - {zero})" if fmt.zero is not None else value
                value = f"{value} * {scale}" if fmt.scales else value
            yield f"const float w{i} = {value};"
        yield "a[r] = Type::round(w0, w1);"


def _power(exponent: int) -> str:
    """The f32 literal of 2^exponent."""
    return f"fragment::as_float(0x{f32_bits(2.0**exponent):08x}u)"


def _repeats(positions: Sequence[tuple[int, ...]], steps: int, bits: int) -> bool:
    """Whether the places repeat after some steps, whole words later."""
    pairs = 4 * steps
    moved = pairs * bits
    return moved % 16 == 0 and all(
        b == tuple(p + moved for p in a) for a, b in zip(positions, positions[pairs:])
    )


def placed(weights: Weights) -> Iterator[str]:
    """Lines of a member placed<Step>(words, a): registers of one step, each number `weights.excess` more than
    its code's value, without scale and zero points. Raises ValueError where there is no such number."""
    if weights.excess is None:
        raise ValueError(f"the codes of {weights.fmt.name} are no integers that {weights.kind.name} takes")
    text = _Text.of(weights)
    yield from text.steps("placed", Plan(True, 0, by_mantissa(text.question, 1 << weights.kind.mantissa)))


def zero_bits(weights: Weights) -> Iterator[str]:
    """Lines of members for zero points that the type has: zero_bits(sides, g, j, half), a zero point's bits,
    and where they are subtracted from codes whole<Step>(words, a), what from. None for others."""
    text = _Text.of(weights)
    if added_in_type(weights) or weights.fused is not None or (weights.code_zero and weights.in_type):
        yield "static WOOTZ_FN uint32_t zero_bits(const uint8_t* sides, int g, int j, int half) {"
        yield f"    return {text.zero_of('j')};"
        yield "}"
        if weights.code_zero:
            first = "values" if weights.fused is None else "placed"
            yield "template <int Step>"
            yield "static WOOTZ_FN void whole(const uint32_t* words, uint32_t (&a)[4]) {"
            yield f"    {weights.name}::template {first}<Step>(words, a);"
            yield "}"


def added_in_type(weights: Weights) -> bool:
    """Whether the type has the numbers, scales and zero points that are added after scaling, so that one
    operation rounds once."""
    text = _Text.of(weights)
    alike = weights.layout.run >= STEP and not weights.plan.exponent
    return weights.value_zero and bool(weights.fmt.scales) and alike and text.folds_in_type


def subnormals(weights: Weights) -> tuple[list[str], list[int]]:
    """Lines of a member subnormal<Step>(words, a): integers' codes, without their offset, as the least
    numbers of the type; and the place of each pair's lowest bit, of a period."""
    text = _Text.of(weights)
    pairs, at = subnormal(text.question)
    return [*text.steps("subnormal", Plan(True, 0, pairs))], at


def functor(
    fmt: Format, activations: str, target: Target, name: str = "Weight", bare: bool = False, times: str = ""
) -> str:
    """`functor_of` these weights of "f16" or "bf16"."""
    return functor_of(Weights(fmt, KINDS[activations], target, name, bare, times))


def functor_of(weights: Weights) -> str:
    """The C++ struct that decodes a format's packed words to pairs of a type; it needs the header
    cutlass/fragment.cuh. bare: decoded floats lack their power of two, even where products may then be less
    than any number of f32; `exponent` has it. times: a function of a word and a number, for shifts that are
    to be multiplications. lies: where codes are in words, if not as the format is packed.

    Its members:
    bits, unit_k, steps (of 16 k in a unit), vectors and words (a lane's codes: 16 and 4 bytes each),
    code_bytes, unit_bytes, run, runs, tensors (levels that are one per tensor).
    scaled; zeroed: zero points are subtracted from codes; value_zero: they are added after scaling.
    fold_only: only `decode_folded` serves: runs are shorter than a step, zero points come after scaling, or
    the type cannot hold the numbers before they are scaled.
    exact: `decode` gives the very numbers. It is false for codebooks with entries that the type rounds, for
    zero points that are no small integers, and for exponents that the type does not have.
    exponent: what `decode` leaves to the scale: number = decoded * 2^exponent. 0 but for small floats in f16
    and for tables past the type's range.

    decode<Step>(words, sides, lane, a): registers of one step, without scale.
    scale(sides, tensor, g, j, half): f32, all levels and 2^exponent, of row g + 8 * half in run j. Infinite
    where that is past f32. level(...): the same without 2^exponent.
    tensor_level<i>(field): entry i of `tensor`, from the field of that level.
    decode_folded<Step>(words, sides, tensor, lane, a): weights, scaled and with zero points, computed in f32
    as every backend computes them and rounded once to the type; codebooks are not rounded before.
    """
    w = _Text.of(weights)
    made = w.plan
    lines = [*w.constants(), f"using Type = fragment::{w.kind.struct};", "using Pair = uint32_t;"]
    lines += [*w.steps("values", made), *w.levels(), *w.zero(), *w.codes(), *w.decode(), *w.folded()]
    body = "".join(f"    {line}\n" for line in lines)
    return "".join(w.tables()) + f"struct {w.name} {{\n{body}}};\n"
