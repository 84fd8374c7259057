"""qmm_packed for up to 8 rows of x on sm_90a (cutlass/qgemv_sm90.cuh): the emitted text of each tile, executed
on the CPU with twins of bulk copies and barriers, against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from inputs import arguments
from lanes import ORDERS, Arg, Entry, ExecutionError, Program, evaluate, poisoned
from wootz import checks, reference
from wootz.checks import qmm_packed as rules
from wootz.formats import Descriptor

from gen.build import index
from gen.formats.axes import Format
from gen.formats.grammar import format_of
from gen.kernels import _qgemv_sm90 as qgemv
from gen.lower import templates
from gen.plan import cells as plan
from gen.variants.family import Instance

HERE = Path(__file__).resolve().parent
MANIFEST = plan.load(HERE.parents[1] / "kernels.yaml")
TARGET = MANIFEST.targets["sm_90a"]
TWINS = (HERE / "twins" / "bulk.h").read_text()
DYNAMIC, MEMORY = "extern __shared__ __align__(128) uint8_t memory[];", "__shared__ __align__(128) uint8_t memory"

SIZES = (
    {"m": 1, "n": 37, "k": 2600},  # several tiles, the last ones short in rows and in k
    {"m": 1, "n": 5, "k": 8},  # one unit: warps without any
    {"m": 8, "n": 35, "k": 1032},
    {"m": 3, "n": 17, "k": 264},
)
FORMATS = [name for name in MANIFEST.formats if not name.endswith("_f16")]


def made(name: str) -> Format:
    return MANIFEST.formats[name]


def suits(instance: Instance, size: dict[str, int]) -> bool:
    return all(evaluate(formula, {"sms": 2, **size}) for formula in instance.when)


def entry_of(instance: Instance, symbol: str) -> Entry:
    args = tuple(Arg(a.name, a.type, a.role) for a in instance.args)
    x, y, z = (tuple(g) if isinstance(g, list) else g for g in instance.grid)
    return Entry(symbol, args, (instance.threads, 1, 1), (x, y, z))


def text_of(instances: dict[str, Instance], sizes: tuple[dict[str, int], ...] = SIZES) -> str:
    """The text with as much static group memory as a launch would have asked for."""
    parts = [*dict.fromkeys(part for i in instances.values() for part in i.preamble)]
    for symbol, instance in instances.items():
        most = max(evaluate(instance.shared, size) for size in sizes if suits(instance, size))
        parts.append(instance.text.replace(templates.SYMBOL, symbol).replace(DYNAMIC, f"{MEMORY}[{most}];"))
    return TWINS + templates.inline(["qgemv_sm90.cuh"], parts)


def operands(fmt: Format, size: dict[str, int], dtype: str) -> dict[str, Any]:
    rng = np.random.default_rng([size["k"], *fmt.name.encode()])
    descriptor = Descriptor.parse(index.format_record(fmt))
    return checks.check("qmm_packed").operands(descriptor, size, dtype, {}, rng)


def outcome(
    program: Program, instance: Instance, symbol: str, given: dict[str, Any], dtype: str, order: int = 0, sms: int = 2
) -> tuple[Any, reference.Comparison]:
    """The bits of y, and how they compare."""
    (m, k), n = given["x"].shape, given["w"].shape[0]
    expected = rules.outcome(given, dtype, rounded=False)
    blank = poisoned(expected.value.shape, reference.DTYPES[dtype][2])
    values = arguments(given, {"m": m, "n": n, "k": k, "sms": sms}, ("y", blank))
    y = program.run(entry_of(instance, symbol), values, order)["y", "out"]
    return y, reference.compare(y, expected, dtype)


@contextmanager
def built(some: list[Instance], sizes: tuple[dict[str, int], ...] = SIZES, change: Any = None) -> Iterator[Any]:
    instances = {f"{i.suffix}_{at}": i for at, i in enumerate(some)}
    text = text_of(instances, sizes)
    entries = [entry_of(i, symbol) for symbol, i in instances.items()]
    with Program.build(change(text) if change else text, "cuda", entries) as program:
        yield program, instances


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_multiplies_by_few_rows(name: str) -> None:
    fmt = made(name)
    some = {dtype: [*qgemv.instances(fmt, dtype, TARGET)] for dtype in ("f16", "bf16")}
    with built([i for each in some.values() for i in each]) as (program, instances):
        for at, (symbol, instance) in enumerate(instances.items()):
            dtype = "f16" if at < 2 else "bf16"
            for size in SIZES:
                if not suits(instance, size) or (instance.suffix == "v8") != (size["m"] > 1):
                    continue
                _, compared = outcome(program, instance, symbol, operands(fmt, size, dtype), dtype)
                assert compared.passed, (dtype, size, compared)


def test_a_mistake_is_found() -> None: ...
