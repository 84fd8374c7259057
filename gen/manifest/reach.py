"""What a manifest asks for and no cell comes of.

A name in a kernel's lists (a dtype, a format, a target, an option's value) that every target, or the kernel
itself, refuses would be left out without a word; so would a kernel in a target's list that leaves the target
out itself. What a skip covers has its reason there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from .problems import Path

if TYPE_CHECKING:
    from ..formats.axes import Format
    from .reader import KernelSpec, Skip
    from .target import Target

Refusal = Callable[["KernelSpec", "Format | None", str, "Target", Mapping[str, str]], "str | None"]
"""Why a cell cannot be emitted, or None."""

Found = Iterator[tuple[Path, str]]
_REASONS = 3


def meets(kernel: KernelSpec, target: Target) -> bool:
    """Whether a kernel and a target list each other, or do not say."""
    here = kernel.targets == "all" or target.name in kernel.targets
    return here and (target.kernels == "all" or kernel.name in target.kernels)


@dataclass(frozen=True)
class Reach:
    """A manifest's axes, and what decides about a cell."""

    targets: Mapping[str, Target]
    formats: Mapping[str, Format]
    skips: Sequence[Skip]
    refusal: Refusal
    none: str

    def unmet(self, target: Target, kernels: Mapping[str, KernelSpec]) -> Found:
        """(path in the target's entry, message) of each kernel in its list that leaves the target out."""
        for i, name in enumerate(() if target.kernels == "all" else target.kernels):
            if name in kernels and not meets(kernels[name], target):
                left_out = f"kernels.{name}.targets leaves {target.name} out"
                yield ("kernels", i), f"{left_out}: add it there, or leave {name} out"

    def unreached(self, kernel: KernelSpec) -> Found:
        """(path in the kernel's entry, message) of each name that no cell comes of; one for the whole entry
        where nothing does."""
        if reasons := self._why_not(kernel, {}):
            yield (), f"no cell comes of it: {reasons}; change its lists, or skip it with a reason"
            return
        for path, name, fixed in _names(kernel):
            if reasons := self._why_not(kernel, fixed):
                yield path, f"no cell comes of {name}: {reasons}; leave it out, or skip it with a reason"

    def _why_not(self, kernel: KernelSpec, fixed: Mapping[str, str]) -> str:
        """The first few reasons why there is no cell with these names; "" where there is one, or a skip."""
        reasons: dict[str, None] = {}
        for fmt, dtype, target, options in self._cells(kernel, fixed):
            format_name = fmt.name if fmt else self.none
            if any(skip.matches(kernel.name, format_name, dtype, target.name) for skip in self.skips):
                return ""
            reason = self.refusal(kernel, fmt, dtype, target, options)
            if reason is None:
                return ""
            reasons[reason] = None
        return ", ".join(list(reasons)[:_REASONS]) or self._no_pair(kernel, fixed)

    def _cells(
        self, kernel: KernelSpec, fixed: Mapping[str, str]
    ) -> Iterator[tuple[Format | None, str, Target, dict[str, str]]]:
        targets = [
            t for t in self.targets.values() if meets(kernel, t) and fixed.get("target", t.name) == t.name
        ]
        formats = [f for f in self._formats(kernel) if f is None or fixed.get("format", f.name) == f.name]
        dtypes = [fixed["dtype"]] if "dtype" in fixed else kernel.dtypes
        axes = [[fixed[key]] if (key := f"options.{n}") in fixed else v for n, v in kernel.options.items()]
        knobs = {name: fixed[key] for name in kernel.knobs if (key := f"knobs.{name}") in fixed}
        for dtype, target, fmt, chosen in product(dtypes, targets, formats, product(*axes)):
            yield fmt, dtype, target, {**dict(zip(kernel.options, chosen)), **knobs}

    def _formats(self, kernel: KernelSpec) -> Iterable[Format | None]:
        if not kernel.formats:
            return (None,)
        return [f for n, f in self.formats.items() if kernel.formats == "all" or n in kernel.formats]

    def _no_pair(self, kernel: KernelSpec, fixed: Mapping[str, str]) -> str:
        """Why not even a refused cell is there."""
        if kernel.formats and not self._formats(kernel):
            return "the manifest has no formats"
        here = fixed.get("target")
        return f"targets.{here}.kernels leaves {kernel.name} out" if here else "no target is for it"


def _names(kernel: KernelSpec) -> Iterator[tuple[Path, str, dict[str, str]]]:
    """(path, name, what it fixes) of each name that a kernel's entry lists."""
    lists: list[tuple[Path, str, Any]] = [
        (("dtypes",), "dtype", kernel.dtypes),
        (("formats",), "format", kernel.formats),
        (("targets",), "target", kernel.targets),
        *((("options", axis), f"options.{axis}", values) for axis, values in kernel.options.items()),
        *((("knobs", axis), f"knobs.{axis}", values[1:]) for axis, values in kernel.knobs.items()),
    ]
    for path, axis, values in lists:
        for i, name in enumerate(() if values == "all" else values):
            yield (*path, i), name, {axis: name}
