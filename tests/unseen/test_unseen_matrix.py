"""The formats of test_unseen_formats.py go through qmm_packed too: packed, and multiplied by emitted CUDA
text that is executed on the CPU. Several formats share a text, which saves compiling the template for each.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wootz import checks, reference
from wootz.checks import qmm_packed as rules
from wootz.formats import Descriptor

from gen.build import index
from gen.formats.axes import Format
from gen.lower import templates
from gen.plan import cells as plan
from gen.variants.family import Instance

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "exec")]
from inputs import arguments  # noqa: E402
from lanes import Arg, Entry, Program, poisoned  # noqa: E402
from test_unseen_formats import NAMES, bodies, made  # noqa: E402

from gen.kernels import qmm_packed  # noqa: E402

TOGETHER = 6
"""Formats of one text."""

RUNS = (("m8", {"m": 3, "n": 18, "k": 1304}), ("odd", {"m": 17, "n": 35, "k": 261}))
"""(variant, size) that every format runs at: aligned rows and a split along k; ragged in everything."""

GROUPS = [NAMES[i : i + TOGETHER] for i in range(0, len(NAMES), TOGETHER)]
F16_MAX = 65504.0


@dataclass(frozen=True)
class Run:
    """One launch, its operands and what is expected of it."""

    symbol: str
    dtype: str
    instance: Instance
    size: dict[str, int]
    given: dict[str, Any]


@cache
def runs(fmt: Format) -> list[Run]:
    """One in f16 and one in bf16; both in bf16 for a format whose weights are past f16's range."""
    target = plan.load(ROOT / "kernels.yaml").targets["sm_80"]
    descriptor, check = Descriptor.parse(index.format_record(fmt)), checks.check("qmm_packed")
    found = []
    for dtype, (suffix, size) in zip(("f16", "bf16"), RUNS):
        rng = np.random.default_rng([size["k"], *fmt.name.encode()])
        given = check.operands(descriptor, size, dtype, {}, rng)
        if dtype == "f16" and np.abs(given["w"].dequantize()).max() > F16_MAX:
            dtype = "bf16"
            given["x"] = reference.round_to(given["x"].astype(np.float64), dtype)
        instance = next(i for i in qmm_packed.variants(fmt, dtype, target, {}) if i.suffix == suffix)
        found.append(Run(f"{fmt.name}_{suffix}", dtype, instance, size, given))
    return found


def text_of(formats: list[Format]) -> str:
    """One text for all of them: the headers, and decoders with names of their own for each."""
    parts, headers = [], dict[str, None]()
    for fmt in formats:
        headers.update(dict.fromkeys(name for run in runs(fmt) for name in run.instance.templates))
        shared = dict.fromkeys(text for run in runs(fmt) for text in run.instance.preamble)
        own = [run.instance.text.replace(templates.SYMBOL, run.symbol) for run in runs(fmt)]
        parts += [text.replace("Weight_", f"{fmt.name}_Weight_") for text in (*shared, *own)]
    return templates.inline(headers, parts)


def entry_of(run: Run) -> Entry:
    args = tuple(Arg(a.name, a.type, a.role) for a in run.instance.args)
    x, y, z = (tuple(g) if isinstance(g, list) else g for g in run.instance.grid)
    return Entry(run.symbol, args, (run.instance.threads, 1, 1), (x, y, z))


def wrong(fmt: Format, program: Program) -> list[str]:
    """The runs of a format that are outside their bounds."""
    found = []
    for run in runs(fmt):
        expected = rules.outcome(run.given, run.dtype, rounded=False)
        blank = poisoned(expected.value.shape, reference.DTYPES[run.dtype][2])
        y = program.run(entry_of(run), arguments(run.given, run.size, ("y", blank)))["y", "out"]
        result = reference.compare(y, expected, run.dtype)
        if not result.passed:
            found.append(f"{run.symbol}: error {result.error:.3g}, tolerance {result.tolerance:.3g}")
    return found


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_they_multiply(names: list[str]) -> None:
    formats = [made(bodies()[name], name) for name in names]
    entries = [entry_of(run) for fmt in formats for run in runs(fmt)]
    with Program.build(text_of(formats), "cuda", entries) as program:
        assert not [problem for fmt in formats for problem in wrong(fmt, program)]


def test_a_mistake_is_found() -> None:
    """Rows 8 to 15 of a tile take the scales of rows 0 to 7."""
    fmt = made({"element": {"int": 4, "symmetric": True}, "block": 32, "scale": "f16"}, "planted")
    entries = [entry_of(run) for run in runs(fmt)]
    text, right = text_of([fmt]), "lane / 4, run, 1)"
    assert right in text
    with Program.build(text.replace(right, "lane / 4, run, 0)"), "cuda", entries) as program:
        assert len(wrong(fmt, program)) == len(RUNS)
