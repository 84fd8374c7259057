"""Plans: a kernel with its extents settled, so that a call only checks its arrays and launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _core, arrays
from .arguments import Call, Problem, Wanted, handed_on
from .errors import ArgumentError, DriverError, FormatError
from .kernel import Kernel, check_stream
from .layouts import check_element, field_shapes, tensor_class
from .lazy_numpy import np
from .log import event
from .memory import ALIGNMENT, WORKSPACE_ALIGNMENT
from .signature import Operand, Signature

if TYPE_CHECKING:
    from .program import Entry, Recipe

__all__ = ["Bound", "GraphNode", "Plan", "make_plan"]

_NOT_IN_GRAPH = (1, 400, 500)
"""What drivers return for a node that a graph does not hold: invalid value, invalid handle, not found."""


def make_plan(kernel: Kernel, settled: Mapping[str, Any]) -> Plan:
    """See Library.plan, which has looked the kernel up on one device."""
    reader, named = kernel._reader, dict(settled)
    for each in filter(reader.own_format, reader.signature.operands):
        if not isinstance(named.get(each.name), str):
            raise ArgumentError(
                f"the plan needs {each.name}= of {reader.signature}: the name of that tensor's format"
            )
        named[each.name] = kernel._library.format(named[each.name])
        check_element(each.name, named[each.name], reader.own_format(each))
    return Plan(kernel, reader.assume("the plan", named))


class Plan(_core.PlanCall):
    """One problem of a kernel on one device; get it from Library.plan.

    plan(*operands, out=None, stream=None, **named) -> out, as a Kernel is called, for operands of the extents
    that the plan was made for. The variant is chosen, the binaries are loaded and the workspace is there: a
    call checks the arrays and launches. It waits for nothing, and allocates nothing but an `out` that is not
    given. stream: a handle or an object with __cuda_stream__; None: the current stream of the arrays'
    library, read at every call. Scalars are the plan's.

    Threads may call a plan at the same time. One that has a workspace enqueues their launches one after the
    other; a launch on another stream than the last waits, on the device, for that one to end: the stream that
    such a plan ran on has to live until its next call.

    On CUDA the eighth call in a row on one stream makes a graph of the launches (about 0.1 MiB of the
    device's memory), and later calls on that stream start it with their own arrays: about half of a
    launch's time on the host. Calls on other streams, kernels that may begin early, and calls whose stream
    is being captured are plain launches, as all are where no graph can be made. The graph's launches have
    no attributes of the stream, as an access policy window; on a stream of a green context call the Kernel.

    In a graph that is captured, calls become kernel nodes. The plan (it owns the workspace) and the arrays
    have to outlive the graph, which holds neither: keep the plan, or the GraphNode that `graph_node` returns.
    Binaries stay loaded until the process ends. Launches that share a plan's workspace must be ordered by the
    graph itself.

    name: kernel, options, format and dtype. device: as "cuda:0". signature: the kernel's. shapes: extents by
    name. workspace_bytes: of the workspace that the plan owns. Calls raise ArgumentError, DtypeError,
    FormatError, DeviceError, DriverError.
    """

    def __init__(self, kernel: Kernel, problem: Problem) -> None:
        self._kernel, self._problem = kernel, problem
        self._program = kernel._program(*kernel._where())
        self.name, self.device = kernel.name, str(self._program.device)
        self.signature: Signature = kernel._reader.signature
        self.shapes: dict[str, int] = {name: problem.values[name] for name in sorted(self.signature.names)}
        self._scalars = {name: problem.scalars[name] for name in self.signature.scalars}
        self._launcher: _core.Launcher | None = None
        self._recipe: Recipe | None = None
        self._memory: Any = None
        if problem.arrays[kernel._reader.written].bytes:
            self._recipe = self._program.recipe(problem.values, problem.arrays)
            self._memory, address = _workspace(self._program.device, self._recipe)
            self._launcher = _core.Launcher(self._recipe.steps, address, self._recipe.workspace)
            _note_plan(self, self._program.cell["key"], self._recipe)
        self._ready(self._spell())

    @property
    def workspace_bytes(self) -> int:
        return self._recipe.workspace if self._recipe else 0

    def __repr__(self) -> str:
        extents = ", ".join(f"{name}={value}" for name, value in self.shapes.items())
        return f"<plan {self.name} on {self.device}: {extents}>"

    def bind(self, *operands: Any, out: Any = None, **named: Any) -> Bound:
        """The plan with its arrays, checked once; see Bound. out: None: it is allocated."""
        call, out = self._read(operands, out, None, named)
        return Bound(self, call, out)

    def graph_node(self, *operands: Any, out: Any = None, stream: Any = None, **named: Any) -> GraphNode:
        """A call while its stream is captured, and the node that it becomes; see GraphNode. Raises
        ArgumentError when the stream is not being captured.
        """
        call, out = self._read(operands, out, stream, named)
        if self._launcher is None:
            raise ArgumentError(f"{self} has nothing to compute: an empty result becomes no node")
        return GraphNode(
            self, self._launcher.capture(self._program.addresses(call.views), self._stream(call)), out
        )

    def describe(self) -> dict[str, Any]:
        """What the plan launches, and where it comes from: names and numbers, as JSON takes them."""
        kernel, recipe, cell = self._kernel, self._recipe, self._program.cell
        request = kernel._request
        return {
            "kernel": request.kernel,
            "format": request.format.name if request.format else None,
            "dtype": request.dtype,
            "options": dict(request.options),
            "device": self.device,
            "target": cell["target"],
            "file": self._program.file,
            "shapes": dict(self.shapes),
            "scalars": dict(self._scalars),
            "operands": {
                name: {"shape": list(each.shape), "dtype": each.dtype, "alignment": ALIGNMENT}
                for name, each in self._problem.arrays.items()
            },
            "workspace_bytes": self.workspace_bytes,
            "knobs": cell.get("knobs") or {},
            "evidence": list(cell.get("evidence") or ()),
            **_describe_launch(recipe),
        }

    # ---- the fast way

    def _spell(self) -> dict[str, Any]:
        """What the fast way has to know; see csrc/plan.cpp."""
        device = self._program.device
        given = self._problem.operands
        names = [each.name for each in given]
        arrays_ = [each.name for each in given if each.kind == "array"]
        like = arrays_[0] if arrays_ else next(iter(self._problem.arrays))
        return {
            "simple": not any(each.updated for each in given),
            "launcher": self._launcher,
            "on_gpu": device.kind == "cuda",
            "device": device.index if device.kind == "cuda" else 0,
            "arrays": len(self._program.arrays),
            "like": self._place(like),
            "slots": [self._slot(each) for each in given],
            "positions": [names.index(name) if name in names else -1 for name in self.signature.order],
            "out": self._slot(self.signature.output),
        }

    def _slot(self, spec: Operand) -> tuple[Any, ...]:
        """An operand, or the output: its name, its class, format and extents, and its arrays."""
        wanted = self._problem.arrays
        if spec.kind == "array":
            spelt = _spell_array(wanted[spec.name], self.signature.flat)
            part = None, self._place(spec.name), -1, spelt, spec.name in self.signature.alias
            return spec.name, None, None, None, (part,)
        format = self._problem.formats.get(spec.name) or self._kernel._request.format
        assert format is not None, "kernels with tensors have a format: Library.kernel sees to it"
        shape = self._problem.binding.shape_of(spec)
        parts = []
        for field, dtype, extents in field_shapes(spec.kind, format, shape):
            name = f"{spec.name}.{field}"
            same = -1 if name in wanted else self._place(handed_on(wanted, field, format))
            parts.append((field, self._place(name), same, (dtype, extents, False), False))
        return spec.name, tensor_class(spec.kind), format, shape, tuple(parts)

    def _place(self, name: str) -> int:
        return self._program.arrays.index(name)

    def _empty(self, like: Any) -> Any:
        """A new output in the library of `like`."""
        written = self._problem.arrays[self.signature.output.name]
        shape = tuple(like.shape) if self.signature.flat else written.shape
        return arrays.allocate(like, shape, written.dtype, self._program.device.index)

    def _handle(self, stream: Any) -> int:
        return arrays.stream_handle(stream)

    # ---- the careful way: it words what is wrong, and takes arrays that the fast one does not know

    def _careful(self, *operands: Any, out: Any = None, stream: Any = None, **named: Any) -> Any:
        call, out = self._read(operands, out, stream, named)
        if self._launcher is not None:
            self._launcher.launch(self._program.addresses(call.views), self._stream(call))
        return out

    def _read(
        self, operands: Sequence[Any], out: Any, stream: Any, named: Mapping[str, Any]
    ) -> tuple[Call, Any]:
        kernel = self._kernel
        call = kernel._read(operands, stream, {**self._scalars, **named})
        self._check(call)
        return call, kernel._reader.read_output(call, out)

    def _check(self, call: Call) -> None:
        """Raises ArgumentError where a call's extents, scalars or operands are not the plan's."""
        found, flags = call.binding.values, self.signature.flags
        for operand, flag in flags.items():
            if found[flag] != self._problem.values[flag]:
                given, made = ("given", "without") if found[flag] else ("not given", "with")
                raise ArgumentError(
                    f"{operand} is {given}; the plan was made {made} it: "
                    f"make one with {operand}={bool(found[flag])}"
                )
        for name, value in self._problem.values.items():
            if name in flags.values() or _same(found[name], value):
                continue
            origin = call.binding.origins.get(name)
            has = f"{origin} has {name}={found[name]}" if origin else f"{name} is {found[name]}"
            raise ArgumentError(
                f"{has}; the plan was made for {name}={value}: make a plan for it, or call the kernel"
            )
        for operand, format in self._problem.formats.items():
            if call.formats[operand] != format:
                raise FormatError(
                    f"{operand} has format {call.formats[operand].name}; the plan was made for {format.name}"
                )

    def _stream(self, call: Call) -> int:
        device = self._program.device
        return self._kernel._order(call, device.kind, device.index)


def _spell_array(wanted: Wanted, flat: bool) -> tuple[Any, ...]:
    return wanted.dtype, wanted.shape, flat


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or (a != a and b != b)


def _workspace(device: Any, recipe: Recipe) -> tuple[Any, int]:
    """Memory of the recipe's size on the device, zeroed where that is wanted, and its address."""
    size = recipe.workspace
    if not size:
        return None, 0
    if device.kind != "cuda":
        memory = np.zeros(size + WORKSPACE_ALIGNMENT, np.uint8)
        return memory, memory.ctypes.data + -memory.ctypes.data % WORKSPACE_ALIGNMENT
    made = arrays.DeviceArray((size,), "u8", device.index)
    address: int = made.__cuda_array_interface__["data"][0]
    if recipe.entry.zeroed:
        _core.cuda_set_memory(device.index, address, 0, size, arrays.DEFAULT_STREAM)
        _core.cuda_synchronize(device.index, arrays.DEFAULT_STREAM)
    return made, address


def _describe_launch(recipe: Recipe | None) -> dict[str, Any]:
    """Of a recipe; of none, where there is nothing to compute. null: the stub's to say."""
    entry: Entry | None = recipe.entry if recipe else None
    stubless = entry is not None and not entry.stub
    return {
        "symbol": entry.symbol if entry else None,
        "chosen": recipe.reason if recipe else None,
        "grid": list(recipe.grid) if recipe and recipe.grid else None,
        "block": list(entry.block) if entry and stubless else None,
        "cluster": list(entry.cluster) if entry and stubless else None,
        "shared_bytes": recipe.shared if recipe else None,
        "early": entry.early if entry else False,
        "prologue": [each.symbol for each in recipe.prologue] if recipe else [],
    }


class Bound(_core.BoundCall):
    """A plan and its arrays; get it from Plan.bind. It keeps them alive.

    bound(stream=None) -> out launches; nothing is checked again. Other libraries' work on the arrays has to
    be ordered before the stream. out: the array, or tensor, that is written. On CUDA the launches are a graph
    of their own, made here and started by each call, which costs the host a third of a launch: threads wait
    for each other, and calls on several streams run one after the other. Launches that may begin before the
    one before them has ended, and calls on a stream that is being captured, are plain ones.
    """

    def __init__(self, plan: Plan, call: Call, out: Any) -> None:
        self.plan, self.out = plan, out
        self._call = call
        leader = next((each for each in call.objects.values() if arrays.orders_itself(each)), None)
        addresses = plan._program.addresses(call.views)
        self._ready((plan._launcher, addresses, call.device[0] == "cuda", leader, out))

    def _current(self) -> int:
        """The stream for a launch that names none."""
        return self.plan._stream(self._call)

    def _handle(self, stream: Any) -> int:
        handle = arrays.stream_handle(stream)
        check_stream(handle, self._call.device[0])
        return handle

    def __repr__(self) -> str:
        return f"<bound {self.plan!r}>"


class GraphNode:
    """What a call became in a CUDA graph; get it from Plan.graph_node. It keeps the plan alive.

    out: the array, or tensor, that the node writes.
    """

    def __init__(self, plan: Plan, nodes: _core.Nodes, out: Any) -> None:
        self.plan, self.out = plan, out
        self._nodes = nodes

    def update(self, graph_exec: Any, *operands: Any, out: Any = None, **named: Any) -> Any:
        """Gives the node other arrays, which are checked as a call's are; later launches of the graph use
        them. Returns `out`; None: the node writes where it did.

        graph_exec: the instantiated graph, a handle or torch's CUDAGraph (of keep_graph=True), CuPy's Graph
        or cuda.core's; the captured graph that it was made of has to exist still. Raises ArgumentError when
        it does not hold the node, and what calls raise.
        """
        plan = self.plan
        handle = graph_handle(graph_exec)
        kept = None if plan.signature.in_place else self.out
        call, out = plan._read(operands, kept if out is None else out, None, named)
        assert plan._launcher is not None, "a plan without launches makes no nodes"
        try:
            plan._launcher.update(plan._program.addresses(call.views), handle, self._nodes)
        except DriverError as error:
            if error.code not in _NOT_IN_GRAPH:
                raise
            raise ArgumentError(
                f"graph_exec does not hold this node ({error.name}): "
                "pass a graph that was instantiated from the capture"
            ) from error
        self.out = out
        return out

    def __len__(self) -> int:
        """Kernel nodes: the launch, and what comes before it."""
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"<graph node of {self.plan!r}>"


def graph_handle(graph: Any) -> int:
    """The driver's handle of an instantiated graph. Raises ArgumentError for anything else."""
    if isinstance(graph, int) and not isinstance(graph, bool):
        handle = graph
    elif hasattr(graph, "raw_cuda_graph_exec"):
        handle = _torch_graph(graph)
    else:
        found = getattr(graph, "graphExec", getattr(graph, "handle", None))
        try:
            handle = int(found)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise ArgumentError(
                f"graph_exec is a {type(graph).__name__}; want the handle of an instantiated graph, "
                "or the graph of torch, CuPy or cuda.core"
            ) from None
    if handle <= 0:
        raise ArgumentError(f"graph_exec is {handle}; want the handle of an instantiated graph")
    return handle


def _torch_graph(graph: Any) -> int:
    try:
        graph.raw_cuda_graph()
        return int(graph.raw_cuda_graph_exec())
    except RuntimeError as error:
        raise ArgumentError(
            "graph_exec is a CUDAGraph whose captured graph is gone, or that is not instantiated: make it "
            "with torch.cuda.CUDAGraph(keep_graph=True), and call its instantiate() before"
        ) from error


def _note_plan(plan: Plan, cell: str, recipe: Recipe) -> None:
    symbol, size, device = recipe.entry.symbol, recipe.workspace, plan.device
    if size:
        event("workspace_made", f"{plan}: {size} bytes of workspace", cell=cell, bytes=size, device=device)
    event("plan_made", f"{plan}: {symbol}", cell=cell, symbol=symbol, shapes=plan.shapes, device=device)
