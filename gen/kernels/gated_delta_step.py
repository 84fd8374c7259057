"""gated_delta_step: one token of the gated delta rule (see `_delta`); q, k [s, hk, dk], v, y [s, h, dv], a, b
[s, h], state [s, h, dv, dk], which is updated.

state: "f32", or "same", the type of the others: half the memory to move, and each number of the state
is rounded once a token, by up to 2^-11 (f16) or 2^-8 (bf16) of it; what g keeps of those errors adds up. y is
of the state before it is rounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..formats.axes import Format
from ..manifest.target import Target
from ..variants.family import Variant
from ._delta import Head, family, shares, variant


def _step(o: Head) -> None:
    b, columns = o.b, o.columns
    state, zero = columns.numbers("state_numbers"), b.const(0, "u32")
    k, q = (columns.line(f"{name}_line", o.arrays[name].dtype) for name in "kq")
    o.read_state(state, zero)
    k.fetch(o.keys("k", zero))
    q.fetch(o.keys("q", zero))
    y = o.advance(state, k, q, o.gates(zero), o.value(zero, zero).cast("f32"))
    o.write_state(state, zero)
    o.write(zero, zero, y)


def types(dtype: str, options: dict[str, str]) -> dict[str, str]:
    return {"state": dtype if options["state"] == "same" else options["state"]}


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    state = types(dtype, options)["state"]
    for share in shares(target):
        yield variant(share, dtype, state, _step, options, tokens=False)


FAMILY = replace(family(variants, False, "", {"state": ("f32", "same")}), types=types)
