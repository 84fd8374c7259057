"""The check of budgets at the end of a build."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import sizes, weights
from .budgets import Budgets, Limit
from .weights import Item, Place

_HEAVIEST = 5  # that a message names
_WORDS = {"raw": "as they lie", "wheel": "in a wheel"}


def check(
    budgets: Budgets, place: Place, sections: Mapping[str, Any], index: Iterable[str]
) -> dict[str, str]:
    """`over` for files whose index is to have those lines; nothing is weighed where there is no budget."""
    if budgets == Budgets():
        return {}
    return over(budgets, weights.weigh(place, sections, "".join(index).encode()))


def over(budgets: Budgets, items: Sequence[Item]) -> dict[str, str]:
    """What is over its budget: by how much, and what weighs most of it."""
    found = dict[str, str]()
    if text := ", and ".join(_excess(budgets.whole, items, "target")):
        found["budget of the wheel"] = text
    for target, limit in budgets.targets.items():
        mine = [item for item in items if item.target == target]
        if text := ", and ".join(_excess(limit, mine, "kernel")):
            found[f"budget of {target}"] = text
    return found


def _excess(limit: Limit, items: Sequence[Item], axis: str) -> Iterator[str]:
    total = weights.total(items)
    for key, most in vars(limit).items():
        weight = getattr(total, key)
        if most is not None and weight > most:
            groups = weights.by(items, axis)
            heavy = sorted(groups, key=lambda g: -getattr(groups[g], key))[:_HEAVIEST]
            named = ", ".join(f"{g} {sizes.show(getattr(groups[g], key))}" for g in heavy)
            yield (
                f"{sizes.show(weight)} {_WORDS[key]}, {sizes.show(weight - most)} over {sizes.show(most)}; "
                f"most of it: {named}"
            )
