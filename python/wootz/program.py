"""A kernel on one device: the chosen cell, its entry points, and the recipe of each problem."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from . import _core
from .choice import DEFAULT, Measured, choose
from .errors import ArtifactError, DeviceError, NoVariantError
from .formulas import Formula, compile_formula, spell
from .modules import Module
from .select import Device
from .signature import Signature

__all__ = ["Entry", "Extent", "Program", "Recipe", "Space"]

_ROLES = ("in", "out", "shape", "pitch", "scalar", "workspace", "map")
_ARRAYS = ("in", "out")
_KNOWN_RECIPES = 256
_ALIGNED = 1 << 32
"""The address that a stub is asked about: as aligned as any that a call has."""

Values = Mapping[str, Any]
"""Of a call: the shape names, scalars, flags of optional operands, and sms."""


class Extent(Protocol):
    """What a recipe has to know of an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def bytes(self) -> int: ...


Arrays = Mapping[str, Extent]
"""Of a call, by their names in the index; those not given are missing."""


@dataclass(frozen=True, eq=False, repr=False)
class Space:
    """A call's workspace: where it is, and how large."""

    address: int = 0
    bytes: int = 0


NO_SPACE = Space()


@dataclass(frozen=True, eq=False, repr=False)
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

    def value(self, values: Values) -> tuple[int, ...]:
        return tuple([number(values) for number in self.numbers])


@dataclass(eq=False, repr=False)
class Entry:
    """One entry point, its formulas compiled. `function` is looked up in the binary on first use.

    shared: bytes of group memory to ask for at launch, where that is no formula. workspace: bytes, None where
    it has none. stub: the prefix of its functions in the stub, which then says how it is launched. early: it
    may start while the launch before it is still running. packs: it writes fields of a format: weights, which
    early kernels read before they wait for the launch before them.
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
    conditions: tuple[str, ...] = ()  # `when`, spelt
    function: Any = None
    packs: bool = False

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
        entry.conditions = tuple(map(spell, record.get("when") or ()))
        entry.packs = any(role == "out" and "." in name for name, _, role in args)
        return entry

    def bind(self, program: Program) -> Any:
        """The function, looked up. Raises ArtifactError, DeviceError, DriverError."""
        if self.function is None:
            device = program.device
            self.check_shared(device, self.shared)
            self.function = self._stub(program) if self.stub else self._function(program.module, device)
        return self.function

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
        "shape": {*signature.names, *signature.sizes, "sms"},
        "scalar": signature.scalars, "map": maps,
        "in": arrays, "out": arrays, "pitch": arrays,
    }  # fmt: skip
    for name, kind, role in args:
        unknown = role not in _ROLES or (role in known and name not in known[role])
        if unknown or (kind == "map") != (role == "map"):
            raise ArtifactError(f"{symbol}: the index has an argument {name!r} of unknown role {role!r}")


@dataclass(frozen=True, eq=False, repr=False)
class Recipe:
    """How one problem is computed: the entry that does it, its launches, bytes of workspace, and why this
    entry."""

    entry: Entry
    steps: _core.Steps
    workspace: int
    prologue: tuple[Entry, ...] = ()  # those that are launched
    grid: tuple[int, ...] | None = None  # None: the stub's
    shared: int | None = None
    reason: str = DEFAULT


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """The entries of one cell on one device, in the order in which they are tried.

    arrays: the names of all arrays that a call may have; addresses are in this order. measured: shapes whose
    fastest entry is known, which is tried first.
    """

    kernel: str
    device: Device
    module: Module
    entries: tuple[Entry, ...]
    arrays: tuple[str, ...]
    cell: Mapping[str, Any]
    file: str
    stub: Any = None
    pitched: tuple[str, ...] = ()  # the arrays whose last extent is an argument
    measured: tuple[Measured, ...] = ()
    recipes: dict[Any, Recipe] = field(default_factory=dict)

    def preload(self) -> None:
        """Looks every entry point up, so that later calls only launch."""
        for entry in self.entries:
            for each in (*entry.prologue, entry):
                each.bind(self)

    def recipe(self, values: dict[str, Any], arrays: Arrays) -> Recipe:
        """That of the entry which was fastest at a shape like it, or else of the first one, whose conditions
        hold (and, of a stub's, that can run the problem). Raises NoVariantError when there is none.
        """
        # by name: askers bind in orders of their own. -0.0 and 0.0 are equal, and not the same argument
        key = (
            frozenset([(name, v.hex() if v.__class__ is float else v) for name, v in values.items()]),
            *[arrays[name].shape[-1] if name in arrays else None for name in self.pitched],
        )
        known = self.recipes.get(key)
        if known is None:
            if len(self.recipes) >= _KNOWN_RECIPES:
                self.recipes.clear()
            known = self.recipes[key] = self._choose({**values, "sms": self.device.sms}, arrays)
        return known

    def addresses(self, views: Mapping[str, Any]) -> tuple[int, ...]:
        """Of a call's arrays, in order; 0 for those not given."""
        return tuple([views[name].address if name in views else 0 for name in self.arrays])

    def _choose(self, values: Values, arrays: Arrays) -> Recipe:
        for entry, reason in self._candidates(values):
            made = (self._ask if entry.stub else self._by_formula)(entry, values, arrays)
            if made is not None:
                return made if reason == DEFAULT else replace(made, reason=reason)
        extents = ", ".join(f"{name}={value}" for name, value in values.items() if name != "sms")
        reasons = "; ".join(dict.fromkeys(entry.unmet(values) for entry in self.entries))
        raise NoVariantError(
            f"{self.kernel} has no variant for {extents} on {self.device.describe()}: it takes {reasons}"
        )

    def _candidates(self, values: Values) -> Iterator[tuple[Entry, str]]:
        """The entries whose conditions hold, in the order in which they are tried, each with the reason."""
        holding = (entry for entry in self.entries if entry.holds(values))
        if not self.measured:
            yield from ((entry, DEFAULT) for entry in holding)
            return
        by_symbol = {entry.symbol: entry for entry in holding}
        choice = choose(self.measured, values, self.device.name, by_symbol)
        if choice.symbol:
            yield by_symbol.pop(choice.symbol), choice.reason
        yield from ((entry, DEFAULT) for entry in by_symbol.values())

    def _ask(self, entry: Entry, values: Values, arrays: Arrays) -> Recipe | None:
        places = tuple(self.arrays.index(name) for name, _, role in entry.args if role in _ARRAYS)
        given = tuple(_ALIGNED if self.arrays[place] in arrays else 0 for place in places)
        shape = tuple(
            arrays[name].shape[-1] if role == "pitch" and name in arrays else values.get(name, 0)
            for name, _, role in entry.args
            if role in ("shape", "pitch")
        )
        scalars = tuple(values[name] for name, _, role in entry.args if role == "scalar")
        call = entry.bind(self).query(given, shape, scalars)
        if call is None:
            return None
        step = call.step(places, entry.packs)
        return self._recipe(entry, values, arrays, step, call.workspace_bytes)

    def _by_formula(self, entry: Entry, values: Values, arrays: Arrays) -> Recipe:
        workspace = 0 if entry.workspace is None else max(entry.workspace(values), 0)
        return self._recipe(entry, values, arrays, self._step(entry, values, arrays), workspace)

    def _recipe(
        self, entry: Entry, values: Values, arrays: Arrays, step: _core.Step, workspace: int
    ) -> Recipe:
        before = tuple(each for each in entry.prologue if each.holds(values))
        steps = [*(self._step(each, values, arrays) for each in before), step]
        number = self.device.index if self.device.kind == "cuda" else -1
        made = _core.Steps(number, len(self.arrays), steps)
        if entry.stub:
            return Recipe(entry, made, workspace, before)
        return Recipe(entry, made, workspace, before, _grid(entry, values), self._shared(entry, values))

    def _step(self, entry: Entry, values: Values, arrays: Arrays) -> _core.Step:
        """The launch of an entry that has no stub."""
        sources = tuple([self._source(entry, name, role, values, arrays) for name, _, role in entry.args])
        function, grid = entry.bind(self), _grid(entry, values)
        step: _core.Step
        if self.device.kind == "cpu":
            step = function.step(sources, grid)
        elif self.device.kind == "cuda":
            step = function.step(sources, grid, entry.block, self._shared(entry, values), entry.packs)
        else:
            sizes = tuple(
                arrays[name].bytes if kind == "ptr" and name in arrays else 0 for name, kind, _ in entry.args
            )
            outputs = tuple(role == "out" for _, _, role in entry.args)
            step = function.step(sources, sizes, outputs, grid, entry.block)
        return step

    def _source(self, entry: Entry, name: str, role: str, values: Values, arrays: Arrays) -> Any:
        """An argument's number, or where it comes from; that of an operand which is not given is 0."""
        if role in ("shape", "scalar"):
            return values[name]
        if role == "workspace":
            return ("workspace",)
        if role == "map":
            made = entry.maps[name]
            return "map", self.arrays.index(made.of), made.value(values)
        if role == "pitch":
            return arrays[name].shape[-1] if name in arrays else 0
        return "array", self.arrays.index(name)

    def _shared(self, entry: Entry, values: Values) -> int:
        if entry.shared_formula is None:
            return entry.shared
        shared = entry.shared_formula(values)
        entry.check_shared(self.device, shared)
        return shared


def pitched(entries: Sequence[Entry]) -> tuple[str, ...]:
    """The arrays whose last extent is an argument of some entry."""
    names = (name for each in entries for one in (each, *each.prologue) for name, _, role in one.args
             if role == "pitch")  # fmt: skip
    return tuple(dict.fromkeys(names))


def _grid(entry: Entry, values: Values) -> tuple[int, int, int]:
    x, y, z = entry.grid
    return x(values), y(values), z(values)
