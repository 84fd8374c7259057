"""qmm_packed on warpgroup MMA (cutlass/qmm_sm90.cuh): each tile's emitted text, run on the CPU with twins of
copies, barriers and products, against the reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inputs import arguments
from lanes import ORDERS, Arg, Entry, ExecutionError, Program, evaluate, poisoned
from wootz import checks, reference
from wootz.formats import Descriptor

from gen.build import index
from gen.kernels import _qmm_sm90 as qmm
from gen.lower import templates
from gen.plan import cells as plan
from gen.variants.family import Formula, Instance, TensorMap

HERE = Path(__file__).resolve().parent
MANIFEST = plan.load(HERE.parents[1] / "kernels.yaml")
TARGET = MANIFEST.targets["sm_90a"]
TWINS = (HERE / "twins" / "warpgroup.h").read_text()
PARAMETERS = re.compile(r"const __grid_constant__ warpgroup::TensorMap boxes,\s+.* chunks,")
Change = Callable[[str], str]


def tile(fmt: str, suffix: str, dtype: str = "bf16") -> Instance:
    return next(i for i in qmm.instances(MANIFEST.formats[fmt], dtype, TARGET) if i.suffix == suffix)


# ---- the text, with maps made of x in the kernel, as the loader makes them


def cpp(formula: Formula) -> str:
    if not isinstance(formula, list):
        return f"uint64_t({formula})"
    name, a, b = formula[0], cpp(formula[1]), cpp(formula[2])
    infix = {"mul": "*", "add": "+", "div": "/", "sub": "-"}
    return f"({a} {infix[name]} {b})" if name in infix else f"{name}({a}, {b})"


def made(each: TensorMap) -> str:
    dims = ", ".join([*map(cpp, each.dims), "1"][:3])
    strides, box = ", ".join(map(cpp, each.strides)), ", ".join([*map(str, each.box), "1"][:3])
    return f"const warpgroup::TensorMap {each.name} = {{x, {{{dims}}}, {{{strides}}}, {{{box}}}}};"


def text_of(some: dict[str, Instance]) -> str:
    parts = [p for i in some.values() for p in i.preamble if "warpgroup::Wgmma<" not in p]
    for symbol, instance in some.items():
        text = PARAMETERS.sub("const void* __restrict__ x,", instance.text)
        maps = "\n".join(map(made, instance.maps))
        parts.append(text.replace("\n{\n", f"\n{{\n{maps}\n").replace(templates.SYMBOL, symbol))
    headers = dict.fromkeys(header for i in some.values() for header in i.templates)
    text = TWINS + templates.inline(headers, dict.fromkeys(parts))
    most = max(evaluate(i.shared, {}) for i in some.values())
    return text.replace("extern __shared__ uint8_t unaligned[]", f"__shared__ uint8_t unaligned[{most}]")


def entry_of(instance: Instance, symbol: str) -> Entry:
    roles = {"workspace": "out"}
    args = [Arg(a.name, a.type, roles.get(a.role, a.role)) for a in instance.args if a.role != "map"]
    return Entry(symbol, (Arg("x", "ptr", "in"), *args), (instance.threads, 1, 1), instance.grid)


@contextmanager
def built(some: list[Instance], change: Change = lambda text: text) -> Iterator[Any]:
    named = {f"{i.suffix}_{at}": i for at, i in enumerate(some)}
    entries = [entry_of(i, symbol) for symbol, i in named.items()]
    with Program.build(change(text_of(named)), "cuda", entries) as program:
        yield program, named


def outcome(
    program: Program, symbol: str, instance: Instance, given: dict[str, Any], order: int, sms: int,
    dtype: str = "bf16",
) -> tuple[Any, reference.Comparison]:  # fmt: skip
    """The bits of y, and how they compare. Of the workspace, the counters are zero again."""
    x, w = given["x"], given["w"]
    size = {"m": x.shape[0], "n": w.shape[0], "k": w.shape[1], "sms": sms}
    expected = checks.expect("qmm_packed", {}, given, dtype)
    blank = poisoned(expected.value.shape, reference.DTYPES[dtype][2])
    space = np.zeros(max(evaluate(instance.workspace, size), 16), np.uint8)
    values = arguments(given, size, ("y", blank), ("workspace", space))
    found = program.run(entry_of(instance, symbol), values, order, 60)
    assert not instance.workspace or not found["workspace", "out"][: 8 * sms].any()
    return found["y", "out"], reference.compare(found["y", "out"], expected, dtype)


# ---- operands


def operands(fmt: str, dtype: str = "bf16", **size: int) -> dict[str, Any]:
    rng = np.random.default_rng([*size.values(), *fmt.encode()])
    descriptor = Descriptor.parse(index.format_record(MANIFEST.formats[fmt]))
    return checks.check("qmm_packed").operands(descriptor, size, dtype, {}, rng)


def check(instance: Instance, given: dict[str, Any], dtype: str = "bf16") -> None:
    """In each order, on a block and on nine, which cut tiles, and the same bits for each number of blocks."""
    with built([instance]) as (program, named):
        what = next(iter(named.items()))
        for sms in (1, 9):
            bits = set()
            for order in ORDERS[:: 1 if sms > 1 else 2]:
                y, compared = outcome(program, *what, given, order, sms, dtype)
                assert compared.passed, (instance.suffix, sms, order, compared)
                bits.add(y.tobytes())
            assert len(bits) == 1


@pytest.mark.parametrize("columns", qmm.COLUMNS)
def test_each_tile(columns: int) -> None:
    check(tile("mxfp4", f"n{columns}"), operands("mxfp4", m=columns + 9, n=133, k=1032))


@pytest.mark.parametrize("name", ["nvfp4", "uint4_z", "fp8_e4m3_b128", "int8", "int4_g128"])
def test_formats(name: str) -> None:
    """A level for the matrix, zero points, blocks of rows, 8 bits; tiles on several blocks."""
    check(tile(name, "n32", "f16"), operands(name, "f16", m=37, n=40, k=1032), "f16")


MISTAKES = {
    "rows past m are stored": ("t >= place.end || ", ""),
    "tokens lie apart": ("i * Shape::columns + t", "i * Shape::part * 2 + t"),
    "registers change before their product": ("wgmma_wait<1>();", ""),
    "a slot is not given back": ("barrier_arrive(base + Plan::x_empty", "void(base + Plan::x_empty"),
    "the parity stays": ("parity ^= 1;", "parity ^= 0;"),
    "the first part of a tile is enough": ("if (whole && !work.whole())", "if (false)"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    old, new = MISTAKES[mistake]

    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    given = operands("nvfp4", m=140, n=133, k=1032)
    with built([tile("nvfp4", "n128")], change) as (program, named):
        try:
            _, compared = outcome(program, *next(iter(named.items())), given, 0, 9)
        except (ExecutionError, AssertionError):
            return
        assert not compared.passed
