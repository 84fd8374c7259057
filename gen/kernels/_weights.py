"""Where the rows of weights of a vector kernel come from, if not from one matrix."""

from __future__ import annotations

from collections.abc import Sequence

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..ir.packed import Packed, Steps
from ..manifest.target import Target


class Several(Packed):
    """Matrices of one format and row length, as if one lay below another. Their rows have one pitch, which is
    the first one's."""

    def __init__(self, b: Builder, fmt: Format, target: Target, walk: Steps, names: Sequence[str]) -> None:
        super().__init__(b, fmt, target, walk, names[0])
        self.parts = [self, *(Packed(b, fmt, target, walk, name) for name in names[1:])]
        self.starts: list[Val] = []

    def declare(self, rows: Sequence[Val], k: Val) -> Val:
        """rows: of each matrix. The number of all rows."""
        self.declare_pitches(k)
        total = self.b.const(0, "u32")
        for each in rows:
            self.starts.append(total)
            total = total + each
        return total

    def place(self, name: str, row: Val) -> tuple[Ref, Val]:
        b, ref, own = self.b, self.parts[-1].fields[name], row - self.starts[-1]
        for part, start, end in reversed(list(zip(self.parts, self.starts, self.starts[1:]))):
            before = row < end
            ref, own = b.choose(before, part.fields[name], ref), b.select(before, row - start, own)
        return ref, own


class Chosen(Packed):
    """One matrix of a bank [experts, N, K]. An index that the bank does not have: a matrix without columns,
    so that sums along its rows are 0 and nothing of it is read."""

    there: Val

    def choose(self, index: Val, experts: Val, n: Val, k: Val) -> None:
        """Once arguments are declared, pitches among them: the fields become those of the matrix."""
        b, self.there = self.b, index < experts
        matrix = b.select(self.there, index, 0).cast("u64")
        for f in self.fmt.layout.fields:
            rows = 1 if f.block is None else f.block[0]
            if rows == 0:
                size = b.const(1, "u64")
            else:
                size = b.ceildiv(n, rows).cast("u64") * self.pitches[f.name].cast("u64")
            self.fields[f.name] = b.at(self.fields[f.name], matrix * size)

    def chunks(self) -> Val:
        return self.b.select(self.there, super().chunks(), 0)

    def columns(self) -> Val:
        return self.b.select(self.there, super().columns(), 0)
