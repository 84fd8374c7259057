"""A kernel on one device: the chosen cell, its entry points, and the launch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ._core import View
from .errors import ArgumentError, ArtifactError, DeviceError
from .formulas import Formula, compile_formula
from .modules import Module
from .select import Device
from .signature import Binding

__all__ = ["Entry", "Program"]

_ROLES = ("in", "out", "shape", "pitch")


@dataclass
class Entry:
    """One entry point, its formulas compiled. `function` is looked up in the binary on first use."""

    symbol: str
    args: tuple[tuple[str, str, str], ...]
    when: tuple[Formula, ...]
    grid: tuple[Formula, Formula, Formula]
    block: tuple[int, int, int]
    shared: int  # bytes of group memory to ask for at launch
    static_shared: int = 0  # bytes the code declares itself
    function: Any = None

    @classmethod
    def parse(cls, record: Mapping[str, Any], names: Collection[str]) -> Entry:
        """`names`: the shape names of the kernel. Raises ArtifactError for anything not known here."""
        try:
            return cls._parse(record, names)
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(
                f"the index has an entry that cannot be read: {type(error).__name__}: {error}; build it again"
            ) from error

    @classmethod
    def _parse(cls, record: Mapping[str, Any], names: Collection[str]) -> Entry:
        if not isinstance(record["symbol"], str):
            raise TypeError(f"symbol is {record['symbol']!r}")
        args = tuple((str(name), str(kind), str(role)) for name, kind, role in record["args"])
        for name, _, role in args:
            if role not in _ROLES or (role == "shape" and name not in names):
                raise ArtifactError(
                    f"{record['symbol']}: the index has an argument {name!r} of unknown role {role!r}"
                )
        x, y, z = (compile_formula(each, names) for each in record["grid"])
        bx, by, bz = (int(each) for each in record["block"])
        if min(bx, by, bz) < 1:
            raise ValueError(f"block is {record['block']}")
        when = tuple(compile_formula(each, names) for each in record.get("when") or ())
        return cls(
            record["symbol"],
            args,
            when,
            (x, y, z),
            (bx, by, bz),
            int(record.get("shared") or 0),
            int(record.get("static_shared") or 0),
        )

    def bind(self, module: Module, device: Device) -> Any:
        if self.function is None:
            self._check_shared(device)
            parameters = [
                (name if role in ("in", "out", "shape") else f"{name} ({role})", kind)
                for name, kind, role in self.args
            ]
            extra = () if device.kind == "cpu" else (self.shared,)
            self.function = module.function(self.symbol, parameters, *extra)
        return self.function

    def _check_shared(self, device: Device) -> None:
        wanted = self.shared + self.static_shared
        if device.kind == "cuda" and wanted > device.shared_bytes:
            raise DeviceError(
                f"{self.symbol} needs {wanted} bytes of shared memory a block; "
                f"{device.describe()} has {device.shared_bytes}"
            )


@dataclass(frozen=True)
class Program:
    """The entries of one cell on one device, in the order in which they are tried."""

    kernel: str
    device: Device
    module: Module
    entries: tuple[Entry, ...]

    def preload(self) -> None:
        """Looks every entry point up, so that later calls only launch."""
        for entry in self.entries:
            entry.bind(self.module, self.device)

    def launch(self, binding: Binding, views: Mapping[str, View], stream: int) -> None:
        """Runs the first entry whose conditions hold. Raises ArgumentError when there is none."""
        shapes = binding.values
        shapes["sms"] = self.device.sms
        entry = self._choose(shapes)
        values = tuple([_value(name, role, shapes, views) for name, _, role in entry.args])
        x, y, z = entry.grid
        grid = x(shapes), y(shapes), z(shapes)
        function = entry.function or entry.bind(self.module, self.device)
        if self.device.kind == "cpu":
            function.launch(values, grid)
        elif self.device.kind == "cuda":
            function.launch(values, grid, entry.block, stream)
        else:
            self._launch_metal(function, entry, values, grid, views)

    def _choose(self, shapes: Mapping[str, int]) -> Entry:
        for entry in self.entries:
            if all(condition(shapes) for condition in entry.when):
                return entry
        extents = ", ".join(f"{name}={value}" for name, value in shapes.items() if name != "sms")
        raise ArgumentError(f"{self.kernel} has no variant for {extents} on {self.device.describe()}")

    def _launch_metal(
        self, function: Any, entry: Entry, values: Any, grid: Any, views: Mapping[str, View]
    ) -> None:
        sizes = tuple(views[name].bytes if kind == "ptr" else 0 for name, kind, _ in entry.args)
        outputs = tuple(role == "out" for _, _, role in entry.args)
        function.launch(values, sizes, outputs, grid, entry.block)


def _value(name: str, role: str, shapes: Mapping[str, int], views: Mapping[str, View]) -> int:
    if role == "shape":
        return shapes[name]
    if role == "pitch":
        return views[name].shape[1]
    return views[name].address
