"""The kernel IR: typed values in structured control flow, and the one table of its operations.

A kernel is a `Function`: parameters, a thread-block size and a body of statements. A statement is a `Value`
(an operation with a result, or with an effect and none) or one of the two regions `For` and `If`. Memory is
reached through a `Ref` (buffer, shared array, local array, constant table). `OPS` says for each operation
what its operands and result may be; `verify` enforces it, and each backend lowers it or refuses it by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Union

DTYPES: dict[str, int] = {
    "bool": 1, "u8": 1, "u16": 2, "u32": 4, "u64": 8, "i32": 4, "f16": 2, "bf16": 2, "f32": 4,
}  # fmt: skip
"""Scalar types and their size in bytes. f16 and bf16 are storage types: loaded, stored, cast and bit-cast
only."""

UNSIGNED = frozenset({"u8", "u16", "u32", "u64"})
ARITHMETIC = frozenset({"u32", "u64", "i32", "f32"})
INDEX = frozenset({"u32", "u64"})

Attr = Union[int, float, str]


@dataclass(frozen=True)
class MatrixShape:
    """One matrix multiplication: rows x columns sums of `depth` products, in f32. operands: what may be
    multiplied. across: the second operand is best kept with its depth contiguous."""

    rows: int
    columns: int
    depth: int
    operands: tuple[str, ...]
    across: bool = True

    def part(self, name: str) -> tuple[int, int]:
        """Rows and columns of a tile: left, right or sum."""
        return {
            "left": (self.rows, self.depth),
            "right": (self.depth, self.columns),
            "sum": (self.rows, self.columns),
        }[name]


@dataclass(frozen=True, eq=False)
class Ref:
    """A memory object. space: global | shared | local | table | tile; size in elements (0 for global
    memory), of a `tile` in fragments, which are its `part` of `shape`."""

    name: str
    dtype: str
    space: str
    size: int = 0
    writable: bool = False
    values: tuple[float, ...] = ()
    base: Ref | None = None  # a pointer moved by `offset` keeps its origin
    alone: bool = True  # no other argument reaches the same memory
    shape: MatrixShape | None = None
    part: str = ""


@dataclass(eq=False)
class Value:
    """One operation. dtype "" means no result; width > 1 is a vector of u32 words. reads: what an effect
    takes beside the object that it writes."""

    op: str
    dtype: str
    args: tuple[Value, ...] = ()
    ref: Ref | None = None
    attrs: dict[str, Attr] = field(default_factory=dict)
    width: int = 1
    reads: tuple[Ref, ...] = ()


@dataclass(eq=False)
class For:
    """for (index = start; index < stop; index += step); `unroll` asks for full unrolling (static bounds)."""

    index: Value
    start: Value
    stop: Value
    step: Value
    unroll: bool
    body: Block = field(default_factory=lambda: Block())


@dataclass(eq=False)
class If:
    condition: Value
    then: Block = field(default_factory=lambda: Block())
    orelse: Block = field(default_factory=lambda: Block())


@dataclass(eq=False)
class While:
    """Runs `head`, which gives the condition, and while that holds `body`. Of blocks of one thread."""

    condition: Value
    head: Block
    body: Block = field(default_factory=lambda: Block())


Statement = Union[Value, For, If, While]


@dataclass(eq=False)
class Block:
    statements: list[Statement] = field(default_factory=list)


@dataclass(frozen=True)
class Param:
    """A kernel argument. type: ptr | u32 | u64 | f32; role: in | out | shape | pitch."""

    name: str
    type: str
    role: str
    ref: Ref | None = None
    value: Value | None = None

    @property
    def symbol(self) -> str:
        """The argument's C identifier; a pitch shares its field's name and is told apart by its role."""
        stem = self.name.replace(".", "_")
        return f"{stem}_pitch" if self.role == "pitch" else stem


@dataclass(eq=False)
class Function:
    name: str
    threads: int
    min_blocks: int = 0  # blocks that should fit a multiprocessor at once; 0 leaves registers to the compiler
    params: list[Param] = field(default_factory=list)
    body: Block = field(default_factory=Block)
    refs: list[Ref] = field(default_factory=list)  # shared, local and table objects, in order of declaration

    def shared_bytes(self) -> int:
        return sum(r.size * DTYPES[r.dtype] for r in self.refs if r.space == "shared")

    def waits(self) -> bool:
        """Whether it waits for the launch before it, and so may begin early."""
        return any(isinstance(s, Value) and s.op == "grid_wait" for s in self.body.statements)


@dataclass(frozen=True)
class Op:
    """The rule of one operation. result: "same" (as the operands), "bool", "none", "attr" (free) or a dtype.

    kind: pure (may be shared, moved and dropped), read (memory or variable), effect, or collective (all lanes
    of the block or of the SIMD group must arrive together).
    """

    arity: int
    operands: frozenset[str]
    result: str
    kind: str = "pure"


_NUM, _INT, _F32, _BOOL = (
    ARITHMETIC,
    frozenset({"u32", "u64", "i32"}),
    frozenset({"f32"}),
    frozenset({"bool"}),
)
_ANY = frozenset(DTYPES)
_LOGIC = _INT | _BOOL
_TILE = frozenset({"u32", "f32"})

MATH = (
    "abs", "floor", "ceil", "round", "trunc", "sqrt", "rsqrt",
    "exp", "exp2", "log", "log2", "sin", "cos", "tanh",
)  # fmt: skip
"""Functions of one f32 that every language has, precise ones (no fast math); `round` takes halves to even.
`maths` makes the others of these."""

OPS: dict[str, Op] = {
    "const": Op(0, _ANY, "attr"),
    "param": Op(0, _ANY, "attr"),
    "index": Op(0, _ANY, "u32"),  # a loop's index
    "thread": Op(0, _ANY, "u32"),  # linear index in the block
    "block": Op(0, _ANY, "u32"),  # attrs: axis
    "grid": Op(0, _ANY, "u32"),  # attrs: axis; number of blocks
    **{name: Op(2, _NUM, "same") for name in ("add", "sub", "mul", "div", "min", "max")},
    "rem": Op(2, _INT, "same"),
    **{name: Op(2, _LOGIC, "same") for name in ("and", "or", "xor")},
    **{name: Op(2, _INT, "same") for name in ("shl", "shr")},
    "and_xor": Op(
        3, frozenset({"u32"}), "same"
    ),  # (a & b) ^ c: one instruction where there is a three-input one
    "max_halves": Op(2, frozenset({"u32"}), "same"),  # of the halves of two words, as unsigned integers
    "min_halves": Op(2, frozenset({"u32"}), "same"),
    "fma_bf16_halves": Op(3, frozenset({"u32"}), "same"),  # a*b+c of the halves, which are bf16; one rounding
    # Four finite floats as bytes of e4m3 (with NaN alone) or e5m2 (IEEE), the first lowest; saturating.
    **{name: Op(4, _F32, "u32") for name in ("pack_e4m3", "pack_e5m2")},
    "dot4_i8": Op(3, frozenset({"u32"}), "i32"),  # i32 + the products of four signed bytes of two words
    "neg": Op(1, frozenset({"f32", "i32"}), "same"),
    "not": Op(1, _LOGIC, "same"),
    "fma": Op(3, _F32, "same"),  # one rounding
    "mad": Op(3, _F32, "same"),  # a*b+c with one rounding or two, whichever is faster
    **{name: Op(1, _F32, "same") for name in MATH},
    "fast_exp": Op(1, _F32, "same"),  # within 3 + 2 |x| ulp
    "fast_div": Op(2, _F32, "same"),  # within 2.5 ulp where |divisor| is 2^-126 to 2^126
    **{name: Op(2, _NUM, "bool") for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "select": Op(3, _ANY, "same"),  # operand 0 is the condition
    "cast": Op(1, _ANY, "attr"),
    "bitcast": Op(1, _ANY, "attr"),
    "unpack_f16": Op(1, frozenset({"u32"}), "f32"),  # attrs: half (0 low, 1 high)
    "word": Op(1, frozenset({"u32"}), "u32"),  # attrs: lane; of a vector
    "load": Op(1, INDEX, "attr", "read"),
    "load_words": Op(1, INDEX, "u32", "read"),
    "get": Op(0, _ANY, "attr", "read"),  # a variable
    "declare": Op(-1, _ANY, "none", "effect"),  # a local array, or a variable with its initial value
    "set": Op(1, _ANY, "none", "effect"),
    "store": Op(2, _ANY, "none", "effect"),
    "store_words": Op(-1, INDEX, "none", "effect"),
    "offset": Op(1, INDEX, "none", "effect"),  # declares a moved pointer (attrs: of a hint)
    "choose": Op(1, _BOOL, "none", "effect"),  # declares a pointer that is one of two; reads both of them
    "atomic_add": Op(2, _ANY, "none", "effect"),
    "mad_halves": Op(0, _ANY, "none", "effect"),  # of lone threads: sums += f16 halves of words * numbers
    "lane_xor": Op(1, frozenset({"f32", "u32"}), "same", "collective"),  # attrs: mask
    "barrier": Op(0, _ANY, "none", "collective"),
    "grid_wait": Op(0, _ANY, "none", "effect"),  # for the launch before; `reads` may have been read earlier
    "grid_release": Op(0, _ANY, "none", "effect"),  # lets the next launch begin, up to its own wait
    # Fragments, by their numbers; memory, by its first element and the distance of its rows. attrs of
    # tile_load: transposed, whether memory holds the transpose.
    "tile_fill": Op(2, _TILE, "none", "collective"),  # number, value
    "tile_load": Op(3, _TILE, "none", "collective"),  # number, element, stride; reads memory
    "tile_multiply": Op(3, _TILE, "none", "collective"),  # sum, left, right; sum += left * right
    "tile_store": Op(3, _TILE, "none", "collective"),  # number, element, stride; reads the fragment
}

GRID = ("grid_wait", "grid_release")
"""What orders launches that overlap (the feature "pdl"); where launches do not, it is no operation at all."""


def walk(block: Block) -> Iterator[Statement]:
    """Every statement, regions before their bodies, in program order."""
    for statement in block.statements:
        yield statement
        if isinstance(statement, For):
            yield from walk(statement.body)
        elif isinstance(statement, If):
            yield from walk(statement.then)
            yield from walk(statement.orelse)
        elif isinstance(statement, While):
            yield from walk(statement.head)
            yield from walk(statement.body)


def operands(statement: Statement) -> tuple[Value, ...]:
    if isinstance(statement, For):
        return (statement.start, statement.stop, statement.step)
    if isinstance(statement, (If, While)):
        return (statement.condition,)
    return statement.args


def is_const(value: Value, number: float | None = None) -> bool:
    return value.op == "const" and (number is None or value.attrs["value"] == number)


def float_bits(number: float) -> int:
    """The bits of an f32 constant."""
    import struct

    return int(struct.unpack("<I", struct.pack("<f", number))[0])


_FOLD: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "min": min,
    "max": max,
    "div": lambda a, b: a // b,
    "rem": lambda a, b: a % b,
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "eq": lambda a, b: int(a == b),
}


def fold(op: str, dtype: str, numbers: Sequence[float]) -> int | None:
    """The value of an unsigned integer operation on constants, or None where it is not folded."""
    if dtype not in ("u32", "u64") or op not in _FOLD or (op in ("div", "rem") and numbers[1] == 0):
        return None
    if op in ("shl", "shr") and numbers[1] >= 8 * DTYPES[dtype]:
        return None
    return int(_FOLD[op](*numbers)) & ((1 << (8 * DTYPES[dtype])) - 1)


def round_f32(number: float) -> float:
    """A Python float rounded to f32 (infinities and NaN pass)."""
    import struct

    if math.isnan(number) or math.isinf(number):
        return number
    return float(struct.unpack("<f", struct.pack("<f", number))[0])
