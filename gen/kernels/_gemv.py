"""y[m, n] = sum over k of x[m, k] * w[n, k] for up to 8 rows of activations: what the kernels of that kind
share.

A SIMD group owns `rows` weight rows; its lanes take chunks (see `packed.Steps`) in turn. Each segment's
products are summed in f32 and scaled once; lanes add up by shuffles. On the CPU a group is one thread, and
sums run in `lanes` independent columns so that the compiler can use vector instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..ir.packed import COLUMNS, Packed, Steps, steps
from ..ir.vectors import threads_of
from ..manifest.target import Target
from ..variants.family import Formula, Variant
from ..variants.tiles import Cost, Lattice, Point, allowed
from . import _gemv_words
from ._activations import Coded, Direct, Plain, Staged

MOST_ROWS = 8
TILES = {1: 2, 2: 2, 4: 1, 8: 1}
"""Rows of activations a variant takes -> most weight rows of a SIMD group: register use stays about level."""

GROUPS = 16
"""SIMD groups of a block: with 512 threads, one block a multiprocessor leaves 128 registers a thread, two
leave 64."""

WORDS = 8
"""Most 32-bit words of codes that a lane should hold; twice as many are in flight."""

STAGE = 16 << 10
"""Wished bytes of activations (as f32) in group memory; a tile holds at least one chunk a lane."""

ALONE = (48 << 10, 32)
"""Of a lone thread (the CPU's) that stages: the same bytes, and rows of weights that a block walks."""

SHARES = 4
"""Blocks, at least, that rows of weights are shared out to where products are many."""


@dataclass(frozen=True)
class Tile:
    """One variant. groups: SIMD groups of a block; lanes: partial sums a (row, m) pair is kept in; waves:
    chunks a lane takes from one tile of staged activations, 0 where they are read from global memory;
    resident: blocks a multiprocessor holds, each of which then walks many rows; words: whether a lone thread
    takes words of codes side by side, its waves then being groups of them (see `_gemv_words`)."""

    m: int
    rows: int
    groups: int
    lanes: int = 1
    waves: int = 0
    resident: int = 0
    words: bool = False


@dataclass(frozen=True)
class Operands:
    w: Packed
    x: Plain | Coded
    y: Ref
    m: Val
    n: Val
    k: Val


def tiles(target: Target, walk: Steps, most_rows: int, beside: int) -> Iterable[Tile]:
    """The variants of a kernel, fewest rows of activations first. beside: see `Gemv`."""
    if target.simd == 1:
        for m in sorted({1, most_rows}):
            waves = max(1, ALONE[0] // (4 * m * walk.chunk)) if beside else 0
            yield Tile(m, 1, 1, walk.vector, waves)
        return
    for m, most in TILES.items():
        if m > most_rows:
            return
        wave = 4 * m * walk.chunk * target.simd
        waves = max(1, STAGE // wave) if wave + beside <= target.shared_bytes else 0
        rows = max(1, min(most, WORDS // walk.chunk_words))
        small = m <= 2 and rows * walk.chunk_words <= WORDS
        yield Tile(m, rows, GROUPS, 1, waves, (2 if small else 1) if waves else 0)


def lattice(weights: Format, target: Target) -> Lattice:
    """Every tile that a kernel of these weights could have; `tiles` takes one for each number of rows."""
    walk = steps(weights)
    if target.simd == 1:
        return Lattice({"m": tuple(TILES), "rows": (1, 2, 4)}, lambda point: Cost(1, 0, 0))
    axes = {
        "m": tuple(TILES),
        "rows": (2, 1),
        "groups": (GROUPS, GROUPS // 2),
        "stage": (STAGE, 0),
        "resident": (2, 1),
    }
    return Lattice(axes, lambda point: _cost(point, walk, target))


def tiles_of(weights: Format, target: Target) -> Iterator[tuple[str, Tile]]:
    """The allowed tiles of the lattice, each with a name that says all of it; none stages on the CPU."""
    walk = steps(weights)
    for found in allowed(lattice(weights, target), target):
        p = found.point
        if target.simd == 1:
            yield f"m{p['m']}_r{p['rows']}", Tile(p["m"], p["rows"], 1, walk.vector)
            continue
        waves = max(1, p["stage"] // (4 * p["m"] * walk.chunk * target.simd)) if p["stage"] else 0
        suffix = f"m{p['m']}_r{p['rows']}_g{p['groups']}_s{p['stage'] >> 10}_b{p['resident']}"
        yield suffix, Tile(p["m"], p["rows"], p["groups"], 1, waves, p["resident"] if waves else 0)


def _cost(point: Point, walk: Steps, target: Target) -> Cost | str:
    """Registers: sums, two chunks of codes, 8 activations, and 28 for places and scales."""
    m, rows, threads = point["m"], point["rows"], target.simd * point["groups"]
    words, wave = rows * walk.chunk_words, 4 * m * walk.chunk * target.simd
    if rows > TILES[m]:
        return f"{rows} rows of weights beside {m} of activations: {TILES[m]} keep the use of registers level"
    if rows > 1 and words > WORDS:
        return f"{words} words of codes a lane, {WORDS} keep them in registers"
    if point["stage"] and wave > target.shared_bytes:
        return (
            f"a chunk for each lane takes {wave} bytes of shared memory, the target has {target.shared_bytes}"
        )
    if not point["stage"] and point["resident"] > 1:
        return "blocks are resident for the activations that they have staged"
    registers = rows * m + 2 * words + 8 + 28
    if target.registers and registers * threads * point["resident"] > target.registers:
        wanted = registers * threads * point["resident"]
        return f"{wanted} registers of {point['resident']} blocks, the target has {target.registers}"
    return Cost(threads, registers, max(1, point["stage"] // wave) * wave if point["stage"] else 0)


@dataclass(frozen=True)
class Gemv:
    """What a kernel is made of. weights: the format of w, be it that of plain numbers; operands(b, walk):
    declares the arguments. rows: of weights; times: products of a row of activations each, which are blocks
    along y, in place of one of up to 8 rows; beside: bytes of group memory that activations need beside their
    tile: they cost much to read again, so that a lone thread stages them, too; packed: w's rows are whole
    chunks of a layout and x is plain, so that a lone thread may take words side by side; overlaps: launches
    may begin early, as the one before does not write to w: see `Builder.grid_wait`; fused: decoding takes
    integer zero points off, which costs nothing and gives the same bits."""

    weights: Format
    target: Target
    operands: Callable[[Builder, Steps], Operands]
    rows: Formula = "n"
    times: Formula = ""
    beside: int = 0
    packed: bool = False
    overlaps: bool = False
    fused: bool = False

    def variants(self, options: dict[str, str]) -> Iterable[Variant]:
        """Every variant, fewest rows of activations first."""
        simd, walk = self.target.simd, steps(self.weights)
        for tile in self._usual(walk, 1 if self.times else MOST_ROWS):
            threads = threads_of(simd, simd * tile.groups)
            when = (COLUMNS,) if self.times else (["le", "m", tile.m], COLUMNS)
            yield Variant(f"m{tile.m}", threads, self._grid(tile), self._kernel(tile, walk), when, options)

    def further(self, options: dict[str, str]) -> Iterable[Variant]:
        """The tiles of the lattice that `variants` has not, for tuning."""
        simd, walk = self.target.simd, steps(self.weights)
        usual = list(self._usual(walk, MOST_ROWS))
        for suffix, tile in tiles_of(self.weights, self.target):
            if tile not in usual:
                threads, when = threads_of(simd, simd * tile.groups), (["le", "m", tile.m], COLUMNS)
                yield Variant(suffix, threads, self._grid(tile), self._kernel(tile, walk), when, options)

    def _words(self) -> _gemv_words.Words | None:
        alone = self.packed and self.target.simd == 1
        return _gemv_words.words_of(self.weights) if alone else None

    def _usual(self, walk: Steps, most_rows: int) -> Iterable[Tile]:
        words = self._words()
        if words is None:
            return tiles(self.target, walk, most_rows, self.beside)
        rows = sorted({1, most_rows})
        return [Tile(m, 1, 1, 1, words.tile(m, self.target.shared_bytes), words=True) for m in rows]

    def _grid(self, tile: Tile) -> tuple[Formula, Formula, Formula]:
        alone = ALONE[1] if tile.waves and self.target.simd == 1 else 0
        walked = _gemv_words.ROWS if tile.words else alone or tile.rows * tile.groups
        blocks: Formula = ["ceildiv", self.rows, walked]
        if tile.resident:
            most: Formula = ["mul", "sms", tile.resident]
            if self.times:
                most = ["max", ["div", most, ["max", self.times, 1]], SHARES]
            blocks = ["min", blocks, most]
        return blocks, self.times or 1, 1

    def _kernel(self, tile: Tile, walk: Steps) -> Callable[[Builder], None]:
        """The body of one variant."""

        def build(b: Builder) -> None:
            o = self.operands(b, walk)
            b.function.min_blocks = tile.resident
            o.x.prepare()
            words = self._words() if tile.words else None
            if words is not None and isinstance(o.x, Plain):
                _gemv_words.Rows(b, words, o.w, o.x, o.y, o.m, o.n, tile.m, tile.waves).run()
                return
            lane, group = b.thread() % self.target.simd, b.thread() // self.target.simd
            sums = b.local("sums", "f32", tile.rows * tile.m * tile.lanes)
            Walk(b, o, tile, walk, lane, group, sums, self.overlaps, self.fused).run()

        return build


def entries(make: Callable[[Format | None, str, Target], Gemv]) -> dict[str, Any]:
    """Of a Family each of whose cells is a Gemv: what it gives for format, dtype, target and options."""

    def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Any:
        return make(fmt, dtype, target).variants(options)

    def tiles(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Any:
        return make(fmt, dtype, target).further(options)

    def points(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Lattice:
        return lattice(make(fmt, dtype, target).weights, target)

    return {"variants": variants, "tiles": tiles, "lattice": points}


def _row(b: Builder, o: Operands, row0: Val, r: Val) -> Val:
    """Row r of the tile, kept inside the matrix: rows past the end repeat the last and are not stored."""
    return b.minimum(row0 + r, o.n - 1)


@dataclass(frozen=True)
class Walk:
    """A lane's way through its chunks. Staged: a tile of activations is brought to group memory by the
    whole block, and a chunk's loads are issued before the arithmetic of the one before it."""

    b: Builder
    o: Operands
    tile: Tile
    walk: Steps
    lane: Val
    group: Val
    sums: Ref
    overlaps: bool
    fused: bool

    def run(self) -> None:
        b, tile, size = self.b, self.tile, self.tile.rows * self.walk.chunk_words
        words, chunks = b.local("words", "u32", size), self.o.w.chunks()
        if not tile.waves:
            row0 = (b.block() * tile.groups + self.group) * tile.rows
            if self.overlaps:  # blocks end as others begin, and need not say that the next launch may
                b.grid_wait(tuple(self.o.w.fields.values()))
            self._clear()
            with b.loop(self.lane, chunks, b.simd) as chunk:
                self._load(row0, chunk, words)
                self._chunk(row0, chunk, words, Direct(self.o.x, self.walk))
            self._finish(row0, self.o.n)
            return
        ahead, per_tile = b.local("ahead", "u32", size), b.simd * tile.waves
        x = Staged(b, self.o.x, self.walk, tile.m, tile.waves, tile.groups)
        # Every block takes an equal share of the rows, so that no multiprocessor waits for another.
        share = (b.ceildiv(self.o.n, tile.rows) + (b.grid() - 1)) // b.grid() * tile.rows
        start, stride = b.block() * share, tile.groups * tile.rows
        end = b.minimum(self.o.n, start + share)
        with b.when((self.lane < chunks) & (start < end)):
            self._load(start + self.group * tile.rows, self.lane, words)
        if self.overlaps:
            b.grid_wait(tuple(self.o.w.fields.values()))
            b.grid_release()
        with b.loop(start, end, stride) as base:
            row0 = base + self.group * tile.rows
            mine = b.select(row0 < end, chunks, 0)
            self._clear()
            with b.loop(0, chunks, per_tile) as first:
                with b.when((chunks > per_tile) | base.eq(start)):
                    x.stage(first)
                with b.loop(first + self.lane, b.minimum(mine, first + per_tile), b.simd) as chunk:
                    more = chunk + b.simd < chunks
                    next_row = b.select(more, row0, row0 + stride)
                    with b.when(next_row < end):
                        self._load(next_row, b.select(more, chunk + b.simd, self.lane), ahead)
                    self._chunk(row0, chunk, words, x)
                    with b.loop(0, size, unroll=True) as i:
                        b.store(words, i, b.load(ahead, i))
            self._finish(row0, end)

    def _clear(self) -> None:
        with self.b.loop(0, self.tile.rows * self.tile.m * self.tile.lanes, unroll=True) as i:
            self.b.store(self.sums, i, 0.0)

    def _load(self, row0: Val, chunk: Val, into: Ref) -> None:
        with self.b.loop(0, self.tile.rows, unroll=True) as r:
            self.o.w.load_chunk(_row(self.b, self.o, row0, r), chunk, into, r * self.walk.chunk_words)

    def _finish(self, row0: Val, end: Val) -> None:
        """Adds lanes up and stores the rows before `end`."""
        b, tile, o = self.b, self.tile, self.o
        with b.loop(0, tile.rows, unroll=True) as r, b.loop(0, tile.m, unroll=True) as i:
            base = (r * tile.m + i) * tile.lanes
            total = b.load(self.sums, base)
            for j in range(1, tile.lanes):
                total = total + b.load(self.sums, base + j)
            total = b.lane_sum(total)
            with b.when(self.lane.eq(0) & (row0 + r < end) & (i < o.m)):
                at = i.cast("u64") * o.n.cast("u64") + (row0 + r).cast("u64")
                b.store(o.y, at, total.cast(o.y.dtype))

    def _chunk(self, row0: Val, chunk: Val, words: Ref, x: Direct | Staged) -> None:
        """Adds one chunk of every row of the tile to `sums`."""
        b, tile, walk = self.b, self.tile, self.walk
        scales, zeros = b.local("scales", "f32", tile.rows), b.local("zeros", "f32", tile.rows)
        partial = b.local("partial", "f32", tile.rows * tile.m * tile.lanes)
        weights = b.local("weights", "f32", tile.rows * walk.vector)
        fused = self.fused and _whole(self.o.w.fmt)
        state = Segment(b, self.o, tile, walk, row0, chunk, words, scales, zeros, partial, weights, x, fused)
        with b.loop(0, walk.chunk // walk.span, unroll=True) as span:
            repeats = walk.span // walk.step
            for start in range(0, walk.step, walk.segment):
                state.open(span * repeats, start)
                with b.loop(0, repeats, unroll=True) as s:
                    for at in range(start, start + walk.segment, walk.vector):
                        state.multiply(span * repeats + s, at)
                state.close(self.sums)


def _whole(fmt: Format) -> bool:
    """Whether weights less their zero points are whole numbers, before scaling."""
    zero = fmt.zero
    return zero is not None and zero.domain == "code" and fmt.element.kind == zero.element.kind == "int"


@dataclass(frozen=True)
class Segment:
    """The arithmetic over one run of elements with constant scales. Local arrays: scales, zeros [rows];
    partial [rows][m][lanes]; weights [rows][vector]."""

    b: Builder
    o: Operands
    tile: Tile
    walk: Steps
    row0: Val
    chunk: Val
    words: Ref
    scales: Ref
    zeros: Ref
    partial: Ref
    weights: Ref
    x: Direct | Staged
    fused: bool

    @contextmanager
    def _rows_of_x(self) -> Iterator[Val]:
        """Loops over the rows of activations: all of the tile's where registers hold them, else those there
        are."""
        static = self.tile.lanes == 1 or self.tile.m == 1
        with self.b.loop(0, self.tile.m if static else self.o.m, unroll=static) as m:
            yield m

    def _view(self, r: Val, step: Val) -> list[Val]:
        walk = self.walk
        return self.o.w.view(self.words, r * walk.chunk_words + step * walk.step_words, walk.step_words)

    def open(self, step: Val, at: int) -> None:
        """Reads scales and zero points at element `at` of the step; clears the partial sums."""
        b, tile, w = self.b, self.tile, self.o.w
        k = self.chunk * self.walk.chunk + (step * self.walk.step + at)
        with b.loop(0, tile.rows, unroll=True) as r:
            row, view = _row(b, self.o, self.row0, r), self._view(r, step)
            scale, zero = w.scale(row, k, view, at), w.zero(row, k, view, at)
            b.store(self.scales, r, 1.0 if scale is None else scale)
            b.store(self.zeros, r, 0.0 if zero is None else zero)
        with b.loop(0, tile.rows * tile.m * tile.lanes, unroll=True) as i:
            b.store(self.partial, i, 0.0)

    def multiply(self, step: Val, at: int) -> None:
        """partial += weights * x for `vector` elements from element `at` of the step."""
        b, tile, vector = self.b, self.tile, self.walk.vector
        with b.loop(0, tile.rows, unroll=True) as r:
            for j, value in enumerate(self._weights(r, step, at)):
                b.store(self.weights, r * vector + j, value)
        with self._rows_of_x() as m:
            xs = b.local("xs", "f32", vector)
            self.x.read(m, self.chunk, step, at, xs)
            with b.loop(0, tile.rows, unroll=True) as r:
                base = (r * tile.m + m) * tile.lanes
                for j in range(vector):
                    i = base + (j % tile.lanes)
                    product = b.mad(
                        b.load(self.weights, r * vector + j), b.load(xs, j), b.load(self.partial, i)
                    )
                    b.store(self.partial, i, product)

    def _weights(self, r: Val, step: Val, at: int) -> Iterator[Val]:
        """`vector` weights of a row before what `close` does, each made when it is asked for."""
        w, view, vector = self.o.w, self._view(r, step), self.walk.vector
        if self.fused:
            yield from w.decode_less(view, at, vector, self.b.load(self.zeros, r))
        else:
            yield from (self._weight(value, r) for value in w.decode(view, at, vector))

    def _weight(self, value: Val, r: Val) -> Val:
        """One from a decoded value: whole where the zero point is added after scaling."""
        zero = self.o.w.fmt.zero
        if zero is None:
            return value
        exact = self.o.w.exact(value)
        if zero.domain == "code":
            return exact - self.b.load(self.zeros, r)
        return self.b.fma(exact, self.b.load(self.scales, r), self.b.load(self.zeros, r))

    def close(self, sums: Ref) -> None:
        """sums += scale * partial."""
        b, tile, fmt = self.b, self.tile, self.o.w.fmt
        factor = self.o.w.factor if fmt.zero is None else 1.0
        per_row = tile.m * tile.lanes
        with b.loop(0, tile.rows, unroll=True) as r, b.loop(0, per_row, unroll=True) as i:
            part, total = b.load(self.partial, r * per_row + i), b.load(sums, r * per_row + i)
            if factor != 1.0:
                part = part * factor
            scaled = fmt.scales and (fmt.zero is None or fmt.zero.domain == "code")
            result = b.mad(part, b.load(self.scales, r), total) if scaled else part + total
            b.store(sums, r * per_row + i, result)
