"""Formats that appear nowhere else go all the way: manifest, build, index, loader, packer, execution,
reference.

Half are written by hand (hand_written.yaml), half drawn from the grammar with a fixed seed; one manifest,
one build, and nothing but the manifest says anything about any of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import wootz
import yaml
from numpy.typing import NDArray
from wootz import checks, reference
from wootz.formats.sample import random_tensor

from gen.formats.axes import Format
from gen.formats.grammar import format_of
from gen.plan import cells as plan

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "exec")]
import cells as execution  # noqa: E402
import decoder  # noqa: E402
import grammar_cases  # noqa: E402

DRAWN, CANDIDATES, EXECUTED = 22, 600, 8
HAND: dict[str, Any] = yaml.safe_load((HERE / "hand_written.yaml").read_text())
NAMES = [*HAND, *(f"drawn{i:02}" for i in range(DRAWN))]
KERNELS, DTYPES = ("dequant", "qgemv"), ("f32", "bf16")
TARGETS = """
  cpu: {backend: cpu, isa: [baseline], features: [f16, bf16]}
  cuda: {backend: cuda, arch: sm_80, capability: [8, 0], features: [f16, bf16, f16_pairs, bf16_pairs]}
  metal: {backend: metal, arch: metal3.1, features: [f16, bf16, f16_pairs]}
"""


@cache
def pool() -> list[grammar_cases.Body]:
    return grammar_cases.pool(CANDIDATES)


@cache
def bodies() -> dict[str, grammar_cases.Body]:
    """Name -> entry of every format."""
    known = [made(body) for body in HAND.values()]
    drawn = grammar_cases.spread(pool(), DRAWN, known)
    return {**HAND, **dict(zip(NAMES[len(HAND) :], drawn))}


def made(body: grammar_cases.Body, name: str = "one") -> Format:
    found, problems = format_of(name, body)
    assert found is not None, [p.message for p in problems]
    return found


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("unseen") / "kernels.yaml"
    formats = yaml.safe_dump(bodies(), default_flow_style=None, width=1000)
    kernels = "".join(f"  {k}: {{dtypes: [{', '.join(DTYPES)}], formats: all}}\n" for k in KERNELS)
    profiles = "  default: {targets: [cpu]}\n  release: {}\n"
    indented = "".join(f"  {line}\n" for line in formats.splitlines())
    path.write_text(
        f"version: 1\ntargets:{TARGETS}formats:\n{indented}kernels:\n{kernels}profiles:\n{profiles}"
    )
    return path


@pytest.fixture(scope="module")
def lib(manifest: Path) -> wootz.Library:
    """The manifest's CPU cells, built by the command line.

    The compiler is told not to optimise, which takes a tenth of the time: that optimised code is right is
    what the shipped formats show."""
    compiler = manifest.with_name("c++")
    compiler.write_text('#!/bin/sh\nexec c++ "$@" -O0\n')
    compiler.chmod(0o755)
    out = manifest.with_name("artifacts")
    jobs = ("-j", str(os.cpu_count()))
    done = subprocess.run(
        [sys.executable, "-m", "gen", "build", "--manifest", manifest, "--out", out, *jobs],
        cwd=ROOT, env={**os.environ, "CXX": str(compiler)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return wootz.load(out)


# What the formats are


def test_they_are_many_and_all_new() -> None:
    formats = {name: made(body) for name, body in bodies().items()}
    assert len(formats) == len(NAMES) >= 40
    assert len(set(formats.values())) == len(formats)
    shipped = plan.load(ROOT / "kernels.yaml").formats
    assert not set(formats) & set(shipped)
    axes = [{k: v for k, v in fmt.descriptor().items() if k != "name"} for fmt in shipped.values()]
    assert not [name for name, fmt in formats.items() if {**fmt.descriptor(), "name": None} in axes]


def test_they_show_all_that_the_grammar_can_say() -> None:
    shown = frozenset[str]().union(*(grammar_cases.features(made(body)) for body in bodies().values()))
    possible = frozenset[str]().union(*(grammar_cases.features(made(body)) for body in pool()))
    assert len(pool()) > CANDIDATES // 2
    assert not possible - shown
    assert {f"bits {n}" for n in range(1, 9)} < shown
    assert {f"stream {n}" for n in range(1, 8)} < shown | {"stream 2"}
    assert {f"levels {n}" for n in range(4)} < shown
    wanted = (
        "exponent",
        "f16",
        "bf16",
        "f32",
        "float nan",
        "float ieee",
        "float none",
        "two's complement",
        "unsigned",
    )
    assert {f"scale {kind}" for kind in wanted} < shown
    rules = ("absmax", "signed_absmax", "minmax", "floor", "nearest", "ceil", "even")
    assert {f"rule {rule}" for rule in rules} < shown


# The packer


def weights(shape: tuple[int, int], seed: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 2.0 ** rng.uniform(-3, 3, (shape[0], 1))).astype(np.float32)


def check_packer(fmt: Format, tensor: wootz.QuantizedTensor) -> None:
    ours = decoder.decode(fmt, dict(tensor.fields), tensor.shape)
    assert decoder.same(ours, tensor.dequantize())


def test_packer_and_reference_of_every_candidate() -> None:
    """Many more formats than are built: quantised, and read back by the decoder of this folder."""
    for i, body in enumerate(pool()):
        fmt = made(body, f"candidate{i}")
        shape = (3, min(decoder.width_of(fmt), 60))
        for tensor in (
            wootz.quantize(weights(shape, i), fmt),
            random_tensor(fmt, shape, np.random.default_rng(i)),
        ):
            check_packer(fmt, tensor)


# The kernels


def test_the_index_has_every_cell(lib: wootz.Library) -> None:
    wanted = {f"{k}/{f}/{d}/cpu" for k in KERNELS for f in NAMES for d in DTYPES}
    assert {cell["key"] for cell in lib.cells()} == wanted


def tensors(fmt: Any, name: str) -> Iterator[wootz.QuantizedTensor]:
    """Quantised weights, and random codes and scales with all specials; sizes that end inside a block."""
    seed = NAMES.index(name)
    ours = made(bodies()[name], name)
    width, chunk, rows = decoder.width_of(ours), ours.layout.chunk_elements, min(ours.block.rows or 3, 9)
    for n, k in ((rows + 2, width), (1, 1), (2 * rows + 1, min(2 * chunk + 5, 2100)), (37, 1031)):
        yield wootz.quantize(weights((n, k), seed), fmt)
        yield random_tensor(fmt, (n, k), np.random.default_rng(seed), specials=True)


def check(kernel: Any, name: str, operands: dict[str, Any], dtype: str) -> None:
    expected = checks.expect(name, {}, operands, dtype)
    given = [
        a.view(ml_dtypes.bfloat16) if getattr(a, "dtype", "") == np.uint16 else a for a in operands.values()
    ]
    found = reference.compare(kernel(*given), expected, dtype)
    assert found.passed, f"{kernel!r} at {operands['w'].shape}: {found}"


@pytest.mark.parametrize("name", NAMES)
def test_end_to_end(lib: wootz.Library, name: str) -> None:
    fmt = lib.format(name)
    kernels = {(k, d): lib.kernel(k, format=name, dtype=d, device="cpu") for k in KERNELS for d in DTYPES}
    for i, w in enumerate(tensors(fmt, name)):
        if i < 2:
            check_packer(made(bodies()[name], name), w)
        for dtype in DTYPES:
            check(kernels["dequant", dtype], "dequant", {"w": w}, dtype)
        if not np.isfinite(w.dequantize()).all():  # which sums need
            w = wootz.quantize(weights(w.shape, i), fmt)
        for m, dtype in ((1, "f32"), (1, "bf16"), (3, "f32"), (8, "bf16")):
            x = reference.round_to(np.random.default_rng(m).standard_normal((m, w.shape[1])), dtype)
            check(kernels["qgemv", dtype], "qgemv", {"x": x, "w": w}, dtype)


def sample() -> list[str]:
    """The formats whose texts for the other backends are executed too. Not those whose text is very long, nor
    those that the harness draws overflowing scales for (a power of two below another level)."""

    def fits(fmt: Format) -> bool:
        inner = [level.element.kind for level in fmt.scales[:-1]]
        return fmt.layout.chunk_elements < 400 and "exponent" not in inner

    by_body = {str(body): name for name, body in bodies().items() if fits(made(body))}
    chosen = grammar_cases.spread([bodies()[name] for name in by_body.values()], EXECUTED)
    return [by_body[str(body)] for body in chosen]


@pytest.mark.parametrize("backend", execution.BACKENDS)
@pytest.mark.parametrize("index", range(EXECUTED))
def test_other_backends(manifest: Path, index: int, backend: str) -> None:
    name = sample()[index]
    request = plan.Request("release", targets=(backend,), formats=(name,))
    chosen = execution.subjects(plan.load(manifest), request)
    results = [
        result
        for subject in chosen
        for text in execution.texts(subject)
        for result in execution.run_text(subject, text, brief=True)
    ]
    assert len(results) == len(KERNELS) * len(DTYPES)
    assert not execution.failures(results)
