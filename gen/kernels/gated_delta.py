"""gated_delta: the gated delta rule over t tokens (see `_delta`); q, k [s, t, hk, dk], v, y [s, t, h, dv],
a, b [s, t, h], state [s, h, dv, dk] in f32, which is updated.

form: "scan", a token after the other, is `gated_delta_step` to the bit; "chunk" takes 16 at a time (see
`_delta_chunk`), whose products need not wait for each other: for few heads on a GPU. No token changes
what comes before it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.dsl import Val
from ..manifest.target import Target
from ..variants.family import Variant
from ._columns import Line
from ._delta import TILE, Head, family, shares, variant
from ._delta_chunk import chunks


class _Ahead:
    """A row a token; where rows lie in registers, the next is on its way while this one is used."""

    def __init__(self, o: Head, name: str) -> None:
        self.o, self.name = o, name
        dtype, columns = o.arrays[name].dtype, o.columns
        self.now = columns.line(f"{name}_line", dtype)
        self.next: Line | None = columns.line(f"{name}_next", dtype) if columns.share.lanes > 1 else None
        if self.next:
            self.next.fetch(o.keys(name, o.b.const(0, "u32")))

    def take(self, token: Val, following: Val) -> Line:
        if not self.next:
            return self.now.fetch(self.o.keys(self.name, token))
        self.now.copy(self.next)
        self.next.fetch(self.o.keys(self.name, following))
        return self.now


def _scan(o: Head) -> None:
    b, columns, zero = o.b, o.columns, o.b.const(0, "u32")
    state = columns.numbers("state_numbers")
    gates = b.shared("decay", "f32", TILE), b.shared("rate", "f32", TILE)
    o.read_state(state, zero)
    k, q = _Ahead(o, "k"), _Ahead(o, "q")
    value = b.var("value", o.value(zero, zero), o.arrays["v"].dtype)
    with b.loop(0, o.t, TILE) as start:
        b.barrier()
        o.gates_of_tile(start, gates)
        b.barrier()
        with b.loop(0, b.minimum(o.t - start, TILE)) as i:
            token = start + i
            following = b.minimum(token + 1, o.t - 1)
            keys, queries, v = k.take(token, following), q.take(token, following), value.get().cast("f32")
            value.set(o.value(following, zero))
            g, beta = (b.load(gate, i) for gate in gates)
            o.write(token, zero, o.advance(state, keys, queries, (g, beta), v))
    o.write_state(state, zero)


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    body, rows = (chunks, 32) if options["form"] == "chunk" else (_scan, 1)
    for share in shares(target, rows):
        yield variant(share, dtype, "f32", body, options, tokens=True)


FAMILY = family(variants, True, "f32", {"form": ("scan", "chunk")})
