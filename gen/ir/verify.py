"""The IR's rules, checked before and after every pass. A broken rule is an internal error that names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..manifest.target import Target
from . import matrix
from .nodes import (
    DTYPES,
    GRID,
    INDEX,
    OPS,
    UNSIGNED,
    Block,
    For,
    Function,
    If,
    Ref,
    Value,
    While,
    is_const,
    walk,
)

BLOCK, GROUP, LANE = 0, 1, 2
"""Who agrees on a value: the whole block, a SIMD group, or a single lane."""
ATOMIC = ("u32", "i32", "f32")


class VerifyError(Exception):
    """A kernel breaks a rule of the IR: function, rule, what was found."""


@dataclass
class _State:
    function: Function
    target: Target
    agreement: dict[Value, int] = field(default_factory=dict)
    known: set[Ref] = field(default_factory=set)
    variables: dict[Ref, int] = field(default_factory=dict)  # who agrees on what they hold
    pointers: dict[Ref, int] = field(default_factory=dict)  # who agrees on where they point

    def fail(self, rule: str, found: str) -> VerifyError:
        return VerifyError(f"{self.function.name}: {rule}; found {found}")


def verify(function: Function, target: Target) -> Function:
    """The function itself, if it keeps every rule. Raises VerifyError otherwise."""
    state = _State(function, target)
    if not 1 <= function.threads <= target.max_threads:
        raise state.fail(f"a block has 1 to {target.max_threads} threads", str(function.threads))
    if function.shared_bytes() > target.shared_bytes:
        raise state.fail(f"group memory is at most {target.shared_bytes} bytes", f"{function.shared_bytes()}")
    _objects(state)
    _once(state)
    _launches(state)
    for param in function.params:
        if param.ref is not None:
            state.known.add(param.ref)
        if param.value is not None:
            state.agreement[param.value] = BLOCK
    state.known.update(r for r in function.refs if r.space in ("shared", "table"))
    before: dict[Ref, int] | None = None
    while before != state.variables:  # a loop's body may set a variable after it has read it
        before = dict(state.variables)
        _block(state, function.body, BLOCK)
    return function


def _objects(state: _State) -> None:
    """Arguments and objects: what a text declares."""
    names: set[str] = set()
    for name in (*(p.symbol for p in state.function.params), *(r.name for r in state.function.refs)):
        if name in names:
            raise state.fail("each argument and object has a name of its own", f"{name} twice")
        names.add(name)
    for ref in state.function.refs:
        if ref.size < 1:
            raise state.fail("an object has one element or more", f"{ref.name} of {ref.size}")
        if ref.space == "table" and ref.size != len(ref.values):
            raise state.fail(
                f"a table of {ref.size} has as many values", f"{ref.name} with {len(ref.values)}"
            )


def _once(state: _State) -> None:
    """A statement stands in one place."""
    seen: set[object] = set()
    for statement in walk(state.function.body):
        if statement in seen:
            what = statement.op if isinstance(statement, Value) else type(statement).__name__.lower()
            raise state.fail("a statement stands in one place", f"{what} twice")
        seen.add(statement)


def _launches(state: _State) -> None:
    """What a kernel reaches before it waits for the launch before it, and after."""
    function, statements = state.function, state.function.body.statements
    found = [s for s in walk(function.body) if isinstance(s, Value) and s.op in GRID]
    names = tuple(s.op for s in found)
    if names != GRID[: len(names)] or any(s not in statements for s in found):
        raise state.fail(f"{', then '.join(GRID)} stand once, outside loops and branches", str(names))
    if not found:
        return
    wait, early = found[0], set(found[0].reads)
    for statement in walk(Block(statements[: statements.index(wait)])):
        for ref in _reached(statement) if isinstance(statement, Value) else ():
            if ref.writable or ref not in early:
                raise state.fail(
                    "before grid_wait a kernel reads what it names, and writes nothing", ref.name
                )
    alone = [p.symbol for p in function.params if p.ref and p.ref.alone and p.ref not in early]
    if alone and state.target.has("pdl"):  # what is `alone` compilers may reach before a wait
        raise state.fail("what a kernel may not reach before grid_wait is not `alone`", ", ".join(alone))


def _reached(value: Value) -> Iterator[Ref]:
    """The arguments that an operation reads from or writes to."""
    for ref in (value.ref, *value.reads) if value.op not in ("offset", "choose") else ():
        while ref is not None and ref.base is not None:
            ref = ref.base
        if ref is not None and ref.space == "global":
            yield ref


def _block(state: _State, block: Block, reach: int) -> None:
    """`reach`: who is known to arrive here together."""
    outer_values, outer_refs = dict(state.agreement), set(state.known)
    _statements(state, block, reach)
    state.agreement, state.known = outer_values, outer_refs


def _statements(state: _State, block: Block, reach: int) -> None:
    for statement in block.statements:
        if isinstance(statement, For):
            _for(state, statement, reach)
        elif isinstance(statement, If):
            _condition(state, statement.condition, "an if")
            inner = max(reach, state.agreement[statement.condition])
            _block(state, statement.then, inner)
            _block(state, statement.orelse, inner)
        elif isinstance(statement, While):
            _while(state, statement, reach)
        else:
            _operation(state, statement, reach)


def _condition(state: _State, value: Value, user: str) -> None:
    """user: with its article."""
    _defined(state, value, user.split()[-1])
    if value.dtype != "bool":
        raise state.fail(f"{user}'s condition is a bool", value.dtype)


def _while(state: _State, loop: While, reach: int) -> None:
    """The body is in the scope of the head."""
    if state.function.threads != 1:
        raise state.fail("a while is of a block of one thread", f"{state.function.threads} threads")
    outer_values, outer_refs = dict(state.agreement), set(state.known)
    _statements(state, loop.head, reach)
    _condition(state, loop.condition, "a while")
    _block(state, loop.body, reach)
    state.agreement, state.known = outer_values, outer_refs


def _for(state: _State, loop: For, reach: int) -> None:
    bounds = (loop.start, loop.stop, loop.step)
    for value in bounds:
        _defined(state, value, "loop bound")
        if value.dtype != "u32":
            raise state.fail("a loop's bounds are u32", value.dtype)
    if is_const(loop.step, 0):
        raise state.fail("a loop's step is not 0", "0")
    if loop.unroll and not all(is_const(v) for v in bounds):
        raise state.fail("an unrolled loop has constant bounds", "run-time bounds")
    inner = max(reach, *(state.agreement[v] for v in bounds))
    state.agreement[loop.index] = max(state.agreement[v] for v in bounds)
    _block(state, loop.body, inner)
    del state.agreement[loop.index]


def _defined(state: _State, value: Value, user: str) -> None:
    if value not in state.agreement:
        raise state.fail(
            "a value is defined before it is used, in an enclosing scope", f"{value.op} used by {user}"
        )


def _operation(state: _State, value: Value, reach: int) -> None:
    rule = OPS.get(value.op)
    if rule is None:
        raise state.fail("an operation is in the table OPS", repr(value.op))
    if value.op in ("param", "index"):
        raise state.fail(
            "an argument is one of the function's, an index a loop's", f"{value.op} as a statement"
        )
    for arg in value.args:
        _defined(state, arg, value.op)
    if rule.arity >= 0 and len(value.args) != rule.arity:
        raise state.fail(f"{value.op} takes {rule.arity} operands", str(len(value.args)))
    if any((arg.width > 1) != (value.op == "word") for arg in value.args):
        raise state.fail("word, and nothing else, takes a vector", value.op)
    _types(state, value)
    if value.op in CHECKS:
        CHECKS[value.op](state, value)
    if rule.kind == "collective":
        needed = BLOCK if value.op == "barrier" else GROUP
        if reach > needed:
            raise state.fail(
                f"{value.op} is reached by all lanes together (uniform control flow)", "a divergent branch"
            )
        if needed == GROUP and state.function.threads % state.target.simd:
            wanted = f"{value.op} is for blocks of whole groups of {state.target.simd} lanes"
            raise state.fail(wanted, f"{state.function.threads} threads")
    if value.ref is not None and value.ref.space == "var" and value.args:
        whole = max(reach, state.agreement[value.args[0]], state.variables.get(value.ref, BLOCK))
        state.variables[value.ref] = whole
    if value.op in ("offset", "choose") and value.ref is not None:
        sources = [each for each in (value.ref.base, *value.reads) if each is not None]
        places = (state.pointers.get(each, BLOCK) for each in sources)
        state.pointers[value.ref] = max(reach, *places, *(state.agreement[a] for a in value.args))
    if value.dtype:
        state.agreement[value] = _agreement(state, value)


_OTHER_TYPE = {"select": slice(1, None), "dot4_i8": slice(0, 2)}
"""Operations of which one operand has a type of its own: the others."""


def _types(state: _State, value: Value) -> None:
    rule = OPS[value.op]
    memory = value.op.startswith("tile_") or value.op in (
        "load",
        "load_words",
        "store",
        "store_words",
        "get",
        "set",
        "declare",
        "offset",
        "choose",
        "atomic_add",
    )
    typed = value.args[_OTHER_TYPE.get(value.op, slice(None))]
    if value.op == "select" and value.args[0].dtype != "bool":
        raise state.fail("select's condition is a bool", value.args[0].dtype)
    if not memory:
        for arg in typed:
            if arg.dtype not in rule.operands:
                raise state.fail(f"{value.op} takes {sorted(rule.operands)}", arg.dtype)
        if len({a.dtype for a in typed}) > 1:
            raise state.fail(f"{value.op}'s operands have one type", str([a.dtype for a in typed]))
    result = {"same": typed[0].dtype if typed else "", "none": "", "attr": value.dtype}.get(
        rule.result, rule.result
    )
    if value.dtype != result:
        raise state.fail(f"{value.op} gives {result or 'nothing'}", value.dtype or "nothing")
    if value.dtype and value.dtype not in DTYPES:
        raise state.fail(f"a type is one of {sorted(DTYPES)}", value.dtype)


def _ref(state: _State, value: Value, spaces: tuple[str, ...]) -> Ref:
    ref = value.ref
    if ref is None or ref not in state.known:
        raise state.fail(f"{value.op} names a declared object", "none" if ref is None else ref.name)
    if ref.space not in spaces:
        raise state.fail(f"{value.op} reaches {' or '.join(spaces)} memory", f"{ref.name} in {ref.space}")
    return ref


def _index(state: _State, value: Value, ref: Ref, count: int = 1) -> None:
    index = value.args[0]
    if index.dtype not in INDEX:
        raise state.fail("an index is u32 or u64", index.dtype)
    if ref.size and is_const(index) and int(index.attrs["value"]) + count > ref.size:
        raise state.fail(f"{ref.name} has {ref.size} elements", f"index {index.attrs['value']}")


def _writable(state: _State, value: Value, ref: Ref) -> None:
    if not ref.writable:
        raise state.fail(f"{value.op} writes to a writable object", ref.name)


def _check_load(state: _State, value: Value) -> None:
    ref = _ref(state, value, ("global", "shared", "local", "table"))
    _index(state, value, ref)
    if value.dtype != ref.dtype:
        raise state.fail(f"load gives {ref.name}'s type {ref.dtype}", value.dtype)


def _check_store(state: _State, value: Value) -> None:
    ref = _ref(state, value, ("global", "shared", "local"))
    _writable(state, value, ref)
    _index(state, value, ref)
    if value.args[1].dtype != ref.dtype:
        raise state.fail(f"store takes {ref.name}'s type {ref.dtype}", value.args[1].dtype)


def _check_atomic(state: _State, value: Value) -> None:
    _check_store(state, value)
    ref = _ref(state, value, ("global", "shared"))
    if ref.dtype not in ATOMIC:
        raise state.fail(f"atomic_add adds {' or '.join(ATOMIC)}", ref.dtype)


def _check_mad_halves(state: _State, value: Value) -> None:
    """Numbers are as many as sums, where their memory says."""
    sums = _ref(state, value, ("local",))
    if len(value.reads) != 2 or any(ref not in state.known for ref in value.reads):
        raise state.fail("mad_halves reads two declared objects", str([ref.name for ref in value.reads]))
    words, numbers = value.reads
    if words.space != "local" or (sums.dtype, words.dtype, numbers.dtype) != ("f32", "u32", "f32"):
        found = f"{words.dtype} in {words.space}, {numbers.dtype}, {sums.dtype}"
        raise state.fail("mad_halves takes a local array of u32, f32, and sums of f32", found)
    if words.size % 4 or sums.size != 2 * words.size or (numbers.size and numbers.size < sums.size):
        found = f"{words.size} words, {numbers.size} numbers, {sums.size} sums"
        raise state.fail("mad_halves takes words by fours, with two sums and numbers for each", found)


def _check_const(state: _State, value: Value) -> None:
    number = value.attrs.get("value")
    if value.dtype in ("f16", "bf16") and number != 0:
        raise state.fail("a constant of 16-bit floats is 0, others are cast from f32", str(number))
    if value.dtype in ("f16", "bf16", "f32") and isinstance(number, (int, float)):
        return
    low, high = _range(value.dtype)
    if not isinstance(number, int) or not low <= number <= high:
        raise state.fail(f"a constant of {value.dtype} is a whole number from {low} to {high}", repr(number))


def _range(dtype: str) -> tuple[int, int]:
    """The smallest and the largest number of an integer type, or of bool."""
    bits = 8 * DTYPES[dtype]
    if dtype == "bool":
        return 0, 1
    return (0, 2**bits - 1) if dtype in UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _check_axis(state: _State, value: Value) -> None:
    if value.attrs.get("axis") not in (0, 1, 2):
        raise state.fail(f"{value.op}'s axis is 0, 1 or 2", str(value.attrs.get("axis")))


def _check_half(state: _State, value: Value) -> None:
    if value.attrs.get("half") not in (0, 1):
        raise state.fail("unpack_f16's half is 0 (low) or 1 (high)", str(value.attrs.get("half")))


def _check_load_words(state: _State, value: Value) -> None:
    ref = _ref(state, value, ("global", "shared"))
    _index(state, value, ref, 4 * value.width // DTYPES[ref.dtype])
    if value.width not in (1, 2, 4):
        raise state.fail("load_words loads 1, 2 or 4 words", str(value.width))


def _check_store_words(state: _State, value: Value) -> None:
    ref = _ref(state, value, ("global", "shared"))
    words = value.args[1:]
    _writable(state, value, ref)
    _index(state, value, ref, 4 * len(words) // DTYPES[ref.dtype])
    if len(words) not in (1, 2, 4) or any(w.dtype != "u32" for w in words):
        raise state.fail("store_words stores 1, 2 or 4 u32 words", str([w.dtype for w in words]))


def _check_word(state: _State, value: Value) -> None:
    if not 0 <= int(value.attrs["lane"]) < value.args[0].width:
        raise state.fail(f"word is one of {value.args[0].width}", str(value.attrs["lane"]))


def _check_var(state: _State, value: Value) -> None:
    ref = _ref(state, value, ("var",))
    given = value.args[0].dtype if value.op == "set" else value.dtype
    if given != ref.dtype:
        raise state.fail(f"{ref.name} is {ref.dtype}", given)


def _check_declare(state: _State, value: Value) -> None:
    if value.ref is None or value.ref.space not in ("local", "var", "tile"):
        raise state.fail("declare names a local array, a tile or a variable", str(value.ref))
    if value.ref.space == "tile":
        _check_tile(state, value.ref)
    if [arg.dtype for arg in value.args] != ([value.ref.dtype] if value.ref.space == "var" else []):
        raise state.fail("a variable begins with a value of its type, an array with none", value.ref.name)
    state.known.add(value.ref)


def _check_offset(state: _State, value: Value) -> None:
    ref = value.ref
    if ref is None or ref.base is None or ref.base not in state.known:
        raise state.fail("offset moves a declared buffer", "none" if ref is None else ref.name)
    if value.args[0].dtype not in INDEX:
        raise state.fail("an offset is u32 or u64", value.args[0].dtype)
    state.known.add(ref)


def _check_choose(state: _State, value: Value) -> None:
    ref = value.ref
    if ref is None or any(each not in state.known or each.space != "global" for each in value.reads):
        raise state.fail("choose is between declared buffers", ", ".join(r.name for r in value.reads))
    if any(each.writable or each.dtype != ref.dtype for each in (ref, *value.reads)):
        kinds = [f"{r.dtype}{' (writable)' if r.writable else ''}" for r in (ref, *value.reads)]
        raise state.fail("choose is between read-only buffers of one type", str(kinds))
    if value.args[0].dtype != "bool":
        raise state.fail("choose takes a bool", value.args[0].dtype)
    state.known.add(ref)


def _check_cast(state: _State, value: Value) -> None:
    source, to = value.args[0].dtype, value.dtype
    if "bool" in (source, to):
        raise state.fail("a bool is made by comparing, and chosen by with select", f"{source} to {to}")
    if value.op == "bitcast" and DTYPES[source] != DTYPES[to]:
        raise state.fail("bitcast keeps the size", f"{source} to {to}")
    if value.op == "cast" and {source, to} <= {"f16", "bf16"} and source != to:
        raise state.fail("a cast between 16-bit floats goes through f32", f"{source} to {to}")


def _check_mask(state: _State, value: Value) -> None:
    mask = int(value.attrs["mask"])
    if not 0 < mask < state.target.simd:
        raise state.fail(f"lane_xor's mask is within {state.target.simd} lanes", str(mask))


def _check_dot4(state: _State, value: Value) -> None:
    if value.args[2].dtype != "i32":
        raise state.fail("dot4_i8 adds to an i32", value.args[2].dtype)


def _check_tile(state: _State, ref: Ref) -> None:
    """A tile is one that the target has."""
    shape = matrix.shape_of(state.target)
    if shape is None or ref.shape != shape:
        raise state.fail(f"a tile has the target's shape, {shape}", str(ref.shape))
    taken = ("f32",) if ref.part == "sum" else shape.operands
    if ref.dtype not in taken:
        raise state.fail(f"a {ref.part} tile is {' or '.join(taken)}", ref.dtype)


def _tile(state: _State, value: Value, ref: Ref | None, number: Value, parts: tuple[str, ...]) -> Ref:
    """A declared tile of one of these parts, and a fragment that it has."""
    if ref is None or ref not in state.known or ref.space != "tile" or ref.part not in parts:
        found = "none" if ref is None else f"{ref.name} in {ref.space}"
        raise state.fail(f"{value.op} names a declared tile ({' or '.join(parts)})", found)
    if is_const(number) and int(number.attrs["value"]) >= ref.size:
        raise state.fail(f"{ref.name} has {ref.size} fragments", str(number.attrs["value"]))
    return ref


def _tile_memory(state: _State, value: Value, tile: Ref, memory: Ref | None) -> None:
    """Memory that a whole tile is moved from or to."""
    if memory is None or memory not in state.known or memory.space not in ("global", "shared"):
        found = "none" if memory is None else f"{memory.name} in {memory.space}"
        raise state.fail(f"{value.op} reaches declared global or shared memory", found)
    if memory.dtype != tile.dtype:
        raise state.fail(f"{value.op} moves elements of {tile.name}'s type {tile.dtype}", memory.dtype)
    at, stride = value.args[1:]
    if memory.size and tile.shape and is_const(at) and is_const(stride):
        rows, columns = tile.shape.part(tile.part)
        if value.attrs.get("transposed"):
            rows, columns = columns, rows
        end = int(at.attrs["value"]) + (rows - 1) * int(stride.attrs["value"]) + columns
        if end > memory.size:
            raise state.fail(f"{memory.name} has {memory.size} elements", f"a tile that ends at {end}")


def _tile_args(state: _State, value: Value) -> None:
    """What every lane has to agree on."""
    wanted = ["u32", "f32"] if value.op == "tile_fill" else ["u32"] * 3
    if [a.dtype for a in value.args] != wanted:
        raise state.fail(f"{value.op} takes {wanted}", str([a.dtype for a in value.args]))
    if any(state.agreement[a] > GROUP for a in value.args):
        raise state.fail(f"{value.op}'s operands are the same in every lane", "a lane's own value")


def _check_tile_fill(state: _State, value: Value) -> None:
    _tile_args(state, value)
    _tile(state, value, value.ref, value.args[0], ("sum",))


def _check_tile_load(state: _State, value: Value) -> None:
    _tile_args(state, value)
    tile = _tile(state, value, value.ref, value.args[0], ("left", "right"))
    _tile_memory(state, value, tile, value.reads[0] if value.reads else None)


def _check_tile_store(state: _State, value: Value) -> None:
    _tile_args(state, value)
    tile = _tile(state, value, value.reads[0] if value.reads else None, value.args[0], ("sum",))
    _tile_memory(state, value, tile, value.ref)
    if value.ref is not None:
        _writable(state, value, value.ref)


def _check_tile_multiply(state: _State, value: Value) -> None:
    _tile_args(state, value)
    refs: tuple[Ref | None, ...] = (value.ref, *value.reads, None, None)
    _, left, right = (
        _tile(state, value, ref, number, (part,))
        for ref, number, part in zip(refs, value.args, ("sum", "left", "right"))
    )
    if left.dtype != right.dtype:
        raise state.fail("tile_multiply's operands have one type", f"{left.dtype} and {right.dtype}")


CHECKS: dict[str, Callable[[_State, Value], None]] = {
    "const": _check_const,
    "block": _check_axis,
    "grid": _check_axis,
    "unpack_f16": _check_half,
    "load": _check_load,
    "store": _check_store,
    "atomic_add": _check_atomic,
    "mad_halves": _check_mad_halves,
    "load_words": _check_load_words,
    "store_words": _check_store_words,
    "word": _check_word,
    "get": _check_var,
    "set": _check_var,
    "declare": _check_declare,
    "offset": _check_offset,
    "choose": _check_choose,
    "cast": _check_cast,
    "bitcast": _check_cast,
    "lane_xor": _check_mask,
    "dot4_i8": _check_dot4,
    "tile_fill": _check_tile_fill,
    "tile_load": _check_tile_load,
    "tile_multiply": _check_tile_multiply,
    "tile_store": _check_tile_store,
}


def _agreement(state: _State, value: Value) -> int:
    if value.op == "thread":
        return LANE if state.target.simd > 1 else BLOCK
    if value.op in ("const", "param", "block", "grid"):
        return BLOCK
    if value.op == "get" and value.ref is not None:
        return state.variables[value.ref]
    if value.ref is not None and (value.ref.writable or value.ref.space == "local"):
        return LANE
    if value.op == "div" and value.args[0].op == "thread" and is_const(value.args[1]):
        whole_groups = int(value.args[1].attrs["value"]) % state.target.simd == 0
        return GROUP if whole_groups and state.target.simd > 1 else state.agreement[value.args[0]]
    where = BLOCK if value.ref is None else state.pointers.get(value.ref, BLOCK)
    return max((where, *(state.agreement[a] for a in value.args)))
