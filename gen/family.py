"""What a kernel file in `kernels/` declares: its record for the index, and its variants."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Union

from .axes import Format
from .dsl import Builder
from .target import Target

Formula = Union[int, str, list[Any]]
"""int | shape name | [op, a, b], op in ceildiv mul add sub min max div mod lt le eq ge gt and or."""


@dataclass(frozen=True)
class Operand:
    """kind "array" (of the cell's dtype) or "quantised"; shape: the names of its axes."""

    name: str
    kind: str
    shape: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        return {"name": self.name, "kind": self.kind, "shape": list(self.shape)}


@dataclass(frozen=True)
class Variant:
    """One entry point: how it is launched, when it may be used, and the function that builds its body."""

    suffix: str
    threads: int
    grid: tuple[Formula, Formula, Formula]
    build: Callable[[Builder], None]
    when: tuple[Formula, ...] = ()
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """A kernel family. `variants(fmt, dtype, target, options)` yields every entry of one cell's dtype, the
    first whose conditions hold is launched. limits: smallest and largest value of a shape name. alias:
    whether the output may be an input. flat: operands of any one shape are taken as n elements in a row.
    options: the values that each of its options may have."""

    operands: tuple[Operand, ...]
    output: Operand
    variants: Callable[[Format | None, str, Target, dict[str, str]], Iterable[Variant]]
    limits: dict[str, tuple[int, int]] = field(default_factory=dict)
    alias: bool = False
    flat: bool = False
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def quantised(self) -> bool:
        return any(o.kind == "quantised" for o in self.operands)

    def record(self) -> dict[str, Any]:
        return {
            "operands": [o.record() for o in self.operands],
            "output": {"name": self.output.name, "shape": list(self.output.shape)},
            "limits": {name: list(bounds) for name, bounds in sorted(self.limits.items())},
            "alias": self.alias,
            "flat": self.flat,
        }


class UnknownKernel(LookupError):
    """No file gen/kernels/<name>.py declares this kernel."""


@cache
def family(name: str) -> Family:
    """The family declared in kernels/<name>.py. Raises UnknownKernel, naming what exists."""
    try:
        module = importlib.import_module(f".kernels.{name}", __package__)
    except ModuleNotFoundError as error:
        if error.name != f"{__package__}.kernels.{name}":
            raise
        raise UnknownKernel(
            f"kernel {name!r}: no such file gen/kernels/{name}.py; known: {known()}"
        ) from None
    found = module.FAMILY
    if not isinstance(found, Family):
        raise UnknownKernel(
            f"kernel {name!r}: FAMILY in gen/kernels/{name}.py is a {type(found).__name__}, not a Family"
        )
    return found


def known() -> list[str]:
    """The kernels that have a file."""
    import pkgutil

    package = importlib.import_module(".kernels", __package__)
    return sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_"))
