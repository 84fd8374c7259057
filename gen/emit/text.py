"""A cell's source: kernel x format x target -> text and entries. Pure, and the same bytes for the same
input."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any

from ..build import gate
from ..formats.axes import Format
from ..ir import passes
from ..ir.dsl import Builder
from ..ir.nodes import Function
from ..lower import cpu, cuda, metal, templates
from ..lower.walker import Dialect, refused
from ..manifest.reader import KernelSpec, choices
from ..manifest.target import Target
from ..plan.name import symbol
from ..project import handwritten
from ..project.lookup import family_of
from ..project.own import Own, Written
from ..variants import geometry
from ..variants.family import Arg, Family, Formula, Instance, Launch, Variant, plain

RENDER: dict[str, tuple[Callable[[Sequence[Function]], str], Dialect]] = {
    "cpu": (cpu.render, cpu.DIALECT),
    "cuda": (cuda.render, cuda.DIALECT),
    "metal": (metal.render, metal.DIALECT),
}
ALL = "*"
"""In place of symbols of further variants: every one."""

DTYPE_FEATURES = {"bf16": "bf16"}
"""Activation types that a target must declare."""


@dataclass(frozen=True)
class Entry:
    """One entry point of an artifact: how to bind, launch and choose it. shared: group memory to ask for at
    launch; static_shared: what the code declares itself; both in bytes a block. extra: what most entries
    have not. types: dtypes of operands that are not the cell's."""

    symbol: str
    dtype: str
    options: dict[str, str]
    args: tuple[Arg, ...]
    block: tuple[int, int, int]
    grid: tuple[Formula, Formula, Formula]
    shared: Formula
    static_shared: int
    when: tuple[Formula, ...]
    extra: dict[str, Any] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "symbol": self.symbol,
            "args": [[a.name, a.type, a.role] for a in self.args],
            "block": list(self.block),
            "grid": list(self.grid),
            "shared": self.shared,
            "static_shared": self.static_shared,
            "when": list(self.when),
            **self.extra,
        }


@dataclass(frozen=True)
class Emitted:
    """A unit's text, its host stub's ("" where it has none), and its entries. instances: whether any entry
    is made from device templates."""

    text: str
    entries: tuple[Entry, ...]
    stub: str = ""
    instances: bool = False


def refusal(
    kernel: KernelSpec, fmt: Format | None, dtype: str, target: Target, options: Mapping[str, str]
) -> str | None:
    """Why this cell cannot be emitted, or None. Costs microseconds: declared facts only."""
    feature = DTYPE_FEATURES.get(dtype)
    if feature and not target.has(feature):
        return (
            f"{dtype} activations need the feature {feature!r}, which target {target.name} does not declare"
        )
    declared = family_of(kernel)
    if missing := sorted(declared.needs - target.features):
        return f"{kernel.name} needs the feature {missing[0]!r}, which target {target.name} does not declare"
    if declared.accepts:
        return declared.accepts(fmt, dtype, target, dict(options))
    return plain(kernel.name, dtype)


def kernel_record(kernel: KernelSpec) -> dict[str, Any]:
    """The kernel's line in the index: operands, output, limits, options, knobs, aliasing; of a project's own,
    the file with its reference."""
    knobs = {"knobs": {name: values[0] for name, values in kernel.knobs.items()}} if kernel.knobs else {}
    check = {"check": kernel.own.check_record(kernel.name)} if kernel.own else {}
    declared = family_of(kernel).record()
    return {"key": kernel.name, **declared, "options": sorted(kernel.options), **knobs, **check}


def emit(
    kernel: KernelSpec,
    fmt: Format | None,
    target: Target,
    dtypes: tuple[str, ...],
    tiles: tuple[str, ...] = (),
) -> Emitted:
    """The source of one artifact, all dtypes, options and variants as entry points; no provenance line.
    tiles: symbols of further variants that it has, or (ALL,)."""
    # Text depends on a target's language, features and limits alone, so that targets can share it.
    shape = Target(
        "", target.backend, features=target.features, simd=target.simd, max_threads=target.max_threads,
        shared_bytes=target.shared_bytes, shared_max=target.shared_max, grid=target.grid,
        registers=target.registers,
    )  # fmt: skip
    if kernel.own and kernel.own.written:
        return _written(kernel, kernel.own.written, fmt, shape, dtypes)
    axes = tuple(kernel.options.items()), tuple(kernel.knobs.items())
    return _emit(kernel.name, kernel.own, *axes, fmt, shape, dtypes, tiles)


def _written(
    kernel: KernelSpec, written: Written, fmt: Format | None, target: Target, dtypes: tuple[str, ...]
) -> Emitted:
    """The unit of a hand-written kernel."""
    text, made = handwritten.unit(kernel, written, fmt, target, dtypes)
    entries = tuple(_written_entry(each, target) for each in made)
    return Emitted(text, entries, instances=target.backend == "cuda")


def _written_entry(each: handwritten.Launched, target: Target) -> Entry:
    source = each.source
    geometry.check(each.symbol, target, math.prod(source.block), source.grid, source.shared)
    launch = (each.args, source.block, source.grid, source.shared, 0, source.when)
    extra = {"workspace": source.workspace} if source.workspace else {}
    return Entry(each.symbol, each.dtype, each.options, *launch, extra)


@lru_cache(maxsize=4)
def _emit(
    kernel: str,
    own: Own | None,
    options: tuple[tuple[str, tuple[str, ...]], ...],
    knobs: tuple[tuple[str, tuple[str, ...]], ...],
    fmt: Format | None,
    target: Target,
    dtypes: tuple[str, ...],
    tiles: tuple[str, ...] = (),
) -> Emitted:
    declared = family_of(KernelSpec(kernel, dtypes, own=own))
    render = RENDER[target.backend][0]
    functions: list[Function] = []
    instances: list[tuple[str, Instance]] = []
    entries: list[Entry] = []
    for dtype, chosen in product(dtypes, choices(dict(options), dict(knobs))):
        if declared.accepts and declared.accepts(fmt, dtype, target, chosen):
            continue
        types = declared.types(dtype, chosen) if declared.types else {}
        for name, variant in _variants(declared, kernel, fmt, dtype, target, chosen, tiles):
            gate.rows(variant.gate)
            if isinstance(variant, Instance):
                _check_instance(name, target, variant)
                instances.append((name, variant))
                entries.append(_instance_entry(name, dtype, variant, types))
            else:
                if variant.before:
                    functions.append(_build(f"{name}_{variant.before.suffix}", target, variant.before))
                before = functions[-1] if variant.before else None
                functions.append(_build(name, target, variant))
                entries.append(_entry(functions[-1], dtype, variant, types, before))
    symbols = [entry.symbol for entry in entries]
    if twice := next((s for s in symbols if symbols.count(s) > 1), None):
        raise ValueError(f"{twice}: two variants have this symbol; give each a suffix of its own")
    if instances and target.backend != "cuda":
        raise ValueError(f"{instances[0][0]}: device templates are for CUDA, not for {target.backend}")
    text = "\n".join(part for part in (render(functions) if functions else "", _inlined(instances)) if part)
    return Emitted(text, tuple(entries), _stub(instances), bool(instances))


def _variants(
    declared: Family,
    kernel: str,
    fmt: Format | None,
    dtype: str,
    target: Target,
    options: dict[str, str],
    tiles: tuple[str, ...],
) -> Iterator[tuple[str, Variant | Instance]]:
    """The variants of one cell by their symbols: all of its family, then those of its tiles that are
    wanted."""

    def named(variant: Variant | Instance) -> str:
        return symbol(kernel, variant.options, fmt.name if fmt else None, dtype, variant.suffix)

    yield from ((named(each), each) for each in declared.variants(fmt, dtype, target, options))
    for each in declared.tiles(fmt, dtype, target, options) if tiles and declared.tiles else ():
        if ALL in tiles or named(each) in tiles:
            yield named(each), each


def _inlined(instances: Sequence[tuple[str, Instance]]) -> str:
    """The text of template instances: headers, what they share, and each one's own."""
    headers = dict.fromkeys(header for _, i in instances for header in i.templates)
    shared = dict.fromkeys(text for _, i in instances for text in i.preamble)
    return templates.inline(headers, [*shared, *(_named(i.text, name) for name, i in instances)])


def _stub(instances: Sequence[tuple[str, Instance]]) -> str:
    """The text of the host stub of those instances that have one."""
    return templates.inline((), [_named(i.stub, name) for name, i in instances if i.stub])


def _named(text: str, name: str) -> str:
    return text.replace(templates.SYMBOL, name)


def _build(name: str, target: Target, variant: Variant) -> Function:
    dialect = RENDER[target.backend][1]
    builder = Builder(name, variant.threads, target.simd)
    variant.build(builder)
    function = passes.run(builder.function, target)
    geometry.check(name, target, function.threads, variant.grid, 0, function.shared_bytes())
    reason = refused(function, dialect)
    if reason:
        raise ValueError(f"{function.name} for {dialect.name}: {reason}")
    return function


def _check_instance(name: str, target: Target, instance: Instance) -> None:
    for launch in instance.prologue:
        geometry.check(f"{name}_{launch.suffix}", target, launch.threads, launch.grid, launch.shared)
    if not instance.stub:  # the stub knows
        geometry.check(
            name, target, instance.threads, instance.grid, instance.shared, instance.static_shared,
            instance.cluster,
        )  # fmt: skip


def _args(function: Function) -> tuple[Arg, ...]:
    return tuple(Arg(p.name, p.type, p.role) for p in function.params)


def _entry(
    function: Function, dtype: str, variant: Variant, types: dict[str, str], before: Function | None
) -> Entry:
    extra: dict[str, Any] = {
        "gate": variant.gate, "workspace": variant.workspace, "pdl": function.waits()
    }  # fmt: skip
    if before and variant.before:
        launch = Launch(variant.before.suffix, _args(before), before.threads, variant.before.grid)
        extra["prologue"] = [_launch(function.name, launch)]
    block, shared = (function.threads, 1, 1), function.shared_bytes()
    return Entry(
        function.name,
        dtype,
        variant.options,
        _args(function),
        block,
        variant.grid,
        0,
        shared,
        variant.when,
        {key: value for key, value in extra.items() if value},
        types,
    )


def _instance_entry(name: str, dtype: str, instance: Instance, types: dict[str, str]) -> Entry:
    extra: dict[str, Any] = {
        "cluster": list(instance.cluster) if instance.cluster != (1, 1, 1) else None,
        "workspace": instance.workspace,
        "zeroed": instance.zeroed,
        "maps": {m.name: m.record() for m in instance.maps},
        "pdl": instance.pdl,
        "stub": name if instance.stub else "",
        "prologue": [_launch(name, launch) for launch in instance.prologue],
        "gate": instance.gate,
        "spills": {"bytes": instance.spills.bytes, "reason": instance.spills.reason}
        if instance.spills
        else None,
    }
    return Entry(
        name,
        dtype,
        instance.options,
        instance.args,
        (instance.threads, 1, 1),
        instance.grid,
        instance.shared,
        instance.static_shared,
        instance.when,
        {key: value for key, value in extra.items() if value},
        types,
    )


def _launch(name: str, launch: Launch) -> dict[str, Any]:
    return {
        "symbol": f"{name}_{launch.suffix}",
        "args": [[a.name, a.type, a.role] for a in launch.args],
        "block": [launch.threads, 1, 1],
        "grid": list(launch.grid),
        "shared": launch.shared,
    }
