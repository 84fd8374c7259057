"""What artifacts may weigh: the section `budgets` of a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import sizes


@dataclass(frozen=True)
class Limit:
    """The most bytes, as files lie (raw) and as a wheel has them; None: any number."""

    raw: int | None = None
    wheel: int | None = None


@dataclass(frozen=True)
class Budgets:
    """Of everything that is shipped, the index included, and of single targets."""

    whole: Limit = Limit()
    targets: dict[str, Limit] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        """As a manifest has them, in bytes."""
        parts = {target: _plain(limit) for target, limit in self.targets.items()}
        return {"wheel": _plain(self.whole), "targets": parts}


def _plain(limit: Limit) -> dict[str, str]:
    return {key: f"{value} B" for key, value in vars(limit).items() if value is not None}


def read(body: Mapping[str, Any]) -> tuple[Budgets, list[tuple[tuple[str, ...], str]]]:
    """The section, and (path, message) of what is no size in it. A size alone is that in a wheel."""
    problems: list[tuple[tuple[str, ...], str]] = []

    def limit(given: Any, *path: str) -> Limit:
        named = given if isinstance(given, dict) else {"wheel": given}
        for key, value in named.items():
            if sizes.parse(value) is None:
                where = (*path, key) if isinstance(given, dict) else path
                problems.append((where, f"is {value!r}, {sizes.WANTED}"))
        return Limit(**{key: sizes.parse(value) for key, value in named.items()})

    whole = limit(body.get("wheel", {}), "wheel")
    targets = {t: limit(given, "targets", t) for t, given in body.get("targets", {}).items()}
    return Budgets(whole, targets), problems
