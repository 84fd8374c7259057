"""The DSL: Python operators that build IR. A kernel is a Python function that calls a `Builder`.

Equal pure operations in one scope become one value, constants fold, and identities (x + 0, x & all ones,
x << 0) vanish while building, so kernels can be written in the plainest way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Union

from .nodes import (
    DTYPES,
    OPS,
    Attr,
    Block,
    For,
    Function,
    If,
    MatrixShape,
    Param,
    Ref,
    Value,
    While,
    fold,
    is_const,
    round_f32,
)

Operand = Union["Val", int, float]


class DslError(Exception):
    """A kernel's build function used the DSL wrongly; names the operation and what it was given."""


@dataclass(frozen=True, eq=False)
class Val:
    """A value with operators. Python numbers take the other operand's type."""

    builder: Builder
    value: Value

    @property
    def dtype(self) -> str:
        return self.value.dtype

    def _bin(self, op: str, other: Operand) -> Val:
        return self.builder.op(op, self, other)

    def __add__(self, other: Operand) -> Val:
        return self._bin("add", other)

    __radd__ = __add__

    def __sub__(self, other: Operand) -> Val:
        return self._bin("sub", other)

    def __mul__(self, other: Operand) -> Val:
        return self._bin("mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Val:
        return self._bin("div", other)

    def __floordiv__(self, other: Operand) -> Val:
        return self._bin("div", other)

    def __mod__(self, other: Operand) -> Val:
        return self._bin("rem", other)

    def __and__(self, other: Operand) -> Val:
        return self._bin("and", other)

    def __or__(self, other: Operand) -> Val:
        return self._bin("or", other)

    def __xor__(self, other: Operand) -> Val:
        return self._bin("xor", other)

    def __lshift__(self, other: Operand) -> Val:
        return self._bin("shl", other)

    def __rshift__(self, other: Operand) -> Val:
        return self._bin("shr", other)

    def __invert__(self) -> Val:
        return self.builder.op("not", self)

    def __lt__(self, other: Operand) -> Val:
        return self._bin("lt", other)

    def __le__(self, other: Operand) -> Val:
        return self._bin("le", other)

    def __gt__(self, other: Operand) -> Val:
        return self._bin("gt", other)

    def __ge__(self, other: Operand) -> Val:
        return self._bin("ge", other)

    def eq(self, other: Operand) -> Val:
        return self._bin("eq", other)

    def ne(self, other: Operand) -> Val:
        return self._bin("ne", other)

    def cast(self, dtype: str) -> Val:
        """Value conversion; to narrower floats it rounds to nearest even."""
        if dtype == self.dtype:
            return self
        if is_const(self.value) and dtype in ("u32", "u64") and self.dtype in ("u32", "u64"):
            return self.builder.const(int(self.value.attrs["value"]) % (1 << 8 * DTYPES[dtype]), dtype)
        return self.builder.make("cast", dtype, (self.value,))

    def bitcast(self, dtype: str) -> Val:
        """The same bits as another type of the same size."""
        return self if dtype == self.dtype else self.builder.make("bitcast", dtype, (self.value,))

    def word(self, lane: int) -> Val:
        """One u32 of a vector loaded by `load_words`."""
        return self.builder.make("word", "u32", (self.value,), {"lane": lane})


@dataclass(frozen=True, eq=False)
class Var:
    """A mutable scalar."""

    builder: Builder
    ref: Ref

    def get(self) -> Val:
        return self.builder.make("get", self.ref.dtype, ref=self.ref)

    def set(self, value: Operand) -> None:
        self.builder.effect("set", (self.builder.val(value, self.ref.dtype).value,), ref=self.ref)


_DROP_ZERO = {"add", "sub", "or", "xor", "shl", "shr"}
_DROP_ONE = {"mul", "div"}


class Builder:
    """Builds one `Function`. threads: block size; simd: lanes that shuffle together (1 on the CPU)."""

    def __init__(self, name: str, threads: int, simd: int) -> None:
        self.function = Function(name, threads)
        self.simd = simd
        self.fast = False  # whether exp and quotients may be less exact
        self._blocks: list[Block] = [self.function.body]
        self._known: list[dict[tuple[object, ...], Val]] = [{}]
        self._names: dict[str, int] = {}

    # -- parameters and memory ------------------------------------------------------------------------------
    def buffer(self, name: str, dtype: str, role: str = "in", alone: bool = True) -> Ref:
        """A global array argument; the roles "out" and "workspace" make it writable; not `alone`: it may be
        another argument's memory."""
        ref = Ref(name.replace(".", "_"), dtype, "global", writable=role in ("out", "workspace"), alone=alone)
        self.function.params.append(Param(name, "ptr", role, ref=ref))
        return ref

    def scalar(self, name: str, dtype: str = "u32", role: str = "shape") -> Val:
        value = Value("param", dtype, attrs={"name": Param(name, dtype, role).symbol})
        self.function.params.append(Param(name, dtype, role, value=value))
        return Val(self, value)

    def _declare(
        self,
        stem: str,
        dtype: str,
        space: str,
        size: int,
        values: tuple[float, ...] = (),
        shape: MatrixShape | None = None,
        part: str = "",
    ) -> Ref:
        count = self._names.get(stem, 0)
        self._names[stem] = count + 1
        name, writable = f"{stem}{count}" if count else stem, space != "table"
        ref = Ref(name, dtype, space, size, writable, values, shape=shape, part=part)
        self.function.refs.append(ref)
        return ref

    def shared(self, name: str, dtype: str, size: int) -> Ref:
        return self._declare(name, dtype, "shared", size)

    def table(self, name: str, values: Sequence[float]) -> Ref:
        """A constant f32 table; the same values under one name are one table."""
        numbers = tuple(round_f32(v) for v in values)
        for ref in self.function.refs:
            if ref.space == "table" and repr(ref.values) == repr(numbers):
                return ref
        return self._declare(name, "f32", "table", len(values), numbers)

    def local(self, name: str, dtype: str, size: int) -> Ref:
        """A per-thread array, uninitialised."""
        ref = self._declare(name, dtype, "local", size)
        self.effect("declare", (), ref=ref)
        return ref

    def var(self, name: str, init: Operand, dtype: str = "f32") -> Var:
        ref = self._declare(name, dtype, "var", 1)
        self.effect("declare", (self.val(init, dtype).value,), ref=ref)
        return Var(self, ref)

    # -- values ---------------------------------------------------------------------------------------------
    def const(self, number: int | float, dtype: str) -> Val:
        number = round_f32(float(number)) if dtype == "f32" else int(number)
        return self.make("const", dtype, attrs={"value": number})

    def val(self, operand: Operand, dtype: str) -> Val:
        return operand if isinstance(operand, Val) else self.const(operand, dtype)

    def make(
        self,
        op: str,
        dtype: str,
        args: tuple[Value, ...] = (),
        attrs: dict[str, Attr] | None = None,
        ref: Ref | None = None,
        width: int = 1,
    ) -> Val:
        attrs = attrs or {}
        pure = OPS[op].kind == "pure"
        key = (op, dtype, tuple(map(id, args)), tuple((k, repr(v)) for k, v in sorted(attrs.items())), width)
        if pure:
            for scope in self._known:
                if key in scope:
                    return scope[key]
        val = Val(self, Value(op, dtype, args, ref, attrs, width))
        self._blocks[-1].statements.append(val.value)
        if pure:
            self._known[-1][key] = val
        return val

    def effect(
        self,
        op: str,
        args: tuple[Value, ...],
        ref: Ref | None = None,
        attrs: dict[str, Attr] | None = None,
        reads: tuple[Ref, ...] = (),
    ) -> None:
        self._blocks[-1].statements.append(Value(op, "", args, ref, attrs or {}, reads=reads))

    def op(self, op: str, *operands: Operand) -> Val:
        """A pure operation of the table; at least one operand is a Val and gives Python numbers their
        type."""
        typed = [o for o in operands if isinstance(o, Val)]
        if not typed:
            raise DslError(
                f"{op}: needs at least one DSL value, got {operands}; wrap a number in Builder.const"
            )
        dtype = typed[-1].dtype if op == "select" else typed[0].dtype
        vals = [self.val(o, "bool" if op == "select" and i == 0 else dtype) for i, o in enumerate(operands)]
        return self._simplify(op, vals) or self.make(
            op, "bool" if OPS[op].result == "bool" else dtype, tuple(v.value for v in vals)
        )

    def _simplify(self, op: str, vals: list[Val]) -> Val | None:
        values = [v.value for v in vals]
        if all(is_const(v) for v in values) and op != "select":
            folded = fold(op, values[0].dtype, [v.attrs["value"] for v in values])  # type: ignore[misc]
            if folded is not None:
                return self.const(folded, "bool" if OPS[op].result == "bool" else values[0].dtype)
        if len(values) != 2 or values[0].dtype == "f32":
            return None
        if (op in _DROP_ZERO and is_const(values[1], 0)) or (op in _DROP_ONE and is_const(values[1], 1)):
            return vals[0]
        if (op in ("add", "or", "xor") and is_const(values[0], 0)) or (
            op == "mul" and is_const(values[0], 1)
        ):
            return vals[1]
        if op == "and" and values[1].dtype == "u32" and is_const(values[1], 0xFFFFFFFF):
            return vals[0]
        return None

    def select(self, condition: Val, then: Operand, orelse: Operand) -> Val:
        if not isinstance(then, Val) and not isinstance(orelse, Val):
            raise DslError(f"select: needs a DSL value in one arm, got {then} and {orelse}")
        dtype = then.dtype if isinstance(then, Val) else orelse.dtype  # type: ignore[union-attr]
        arms = (self.val(then, dtype).value, self.val(orelse, dtype).value)
        return self.make("select", dtype, (condition.value, *arms))

    def fma(self, a: Val, b: Operand, c: Operand) -> Val:
        return self.op("fma", a, b, c)

    def mad(self, a: Val, b: Operand, c: Operand) -> Val:
        return self.op("mad", a, b, c)

    def dot4_i8(self, a: Val, b: Val, total: Val) -> Val:
        """total (i32) + the sum of the products of the signed bytes of two words; it wraps."""
        return self.make("dot4_i8", "i32", (a.value, b.value, total.value))

    def exp(self, a: Val) -> Val:
        """e^a; the language's fast one where `fast` is set."""
        return self.op("fast_exp" if self.fast else "exp", a)

    def quotient(self, a: Operand, b: Operand) -> Val:
        """a / b with |b| from 2^-126 to 2^126; the language's fast one where `fast` is set."""
        return self.op("fast_div" if self.fast else "div", a, b)

    def minimum(self, a: Operand, b: Operand) -> Val:
        return self.op("min", a, b)

    def maximum(self, a: Operand, b: Operand) -> Val:
        return self.op("max", a, b)

    def ceildiv(self, a: Val, b: int) -> Val:
        return (a + (b - 1)) // b

    def max_halves(self, a: Val, b: Val) -> Val:
        """Of the halves of two words, as unsigned integers, the larger ones."""
        return self.op("max_halves", a, b)

    def min_halves(self, a: Val, b: Val) -> Val:
        """The smaller ones."""
        return self.op("min_halves", a, b)

    def thread(self) -> Val:
        return self.make("thread", "u32")

    def block(self, axis: int = 0) -> Val:
        return self.make("block", "u32", attrs={"axis": axis})

    def grid(self, axis: int = 0) -> Val:
        """The number of blocks."""
        return self.make("grid", "u32", attrs={"axis": axis})

    # -- memory ---------------------------------------------------------------------------------------------
    def load(self, ref: Ref, index: Operand) -> Val:
        return self.make("load", ref.dtype, (self.val(index, "u32").value,), ref=ref)

    def load_words(self, ref: Ref, index: Operand, width: int) -> Val:
        """`width` (1, 2 or 4) u32 words in one access, from element `index`; aligned to 4 * width bytes."""
        return self.make("load_words", "u32", (self.val(index, "u32").value,), ref=ref, width=width)

    def store(self, ref: Ref, index: Operand, value: Operand) -> None:
        self.effect("store", (self.val(index, "u32").value, self.val(value, ref.dtype).value), ref=ref)

    def store_words(self, ref: Ref, index: Operand, words: Sequence[Val]) -> None:
        """1, 2 or 4 u32 words in one access, at element `index`; aligned to 4 * len(words) bytes."""
        self.effect("store_words", (self.val(index, "u32").value, *(w.value for w in words)), ref=ref)

    def at(self, ref: Ref, index: Val, ahead: tuple[int, int] | None = None) -> Ref:
        """The buffer moved by `index` elements (u64 for whole matrices): a named pointer in the text. ahead:
        a hint, (distance, length) in bytes from there, of what will be read soon, be it past the end."""
        count = self._names.get(ref.name, 0)
        self._names[ref.name] = count + 1
        moved = Ref(
            f"{ref.name}_at{count}", ref.dtype, ref.space, ref.size, ref.writable, base=ref, alone=ref.alone
        )
        hint: dict[str, Attr] | None = {"distance": ahead[0], "length": ahead[1]} if ahead else None
        self.effect("offset", (index.value,), ref=moved, attrs=hint)
        return moved

    def choose(self, condition: Val, then: Ref, orelse: Ref) -> Ref:
        """One of two buffers of a type that are only read: a named pointer in the text."""
        count = self._names.get("chosen", 0)
        self._names["chosen"] = count + 1
        ref = Ref(f"chosen{count}", then.dtype, then.space, alone=then.alone and orelse.alone)
        self.effect("choose", (condition.value,), ref, reads=(then, orelse))
        return ref

    def mad_halves(self, sums: Ref, words: Ref, numbers: Ref) -> None:
        """sums[2 * i + h] += half h of words[i], an f16, times numbers[2 * i + h], for all words of a local
        array. Of lone threads, whose compilers find no vector instructions that convert f16."""
        self.effect("mad_halves", (), sums, reads=(words, numbers))

    # -- collectives ----------------------------------------------------------------------------------------
    def barrier(self) -> None:
        self.effect("barrier", ())

    def lane_sum(self, value: Val) -> Val:
        """The sum over the SIMD group, in every lane, by a butterfly of shuffles."""
        mask = self.simd // 2
        while mask:
            other = self.make("lane_xor", value.dtype, (value.value,), {"mask": mask})
            value = value + other
            mask //= 2
        return value

    # -- launches -------------------------------------------------------------------------------------------
    def grid_wait(self, early: Sequence[Ref] = ()) -> None:
        """Programmatic dependent launch: up to here a kernel may run while the launch before it on the stream
        does, and touches no global memory but `early`, buffers that no such launch writes to. Nothing where
        targets lack the feature "pdl"; where they have it, no other buffer may be `alone`."""
        self.effect("grid_wait", (), reads=tuple(early))

    def grid_release(self) -> None:
        """Comes after `grid_wait`: when every block is here, or has ended, the next launch may begin."""
        self.effect("grid_release", ())

    # -- matrix tiles ---------------------------------------------------------------------------------------
    def tiles(self, name: str, part: str, dtype: str, count: int, shape: MatrixShape) -> Ref:
        """`count` fragments of a SIMD group, uninitialised: the left, right or sum part of `shape`."""
        ref = self._declare(name, dtype, "tile", count, shape=shape, part=part)
        self.effect("declare", (), ref=ref)
        return ref

    def tile_fill(self, tile: Ref, number: Operand, value: float) -> None:
        self.effect("tile_fill", (self.val(number, "u32").value, self.const(value, "f32").value), ref=tile)

    def tile_load(
        self, tile: Ref, number: Operand, memory: Ref, at: Operand, stride: Operand, transposed: bool = False
    ) -> None:
        """A fragment from memory whose rows (columns, if `transposed`) begin `stride` elements apart."""
        args = tuple(self.val(v, "u32").value for v in (number, at, stride))
        self.effect("tile_load", args, tile, {"transposed": int(transposed)}, (memory,))

    def tile_multiply(self, total: Ref, i: Operand, left: Ref, j: Operand, right: Ref, k: Operand) -> None:
        """total[i] += left[j] * right[k], accumulated in f32."""
        args = tuple(self.val(v, "u32").value for v in (i, j, k))
        self.effect("tile_multiply", args, total, reads=(left, right))

    def tile_store(self, memory: Ref, at: Operand, stride: Operand, tile: Ref, number: Operand) -> None:
        """A fragment to memory, as `tile_load` reads it."""
        args = tuple(self.val(v, "u32").value for v in (number, at, stride))
        self.effect("tile_store", args, memory, reads=(tile,))

    # -- control flow ---------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _scope(self, block: Block) -> Iterator[None]:
        self._blocks.append(block)
        self._known.append({})
        try:
            yield
        finally:
            self._blocks.pop()
            self._known.pop()

    @contextlib.contextmanager
    def loop(self, start: Operand, stop: Operand, step: Operand = 1, unroll: bool = False) -> Iterator[Val]:
        if (
            isinstance(start, int)
            and isinstance(stop, int)
            and isinstance(step, int)
            and start + step >= stop > start
        ):
            yield self.const(start, "u32")  # a single trip needs no loop
            return
        index = Value("index", "u32")
        bounds = [self.val(v, "u32").value for v in (start, stop, step)]
        region = For(index, bounds[0], bounds[1], bounds[2], unroll)
        self._blocks[-1].statements.append(region)
        with self._scope(region.body):
            yield Val(self, index)

    @contextlib.contextmanager
    def during(self, condition: Callable[[], Val]) -> Iterator[None]:
        """A loop while a condition holds, which is asked for before every trip. Of blocks of one thread."""
        head = Block()
        with self._scope(head):
            region = While(condition().value, head)
        self._blocks[-1].statements.append(region)
        with self._scope(region.body):
            yield

    @contextlib.contextmanager
    def when(self, condition: Val) -> Iterator[If]:
        region = If(condition.value)
        self._blocks[-1].statements.append(region)
        with self._scope(region.then):
            yield region

    @contextlib.contextmanager
    def otherwise(self, region: If) -> Iterator[None]:
        with self._scope(region.orelse):
            yield
