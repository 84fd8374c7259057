"""A kernel on one device: the chosen cell, its entry points, and the launch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ._core import View
from .errors import ArgumentError, ArtifactError, DeviceError
from .formulas import Formula, compile_formula, spell
from .modules import Module
from .select import Device
from .signature import Signature

__all__ = ["Chosen", "Entry", "Program", "Space"]

_ROLES = ("in", "out", "shape", "pitch", "scalar", "workspace", "map")
_ARRAYS = ("in", "out")
Values = Mapping[str, Any]
"""Of a call: the shape names, scalars, flags of optional operands, and sms."""


@dataclass(frozen=True)
class Space:
    """A call's workspace: where it is, and how large."""

    address: int = 0
    bytes: int = 0


NO_SPACE = Space()


@dataclass(frozen=True)
class Map:
    """A tensor map over the array `of`. spec: what is settled when the function is made."""

    of: str
    spec: tuple[str, tuple[int, ...], int, int]
    numbers: tuple[Formula, ...]  # extents, innermost first; then the strides of the others, in bytes

    @classmethod
    def parse(cls, record: Mapping[str, Any], names: Collection[str], arrays: Collection[str]) -> Map:
        dims, strides, box = record["dims"], record["strides"], tuple(int(each) for each in record["box"])
        if len(strides) != len(dims) - 1 or len(box) != len(dims) or record["of"] not in arrays:
            raise ValueError(f"tensor map {dict(record)}")
        spec = record["dtype"], box, int(record.get("swizzle", 128)), int(record.get("promotion", 256))
        return cls(record["of"], spec, tuple(compile_formula(each, names) for each in (*dims, *strides)))

    def value(self, values: Values, views: Mapping[str, View]) -> tuple[int, ...]:
        view = views.get(self.of)
        return (0 if view is None else view.address, *[number(values) for number in self.numbers])


@dataclass
class Entry:
    """One entry point, its formulas compiled. `function` is looked up in the binary on first use.

    shared: bytes of group memory to ask for at launch, where that is no formula. workspace: bytes, None where
    it has none. stub: the prefix of its functions in the stub, which then says how it is launched. early: it
    may start while the launch before it is still running. plain: it takes addresses, extents and pitches
    alone, and is launched alone.
    """

    symbol: str
    args: tuple[tuple[str, str, str], ...]
    when: tuple[Formula, ...]
    grid: tuple[Formula, Formula, Formula]
    block: tuple[int, int, int]
    shared: int
    static_shared: int = 0  # bytes the code declares itself
    shared_formula: Formula | None = None
    cluster: tuple[int, int, int] = (1, 1, 1)
    early: bool = False
    maps: Mapping[str, Map] = field(default_factory=dict)
    workspace: Formula | None = None
    zeroed: bool = False
    stub: str = ""
    prologue: tuple[Entry, ...] = ()
    plain: bool = True
    conditions: tuple[str, ...] = ()  # `when`, spelt
    function: Any = None
    waiting: Any = None  # the same, begun only when the launch before it has ended
    packs: bool = False  # it writes packed weights

    @classmethod
    def parse(cls, record: Mapping[str, Any], signature: Signature, arrays: Collection[str]) -> Entry:
        """`arrays`: the names of all arrays and fields that a call may have. Raises ArtifactError for
        anything not known here.
        """
        try:
            return cls._parse(record, signature, arrays)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ArtifactError(
                f"the index has an entry that cannot be read: {type(error).__name__}: {error}; build it again"
            ) from error

    @classmethod
    def _parse(cls, record: Mapping[str, Any], signature: Signature, arrays: Collection[str]) -> Entry:
        if not isinstance(record["symbol"], str):
            raise TypeError(f"symbol is {record['symbol']!r}")
        names, stub = signature.formula_names, str(record.get("stub") or "")
        args = tuple((str(name), str(kind), str(role)) for name, kind, role in record["args"])
        maps = {arg: Map.parse(each, names, arrays) for arg, each in (record.get("maps") or {}).items()}
        _check_args(record["symbol"], args, signature, {*arrays}, maps)
        bx, by, bz = _extents(record, "block", stub)
        x, y, z = (compile_formula(each, names) for each in (record["grid"] if not stub else (1, 1, 1)))
        shared, workspace = record.get("shared") or 0, record.get("workspace") or 0
        prologue = tuple(cls._parse(each, signature, arrays) for each in record.get("prologue") or ())
        entry = cls(
            record["symbol"],
            args,
            tuple(compile_formula(each, names) for each in record.get("when") or ()),
            (x, y, z),
            (bx, by, bz),
            shared if isinstance(shared, int) else 0,
            int(record.get("static_shared") or 0),
            None if isinstance(shared, int) else compile_formula(shared, names),
            _extents(record, "cluster", "cluster" not in record),
            bool(record.get("pdl")),
            maps,
            compile_formula(workspace, names) if workspace else None,
            bool(record.get("zeroed")),
            stub,
            prologue,
        )
        simple = all(role in (*_ARRAYS, "shape", "pitch") for _, _, role in args)
        optional = bool(signature.flags)
        entry.conditions = tuple(map(spell, record.get("when") or ()))
        entry.packs = any(role == "out" and name.endswith(".units") for name, _, role in args)
        entry.plain = simple and not (optional or stub or workspace or prologue or entry.shared_formula)
        return entry

    def bind(self, program: Program) -> Any:
        """The function, looked up. Raises ArtifactError, DeviceError, DriverError."""
        if self.function is None:
            device = program.device
            self.check_shared(device, self.shared)
            self.function = self._stub(program) if self.stub else self._function(program.module, device)
        return self.function

    def bind_waiting(self, program: Program) -> Any:
        """The function without the leave to start early, looked up."""
        if self.waiting is None:
            self.waiting = replace(self, early=False, function=None).bind(program)
        return self.waiting

    def _function(self, module: Module, device: Device) -> Any:
        parameters = [
            (name if role in (*_ARRAYS, "shape") else f"{name} ({role})", kind, *self._spec(name, role))
            for name, kind, role in self.args
        ]
        if device.kind == "cuda":
            return module.function(self.symbol, parameters, self.shared, self.cluster, self.early)
        if self.shared_formula or self.cluster != (1, 1, 1):
            raise ArtifactError(f"{self.symbol}: the index asks for what {device} lacks: build it again")
        return module.function(self.symbol, parameters, *(() if device.kind == "cpu" else (self.shared,)))

    def _spec(self, name: str, role: str) -> tuple[Any, ...]:
        return (self.maps[name].spec,) if role == "map" else ()

    def _stub(self, program: Program) -> Any:
        device = program.device
        if program.stub is None or device.kind != "cuda":
            raise ArtifactError(f"{self.symbol} needs a stub, and the index has none: build it again")
        return program.module.stub_function(
            self.symbol, program.stub, self.stub, self.early, device.sms, device.shared_bytes
        )

    def check_shared(self, device: Device, dynamic: int) -> None:
        """Raises DeviceError when a block asks for more than the device has."""
        wanted = dynamic + self.static_shared
        if device.kind == "cuda" and wanted > device.shared_bytes:
            raise DeviceError(
                f"{self.symbol} needs {wanted} bytes of shared memory a block; "
                f"{device.describe()} has {device.shared_bytes}"
            )

    def holds(self, values: Values) -> bool:
        """Whether its conditions do."""
        return all(condition(values) for condition in self.when)

    def unmet(self, values: Values) -> str:
        """For messages: its conditions that do not hold."""
        wrong = [text for text, holds in zip(self.conditions, self.when) if not holds(values)]
        return " and ".join(wrong) or "what its stub can run"


def _extents(record: Mapping[str, Any], key: str, absent: Any) -> tuple[int, int, int]:
    x, y, z = (int(each) for each in (record[key] if not absent else (1, 1, 1)))
    if min(x, y, z) < 1:
        raise ValueError(f"{key} is {record[key]}")
    return x, y, z


def _check_args(
    symbol: str,
    args: tuple[tuple[str, str, str], ...],
    signature: Signature,
    arrays: Collection[str],
    maps: Collection[str],
) -> None:
    known: dict[str, Collection[str]] = {
        "shape": signature.names | {"sms"}, "scalar": signature.scalars, "map": maps,
        "in": arrays, "out": arrays, "pitch": arrays,
    }  # fmt: skip
    for name, kind, role in args:
        unknown = role not in _ROLES or (role in known and name not in known[role])
        if unknown or (kind == "map") != (role == "map"):
            raise ArtifactError(f"{symbol}: the index has an argument {name!r} of unknown role {role!r}")


@dataclass(frozen=True)
class Chosen:
    """The entry of one call. call: what the stub made of it, where there is one."""

    entry: Entry
    workspace: int
    call: Any = None


@dataclass(frozen=True)
class Program:
    """The entries of one cell on one device, in the order in which they are tried."""

    kernel: str
    device: Device
    module: Module
    entries: tuple[Entry, ...]
    stub: Any = None

    def preload(self) -> None:
        """Looks every entry point up, so that later calls only launch."""
        for entry in self.entries:
            for each in (*entry.prologue, entry):
                each.bind(self)

    def choose(self, values: dict[str, Any], views: Mapping[str, View]) -> Entry | Chosen:
        """The first entry whose conditions hold (and, of a stub's, that can run the problem): itself if it is
        a plain one. Raises ArgumentError when there is none.
        """
        values["sms"] = self.device.sms
        for entry in self.entries:
            if entry.when and not entry.holds(values):
                continue
            if entry.plain:
                return entry
            chosen = self._ask(entry, values, views) if entry.stub else _by_formula(entry, values)
            if chosen is not None:
                return chosen
        extents = ", ".join(f"{name}={value}" for name, value in values.items() if name != "sms")
        reasons = "; ".join(dict.fromkeys(entry.unmet(values) for entry in self.entries))
        raise ArgumentError(
            f"{self.kernel} has no variant for {extents} on {self.device.describe()}: it takes {reasons}"
        )

    def _ask(self, entry: Entry, values: Values, views: Mapping[str, View]) -> Chosen | None:
        def of(*roles: str) -> tuple[Any, ...]:
            given = [(name, role) for name, _, role in entry.args if role in roles]
            return tuple([_value(name, role, values, views, NO_SPACE) for name, role in given])

        call = entry.bind(self).query(of(*_ARRAYS), of("shape", "pitch"), of("scalar"))
        return None if call is None else Chosen(entry, call.workspace_bytes, call)

    def run_plain(self, entry: Entry, values: Values, views: Mapping[str, View], stream: int) -> None:
        """Launches a plain entry."""
        arguments = tuple(
            [
                values[name]
                if role == "shape"
                else views[name].address
                if role != "pitch"
                else views[name].shape[-1]
                for name, _, role in entry.args
            ]
        )
        x, y, z = entry.grid
        grid = x(values), y(values), z(values)
        function = entry.function or entry.bind(self)
        if self.device.kind == "cpu":
            function.launch(arguments, grid)
        elif self.device.kind == "cuda":
            function.launch(arguments, grid, entry.block, stream)
            _after(self.device.index, stream, entry)
        else:
            self._launch_metal(function, entry, arguments, grid, views)

    def run(
        self, chosen: Chosen, values: Values, views: Mapping[str, View], stream: int, space: Space = NO_SPACE
    ) -> None:
        """Launches any other entry, after what comes before it."""
        entry = chosen.entry
        for before in entry.prologue:
            if before.holds(values):
                self._launch(before, values, views, stream, space)
        if chosen.call is not None:
            chosen.call.launch(space.address, space.bytes, stream)
            _after(self.device.index, stream, entry)
        else:
            self._launch(entry, values, views, stream, space)

    def _launch(
        self, entry: Entry, values: Values, views: Mapping[str, View], stream: int, space: Space
    ) -> None:
        arguments = tuple(
            [
                entry.maps[name].value(values, views)
                if role == "map"
                else _value(name, role, values, views, space)
                for name, _, role in entry.args
            ]
        )
        x, y, z = entry.grid
        grid = x(values), y(values), z(values)
        function = entry.bind(self)
        if self.device.kind == "cpu":
            function.launch(arguments, grid)
        elif self.device.kind == "cuda":
            if entry.early and (self.device.index, stream) in _PACKING:
                function = entry.bind_waiting(self)
            function.launch(arguments, grid, entry.block, stream, self._shared(entry, values))
            _after(self.device.index, stream, entry)
        else:
            self._launch_metal(function, entry, arguments, grid, views)

    def _shared(self, entry: Entry, values: Values) -> int | None:
        if entry.shared_formula is None:
            return None
        shared = entry.shared_formula(values)
        entry.check_shared(self.device, shared)
        return shared

    def _launch_metal(
        self, function: Any, entry: Entry, arguments: Any, grid: Any, views: Mapping[str, View]
    ) -> None:
        sizes = tuple(
            views[name].bytes if kind == "ptr" and name in views else 0 for name, kind, _ in entry.args
        )
        outputs = tuple(role == "out" for _, _, role in entry.args)
        function.launch(arguments, sizes, outputs, grid, entry.block)


_PACKING: set[tuple[int, int]] = set()
"""(device, stream) whose last launch wrote packed weights. Kernels that may start early read weights before
they wait for the launch before them, so the next one on this stream may not."""


def _after(device: int, stream: int, entry: Entry) -> None:
    """Notes what was launched last on a stream."""
    if entry.packs:
        _PACKING.add((device, stream))
    elif _PACKING:
        _PACKING.discard((device, stream))


def _by_formula(entry: Entry, values: Values) -> Chosen:
    return Chosen(entry, 0 if entry.workspace is None else max(entry.workspace(values), 0))


def _value(name: str, role: str, values: Values, views: Mapping[str, View], space: Space) -> Any:
    """An argument; that of an operand which is not given is 0."""
    if role in ("shape", "scalar"):
        return values[name]
    if role == "workspace":
        return space.address
    view = views.get(name)
    if view is None:
        return 0
    return view.shape[-1] if role == "pitch" else view.address
