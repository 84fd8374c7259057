"""What a manifest adds to an index: the cells that the plan refuses, skips or still has to build, the
compiler calls, and the tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..build import index
from ..plan import cells as plan
from ..plan import listing


@dataclass(frozen=True)
class Planned:
    """`rows` of `wootz list`; records of targets and formats, and units, by key."""

    rows: tuple[Mapping[str, Any], ...] = ()
    targets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    formats: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    units: Mapping[str, plan.Unit] = field(default_factory=dict)


def planned(manifest: Path, request: plan.Request) -> Planned:
    """The plan of a manifest. ManifestError and PlanError as `wootz list` raises them."""
    loaded = plan.load(manifest)
    selection = plan.select(loaded, request)
    return Planned(
        tuple(listing.rows(loaded, selection, {})),
        {key: index.target_record(target) for key, target in loaded.targets.items()},
        {key: index.format_record(fmt) for key, fmt in loaded.formats.items()},
        {unit.key: unit for unit in plan.units(loaded, selection)},
    )
