"""Sizes of kernels over arrays of any shape."""

from __future__ import annotations

from ..formats import Descriptor


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"n": n} for n in (1, 7, 64, 255, 1031, 10007)]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"n": n} for n in (2048, 4103)]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"n": n} for n in (7, 2051)]
