"""Mistakes planted in the text of kernels that move bits, and of gemm_i8_dp4a, are found."""

from __future__ import annotations

import re
from dataclasses import replace

import cells
import pytest

from gen.plan import cells as plan

BARRIER = r"__syncthreads\(\);"
PLANTED = [
    ("gather", r"= (v\d+) < n;", r"= \1 <= n;", None, "past the end|not right"),  # one row too many
    ("scatter", r"= (v\d+) < n;", r"= \1 <= n;", None, "past the end|outside"),
    ("scatter", r"(= uint32_t\(indices\[v\d+)\]", r"\1 / 2u]", None, "not right|error"),
    ("transpose", BARRIER, "", "thread", "data race"),
    ("transpose", r"uint64_t\((v\d+)\) \* (v\d+)\)\)? \+", r"uint64_t(\1 + 1u) * \2) +", None, ""),
    ("copy_strided", r"\* x_stride1\b", "* x_stride0", None, "not right|error|past the end"),
    ("copy_strided", r"\(x_start \+", "(x_start + 1u +", None, "not right|error|past the end"),
    ("gemm_i8_dp4a", BARRIER, "", "thread", "data race"),
    ("gemm_i8_dp4a", r"\(int32_t\(b << 24\) >> 24\)", "int32_t(b << 24 >> 24)", None, "error"),  # no sign
    ("gemm_i8_dp4a", r"(v\d+) > 5u", r"\1 > 6u", None, "error"),  # the last byte of k = 70
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "pattern", "planted", "sanitizer", "message"), PLANTED)
def test_planted_mistakes_are_found(
    kernel: str, pattern: str, planted: str, sanitizer: str | None, message: str
) -> None:
    request = plan.Request("release", targets=("sm_90a",), kernels=(kernel,))
    (subject,) = cells.subjects(cells.repository(), request)
    (text,) = cells.texts(subject)
    body, count = re.subn(pattern, planted, text.body)
    assert count
    results = cells.run_text(subject, replace(text, body=body), sanitizer, (0,), brief=True)
    assert all(not result.passed for result in results)
    assert re.search(message, cells.failures(results)), cells.failures(results)
