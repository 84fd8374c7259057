"""A kernel as a callable: checks its arguments, picks the device's program, launches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _core, arrays
from .errors import ArgumentError, ArtifactError, DeviceError, FormatError, NoKernelError
from .formats import Descriptor
from .modules import check_file, fits, load_module, resolve_device
from .program import Entry, Program
from .select import Device, rank
from .signature import Binding, Operand, Signature, check_memory, check_overlap, common_device

if TYPE_CHECKING:
    from .library import Library

__all__ = ["Kernel", "Request"]

View = _core.View


@dataclass(frozen=True)
class Request:
    """What was asked of a library. device: (kind, number); either may be None for "where the arrays are"."""

    kernel: str
    format: Descriptor | None
    dtype: str
    options: Mapping[str, str]
    device: tuple[str | None, int | None] = (None, None)

    def cell(self, target: str) -> str:
        """The key of the cell for a target."""
        return f"{self.stem}/{target}"

    @property
    def stem(self) -> str:
        name = ".".join((self.kernel, *self.options.values()))
        return f"{name}/{self.format.name if self.format else '-'}/{self.dtype}"


@dataclass
class Call:
    """The arrays of one call by name: views to launch with, objects to ask for streams and allocate like."""

    binding: Binding
    stream: int | None  # as given by the caller
    views: dict[str, View] = field(default_factory=dict)
    objects: dict[str, Any] = field(default_factory=dict)

    def look(self, array: Any, name: str, label: str | None = None) -> View:
        # Producers that do not order themselves with a current stream make the work that is due wait for
        # theirs.
        ordered = arrays.orders_itself(array)
        view = arrays.view(
            array, label or name, arrays.NO_SYNC if ordered else self.stream or arrays.DEFAULT_STREAM
        )
        self.views[name], self.objects[name] = view, array
        return view


class Kernel:
    """One kernel of one format and dtype; get it from Library.kernel. Nothing is loaded before the first call
    on a device.

    kernel(*operands, out=None, stream=None) -> out. Operands are arrays (NumPy, torch, CuPy, anything with
    DLPack or __cuda_array_interface__) or QuantizedTensors, dense, row-major, aligned to 16 bytes, all on one
    device. A new output is of the kind of the first array operand, or of the first field of the first tensor.
    On CUDA the launch goes to `stream` (a handle or an object with __cuda_stream__; ordering against other
    streams is then the caller's) or else to the arrays' library's current stream, read at every call; it is
    not waited for. Raises ArgumentError, DtypeError, FormatError, DeviceError, NoKernelError, ArtifactError,
    DriverError.
    """

    def __init__(self, library: Library, signature: Signature, request: Request) -> None:
        self._library, self._signature, self._request = library, signature, request
        self._programs: dict[tuple[str, int | None], Program] = {}

    @property
    def name(self) -> str:
        """Kernel, options, format and dtype, as cell keys begin."""
        return self._request.stem

    def __repr__(self) -> str:
        return f"<kernel {self.name}: {self._signature}>"

    def preload(self, device: str | None = None) -> None:
        """Loads all that calls on `device` (default: the kernel's) need, say before a stream is captured."""
        kind, number = arrays.parse_device(device) if device is not None else self._request.device
        self._program(kind or "cpu", number or 0).preload()

    def __call__(self, *operands: Any, out: Any = None, stream: Any = None) -> Any:
        call = Call(Binding(self._signature), None if stream is None else arrays.stream_handle(stream))
        self._read_operands(call, operands)
        call.binding.check_limits()
        kind, number = common_device(call.views)
        self._check_device(call, kind, number)
        out = self._read_output(call, out)
        if call.views[self._signature.output.name].size == 0:
            return out
        launch_stream = self._order(call, kind, number or 0)
        self._program(kind, number or 0).launch(call.binding, call.views, launch_stream)
        return out

    # ---- arguments

    def _read_operands(self, call: Call, operands: tuple[Any, ...]) -> None:
        specs = self._signature.operands
        if len(operands) != len(specs):
            raise ArgumentError(f"got {len(operands)} operands; {self._signature} takes {len(specs)}")
        for spec, operand in zip(specs, operands):
            if spec.quantised:
                self._read_tensor(call, spec, operand)
                continue
            if hasattr(operand, "fields") and hasattr(operand, "format"):
                raise ArgumentError(
                    f"{spec.name} is a quantised tensor; {self._signature} takes an array there"
                )
            view = call.look(operand, spec.name)
            check_memory(spec.name, view, self._request.dtype)
            call.binding.bind(spec, view.shape)

    def _read_tensor(self, call: Call, spec: Operand, tensor: Any) -> None:
        wanted = self._request.format
        assert wanted is not None, "kernels with quantised operands have a format: Library.kernel sees to it"
        if not hasattr(tensor, "fields") or not hasattr(tensor, "format"):
            raise ArgumentError(
                f"{spec.name} is a {type(tensor).__name__}; want a QuantizedTensor: "
                f"wootz.quantize(..., {wanted.name!r})"
            )
        if tensor.format is not wanted and tensor.format != wanted:
            raise FormatError(_format_mismatch(spec.name, tensor.format, wanted))
        shape = tuple(tensor.shape)
        call.binding.bind(spec, shape)
        for part in wanted.layout.fields:
            name = f"{spec.name}.{part.name}"
            view = call.look(tensor.fields[part.name], name)
            check_memory(name, view, part.dtype, wanted.field_shape(part, shape))

    def _read_output(self, call: Call, out: Any) -> Any:
        name, shape = self._signature.output.name, call.binding.output_shape()
        if out is None:
            like = next(
                (each.name for each in self._signature.operands if not each.quantised), next(iter(call.views))
            )
            out = arrays.allocate(call.objects[like], shape, self._request.dtype, call.views[like])
            given = name
        else:
            given = "out"
        inputs = list(call.views.items())
        view = call.look(out, name, given)
        if view.readonly:
            raise ArgumentError(f"{given} is read-only; the result is written there")
        check_memory(given, view, self._request.dtype, shape)
        common_device({inputs[0][0]: inputs[0][1], given: view})
        for other, operand in inputs:
            check_overlap(other, operand, given, view, self._signature.alias)
        return out

    # ---- device and stream

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
        if kind != "cuda" and call.stream is not None:
            raise ArgumentError(f"stream is for CUDA devices; the arrays are on {kind}")

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
        names = self._signature.names | {"sms"}
        entries = tuple(Entry.parse(record, names) for record in cell["entries"])
        return Program(self.name, device, load_module(self._library.path, file, device), entries)

    def _choose(self, device: Device) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """The cell of the best target that ships this kernel for the device, and its first file that runs
        there.
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
        raise NoKernelError(
            f"{self.name} has no binary for {device.describe()}; it is shipped for: "
            f"{self._library.shipped(self._request.stem)}"
        )


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


def _format_mismatch(name: str, got: Any, wanted: Descriptor) -> str:
    label = getattr(got, "name", got)
    if label == wanted.name:
        return (
            f"{name} has another definition of format {label} than the library: quantise again with its own"
        )
    return f"{name} has format {label}; the kernel takes {wanted.name}"
