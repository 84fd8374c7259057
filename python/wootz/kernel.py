"""A kernel as a callable: checks its arguments, picks the device's program, launches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _core, arrays
from .arguments import Call, Reader, Request
from .choice import parse as parse_measured
from .errors import ArgumentError, ArtifactError, DeviceError, near
from .jit import sources
from .memory import common_device
from .modules import check_file, fits, load_module, load_stub, note_choice, resolve_device
from .program import NO_SPACE, Entry, Program, Recipe, pitched
from .select import Device, rank
from .signature import Binding, Signature

if TYPE_CHECKING:
    from .library import Library

__all__ = ["Kernel", "Request"]


class Kernel:
    """One kernel of one format and dtype; get it from Library.kernel. Nothing is loaded before the first call
    on a device.

    kernel(*operands, out=None, stream=None, workspace=None, **named) -> out. Operands are arrays (NumPy,
    torch, CuPy, anything with DLPack or __cuda_array_interface__) or tensors of a format (QuantizedTensor,
    PackedTensor or TiledTensor, as the kernel has it), dense, row-major, aligned to 16 bytes, all on one
    device. Any may be given by name; the required ones come first, those marked ? may be left out. Scalars
    are given by name. A new output is of the kind of the first array operand, or of the first field of the
    first tensor; an output that is a tensor hands on the fields that the kernel does not write.

    On CUDA the launch goes to `stream` (a handle or an object with __cuda_stream__; ordering against other
    streams is then the caller's) or else to the arrays' library's current stream, read at every call; it is
    not waited for. workspace: any array of workspace_bytes() bytes, aligned to 128 on CUDA, which the caller
    zeroes once; calls leave it fit for the next one, but no two may use it at the same time. None: one is
    made for the call. Raises ArgumentError, DtypeError, FormatError, DeviceError, NoKernelError,
    ArtifactError, CompileError, DriverError.
    """

    def __init__(
        self, library: Library, signature: Signature, request: Request, types: Mapping[str, str] | None = None
    ) -> None:
        self._library, self._signature, self._request = library, signature, request
        self._types = dict(types or {})
        self._reader = Reader(signature, request, self._types)
        self._programs: dict[tuple[str, int | None], Program] = {}
        self._symbol = ""

    @property
    def name(self) -> str:
        """Kernel, options, format and dtype, as cell keys begin."""
        return self._request.stem

    @property
    def signature(self) -> Signature:
        """What it takes and gives."""
        return self._signature

    def dtype_of(self, name: str) -> str:
        """The element type of an array operand, or of the output, by its name."""
        return self._reader.dtypes[name]

    def __repr__(self) -> str:
        return f"<kernel {self.name}: {self._signature}>"

    def preload(self, device: str | None = None) -> None:
        """Loads all that calls on `device` (default: the kernel's) need, say before a stream is captured."""
        self._program(*self._where(device)).preload()

    def variants(self, device: str | None = None) -> tuple[str, ...]:
        """Its variants on `device` (default: the kernel's), by their symbols, in the order in which they are
        tried.
        """
        return tuple(entry.symbol for entry in self._program(*self._where(device)).entries)

    def only(self, symbol: str) -> Kernel:
        """The kernel with one variant and no other: its calls raise NoVariantError where that does not take
        the problem, and ArgumentError on a device that lacks it. For tuning and checking.
        """
        made = Kernel(self._library, self._signature, self._request, self._types)
        made._symbol = symbol
        return made

    def workspace_bytes(self, device: str | None = None, **sizes: Any) -> int:
        """Bytes of workspace of a call with these extents, as m=8, and scalars; an optional operand's name
        with True: it is given. `device`: default the kernel's. Raises ArgumentError, NoKernelError.
        """
        problem = self._reader.assume("workspace_bytes", sizes)
        return self._program(*self._where(device)).recipe(problem.values, problem.arrays).workspace

    def __call__(
        self, *operands: Any, out: Any = None, stream: Any = None, workspace: Any = None, **named: Any
    ) -> Any:
        call = self._read(operands, stream, named)
        out = self._reader.read_output(call, out)
        if call.views[self._reader.written].size == 0:
            return out
        kind, number = call.device
        program, values, views = self._program(kind, number or 0), call.binding.values, call.views
        recipe = program.recipe(values, views)
        if workspace is not None or recipe.workspace:
            return self._run(call, program, recipe, workspace, out)
        stream = self._order(call, kind, number or 0)
        recipe.steps.launch(program.addresses(views), 0, 0, stream)
        return out

    def _read(self, operands: Sequence[Any], stream: Any, named: Mapping[str, Any]) -> Call:
        """A call's operands, checked, and where they are; its scalars and flags join the extents."""
        signature = self._signature
        call = Call(Binding(signature), None if stream is None else arrays.stream_handle(stream))
        scalars = None
        if named or not signature.plain or len(operands) != len(signature.operands):
            operands, scalars = signature.arrange(operands, named)
        self._reader.read_operands(call, operands)
        if scalars:
            call.binding.values.update(scalars)
        call.binding.check_limits()
        if not signature.plain or signature.choosy or call.binding.derived:
            call.binding.check_derived()
        call.device = common_device(call.views)
        self._check_device(call, *call.device)
        return call

    def _run(self, call: Call, program: Program, recipe: Recipe, workspace: Any, out: Any) -> Any:
        """Launches with a workspace: the caller's, or one dropped once the launch is in the stream."""
        device, wanted, space = program.device, recipe.workspace, NO_SPACE
        addresses = program.addresses(call.views)
        if workspace is not None:
            space = self._reader.read_workspace(call, workspace, wanted)
        stream, kept = self._order(call, device.kind, device.index), None
        if workspace is None and wanted:
            kept, space = self._reader.make_workspace(call, wanted, recipe.entry.zeroed, device, stream)
        recipe.steps.launch(addresses, space.address, space.bytes, stream)
        del kept
        return out

    # ---- device and stream

    def _where(self, device: str | None = None) -> tuple[str, int]:
        """The kind and number of a device; None: the kernel's own, or else the CPU."""
        kind, number = self._request.device if device is None else arrays.parse_device(device)
        return kind or "cpu", number or 0

    def _check_device(self, call: Call, kind: str, number: int | None) -> None:
        wanted_kind, wanted_number = self._request.device
        if wanted_kind == "metal" and kind == "cpu":
            return
        other_number = None not in (wanted_number, number) and wanted_number != number
        if (wanted_kind is not None and kind != wanted_kind) or other_number:
            name, view = next(iter(call.views.items()))
            wanted = wanted_kind if wanted_number is None else f"{wanted_kind}:{wanted_number}"
            raise DeviceError(
                f"{name} is on {view.device}, the kernel was asked for on {wanted}: move the array"
            )
        check_stream(call.stream, kind)

    def _order(self, call: Call, kind: str, number: int) -> int:
        """The stream to launch on; work of producers without a current stream is made to come before it."""
        if kind != "cuda":
            return 0
        leader = next((each for each in call.objects.values() if arrays.orders_itself(each)), None)
        stream = call.stream
        if stream is None:
            stream = arrays.DEFAULT_STREAM if leader is None else arrays.current_stream(leader, number)
        target = stream or arrays.DEFAULT_STREAM
        for producer in _pending_streams(call, target):
            _core.cuda_order_streams(number, producer, target)
        return stream

    # ---- programs

    def _program(self, kind: str, number: int) -> Program:
        if self._request.device[0] == "metal":
            kind = "metal"
        program = self._programs.get((kind, number))
        if program is None:
            program = self._programs[kind, number] = self._load(resolve_device(kind, number))
        return program

    def _load(self, device: Device) -> Program:
        cell, file = self._choose(device)
        note_choice(cell, file, device, self._library.targets)
        if dict(cell.get("types") or {}) != self._types:
            raise ArtifactError(f"{cell['key']}: its types are not those of other targets: build it again")
        names = self._reader.array_names()
        entries = tuple(Entry.parse(record, self._signature, names) for record in cell["entries"])
        measured = parse_measured(cell.get("measured"), [entry.symbol for entry in entries])
        if self._symbol:
            entries, measured = self._one(entries), ()
        folder = self._library.folder(cell)
        module = load_module(folder, file, device)
        return Program(
            self.name, device, module, entries, tuple(names), cell, file["file"], load_stub(folder, cell),
            pitched(entries), measured,
        )  # fmt: skip

    def _one(self, entries: Sequence[Entry]) -> tuple[Entry]:
        """The one entry that `only` asked for."""
        for entry in entries:
            if entry.symbol == self._symbol:
                return (entry,)
        symbols = [entry.symbol for entry in entries]
        raise ArgumentError(
            f"{self.name} has no variant {self._symbol!r}{near(self._symbol, symbols)}; "
            f"it has {', '.join(symbols)}"
        )

    def _choose(self, device: Device) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """The cell of the best target that ships this kernel for the device, and its first file that runs
        there; where there is none, that of the best source, and how to compile it.
        """
        for row in rank(self._library.targets, device):
            cell = self._library.index.find("cells", self._request.cell(row["key"]))
            if cell is None:
                continue
            for key in ("files", "entries"):
                if not isinstance(cell.get(key), list):
                    raise ArtifactError(f"{cell['key']}: the index has no list of {key}: build it again")
            for file in map(check_file, cell["files"]):
                if fits(file, device):
                    return cell, file
        return sources.find(self._library, self._request, device)


def check_stream(stream: int | None, kind: str) -> None:
    if kind != "cuda" and stream is not None:
        raise ArgumentError(f"stream is for CUDA devices; the arrays are on {kind}")


def _pending_streams(call: Call, target: int) -> Iterable[int]:
    """Streams other than `target` that producers without a current stream of their own may still write on."""
    pending = set()
    for name, view in call.views.items():
        if arrays.orders_itself(call.objects[name]):
            continue
        if view.stream is not None:
            pending.add(view.stream or arrays.DEFAULT_STREAM)
        elif call.stream is None:  # asked of DLPack: the default stream waits for the producer
            pending.add(arrays.DEFAULT_STREAM)
    return sorted(pending - {target})
