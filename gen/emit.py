"""A cell's source: kernel x format x target -> text and entries. Pure, and the same bytes for the same
input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

from . import passes
from .axes import Format
from .dsl import Builder
from .family import Formula, Variant, family
from .ir import Function
from .lower import cpu, cuda, metal
from .lower.walker import Dialect, refused
from .manifest import KernelSpec
from .name import symbol
from .target import Target

RENDER: dict[str, tuple[Callable[[Sequence[Function]], str], Dialect]] = {
    "cpu": (cpu.render, cpu.DIALECT),
    "cuda": (cuda.render, cuda.DIALECT),
    "metal": (metal.render, metal.DIALECT),
}
DTYPE_FEATURES = {"bf16": "bf16"}
"""Activation types that a target must declare."""


@dataclass(frozen=True)
class Arg:
    name: str
    type: str
    role: str


@dataclass(frozen=True)
class Entry:
    """One entry point of an artifact: how to bind, launch and choose it. shared: group memory to ask for at
    launch; static_shared: what the code declares itself; both in bytes a block."""

    symbol: str
    dtype: str
    options: dict[str, str]
    args: tuple[Arg, ...]
    block: tuple[int, int, int]
    grid: tuple[Formula, Formula, Formula]
    shared: int
    static_shared: int
    when: tuple[Formula, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "symbol": self.symbol,
            "args": [[a.name, a.type, a.role] for a in self.args],
            "block": list(self.block),
            "grid": list(self.grid),
            "shared": self.shared,
            "static_shared": self.static_shared,
            "when": list(self.when),
        }


@dataclass(frozen=True)
class Emitted:
    text: str
    entries: tuple[Entry, ...]


def refusal(kernel: KernelSpec, fmt: Format | None, dtype: str, target: Target) -> str | None:
    """Why this cell cannot be emitted, or None. Costs microseconds: declared features only."""
    feature = DTYPE_FEATURES.get(dtype)
    if feature and not target.has(feature):
        return (
            f"{dtype} activations need the feature {feature!r}, which target {target.name} does not declare"
        )
    return None


def kernel_record(kernel: KernelSpec) -> dict[str, Any]:
    """The kernel's line in the index: operands, output, limits, options, aliasing."""
    return {"key": kernel.name, **family(kernel.name).record(), "options": sorted(kernel.options)}


def choices(options: Mapping[str, tuple[str, ...]]) -> Iterator[dict[str, str]]:
    """Every combination of a kernel's options, in manifest order."""
    for values in product(*options.values()):
        yield dict(zip(options, values))


def emit(kernel: KernelSpec, fmt: Format | None, target: Target, dtypes: tuple[str, ...]) -> Emitted:
    """The source of one artifact, all dtypes, options and variants as entry points; no provenance line."""
    # Text depends on a target's language, features and block limits alone, so that targets can share it.
    shape = Target(
        "", target.backend, features=target.features, simd=target.simd,
        max_threads=target.max_threads, shared_bytes=target.shared_bytes,
    )  # fmt: skip
    return _emit(kernel.name, tuple(kernel.options.items()), fmt, shape, dtypes)


@lru_cache(maxsize=4)
def _emit(
    kernel: str,
    options: tuple[tuple[str, tuple[str, ...]], ...],
    fmt: Format | None,
    target: Target,
    dtypes: tuple[str, ...],
) -> Emitted:
    render, dialect = RENDER[target.backend]
    functions: list[Function] = []
    entries: list[Entry] = []
    for dtype, chosen in product(dtypes, choices(dict(options))):
        for variant in family(kernel).variants(fmt, dtype, target, chosen):
            function = _build(kernel, fmt, dtype, target, variant)
            reason = refused(function, dialect)
            if reason:
                raise ValueError(f"{function.name} for {dialect.name}: {reason}")
            functions.append(function)
            entries.append(_entry(function, dtype, variant))
    return Emitted(render(functions), tuple(entries))


def _build(kernel: str, fmt: Format | None, dtype: str, target: Target, variant: Variant) -> Function:
    name = symbol(kernel, variant.options, fmt.name if fmt else None, dtype, variant.suffix)
    builder = Builder(name, variant.threads, target.simd)
    variant.build(builder)
    return passes.run(builder.function, target)


def _entry(function: Function, dtype: str, variant: Variant) -> Entry:
    args = tuple(Arg(p.name, p.type, p.role) for p in function.params)
    block = (function.threads, 1, 1)
    return Entry(
        function.name,
        dtype,
        variant.options,
        args,
        block,
        variant.grid,
        0,
        function.shared_bytes(),
        variant.when,
    )
