"""Cells of kernels.yaml whose text is CUDA or Metal give the reference's results when they are executed.

For each kernel and language one format, on every target, in three lane orders with guarded memory and the
cheap checks of undefined behaviour; a sample with every kernel and every packing under the address sanitizer,
every kernel under that of threads. With WOOTZ_EXECUTE=all every cell runs; evidence.py writes down
which have passed.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import cells
import pytest
from lanes import Arg, Entry

from gen.plan import cells as plan

EVERYTHING = cells.candidates(cells.repository())
SAMPLE = cells.sample(EVERYTHING)
ONE_EACH = list({(s.kernel, s.backend): s for s in reversed(cells.sample(EVERYTHING))}.values())
CHOSEN = EVERYTHING if os.environ.get("WOOTZ_EXECUTE") == "all" else ONE_EACH


def able(subject: cells.Subject) -> cells.Subject:
    """Its units that a CPU can run; the test ends where there are none."""
    units = tuple(filter(cells.executable, subject.units))
    if not units:
        pytest.skip("CUTLASS, tensor maps or a stub: no text that a CPU can run")
    return cells.Subject(units)


@pytest.mark.parametrize("subject", CHOSEN, ids=str)
def test_every_cell(subject: cells.Subject) -> None:
    subject = able(subject)
    results = cells.run_subject(subject)
    assert not cells.failures(results)
    assert sorted(r.cell for r in results) == sorted(cell.key for unit in subject.units for cell in unit.jobs)


@pytest.mark.parametrize("subject", SAMPLE, ids=str)
def test_sample_under_the_address_sanitizer(subject: cells.Subject) -> None:
    assert not cells.failures(cells.run_subject(able(subject), "address"))


@pytest.mark.parametrize("subject", ONE_EACH, ids=str)
def test_kernels_under_the_thread_sanitizer(subject: cells.Subject) -> None:
    assert not cells.failures(cells.run_subject(able(subject), "thread"))


def test_the_sample_has_every_kernel_and_every_packing() -> None:
    for backend in cells.BACKENDS:
        mine, whole = ([s for s in some if s.backend == backend] for some in (SAMPLE, EVERYTHING))
        for one, other in ((lambda s: s.kernel, cells.packing), (cells.packing, lambda s: s.kernel)):
            for what in {one(s) for s in whole}:
                found, known = ({other(s) for s in some if one(s) == what} for some in (mine, whole))
                assert len(found) >= min(cells.FEW, len(known)) > 0


# The tests above can fail: mistakes planted in generated text and in its entries.


def subject_of(kernel: str, fmt: str, backend: str) -> cells.Subject:
    return next(s for s in EVERYTHING if str(s) == f"{kernel}-{fmt}-{backend}")


def failed(subject: cells.Subject, text: cells.Text, sanitizer: str | None = None) -> str:
    results = cells.run_text(subject, text, sanitizer, (0,), brief=True)
    assert all(not r.passed for r in results), "the planted mistake was not found in every cell"
    return cells.failures(results)


BARRIER = {"cuda": "__syncthreads();", "metal": "threadgroup_barrier(mem_flags::mem_threadgroup);"}


@pytest.mark.parametrize("backend", cells.BACKENDS)
def test_a_barrier_left_out_is_found(backend: str) -> None:
    subject = subject_of("qgemv", "int4", backend)
    text = cells.texts(subject)[0]
    assert BARRIER[backend] in text.body
    assert "ThreadSanitizer: data race" in failed(
        subject, replace(text, body=text.body.replace(BARRIER[backend], "")), "thread"
    )


@pytest.mark.parametrize("backend", cells.BACKENDS)
def test_exchanged_arguments_are_found(backend: str) -> None:
    """As if the plan had n and k the other way round than the text."""
    subject = subject_of("dequant", "int4", backend)
    text = cells.texts(subject)[0]
    other = {"n": "k", "k": "n"}

    def exchange(entry: Entry) -> Entry:
        return replace(entry, args=tuple(Arg(other.get(a.name, a.name), a.type, a.role) for a in entry.args))

    failed(
        subject, replace(text, entries={c: tuple(map(exchange, some)) for c, some in text.entries.items()})
    )


@pytest.mark.parametrize("backend", cells.BACKENDS)
def test_a_missing_bound_is_found(backend: str) -> None:
    """The scalar tail of copy writes one element too many."""
    subject = subject_of("copy", "-", backend)
    text = cells.texts(subject)[0]
    assert " < n)" in text.body
    assert "past the end" in failed(subject, replace(text, body=text.body.replace(" < n)", " <= n)")))


@pytest.mark.parametrize("backend", cells.BACKENDS)
def test_an_operand_that_is_not_updated_is_found(backend: str) -> None:
    """The stores to the residual are left out."""
    subject = subject_of("add_rms_norm", "-", backend)
    text = cells.texts(subject)[0]
    stores = re.compile(r"^ +(?:\*.*\(residual_at\d+ \+ .*\)|residual_at\d+\[.*\]) = .*;$", re.M)
    assert stores.search(text.body)
    failed(subject, replace(text, body=stores.sub("", text.body)))


def test_an_entry_that_nothing_launches_is_found() -> None:
    subject = subject_of("qgemv", "int4", "metal")
    text = cells.texts(subject)[0]
    always = {
        cell: (*(replace(e, when=()) for e in some[:1]), *some[1:]) for cell, some in text.entries.items()
    }
    results = cells.run_text(subject, replace(text, entries=always), None, (0,), brief=True)
    assert not any(r.passed for r in results)


ODD = """\
version: 1
targets: {cpu: {backend: cpu}}
formats:
  odd: {element: {int: 5, symmetric: true}, block: 24, scale: bf16}
kernels: {copy: {dtypes: [f32]}}
"""


@pytest.mark.parametrize("backend", cells.BACKENDS)
def test_a_format_that_no_manifest_has(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(ODD)
    assert cells.run_format(plan.load(path).formats["odd"], backend) < 0.01
