"""The gated delta rule: what its kernels take, and one token of it.

Of each head of each sequence, with g = exp(-exp(A_log) * softplus(a + dt_bias)) and beta = sigmoid(b):
    S' = g S;  d = beta (v - S' k);  S = S' + d k^T;  y = S q
(Yang, Kautz, Hatamizadeh: Gated Delta Networks, 2024, arXiv 2412.06464). h value heads share hk key heads, as
many each. f32 throughout, one rounding of y; q and k are taken as they are (models normalise k before).

NaN spreads as the formulas have it: from v to its row of S, from the others to the head, and to later tokens.
Infinities may become NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ..ir.dsl import Builder, Val
from ..ir.maths import sigmoid, softplus
from ..ir.nodes import Ref
from ..ir.vectors import load_scalar
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Variant, Variants
from ._columns import Columns, Line, Share

MOST = 256
"""Largest dk: a row of the state stays in registers."""


TILE = 64
"""Tokens whose gates a block works out at once."""


def shares(target: Target, rows: int = 1) -> Iterator[Share]:
    """rows: of a lone thread."""
    if target.simd > 1:
        yield Share("d128", 128, 8, 16, 4, True)
        yield Share("d256", 128, 16, 16, 4, True)
        yield Share("any", 128, 16, 16, 4, False)
        return
    yield Share("d256", 1, 1, MOST, 8, True, rows)
    yield Share("any", 1, 1, MOST, 8, False, rows)


@dataclass(frozen=True)
class Head:
    """A block's part: rows of the state of one head of one sequence. index: sequence * h + head."""

    b: Builder
    columns: Columns
    arrays: dict[str, Ref]
    t: Val
    h: Val
    hk: Val
    dv: Val
    index: Val
    first: Val

    @property
    def head(self) -> Val:
        return self.index % self.h

    # ---- rows
    def row(self, r: Val) -> Val:
        """The lanes' r-th row, kept inside the matrix: past the end the last is repeated, and not stored."""
        return self.b.minimum(self._row(r), self.dv - 1)

    def _row(self, r: Val) -> Val:
        return self.first + r * self.columns.share.groups + self.columns.group

    def _state(self, r: Val) -> Ref:
        row = self.index.cast("u64") * self.dv.cast("u64") + self.row(r).cast("u64")
        return self.b.at(self.arrays["state"], row * self.columns.n.cast("u64"))

    def read_state(self, state: Ref, r: Val) -> None:
        held = self.columns.share.held
        self.columns.read(self._state(r), state, r * held, self._row(r) < self.dv)

    def write_state(self, state: Ref, r: Val) -> None:
        with self.b.when(self._row(r) < self.dv):
            self.columns.write(self._state(r), state, r * self.columns.share.held)

    # ---- tokens
    def _token(self, token: Val) -> Val:
        return (self.index // self.h).cast("u64") * self.t.cast("u64") + token.cast("u64")

    def keys(self, name: str, token: Val) -> Ref:
        """The row of q or k that belongs to this head."""
        line = self._token(token) * self.hk.cast("u64") + (self.head // (self.h // self.hk)).cast("u64")
        return self.b.at(self.arrays[name], line * self.columns.n.cast("u64"))

    def _of_head(self, token: Val) -> Val:
        return self._token(token) * self.h.cast("u64") + self.head.cast("u64")

    def _place(self, token: Val, r: Val) -> Val:
        return self._of_head(token) * self.dv.cast("u64") + self.row(r).cast("u64")

    def value(self, token: Val, r: Val) -> Val:
        """v, as it lies in memory."""
        return self.b.load(self.arrays["v"], self._place(token, r))

    def write(self, token: Val, r: Val, y: Val) -> None:
        with self.b.when(self.columns.place.eq(0) & (self._row(r) < self.dv)):
            to = self.arrays["y"]
            self.b.store(to, self._place(token, r), y.cast(to.dtype))

    def gates(self, token: Val) -> tuple[Val, Val]:
        """(g, beta)."""
        b, at = self.b, self._of_head(token)
        rate = b.op("exp", b.load(self.arrays["A_log"], self.head))
        step = softplus(b, load_scalar(b, self.arrays["a"], at) + b.load(self.arrays["dt_bias"], self.head))
        return b.op("exp", b.op("neg", rate * step)), sigmoid(b, load_scalar(b, self.arrays["b"], at))

    def gates_of_tile(self, start: Val, to: tuple[Ref, Ref]) -> None:
        """(g, beta) of TILE tokens into group memory; past the end they leave the state as it is."""
        b = self.b
        with b.loop(b.thread(), TILE, b.function.threads) as i:
            for ref, gate, other in zip(to, self.gates(b.minimum(start + i, self.t - 1)), (1.0, 0.0)):
                b.store(ref, i, b.select(start + i < self.t, gate, other))

    def advance(self, state: Ref, k: Line, q: Line, gates: tuple[Val, Val], v: Val) -> Val:
        """The state after one token, and its y in every lane of the row."""
        b, columns, (g, beta) = self.b, self.columns, gates
        (found,) = columns.over_lanes(
            columns.sum(lambda slot: list(zip(columns.load(state, slot), k.values(slot))))
        )
        d = beta * (v - g * found)

        def update(slot: Val) -> list[tuple[Val, Val]]:
            pairs = zip(columns.load(state, slot), k.values(slot))
            columns.store(state, slot, [b.mad(d, key, s * g) for s, key in pairs])
            return list(zip(columns.load(state, slot), q.values(slot)))

        return columns.over_lanes(columns.sum(update))[0]


def variant(
    share: Share, dtype: str, state: str, body: Callable[[Head], None], options: dict[str, str], tokens: bool
) -> Variant:
    """tokens: there is an axis of them."""

    def build(b: Builder) -> None:
        arrays = {name: b.buffer(name, dtype) for name in ("q", "k", "v", "a", "b")}
        arrays |= {name: b.buffer(name, "f32") for name in ("A_log", "dt_bias")}
        arrays |= {"state": b.buffer("state", state, "out"), "y": b.buffer("y", dtype, "out")}
        t = b.scalar("t") if tokens else b.const(1, "u32")
        h, hk, dk, dv = (b.scalar(name) for name in ("h", "hk", "dk", "dv"))
        slabs = (dv + (share.slab - 1)) // share.slab
        columns, first = Columns(b, share, dk), b.block() % slabs * share.slab
        body(Head(b, columns, arrays, t, h, hk, dv, b.block() // slabs, first))

    blocks: Formula = ["mul", ["mul", "s", "h"], ["ceildiv", "dv", share.slab]]
    blocks = ["mul", blocks, ["min", "t", 1]] if tokens else blocks
    when = (*share.when("dk"), ["eq", ["mod", "h", "hk"], 0], ["lt", blocks, 2**31])
    return Variant(share.suffix, share.threads, (blocks, 1, 1), build, when, options)


def family(variants: Variants, tokens: bool, state: str, options: dict[str, tuple[str, ...]]) -> Family:
    """state: its type, "" for what the options say."""
    t = ("t",) if tokens else ()
    keys, heads = ("s", *t, "hk", "dk"), ("s", *t, "h")
    operands: Iterable[Operand] = (
        Operand("q", "array", keys),
        Operand("k", "array", keys),
        Operand("v", "array", (*heads, "dv")),
        Operand("a", "array", heads),
        Operand("b", "array", heads),
        Operand("A_log", "array", ("h",), "f32"),
        Operand("dt_bias", "array", ("h",), "f32"),
        Operand("state", "array", ("s", "h", "dv", "dk"), state, updated=True),
    )
    few = (1, 2**16)
    limits = {"s": (0, 2**31 - 1), "h": few, "hk": few, "dk": (1, MOST), "dv": few}
    return Family(
        tuple(operands),
        Operand("y", "array", (*heads, "dv")),
        variants,
        limits | ({"t": (0, 2**31 - 1)} if tokens else {}),
        options=options,
    )
