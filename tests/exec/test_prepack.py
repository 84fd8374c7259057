"""prepack, its CUDA and Metal texts executed: every byte is what wootz.prepack gives."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lanes import ORDERS, Entry, Program, poisoned
from wootz import checks
from wootz.formats import Descriptor
from wootz.formats.packed import prepack

from gen.build import index
from gen.emit import text as emit
from gen.formats.axes import Format
from gen.formats.fragment import fragment
from gen.plan import cells as plan

SIZES = [(1, 1), (16, 256), (19, 261), (3, 700), (33, 129)]


@cache
def repository() -> Any:
    return plan.load(Path(__file__).parents[2] / "kernels.yaml")


@cache
def formats() -> dict[str, Format]:
    """One format of every kind of natural storage, of sides and of packed codes; test_cells.py has all."""
    found: dict[Any, Format] = {}
    for fmt in repository().formats.values():
        layout = fmt.layout
        sides = tuple((s.bytes, s.element.bits % 8, s.block.rows != 1) for s in fragment(fmt).sides)
        inside = tuple((i.bit % 32, layout.unit_bytes % 4) for i in layout.inline)
        found.setdefault((layout.load, inside, sides, fragment(fmt).plain), fmt)
    return {fmt.name: fmt for fmt in found.values()}


def entry_of(fmt: Format, backend: str) -> tuple[str, Entry]:
    """The text for the first target of a backend, and its entry."""
    target = next(t for t in repository().targets.values() if t.backend == backend)
    spec = replace(repository().kernels["copy"], name="prepack", options={}, knobs={})
    emitted = emit.emit(spec, fmt, target, ("i8",))
    (only,) = emitted.entries
    return emitted.text, Entry.from_json(only.to_json())


def check(program: Program, entry: Entry, fmt: Format, size: tuple[int, int], order: int) -> None:
    d, (n, k) = Descriptor.parse(index.format_record(fmt)), size
    given = checks.check("prepack").operands(d, {"n": n, "k": k}, "i8", {}, np.random.default_rng([n, k]))
    wanted = checks.expect("prepack", {}, given, "i8").value.reshape(given["y"].fields["units"].shape)
    values: dict[tuple[str, str], Any] = {("n", "shape"): n, ("k", "shape"): k}
    values["y.units", "out"] = poisoned(wanted.shape, np.uint8)
    for field, array in given["w"].fields.items():
        values[f"w.{field}", "in"], values[f"w.{field}", "pitch"] = array, array.shape[-1]
    found = program.run(entry, values, order)["y.units", "out"]
    differ = np.argwhere(found != wanted)
    assert not len(differ), f"{fmt.name} {n} x {k}: {len(differ)} bytes differ, at {differ[:4]}"


@pytest.mark.parametrize("backend", ["cuda", "metal"])
@pytest.mark.parametrize("name", sorted(formats()))
def test_byte_for_byte(name: str, backend: str) -> None:
    text, entry = entry_of(formats()[name], backend)
    with Program.build(text, backend, [entry]) as program:
        for i, size in enumerate(SIZES):
            check(program, entry, formats()[name], size, ORDERS[i % len(ORDERS)])


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_sanitizers(sanitizer: str) -> None:
    fmt = next(f for f in formats().values() if f.zero is not None and f.element.bits == 4)
    text, entry = entry_of(fmt, "cuda")
    with Program.build(text, "cuda", [entry], sanitizer) as program:
        for size in ((19, 261), (1, 3)):
            check(program, entry, fmt, size, 2)


def test_the_check_runs_at_ragged_and_whole_sizes() -> None:
    """What wootz verify runs is right by NumPy's own inverse, and covers both kinds of sizes."""
    d = Descriptor.parse(index.format_record(repository().formats["q4_0"]))
    each = checks.check("prepack")
    sizes = [*each.shapes(d), *each.small(d), *each.brief(d)]
    assert {s["k"] % 256 == 0 for s in sizes} == {s["n"] % 16 == 0 for s in sizes} == {True, False}
    given = each.operands(d, sizes[0], "i8", {}, np.random.default_rng(0))
    assert np.array_equal(each.expect(given, "i8", {}).value, prepack(given["w"]).fields["units"].ravel())
    assert (given["y"].fields["units"] == 255).all()
