"""The rules of the IR, one malformed program for each."""

from __future__ import annotations

import ast
import contextlib
import inspect
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import pytest

from gen.ir import matrix, verify
from gen.ir.dsl import Builder, Val
from gen.ir.nodes import MATH, OPS, For, If, MatrixShape, Op, Ref, Value
from gen.ir.verify import VerifyError
from gen.manifest.target import Target
from tests.null.programs import GPU, IN_TURN, builder, overlapping, staged

Build = Callable[[Builder], None]


def raw(op: str, dtype: str = "", *args: Val, ref: Ref | None = None, width: int = 1, **attrs: Any) -> Value:
    return Value(op, dtype, tuple(a.value for a in args), ref, attrs, width)


def put(b: Builder, value: Value) -> Value:
    """Append a statement past the DSL's own checks."""
    b._blocks[-1].statements.append(value)
    return value


# ------------------------------------------------------------ rules
def _wide_block(b: Builder) -> None:
    b.function.threads = 65


def _group_memory(b: Builder) -> None:
    b.shared("s", "f32", 65)


def _condition(b: Builder) -> None:
    put(b, If(b.thread().value))  # type: ignore[arg-type]


def _loop(stop: Callable[[Builder], Any], step: Any = 1, unroll: bool = False) -> Build:
    def build(b: Builder) -> None:
        with b.loop(0, stop(b), step, unroll):
            pass

    return build


def _late_value(b: Builder) -> None:
    with b.when(b.thread() < 1):
        inside = b.thread() + 1
    b.store(b.buffer("y", "u32", "out"), 0, inside)


def _late_loop_value(b: Builder) -> None:
    with b.loop(0, 4) as i:
        pass
    b.store(b.buffer("y", "u32", "out"), i, 1)


def _while(threads: int) -> Build:
    """A while by a bool, or of a single thread by a number."""

    def build(b: Builder) -> None:
        b.function.threads = threads
        one = b.const(1, "u32")
        with b.during(lambda: one > 0 if threads > 1 else one):
            pass

    return build


def _cyclic_bound(b: Builder) -> None:
    index = Value("index", "u32")
    zero, one = b.const(0, "u32").value, b.const(1, "u32").value
    put(b, For(index, zero, index, one, False))  # type: ignore[arg-type]


def _lone_condition(b: Builder) -> None:
    put(b, If(raw("lt", "bool", b.thread(), b.thread())))  # type: ignore[arg-type]


def _divergent(op: str) -> Build:
    def build(b: Builder) -> None:
        x = b.thread().cast("f32")
        with b.when(b.thread() < 3):
            b.barrier() if op == "barrier" else b.lane_sum(x)

    return build


def _divergent_loop(b: Builder) -> None:
    with b.loop(0, b.thread()):
        b.barrier()


def _barrier_by_memory(b: Builder) -> None:
    """What a group has written itself, no two lanes need agree on."""
    s = b.shared("s", "u32", 4)
    with b.when(b.load(s, 0).eq(1)):
        b.barrier()


def _barrier_by_pointer(kind: str) -> Build:
    """What lies where each lane points to, no two need agree on."""

    def build(b: Builder) -> None:
        x, z = b.buffer("x", "u32"), b.buffer("z", "u32")
        where = b.at(x, b.thread()) if kind == "offset" else b.choose(b.thread().eq(0), x, z)
        with b.when(b.load(where, 0).eq(1)):
            b.barrier()

    return build


def _barrier_by_group(b: Builder) -> None:
    with b.when((b.thread() // 32).eq(0)):
        b.barrier()


def _lanes_by_a_variable(b: Builder) -> None:
    """Which a later trip of the loop finds set to what the lanes do not agree on."""
    v = b.var("v", 0, "u32")
    with b.loop(0, 4):
        with b.when(v.get().eq(0)):
            b.lane_sum(b.thread().cast("f32"))
        v.set(b.thread())


def _lanes_by_a_branch(b: Builder) -> None:
    """A constant, which only some of the lanes set."""
    v = b.var("v", 0, "u32")
    with b.when(b.thread().eq(3)):
        v.set(1)
    with b.when(v.get().eq(0)):
        b.lane_sum(b.thread().cast("f32"))


def _lane_by_part_of_a_group(b: Builder) -> None:
    with b.when((b.thread() // 16).eq(0)):
        b.lane_sum(b.thread().cast("f32"))


def _ordered(*ops: str, looped: bool = False) -> Build:
    """These, one after the other, all of them in a loop or none."""

    def build(b: Builder) -> None:
        with b.loop(0, b.scalar("n")) if looped else contextlib.nullcontext():
            for op in ops:
                b.effect(op, ())

    return build


def _before_the_wait(reach: Callable[[Builder, Ref], None], role: str = "in", named: bool = False) -> Build:
    """What reaches z, an argument that the wait names or does not."""

    def build(b: Builder) -> None:
        z = b.buffer("z", "f32", role, alone=False)
        reach(b, z)
        b.grid_wait((z,) if named else ())

    return build


def _read(b: Builder, z: Ref) -> None:
    b.load(z, 0)


def _read_moved(b: Builder, z: Ref) -> None:
    with b.loop(0, b.scalar("n")) as i:
        b.load(b.at(b.at(z, i), i), 0)


def _read_chosen(b: Builder, z: Ref) -> None:
    b.load(b.choose(b.block().eq(0), z, z), 0)


def _write(b: Builder, z: Ref) -> None:
    b.store(z, 0, 1.0)


EARLY = "before grid_wait a kernel reads what it names, and writes nothing; found "
WAITS: list[tuple[str, Build, str]] = [
    *((" ".join(ops) + " in a loop" * looped, _ordered(*ops, looped=looped),
       f"grid_wait, then grid_release stand once, outside loops and branches; found {ops}")
      for ops, looped in ((("grid_wait",), True), (("grid_wait",) * 2, False), (("grid_release",), False),
                          (("grid_release", "grid_wait"), False),
                          (("grid_wait", "grid_release", "grid_release"), False))),
    ("wait", _before_the_wait(_read), EARLY + "z"),
    ("wait moved", _before_the_wait(_read_moved), EARLY + "z"),
    ("wait chosen", _before_the_wait(_read_chosen, named=True), EARLY + "chosen0"),
    ("wait write", _before_the_wait(_write, "out", named=True), EARLY + "z"),
    ("wait alone", lambda b: overlapping(b, alone=True),
     "what a kernel may not reach before grid_wait is not `alone`; found x, y"),
]  # fmt: skip


def _add(*types: str) -> Build:
    return lambda b: (put(b, raw("add", types[0], *(any_of(b, t) for t in types))), None)[1]


def any_of(b: Builder, dtype: str) -> Val:
    """A value of any type."""
    return b.load(b.buffer(f"any_{dtype}{len(b.function.params)}", dtype), 0)


def _again(b: Builder) -> None:
    put(b, b.thread().value)


def _a_region_again(b: Builder) -> None:
    with b.when(b.thread() < 1):
        b.barrier()
    put(b, b.function.body.statements[-1])  # type: ignore[arg-type]


def _one_name(b: Builder) -> None:
    b.buffer("s", "f32")
    b.shared("s", "f32", 4)


def _short_table(b: Builder) -> None:
    b.function.refs.append(Ref("t", "f32", "table", 2, values=(1.0,)))


def _whole_groups(op: str) -> Build:
    def build(b: Builder) -> None:
        b.function.threads = 48
        if op == "lane_xor":
            b.lane_sum(b.const(1.0, "f32"))
        else:
            b.tile_fill(b.tiles("c", "sum", "f32", 1, SHAPE), 0, 0.0)

    return build


def _one(op: str, dtype: str, *args: Callable[[Builder], Val], **attrs: Any) -> Build:
    return lambda b: (put(b, raw(op, dtype, *(a(b) for a in args), **attrs)), None)[1]


def _at(name: str, op: str, *args: Any, dtype: str = "", **more: Any) -> Build:
    """An operation on a buffer x (u8, read), y (f32, written), a shared array s or a local array l of 8."""

    def build(b: Builder) -> None:
        memory = {
            "x": b.buffer("x", "u8"), "y": b.buffer("y", "f32", "out"), "s": b.shared("s", "f32", 8),
            "l": b.local("l", "f32", 8), "v": b.var("v", 0.0).ref, "t": b.table("t", [0.5, 1.5]),
            "stranger": Ref("stranger", "f32", "global", writable=True),
        }  # fmt: skip
        made = [a(b) if callable(a) else b.const(a, "u32") for a in args]
        put(b, raw(op, dtype, *made, ref=memory.get(name), **more))

    return build


def one(b: Builder) -> Val:
    return b.const(1.0, "f32")


def _vector_sum(b: Builder) -> None:
    b.load_words(b.buffer("x", "u8"), 0, 4) + 1


def _word(lane: int, width: int) -> Build:
    return lambda b: (b.load_words(b.buffer("x", "u8"), 0, width).word(lane), None)[1]


def _cast(op: str, source: str, to: str) -> Build:
    return lambda b: (put(b, raw(op, to, b.load(b.buffer("x", source), 0))), None)[1]


def _mask(mask: int) -> Build:
    return lambda b: (put(b, raw("lane_xor", "f32", one(b), mask=mask)), None)[1]


def _offset(b: Builder) -> None:
    put(
        b, raw("offset", "", b.const(1, "u32"), ref=Ref("p", "f32", "global", base=Ref("q", "f32", "global")))
    )


def _choose(condition: Callable[[Builder], Val], *names: str) -> Build:
    """Between two of buffers x and z (u8), f (f32), y (written), and one that is not declared."""

    def build(b: Builder) -> None:
        memory = {"x": b.buffer("x", "u8"), "z": b.buffer("z", "u8"), "f": b.buffer("f", "f32")}
        memory |= {"y": b.buffer("y", "u8", "out"), "stranger": Ref("stranger", "u8", "global")}
        then, orelse = (memory[name] for name in names)
        b.choose(condition(b), then, orelse)

    return build


def _some(b: Builder) -> Val:
    return b.thread() < 3


def _function(name: str) -> Build:
    return lambda b: (put(b, raw(name, "u32", b.thread())), None)[1]


def _dot4(*types: str) -> Build:
    def build(b: Builder) -> None:
        put(b, raw("dot4_i8", "i32", *[b.const(1, kind) for kind in types]))

    return build


def _halves(sums: str, words: str, numbers: str, size: int = 8, reads: int = 2) -> Build:
    def build(b: Builder) -> None:
        into, given = b.local("sums", sums, size), b.local("words", words, 4)
        b.effect("mad_halves", (), into, reads=(given, b.shared("numbers", numbers, 8))[:reads])

    return build


def _select(*types: str) -> Build:
    return lambda b: (put(b, raw("select", "f32", *(b.const(1, t) for t in types))), None)[1]


def _var_begins(b: Builder) -> None:
    b.var("v", 0.0)
    declare = b.function.body.statements[-1]
    assert isinstance(declare, Value)
    declare.args = (b.const(1, "u32").value,)
    b.function.body.statements.reverse()


SHAPE = matrix.SHAPES["simdgroup_matrix"]


def _declare_tile(dtype: str, part: str, shape: MatrixShape = SHAPE) -> Build:
    return lambda b: (b.tiles("a", part, dtype, 1, shape), None)[1]


def _tile(op: str, ref: str, *reads: str, args: Any = (0, 0, 8), **attrs: Any) -> Build:
    """An operation on two left tiles a, one right tile r, one sum c (and a right tile w of f32), group memory
    s (f16, 8 x 8) and t (f32), a local array l, a buffer x (read) and y (written)."""

    def build(b: Builder) -> None:
        memory = {
            "a": b.tiles("a", "left", "f16", 2, SHAPE), "r": b.tiles("r", "right", "f16", 1, SHAPE),
            "c": b.tiles("c", "sum", "f32", 1, SHAPE), "w": b.tiles("w", "right", "f32", 1, SHAPE),
            "s": b.shared("s", "f16", 64), "t": b.shared("t", "f32", 16), "l": b.local("l", "f16", 64),
            "x": b.buffer("x", "f32"), "y": b.buffer("y", "f32", "out"),
            "stranger": Ref("stranger", "f16", "tile", 1, True, shape=SHAPE, part="left"),
        }  # fmt: skip
        made = [a(b) if callable(a) else b.const(a, "u32") for a in args]
        value = raw(op, "", *made, ref=memory.get(ref), **attrs)
        value.reads = tuple(memory[name] for name in reads)
        put(b, value)

    return build


def _tile_in_a_branch(b: Builder) -> None:
    sums = b.tiles("c", "sum", "f32", 1, SHAPE)
    with b.when(b.thread() < 3):
        b.tile_fill(sums, 0, 0.0)


TILE_RULES: list[tuple[str, Build, str]] = [
    ("tile shape", _declare_tile("f16", "left", matrix.SHAPES["mma"]), "a tile has the target's shape, "),
    ("tile type", _declare_tile("u8", "left"), "a left tile is f16 or bf16 or f32; found u8"),
    ("sum type", _declare_tile("f16", "sum"), "a sum tile is f32; found f16"),
    ("tile branch", _tile_in_a_branch, "tile_fill is reached by all lanes together"),
    ("tile operands", _tile("tile_multiply", "c", "a", "r", args=(0, 0, one)),
     "tile_multiply takes ['u32', 'u32', 'u32']; found ['u32', 'u32', 'f32']"),
    ("fill operands", _tile("tile_fill", "c", args=(0, 0)),
     "tile_fill takes ['u32', 'f32']; found ['u32', 'u32']"),
    ("tile lanes", _tile("tile_load", "a", "s", args=(0, lambda b: b.thread(), 8)),
     "tile_load's operands are the same in every lane; found a lane's own value"),
    ("tile fragments", _tile("tile_load", "a", "s", args=(2, 0, 8)), "a has 2 fragments; found 2"),
    ("tile part", _tile("tile_multiply", "c", "r", "a"),
     "tile_multiply names a declared tile (left); found r in tile"),
    ("tile undeclared", _tile("tile_load", "stranger", "s"),
     "tile_load names a declared tile (left or right); found stranger in tile"),
    ("tile of none", _tile("tile_multiply", "c", "a"),
     "tile_multiply names a declared tile (right); found none"),
    ("fill of an operand", _tile("tile_fill", "a", args=(0, one)),
     "tile_fill names a declared tile (sum); found a in tile"),
    ("tile space", _tile("tile_load", "a", "l"),
     "tile_load reaches declared global or shared memory; found l in local"),
    ("tile memory", _tile("tile_load", "a"),
     "tile_load reaches declared global or shared memory; found none"),
    ("tile memory type", _tile("tile_load", "a", "x"),
     "tile_load moves elements of a's type f16; found f32"),
    ("tile bounds", _tile("tile_load", "a", "s", args=(0, 1, 8)),
     "s has 64 elements; found a tile that ends at 65"),
    ("tile stride", _tile("tile_load", "r", "s", args=(0, 0, 16), transposed=1),
     "s has 64 elements; found a tile that ends at 120"),
    ("tile store bounds", _tile("tile_store", "t", "c"), "t has 16 elements; found a tile that ends at 64"),
    ("tile store read-only", _tile("tile_store", "x", "c"),
     "tile_store writes to a writable object; found x"),
    ("tile types", _tile("tile_multiply", "c", "a", "w", args=(0, 0, 0)),
     "tile_multiply's operands have one type; found f16 and f32"),
]  # fmt: skip

RULES: list[tuple[str, Build, str]] = [
    ("threads", _wide_block, "a block has 1 to 64 threads; found 65"),
    ("group memory", _group_memory, "group memory is at most 256 bytes; found 260"),
    ("while of many", _while(64), "a while is of a block of one thread; found 64 threads"),
    ("while", _while(1), "a while's condition is a bool; found u32"),
    ("if", _condition, "an if's condition is a bool; found u32"),
    ("if undefined", _lone_condition,
     "a value is defined before it is used, in an enclosing scope; found lt used by if"),
    ("bound type", _loop(lambda b: b.const(4, "u64")), "a loop's bounds are u32; found u64"),
    ("bound undefined", _cyclic_bound,
     "a value is defined before it is used, in an enclosing scope; found index"),
    ("step", _loop(lambda b: b.thread(), 0), "a loop's step is not 0; found 0"),
    ("unroll", _loop(lambda b: b.thread(), unroll=True),
     "an unrolled loop has constant bounds; found run-time bounds"),
    ("scope", _late_value,
     "a value is defined before it is used, in an enclosing scope; found add used by store"),
    ("loop scope", _late_loop_value,
     "a value is defined before it is used, in an enclosing scope; found index"),
    ("op", lambda b: (put(b, raw("frob", "u32")), None)[1], "an operation is in the table OPS; found 'frob'"),
    ("arity", lambda b: (put(b, raw("add", "u32", b.thread())), None)[1], "add takes 2 operands; found 1"),
    ("barrier", _divergent("barrier"),
     "barrier is reached by all lanes together (uniform control flow); found a div"),
    ("barrier loop", _divergent_loop, "barrier is reached by all lanes together"),
    ("barrier memory", _barrier_by_memory, "barrier is reached by all lanes together"),
    ("barrier offset", _barrier_by_pointer("offset"), "barrier is reached by all lanes together"),
    ("barrier choose", _barrier_by_pointer("choose"), "barrier is reached by all lanes together"),
    ("barrier group", _barrier_by_group, "barrier is reached by all lanes together"),
    ("lanes", _divergent("lane"), "lane_xor is reached by all lanes together"),
    ("lanes variable", _lanes_by_a_variable, "lane_xor is reached by all lanes together"),
    ("lanes branch", _lanes_by_a_branch, "lane_xor is reached by all lanes together"),
    ("lanes part", _lane_by_part_of_a_group, "lane_xor is reached by all lanes together"),
    ("operand type", _add("f16", "f16"), "add takes ['f32', 'i32', 'u32', 'u64']; found f16"),
    ("fma type", lambda b: (put(b, raw("fma", "u32", *[b.thread()] * 3)), None)[1],
     "fma takes ['f32']; found u32"),
    *((f"{name} type", _function(name), f"{name} takes ['f32']; found u32") for name in MATH),
    ("mixed types", _add("u32", "f32"), "add's operands have one type; found ['u32', 'f32']"),
    ("select arms", _select("bool", "f32", "u32"), "select's operands have one type; found ['f32', 'u32']"),
    ("select", _select("u32", "f32", "f32"), "select's condition is a bool; found u32"),
    ("halves types", _halves("f32", "f32", "f32"),
     "mad_halves takes a local array of u32, f32, and sums of f32; found f32 in local, f32, f32"),
    ("halves sizes", _halves("f32", "u32", "f32", size=7),
     "mad_halves takes words by fours, with two sums and numbers for each; found 4 words, 8 numbers, 7 sums"),
    ("halves reads", _halves("f32", "u32", "f32", reads=1),
     "mad_halves reads two declared objects; found ['words']"),
    ("dot4 words", _dot4("i32", "i32", "i32"), "dot4_i8 takes ['u32']; found i32"),
    ("dot4 sum", _dot4("u32", "u32", "u32"), "dot4_i8 adds to an i32; found u32"),
    ("result", lambda b: (put(b, raw("lt", "u32", b.thread(), b.thread())), None)[1],
     "lt gives bool; found u32"),
    ("same result", lambda b: (put(b, raw("add", "u64", *[b.thread()] * 2)), None)[1],
     "add gives u32; found u64"),
    ("effect result", _at("y", "store", 0, one, dtype="f32"), "store gives nothing; found f32"),
    ("no result", lambda b: (put(b, raw("barrier", "u32")), None)[1], "barrier gives nothing; found u32"),
    ("type", lambda b: (put(b, raw("const", "u128", value=1)), None)[1], "a type is one of ['bf16', 'bool',"),
    ("no object", _at("none", "load", 0, dtype="f32"), "load names a declared object; found none"),
    ("undeclared", _at("stranger", "store", 0, one), "store names a declared object; found stranger"),
    ("space", _at("t", "load_words", 0, dtype="u32"),
     "load_words reaches global or shared memory; found t in table"),
    ("table store", _at("t", "store", 0, one),
     "store reaches global or shared or local memory; found t in table"),
    ("variable load", _at("v", "load", 0, dtype="f32"),
     "load reaches global or shared or local or table memory"),
    ("array get", _at("l", "get", dtype="f32"), "get reaches var memory; found l in local"),
    ("index type", _at("y", "store", one, one), "an index is u32 or u64; found f32"),
    ("index range", _at("l", "store", 8, one), "l has 8 elements; found index 8"),
    ("load range", _at("t", "load", 2, dtype="f32"), "t has 2 elements; found index 2"),
    ("words range", _at("s", "load_words", 5, dtype="u32", width=4), "s has 8 elements; found index 5"),
    ("store words range", _at("s", "store_words", 7, 1, 1), "s has 8 elements; found index 7"),
    ("read-only", _at("x", "store", 0, lambda b: b.const(1, "u8")),
     "store writes to a writable object; found x"),
    ("read-only words", _at("x", "store_words", 0, 1), "store_words writes to a writable object; found x"),
    ("read-only atomic", _at("x", "atomic_add", 0, lambda b: b.const(1, "u8")),
     "atomic_add writes to a writable object"),
    ("load type", _at("x", "load", 0, dtype="u32"), "load gives x's type u8; found u32"),
    ("store type", _at("y", "store", 0, 1), "store takes y's type f32; found u32"),
    ("width", _at("x", "load_words", 0, dtype="u32", width=3), "load_words loads 1, 2 or 4 words; found 3"),
    ("store width", _at("y", "store_words", 0, 1, 1, 1), "store_words stores 1, 2 or 4 u32 words; found"),
    ("store words of", _at("y", "store_words", 0, one),
     "store_words stores 1, 2 or 4 u32 words; found ['f32']"),
    ("vector", _vector_sum, "word, and nothing else, takes a vector; found add"),
    ("scalar word", _word(0, 1), "word, and nothing else, takes a vector; found word"),
    ("lane", _word(2, 2), "word is one of 2; found 2"),
    ("set", _at("v", "set", 1), "v is f32; found u32"),
    ("get", _at("v", "get", dtype="u32"), "v is f32; found u32"),
    ("declare", _at("s", "declare"), "declare names a local array, a tile or a variable"),
    ("declare none", _at("none", "declare"), "declare names a local array, a tile or a variable; found None"),
    ("array begins", _at("l", "declare", one),
     "a variable begins with a value of its type, an array with none; found l"),
    ("variable begins", _at("v", "declare", 1),
     "a variable begins with a value of its type, an array with none; found v"),
    ("offset", _offset, "offset moves a declared buffer; found p"),
    ("offset none", _at("y", "offset", 1), "offset moves a declared buffer; found y"),
    ("offset type", lambda b: (b.at(b.buffer("x", "u8"), one(b)), None)[1],
     "an offset is u32 or u64; found f32"),
    ("choose", _choose(_some, "x", "stranger"), "choose is between declared buffers; found x, stranger"),
    ("choose types", _choose(_some, "x", "f"),
     "choose is between read-only buffers of one type; found ['u8', 'u8', 'f32']"),
    ("choose written", _choose(_some, "y", "x"),
     "choose is between read-only buffers of one type; found ['u8', 'u8 (writable)', 'u8']"),
    ("choose by", _choose(lambda b: b.thread(), "x", "z"), "choose takes a bool; found u32"),
    ("bitcast", _cast("bitcast", "f16", "u32"), "bitcast keeps the size; found f16 to u32"),
    ("cast", _cast("cast", "bf16", "f16"),
     "a cast between 16-bit floats goes through f32; found bf16 to f16"),
    ("mask", _mask(32), "lane_xor's mask is within 32 lanes; found 32"),
    ("mask 0", _mask(0), "lane_xor's mask is within 32 lanes; found 0"),
    ("one name", _one_name, "each argument and object has a name of its own; found s twice"),
    ("empty object", lambda b: (b.shared("s", "f32", 0), None)[1],
     "an object has one element or more; found s of 0"),
    ("table size", _short_table, "a table of 2 has as many values; found t with 1"),
    ("value again", _again, "a statement stands in one place; found thread twice"),
    ("region again", _a_region_again, "a statement stands in one place; found if twice"),
    ("stray argument", _one("param", "u32", name="n"),
     "an argument is one of the function's, an index a loop's; found param as a statement"),
    ("stray index", _one("index", "u32"),
     "an argument is one of the function's, an index a loop's; found index"),
    ("lanes of a part", _whole_groups("lane_xor"),
     "lane_xor is for blocks of whole groups of 32 lanes; found 48 threads"),
    ("tile of a part", _whole_groups("tile_fill"),
     "tile_fill is for blocks of whole groups of 32 lanes; found 48 threads"),
    ("atomic space", _at("l", "atomic_add", 0, one),
     "atomic_add reaches global or shared memory; found l in"),
    ("atomic type", lambda b: (put(b, raw("atomic_add", "", b.const(0, "u32"), b.const(1, "u8"),
                                          ref=b.buffer("z", "u8", "out"))), None)[1],
     "atomic_add adds u32 or i32 or f32; found u8"),
    ("half constant", _one("const", "f16", value=1),
     "a constant of 16-bit floats is 0, others are cast from f32; found 1"),
    ("constant", _one("const", "u32", value=-1),
     "a constant of u32 is a whole number from 0 to 4294967295; found -1"),
    ("signed constant", _one("const", "i32", value=2**31),
     "a constant of i32 is a whole number from -2147483648"),
    ("truth", _one("const", "bool", value=2), "a constant of bool is a whole number from 0 to 1; found 2"),
    ("broken constant", _one("const", "u8", value=1.5), "a constant of u8 is a whole number from 0 to 255"),
    ("no constant", _one("const", "f32"), "a constant of f32"),
    ("axis", _one("block", "u32", axis=3), "block's axis is 0, 1 or 2; found 3"),
    ("grid axis", _one("grid", "u32"), "grid's axis is 0, 1 or 2; found None"),
    ("half", _one("unpack_f16", "f32", lambda b: b.thread(), half=2),
     "unpack_f16's half is 0 (low) or 1 (high); found 2"),
    ("cast of a bool", _cast("cast", "bool", "u32"),
     "a bool is made by comparing, and chosen by with select; found bool to u32"),
    ("bits of a bool", _cast("bitcast", "u8", "bool"), "a bool is made by comparing"),
    *TILE_RULES,
    *WAITS,
]  # fmt: skip


def failing(build: Build) -> str:
    b = builder()
    build(b)
    with pytest.raises(VerifyError) as caught:
        verify.verify(b.function, GPU)
    return str(caught.value)


@pytest.mark.parametrize(("build", "message"), [r[1:] for r in RULES], ids=[r[0] for r in RULES])
def test_rule(build: Build, message: str) -> None:
    """The error names the function and the rule, and says what was found."""
    assert failing(build).startswith(f"k: {message}")


def test_every_rule_has_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place of verify.py that refuses is reached by the table above."""
    tree = ast.parse(inspect.getsource(verify))
    places = {
        (node.lineno, node.end_lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fail"
    }
    assert len(places) > 30
    reached, fail = set(), verify._State.fail

    def note(self: Any, rule: str, found: str) -> VerifyError:
        reached.add(sys._getframe(1).f_lineno)
        return fail(self, rule, found)

    monkeypatch.setattr(verify._State, "fail", note)
    for _, build, _ in RULES:
        failing(build)
    missed = [p for p in places if not any(p[0] <= line <= (p[1] or p[0]) for line in reached)]
    assert not missed, f"no program breaks the rules at these lines of gen/ir/verify.py: {missed}"


def test_each_rule_is_needed() -> None:
    """Without a rule one of its programs passes, or meets no other rule: no rule stands in for another."""
    source = inspect.getsource(verify)
    places = [n.lineno for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Raise)]
    reached: dict[int, list[Build]] = {}
    for _, build, _ in RULES:
        reached.setdefault(_line(verify, build), []).append(build)
    idle = []
    for line in places:
        module = _without(source, line)
        if not any(_line(module, build) == 0 for build in reached.get(line, [])):
            idle.append(line)
    assert not idle, f"rules of gen/ir/verify.py that another one makes good, or with no program: {idle}"


def _line(module: Any, build: Build) -> int:
    """Where a program is refused; 0: nowhere, or it only breaks what reads it."""
    b = builder()
    build(b)
    try:
        module.verify(b.function, GPU)
    except module.VerifyError as error:
        frames = [f for f in traceback.walk_tb(error.__traceback__) if f[0].f_code.co_name != "fail"]
        return frames[-1][1]
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return 0
    return 0


def _without(source: str, line: int) -> Any:
    """gen.ir.verify with one refusal taken out."""

    class Cut(ast.NodeTransformer):
        def visit_Raise(self, node: ast.Raise) -> ast.stmt:
            return ast.copy_location(ast.Pass(), node) if node.lineno == line else node

    module = types.ModuleType(verify.__name__)
    module.__package__, module.__dict__["__file__"] = verify.__package__, "rules"
    sys.modules["gen.ir._rules"] = module
    module.__name__ = "gen.ir._rules"
    exec(compile(Cut().visit(ast.parse(source)), "rules", "exec"), module.__dict__)
    return module


def test_uniform_control_flow_is_accepted() -> None:
    b = builder(64)
    staged(b)
    assert verify.verify(b.function, GPU) is b.function


def test_a_kernel_may_read_what_it_names_before_it_waits() -> None:
    """Where launches do not overlap, the others may be `alone`, too."""
    for alone, target in ((False, GPU), (False, IN_TURN), (True, IN_TURN)):
        b = builder()
        overlapping(b, alone=alone)
        assert verify.verify(b.function, target).waits()


def test_a_variable_of_what_all_agree_on_is_one_too() -> None:
    b = builder(64)
    x, count = b.buffer("lengths", "u32"), b.scalar("n")
    v = b.var("v", count, "u32")
    with b.when(count.ne(0)):
        v.set(b.load(x, b.block()))
    with b.loop(0, v.get()) as i:
        b.barrier()
        v.set(v.get() + i)
    assert verify.verify(b.function, GPU) is b.function


def test_matrix_tiles_are_accepted() -> None:
    """Fragments and places may depend on the group and on loops; memory may be a buffer, or transposed."""
    b = builder(64)
    x, y, s = b.buffer("x", "f16"), b.buffer("y", "f32", "out"), b.shared("s", "f16", 64)
    left, right = b.tiles("a", "left", "f16", 2, SHAPE), b.tiles("r", "right", "f16", 1, SHAPE)
    total, group = b.tiles("c", "sum", "f32", 1, SHAPE), b.thread() // 32
    b.tile_fill(total, 0, 0.0)
    with b.loop(0, 2, unroll=True) as i:
        b.tile_load(left, i, x, group * 64, b.scalar("k"))
        b.tile_load(right, 0, s, 0, 8, transposed=True)
        b.tile_multiply(total, 0, left, i, right, 0)
    b.tile_store(y, group * 64, 8, total, 0)
    verify.verify(b.function, GPU)


def test_a_target_without_matrix_tiles_refuses_them_by_name() -> None:
    plain = Target("plain", "cuda")
    assert matrix.shape_of(plain) is None
    assert matrix.refusal(plain, "f16") == (
        "matrix tiles need the feature 'mma' or 'simdgroup_matrix'; target plain declares none of them"
    )
    tensor = Target("tensor", "cuda", features=frozenset({"mma"}))
    assert matrix.refusal(tensor, "f32") == "matrix tiles of target tensor take f16, bf16; got f32"
    assert [matrix.refusal(tensor, dtype) for dtype in ("f16", "bf16")] == [None, None]


def test_a_lone_thread_agrees_with_itself() -> None:
    b = Builder("k", 1, 1)
    with b.when(b.thread() < 1):
        b.barrier()
    verify.verify(b.function, Target("cpu", "cpu", simd=1, max_threads=1, shared_bytes=0))


def test_the_table_of_operations_is_whole() -> None:
    """Effects give nothing, values something; what is checked by name exists."""
    without = {"barrier", *(name for name in OPS if name.startswith("tile_"))}
    for name, op in OPS.items():
        assert isinstance(op, Op)
        assert op.kind in ("pure", "read", "effect", "collective"), name
        assert (op.result == "none") == (op.kind == "effect" or name in without), name
    assert set(verify.CHECKS) <= set(OPS)
