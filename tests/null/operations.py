"""A small program for every operation of the IR on every type that the rules let pass. No test in here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from gen.ir import matrix
from gen.ir.dsl import Builder, Val
from gen.ir.nodes import DTYPES, GRID, OPS, Function, Ref, Value
from gen.manifest.target import Target

GROUP = 32
FLOATS = ("f16", "bf16")
Build = Callable[[Builder], None]
STORED = tuple(DTYPES)
ATOMIC = ("u32", "i32", "f32")
OWN_TYPE = {("select", 0): "bool", ("dot4_i8", 2): "i32"}
"""Operands of a type of their own, by operation and place."""


def arg(b: Builder, dtype: str) -> Val:
    """A value of any type, out of memory."""
    return b.load(b.buffer(f"x{len(b.function.params)}", dtype), b.thread())


def keep(b: Builder, value: Val) -> None:
    b.store(b.buffer("y", value.dtype, "out"), b.thread(), value)


def _pure(op: str, dtype: str) -> Build:
    rule = OPS[op]

    def build(b: Builder) -> None:
        kinds = [OWN_TYPE.get((op, i), dtype) for i in range(rule.arity)]
        args = tuple(arg(b, kind).value for kind in kinds)
        keep(b, b.make(op, rule.result if rule.result in DTYPES else dtype, args))

    return build


def _converted(op: str, source: str, to: str) -> Build:
    return lambda b: keep(b, b.make(op, to, (arg(b, source).value,)))


def _special() -> Iterator[tuple[str, str, Build]]:
    """(operation, what of it, its program): operations that are no function of values."""
    for dtype in DTYPES:
        yield "const", dtype, lambda b, t=dtype: keep(b, b.const(0 if t in FLOATS else 1, t))
    for dtype in ("u32", "u64", "f32"):
        yield "param", dtype, lambda b, t=dtype: keep(b, b.scalar("n", t))
    yield "index", "u32", _loop
    yield "thread", "u32", lambda b: keep(b, b.thread() + 1)
    for axis in range(3):
        yield "block", str(axis), lambda b, i=axis: keep(b, b.block(i) + 1)
        yield "grid", str(axis), lambda b, i=axis: keep(b, b.grid(i) + 1)
    for half in range(2):
        yield (
            "unpack_f16",
            str(half),
            lambda b, h=half: keep(b, b.make("unpack_f16", "f32", (arg(b, "u32").value,), {"half": h})),
        )
    for dtype in ("f32", "u32"):
        yield (
            "lane_xor",
            dtype,
            lambda b, t=dtype: keep(b, b.make("lane_xor", t, (arg(b, t).value,), {"mask": 1})),
        )
    yield "barrier", "", _barrier
    for op in GRID:
        yield op, "", _overlapping


def _loop(b: Builder) -> None:
    y = b.buffer("y", "u32", "out")
    with b.loop(0, b.scalar("n")) as i:
        b.store(y, i, i)


def _barrier(b: Builder) -> None:
    s = b.shared("s", "u32", GROUP)
    b.store(s, b.thread(), 1)
    b.barrier()
    keep(b, b.load(s, 0))


def _overlapping(b: Builder) -> None:
    y, n = b.buffer("y", "u32", "out", alone=False), b.scalar("n")
    b.grid_wait()
    b.grid_release()
    b.store(y, b.thread(), n)


def _memory() -> Iterator[tuple[str, str, Build]]:
    for dtype, space in product(STORED, ("global", "shared", "local")):
        yield "load", f"{dtype} {space}", _moved(dtype, space)
        yield "store", f"{dtype} {space}", _moved(dtype, space)
    yield "load", "table", lambda b: keep(b, b.load(b.table("t", [0.5, 1.5]), b.thread() % 2))
    for dtype in STORED:
        yield "get", dtype, _variable(dtype)
        yield "set", dtype, _variable(dtype)
        yield "declare", dtype, _variable(dtype)
        yield "offset", dtype, _offset(dtype)
        yield "choose", dtype, _choice(dtype)
    for dtype, width in product([t for t in STORED if t != "bool"], (1, 2, 4)):
        for op in ("load_words", "store_words", *(["word"] if width > 1 else [])):
            yield op, f"{dtype} {width}", _words(dtype, width)
    for dtype, space in product(ATOMIC, ("global", "shared")):
        yield "atomic_add", f"{dtype} {space}", _atomic(dtype, space)
    yield "mad_halves", "", _mad_halves


def _mad_halves(b: Builder) -> None:
    sums, words = b.local("sums", "f32", 8), b.local("words", "u32", 4)
    b.mad_halves(sums, words, b.shared("numbers", "f32", 8))
    keep(b, b.load(sums, 0))


def _object(b: Builder, dtype: str, space: str) -> Ref:
    if space == "global":
        return b.buffer("z", dtype, "out")
    return b.shared("z", dtype, GROUP) if space == "shared" else b.local("z", dtype, GROUP)


def _moved(dtype: str, space: str) -> Build:
    def build(b: Builder) -> None:
        z = _object(b, dtype, space)
        b.store(z, b.thread(), arg(b, dtype))
        keep(b, b.load(z, b.thread()))

    return build


def _variable(dtype: str) -> Build:
    def build(b: Builder) -> None:
        v = b.var("v", arg(b, dtype), dtype)
        v.set(arg(b, dtype))
        keep(b, v.get())

    return build


def _offset(dtype: str) -> Build:
    return lambda b: keep(b, b.load(b.at(b.buffer("x", dtype), b.block()), b.thread()))


def _choice(dtype: str) -> Build:
    def build(b: Builder) -> None:
        one, other = b.buffer("one", dtype), b.buffer("other", dtype)
        keep(b, b.load(b.choose(b.block().eq(0), one, other), b.thread()))

    return build


def _words(dtype: str, width: int) -> Build:
    def build(b: Builder) -> None:
        x, y = b.buffer("x", dtype), b.buffer("y", dtype, "out")
        vector = b.load_words(x, 0, width)
        b.store_words(y, 0, [vector.word(i) for i in range(width)] if width > 1 else [vector])

    return build


def _atomic(dtype: str, space: str) -> Build:
    def build(b: Builder) -> None:
        z = _object(b, dtype, space)
        b.effect("atomic_add", (b.thread().value, arg(b, dtype).value), ref=z)
        keep(b, b.load(z, 0))

    return build


def _tiles(target: Target) -> Iterator[tuple[str, str, Build]]:
    shape = matrix.shape_of(target)
    for dtype in shape.operands if shape else ():
        for transposed in (False, True):

            def build(b: Builder, dtype: str = dtype, transposed: bool = transposed) -> None:
                assert shape is not None
                left, right = (b.tiles(part, part, dtype, 1, shape) for part in ("left", "right"))
                total = b.tiles("total", "sum", "f32", 1, shape)
                b.tile_fill(total, 0, 0.0)
                s, x = b.shared("s", dtype, 512), b.buffer("x", dtype)
                b.tile_load(left, 0, s, 0, 16, transposed)
                b.tile_load(right, 0, x, 0, 16, transposed)
                b.tile_multiply(total, 0, left, 0, right, 0)
                b.tile_store(b.buffer("y", "f32", "out"), 0, 16, total, 0)

            for op in ("tile_fill", "tile_load", "tile_multiply", "tile_store"):
                yield op, f"{dtype}{' transposed' if transposed else ''}", build


def _values() -> Iterator[tuple[str, str, Build]]:
    for op, rule in OPS.items():
        if op in ("cast", "bitcast"):
            for source, to in product(DTYPES, DTYPES):
                if source != to and "bool" not in (source, to) and _converts(op, source, to):
                    yield op, f"{source} {to}", _converted(op, source, to)
        elif rule.kind == "pure" and rule.arity and op not in ("word", "unpack_f16"):
            for dtype in (t for t in DTYPES if t in rule.operands):
                yield op, dtype, _pure(op, dtype)


def _converts(op: str, source: str, to: str) -> bool:
    return DTYPES[source] == DTYPES[to] if op == "bitcast" else not {source, to} <= set(FLOATS)


def programs(target: Target) -> Iterator[tuple[str, str, Function]]:
    """(operation, what of it, the function), not verified: a name of its own for each program."""
    threads = GROUP if target.simd > 1 else 1
    for number, (op, what, build) in enumerate((*_values(), *_special(), *_memory(), *_tiles(target))):
        b = Builder(f"k{number}_{op}", threads, target.simd)
        build(b)
        assert any(isinstance(s, Value) for s in b.function.body.statements)
        yield op, what, b.function
