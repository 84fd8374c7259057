"""Programs: whole scalar programs in the DSL, run by one thread, that print.

A program is a Python function of a `Program`: integers, booleans and floats, loops, branches, calls (written
out in place), global arrays, printing. What it prints is the same on every backend, to the byte: so integers
wrap, a float becomes the nearest integer that its type has, and what a language leaves open ends in a fault
that the output names. What would differ from backend to backend, or needs more than one thread, is refused by
name when the program is built.

The entry takes x, u32 [n], the program's arguments, and gives y, u32 [words]: word 0 is how many words it
printed, and behind it lie the records, as many as fit (see `wootz.printed`, which makes them text).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..formats.axes import Format
from ..ir.dsl import Builder, DslError, Operand, Val
from ..ir.nodes import DTYPES, Attr, Ref, Value
from ..manifest.target import Target
from .family import Family, Scalar, Variant
from .family import Operand as Declared

CAPACITY = 1 << 16
"""Words of y where a call does not say."""
TRIPS = 1 << 28
"""Trips of all `during` loops together, after which a program ends with a fault."""
KINDS = {"text": 0, "u32": 1, "i32": 2, "u64": 3, "f32": 4, "bool": 5, "fault": 6}
"""The low four bits of a record's first word; the others are the bytes of a text."""

_SAME = frozenset({"abs", "floor", "ceil", "round", "trunc", "sqrt", "fma"})
"""Operations of f32 that every backend rounds alike."""
_DIFFERENT = frozenset(
    {"rsqrt", "exp", "exp2", "log", "log2", "sin", "cos", "tanh", "mad", "fast_exp", "fast_div"}
)
_PARALLEL = frozenset({
    "thread", "block", "grid", "barrier", "lane_xor", "atomic_add", "tile_fill", "tile_load", "tile_multiply",
    "tile_store", "grid_wait", "grid_release",
})  # fmt: skip
_WRAPPING = frozenset({"add", "sub", "mul", "shl"})
_BITS = {"u32": 32, "i32": 32, "u64": 64}
_TYPES = ("bool", "u32", "i32", "u64", "f32")


@dataclass(frozen=True)
class Global:
    """A global array: `size` elements of a type, zero (or false) when the program starts."""

    dtype: str
    size: int

    @property
    def words(self) -> int:
        return self.size * (2 if self.dtype == "u64" else 1)


@dataclass(frozen=True, eq=False)
class Elements:
    """A global array in the program: g[i], g[i] = value. An index outside is a fault."""

    program: Program
    name: str
    declared: Global
    start: int

    def _place(self, index: Operand) -> Val:
        p = self.program
        at = p.val(index, "u32")
        outside = at >= self.declared.size
        p.fault(outside, f"an index of {self.name} is outside its {self.declared.size} elements")
        scale = self.declared.words // self.declared.size
        return p.select(outside, 0, at) * scale + self.start

    def __getitem__(self, index: Operand) -> Val:
        place, memory = self._place(index), self.program.memory
        words = [self.program.load(memory, place)]
        if self.declared.dtype == "u64":
            words.append(self.program.load(memory, place + 1))
        return self.program.from_words(words, self.declared.dtype)

    def __setitem__(self, index: Operand, value: Operand) -> None:
        place = self._place(index)
        for i, word in enumerate(self.program.to_words(self.program.val(value, self.declared.dtype))):
            self.program.store(self.program.memory, place + i, word)


Main = Callable[["Program"], None]


class Program(Builder):
    """The DSL of a program: `Builder`'s values, variables, `loop`, `when` and `otherwise`, and `during`,
    `call`, `print`, `globals`, `arguments`."""

    def __init__(self, builder: Builder, declared: Mapping[str, Global]) -> None:
        super().__init__(builder.function.name, 1, builder.simd)
        self.function, self._blocks = builder.function, [builder.function.body]
        self._calls: list[Any] = []
        self._faults: list[str] = []
        self._x = self.buffer("x", "u32")
        self._y = self.buffer("y", "u32", "out")
        self.memory: Ref = self.buffer("workspace", "u32", "workspace") if declared else self._y
        self.arguments = self.scalar("n")
        """How many words x has."""
        self._words = self.scalar("words")
        self.globals: dict[str, Elements] = {}
        start = 0
        for name, each in declared.items():
            self.globals[name] = Elements(self, name, each, start)
            start += each.words
        self._used = self.var("used", 1, "u32")
        self._fault = self.var("fault", 0, "u32")
        self._trips = self.var("trips", 0, "u32")
        if start:
            with self.loop(0, start) as i:
                self.store(self.memory, i, 0)

    def _declare(self, stem: str, *more: Any, **named: Any) -> Ref:
        """No name that a program gives is an argument's, another's with a number, or a language's word."""
        return super()._declare(f"{stem}_", *more, **named)

    # -- what a program is made of ----------------------------------------------------------------------
    def argument(self, index: Operand, dtype: str = "u32") -> Val:
        """Word `index` of x as a u32, i32, f32 or bool; outside of x a fault."""
        at = self.val(index, "u32")
        outside = at >= self.arguments
        self.fault(outside, "an argument is asked for that x has not")
        some = self.make("select", "u32", (outside.value, self.val(0, "u32").value, at.value))
        return self.from_words([self._guarded_load(some)], dtype)

    def _guarded_load(self, index: Val) -> Val:
        """Of x, which may be empty."""
        word = self.var("word", 0, "u32")
        with self.when(self.arguments > 0):
            word.set(self.load(self._x, index))
        return word.get()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """function(program, *args), whose statements stand here. DslError where it calls itself."""
        name = getattr(function, "__name__", "a function")
        if function in self._calls:
            path = " -> ".join(getattr(f, "__name__", "?") for f in (*self._calls, function))
            raise DslError(f"{path}: recursion has no lowering: a call is written out in place; use a loop")
        self._calls.append(function)
        try:
            return function(self, *args)
        except RecursionError as error:
            raise DslError(f"{name}: calls itself without end: use Program.call and a loop") from error
        finally:
            self._calls.pop()

    @contextlib.contextmanager
    def during(self, condition: Callable[[], Val]) -> Iterator[None]:
        """A loop while a condition holds; it ends with a fault after TRIPS trips of all such loops."""

        def going() -> Val:
            self.fault(self._trips.get() >= TRIPS, f"more than {TRIPS} trips of loops")
            self._trips.set(self._trips.get() + 1)
            return condition() & self._fault.get().eq(0)

        with super().during(going):
            yield

    def print(self, *items: Val | str | int | float, sep: str = " ", end: str = "\n") -> None:
        """Append to the output. Python's numbers and words become text now, the program's when it runs."""
        parts: list[str | Val] = []
        for i, item in enumerate((*items, end)):
            text = sep if 0 < i < len(items) else ""
            parts += [text, item if isinstance(item, Val) else str(item)]
        self._record(_joined(parts), "text")

    def fault(self, holds: Val, why: str) -> None:
        """Where `holds`, the output ends with `why`; the first fault counts."""
        if why not in self._faults:
            self._faults.append(why)
        now = self._fault.get()
        code = self.val(self._faults.index(why) + 1, "u32")
        self._fault.set(self.select(holds & now.eq(0), code, now))

    def finish(self) -> None:
        """What a program's last words are."""
        for i, why in enumerate(self._faults):
            with self.when(self._fault.get().eq(i + 1)):
                self._record([why], "fault")
        self.store(self._y, self.const(0, "u32"), self._used.get() - 1)

    # -- values ---------------------------------------------------------------------------------------
    def to_words(self, value: Val) -> list[Val]:
        """A value as u32 words."""
        if value.dtype == "bool":
            return [self.select(value, self.const(1, "u32"), 0)]
        if value.dtype == "f32":
            return [value.bitcast("u32")]
        if value.dtype == "u64":
            return [value.cast("u32"), (value >> 32).cast("u32")]
        return [value.cast("u32")]

    def from_words(self, words: list[Val], dtype: str) -> Val:
        """The value of a type that words are."""
        if dtype not in _TYPES:
            raise DslError(f"program: no values of type {dtype}; one of {', '.join(_TYPES)}")
        if dtype == "bool":
            return words[0].ne(0)
        if dtype == "f32":
            return words[0].bitcast("f32")
        if dtype == "u64":
            return words[0].cast("u64") | (words[1].cast("u64") << 32)
        return words[0].cast(dtype)

    def op(self, op: str, *operands: Operand) -> Val:
        """As Builder's, with one meaning on every backend."""
        if op in _DIFFERENT:
            raise DslError(f"program: {op}: backends round it differently; one of {', '.join(sorted(_SAME))}")
        typed = next((o for o in operands if isinstance(o, Val)), None)
        if typed is None or typed.dtype not in _BITS:
            return super().op(op, *operands)
        values = [self.val(o, typed.dtype) for o in operands]
        if op in ("div", "rem"):
            return self._divided(op, *values)
        if op in ("shl", "shr"):
            values[1] = super().op("and", values[1], self.val(_BITS[typed.dtype] - 1, typed.dtype))
        if typed.dtype == "i32" and op in _WRAPPING:
            return super().op(op, *(v.cast("u32") for v in values)).cast("i32")
        if typed.dtype == "i32" and op == "neg":
            return super().op("sub", self.const(0, "u32"), values[0].cast("u32")).cast("i32")
        return super().op(op, *values)

    def _divided(self, op: str, a: Val, b: Val) -> Val:
        """An integer quotient or remainder; by zero a fault, and 0."""
        zero = super().op("eq", b, 0)
        self.fault(zero, "a division by zero")
        if a.dtype != "i32":
            return self.select(zero, 0, super().op(op, a, self.select(zero, 1, b)))
        back = super().op("eq", b, -1)  # the least number has no quotient by -1
        safe = super().op(op, a, self.select(zero | back, 1, b))
        negated = self.op("neg", a) if op == "div" else self.const(0, "i32")
        return self.select(zero, 0, self.select(back, negated, safe))

    def make(
        self,
        op: str,
        dtype: str,
        args: tuple[Value, ...] = (),
        attrs: dict[str, Attr] | None = None,
        ref: Ref | None = None,
        width: int = 1,
    ) -> Val:
        if op in _PARALLEL:
            raise DslError(f"program: {op}: a program is one thread")
        if dtype in ("f16", "bf16"):
            raise DslError(f"program: {op} of {dtype}: a program's floats are f32")
        if op == "cast" and args[0].dtype == "f32" and dtype in _BITS:
            return self._whole(Val(self, args[0]), dtype)
        return super().make(op, dtype, args, attrs, ref, width)

    def _whole(self, x: Val, dtype: str) -> Val:
        """A float towards zero, at the type's ends where it is beyond; NaN is 0."""
        if dtype == "u64":
            raise DslError("program: cast of f32 to u64 has no lowering everywhere; cast to u32 or i32")
        least, most = (0.0, 4294967040.0) if dtype == "u32" else (-2147483648.0, 2147483520.0)
        number = self.select(x.eq(x), x, 0.0)
        inside = self.minimum(self.maximum(number, least), most)
        return super().make("cast", dtype, (inside.value,))

    def effect(
        self,
        op: str,
        args: tuple[Value, ...],
        ref: Ref | None = None,
        attrs: dict[str, Attr] | None = None,
        reads: tuple[Ref, ...] = (),
    ) -> None:
        if op in _PARALLEL:
            raise DslError(f"program: {op}: a program is one thread")
        super().effect(op, args, ref, attrs, reads)

    def shared(self, name: str, dtype: str, size: int) -> Ref:
        raise DslError(f"program: shared memory {name}: a program is one thread; declare a global")

    def _record(self, parts: list[str | Val], kind: str) -> None:
        """Records behind each other, all of them or none."""
        words: list[Val | int] = []
        for part in parts:
            if isinstance(part, Val):
                words += [KINDS[part.dtype], *self.to_words(part)]
            else:
                words += _text_words(part, kind)
        at = self._used.get()
        self._used.set(super().op("add", at, len(words)))
        with self.when(super().op("le", super().op("add", at, len(words)), self._words)):
            for i, word in enumerate(words):
                self.store(self._y, super().op("add", at, i), self.val(word, "u32"))


def _joined(parts: Iterable[str | Val]) -> list[str | Val]:
    """Texts beside each other as one; values of a type that can be printed."""
    found: list[str | Val] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, Val):
            if part.dtype not in _TYPES:
                raise DslError(f"program: print of {part.dtype}; one of {', '.join(_TYPES)}")
            found.append(part)
        elif isinstance(last, str):
            found[-1] = last + part
        elif part:
            found.append(part)
    return found


def _text_words(text: str, kind: str) -> list[int]:
    data = text.encode()
    padded = data + bytes(-len(data) % 4)
    words = [int.from_bytes(padded[i : i + 4], "little") for i in range(0, len(padded), 4)]
    return [KINDS[kind] | len(data) << 4, *words]


def program(main: Main, declared: Mapping[str, Global] | None = None) -> Family:
    """The family of a program. declared: its global arrays by name. Raises DslError for one of no elements or
    of another type."""
    known = dict(declared or {})
    for name, each in known.items():
        if each.size < 1 or each.dtype not in _TYPES or each.dtype not in DTYPES:
            raise DslError(
                f"program: global {name} of {each.size} {each.dtype}: wanted one element or more of "
                f"{', '.join(_TYPES)}"
            )

    def build(builder: Builder) -> None:
        p = Program(builder, known)
        p.call(main)
        p.finish()

    def variants(
        fmt: Format | None, dtype: str, target: Target, options: dict[str, str]
    ) -> Iterable[Variant]:
        yield Variant("", 1, (1, 1, 1), build, workspace=4 * sum(each.words for each in known.values()))

    def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
        return None if dtype == "f32" else f"a program's dtype is f32 (its arguments are words); got {dtype}"

    return Family(
        (Declared("x", "array", ("n",), dtype="u32"),),
        Declared("y", "array", ("words",), dtype="u32"),
        variants,
        limits={"n": (0, 2**31 - 1), "capacity": (1, 2**28)},
        scalars=(Scalar("capacity", "u32", CAPACITY),),
        extents={"words": "capacity"},
        accepts=accepts,
    )
