"""Values of knobs beside the defaults, executed as CUDA and Metal text: each within its own bound, and with
the default's bits where the manifest says so."""

from __future__ import annotations

from dataclasses import replace

import cells
import numpy as np
import pytest
from inputs import arguments, completed, names, sizes
from lanes import Program
from wootz import checks

from gen.emit import text as emit
from gen.plan import cells as plan

MANIFEST = cells.repository()
SUBJECTS = cells.subjects(MANIFEST, plan.Request("knobs"))
SAME = {name for name, knob in MANIFEST.knobs.items() if knob.same_bits}


def chosen(options: tuple[tuple[str, str], ...]) -> set[str]:
    return {name for name, _ in options} & set(MANIFEST.knobs)


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_every_value(subject: cells.Subject) -> None:
    for text in cells.texts(subject):
        some = {cell: keys for cell, keys in text.cells.items() if chosen(cell[1])}
        assert some
        assert not cells.failures(cells.run_text(subject, replace(text, cells=some)))


def test_all_knobs_are_executed() -> None:
    found = {k for s in SUBJECTS for unit in s.units for cell in unit.jobs for k in cell.options}
    wanted = {(k.name, v) for k in MANIFEST.knobs.values() for v in k.values if v != k.default}
    wanted -= {("matmul_precision", "hardware")}  # of CUTLASS: on devices alone
    assert wanted <= found


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if SAME & {*s.units[0].kernel.knobs}], ids=str)
def test_values_that_give_the_same_bits(subject: cells.Subject) -> None:
    """What is on by default is never worse: the other widths give its bits, ragged ends and NaN included."""
    (text,) = cells.texts(subject)
    record = emit.kernel_record(subject.units[0].kernel)
    entries = [each for some in text.entries.values() for each in some]
    with Program.build(text.body, subject.backend, entries, None) as program:
        for dtype, options in text.cells:
            if not chosen(options) or not chosen(options) <= SAME:
                continue
            plain = tuple(pair for pair in options if pair[0] not in SAME)
            pair = [cells.Cell(text, record, None, dtype, each) for each in (plain, options)]
            for i, size in enumerate(sizes(subject.kernel, None, brief=True)):
                rng = np.random.default_rng([7, i])
                given = completed(
                    record, checks.check(subject.kernel).operands(None, size, dtype, dict(plain), rng)
                )
                expected = checks.expect(subject.kernel, dict(plain), given, dtype)
                known, found = names(record, given, size), []
                for cell in pair:
                    entry = cell.entry(known)
                    blanks = cell.blanks(entry, given, expected)
                    made = program.run(
                        entry, arguments(given, known, *blanks.items()), 0, cells.LAUNCH_SECONDS
                    )
                    found.append([made[key, "out"].tobytes() for key in blanks])
                assert found[0] == found[1], (dtype, options, size)
