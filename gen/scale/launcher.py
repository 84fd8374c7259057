"""What a compile cache in front of the compilers says of its work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..toolchain.tool import run_tool


@dataclass(frozen=True)
class Counts:
    """Of a cache since its server began."""

    hits: int = 0
    misses: int = 0

    def since(self, before: Counts) -> str:
        """What happened after `before`, in words."""
        return f"{self.hits - before.hits} hits and {self.misses - before.misses} misses of the compile cache"


def counts(launcher: Sequence[str]) -> Counts | None:
    """sccache's own, which go on over builds and folders; None where the launcher is another, or gives no
    counts."""
    if not launcher or Path(launcher[0]).name != "sccache":
        return None
    _, text = run_tool([launcher[0], "--show-stats", "--stats-format=json"])
    try:
        stats = json.loads(text[text.index("{") :])["stats"]
        hits, misses = (
            sum(map(int, stats[f"cache_{kind}"]["counts"].values())) for kind in ("hits", "misses")
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Counts(hits, misses)
