"""The cell that an export is of, its text and its entries; and why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..build import ninja
from ..emit import emission
from ..emit import text as emit
from ..formats.axes import Format
from ..lower.templates import uses_cutlass
from ..manifest.problems import near
from ..manifest.reader import KernelSpec, Manifest
from ..manifest.target import Target
from ..plan import cells as plan
from ..plan import name


class ExportError(ValueError):
    """An export that was asked for and cannot be: what, and why not."""


@dataclass(frozen=True)
class Source:
    """One cell's kernels. text: CUDA C++ without its provenance line, which is `header`; entries: as the
    index has them, in the order in which they are tried; kernel: its record in the index; types: dtypes of
    operands that are not the cell's; flags: nvcc's, beside -O3, as the build has them; left_out: symbols of
    entries that take tensor maps, where there are others."""

    key: str
    kernel: Mapping[str, Any]
    format: Format | None
    dtype: str
    options: Mapping[str, str]
    types: Mapping[str, str]
    target: Target
    header: str
    text: str
    flags: tuple[str, ...]
    entries: tuple[Mapping[str, Any], ...]
    left_out: tuple[str, ...] = ()

    @property
    def symbol(self) -> str:
        """A name for what is made of the cell."""
        return name.symbol(
            str(self.kernel["key"]),
            self.options,
            self.format.name if self.format else None,
            self.dtype,
        )


def find(manifest: Manifest, key: str) -> Source:
    """The cell of that key ("qgemv/mxfp4/f16/sm_90a"), emitted alone.

    Raises ExportError for a key that the manifest has no cell of, a cell that is skipped or refused, a
    backend other than CUDA, and code that needs more than its text: CUTLASS' headers, parameters that a host
    stub fills, clusters; tensor maps, where every entry takes them.
    """
    cell, unit = _cell(manifest, key)
    if cell.state != plan.JOB:
        raise ExportError(f"{key}: is {'skipped' if cell.state == plan.SKIP else 'refused'}: {cell.reason}")
    if unit.target.backend != "cuda":
        cuda = sorted(t.name for t in manifest.targets.values() if t.backend == "cuda")
        raise ExportError(
            f"{key}: target {cell.target} is of backend {unit.target.backend}; exports are CUDA C++: "
            f"name a cell of {' or '.join(cuda) or 'a CUDA target, which this manifest has not'}"
        )
    alone = replace(unit, kernel=_narrowed(unit.kernel, cell), cells=(cell,))
    made = emission.rendered(alone)
    header, _, text = made.text.partition("\n")
    known = [record["entry"] for record in made.entries]
    entries = tuple(entry for entry in known if not entry.get("maps")) or tuple(known)
    if reason := _more_than_text(text, entries):
        raise ExportError(f"{key}: cannot be exported: {reason}")
    record = made.entries[0]
    return Source(
        key, emit.kernel_record(unit.kernel), unit.format, cell.dtype, dict(cell.options),
        record.get("types", {}), unit.target, header, text, ninja.KIND_FLAGS[made.kind],
        entries, tuple(entry["symbol"] for entry in known if entry not in entries),
    )  # fmt: skip


def _cell(manifest: Manifest, key: str) -> tuple[plan.Cell, plan.Unit]:
    parts = key.split("/")
    if len(parts) != 4:
        raise ExportError(
            f"{key}: is no cell: wanted KERNEL[.OPTION]/FORMAT/DTYPE/TARGET, as wootz list has them, '-' "
            "for no format"
        )
    kernel, target = parts[0].split(".")[0], parts[3]
    for what, wanted, known in (
        ("kernel", kernel, manifest.kernels),
        ("target", target, manifest.targets),
    ):
        if wanted not in known:
            raise ExportError(f"{key}: {what} {wanted!r} is not in the manifest{near(wanted, known)}")
    cells = {cell.key: (cell, unit) for cell, unit in _cells(manifest, kernel, target)}
    if not cells:
        raise ExportError(f"{key}: {kernel} is not built for {target}; see wootz list --kernels {kernel}")
    if key not in cells:
        raise ExportError(f"{key}: no such cell{near(key, cells)}")
    return cells[key]


def _cells(manifest: Manifest, kernel: str, target: str) -> Iterator[tuple[plan.Cell, plan.Unit]]:
    """Every cell of a kernel on a target, all values of its knobs among them."""
    knobs = tuple(f"{k}={value}" for k, values in manifest.kernels[kernel].knobs.items() for value in values)
    profile = next(iter(manifest.profiles))
    formats = tuple(manifest.formats) or (name.NO_FORMAT,)
    request = plan.Request(profile, (target,), (*formats, name.NO_FORMAT), (kernel,), knobs)
    for unit in plan.units(manifest, plan.select(manifest, request)):
        yield from ((cell, unit) for cell in unit.cells)


def _narrowed(kernel: KernelSpec, cell: plan.Cell) -> KernelSpec:
    """The kernel with the cell's options, knobs (of which the defaults go without saying) and type alone."""
    fixed: dict[str, tuple[str, ...]] = {axis: (value,) for axis, value in cell.options}
    knobs = {knob: values[:1] for knob, values in kernel.knobs.items() if knob not in fixed}
    return replace(kernel, dtypes=(cell.dtype,), options=fixed, knobs=knobs)


def _more_than_text(text: str, entries: tuple[Mapping[str, Any], ...]) -> str:
    """What a cell needs beside its text, or ""."""
    reasons = {
        "CUTLASS makes its kernels, whose headers the text includes": uses_cutlass(text),
        "a host stub fills its parameters": any(e.get("stub") for e in entries),
        "its kernels take tensor maps": any(e.get("maps") for e in entries),
        "its kernels are launched as clusters": any(e.get("cluster") for e in entries),
    }
    return "; ".join(reason for reason, holds in reasons.items() if holds)
