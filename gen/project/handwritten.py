"""A hand-written kernel -> its Family, and the text and entries of its units.

The text of a unit is the project's file, with the project's headers in it and `#line` before each part, so
that compilers name the file and line that a person wrote. In C++ and CUDA an assertion follows it: that each
function's parameters are of the declared types; but pointers to fields of tensors, and on GPUs all pointers,
may be to any elements. On the CPU the declared call is last: the entry, which calls the function once a
block with the declared arguments and, behind them, the block's x, y and z.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from ..formats.axes import Format
from ..manifest.reader import KernelSpec, choices
from ..manifest.target import Target
from ..plan.name import symbol
from ..variants.family import Arg, Family, Operand, Scalar, Variant
from . import parameters
from .own import Own, ProjectError, Source, Written
from .parameters import Parameter

FIELD = ""
"""The C type of a tensor's field: any pointer, as the function has it."""
_C = {
    "f16": "uint16_t", "bf16": "uint16_t", "f32": "float", "i8": "int8_t", "u8": "uint8_t", "bool": "uint8_t",
    "e4m3": "uint8_t", "e5m2": "uint8_t", "i32": "int32_t", "u32": "uint32_t", "u64": "uint64_t",
}  # fmt: skip
"""C types of elements and numbers on the CPU; floats that C++ lacks as their bits."""
_ANY_POINTER = """struct wootz_field {
    void* address;
    template <class T> operator T*() const { return static_cast<T*>(address); }
};
"""


@dataclass(frozen=True)
class Launched:
    """One entry point: its symbol in the artifact, and what the index says of it."""

    symbol: str
    dtype: str
    options: dict[str, str]
    args: tuple[Arg, ...]
    source: Source


Options = tuple[tuple[str, tuple[str, ...]], ...]


@cache
def family(own: Own, kernel: str, options: Options) -> Family:
    """As `declared`, once."""
    assert own.written is not None
    return declared(own.written, kernel, options)


def declared(written: Written, kernel: str, options: Options) -> Family:
    """What the manifest says of a hand-written kernel. It has no variants: `unit` gives its entries."""
    body = written.body
    (output,) = (_operand(name, each) for name, each in body["output"].items())
    alias = body.get("alias", False)

    def accepts(fmt: Format | None, dtype: str, target: Target, chosen: dict[str, str]) -> str | None:
        if target.backend in written.sources:
            return None
        return f"{kernel} has a source for {', '.join(written.sources)}, none for {target.backend}"

    return Family(
        tuple(_operand(name, each) for name, each in body["operands"].items()),
        output,
        _no_variants,
        {name: (low, high) for name, (low, high) in body.get("limits", {}).items()},
        tuple(alias) if isinstance(alias, list) else alias,
        body.get("flat", False),
        dict(options),
        scalars=tuple(_scalar(name, each) for name, each in body.get("scalars", {}).items()),
        accepts=accepts,
        extents=dict(body.get("extents", {})),
    )


def _no_variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> list[Variant]:
    return []


def _operand(name: str, body: Mapping[str, Any]) -> Operand:
    flags = {key: body.get(key, False) for key in ("optional", "updated")}
    kind, dtype = body.get("kind", "array"), body.get("dtype", "")
    return Operand(name, kind, tuple(body["shape"]), dtype, **flags)


def _scalar(name: str, body: Mapping[str, Any]) -> Scalar:
    return Scalar(name, body["type"], body.get("default", 0), tuple(body.get("choices", ())))


def entries(
    kernel: KernelSpec, written: Written, fmt: Format | None, target: Target, dtypes: tuple[str, ...]
) -> Iterator[Launched]:
    """The entry points of a unit, in the order of cells."""
    source = written.sources[target.backend]
    args = tuple(Arg(*each) for each in source.args)
    for dtype, chosen in product(dtypes, choices(kernel.options, kernel.knobs)):
        named = spelt(source.symbol, kernel, fmt.name if fmt else "", dtype, chosen)
        if target.backend == "cpu":
            named = symbol(kernel.name, chosen, fmt.name if fmt else None, dtype)
        yield Launched(named, dtype, chosen, args, source)


def spelt(pattern: str, kernel: KernelSpec, fmt: str, dtype: str, options: Mapping[str, str]) -> str:
    """A symbol. ProjectError for a pattern that names what is not there."""
    try:
        return pattern.format(kernel=kernel.name, dtype=dtype, format=fmt, **options)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        known = ", ".join(f"{{{n}}}" for n in ("kernel", "dtype", "format", *options))
        raise ProjectError(f"symbol {pattern!r}: cannot be filled in: {error}; known: {known}") from error


def unit(
    kernel: KernelSpec, written: Written, fmt: Format | None, target: Target, dtypes: tuple[str, ...]
) -> tuple[str, tuple[Launched, ...]]:
    """The text of a unit, and its entries. ProjectError for an argument that a tensor of the format lacks."""
    _check_fields(kernel, written, fmt, target)
    made = tuple(entries(kernel, written, fmt, target, dtypes))
    text = written.sources[target.backend].text
    if target.backend == "cpu":
        text += "\n".join(["", '#line 1 "the declared calls"', "#include <cstdint>", _ANY_POINTER, ""])
        text += parameters.ANSWERS
        text += "\n".join(_entry(kernel, written, fmt, each) for each in made)
    elif target.backend == "cuda":
        text += "\n".join(["", '#line 1 "the declared parameters"', parameters.ANSWERS])
        text += "\n".join(_launch(each) for each in made)
    return text, made


def _launch(launched: Launched) -> str:
    """What is asserted of a function that a GPU is launched with."""
    types = {"ptr": parameters.POINTER, "u32": "unsigned", "u64": parameters.U64, "f32": "float"}
    taken = [Parameter(arg.name, types[arg.type]) for arg in launched.args]
    return parameters.asserted(launched.source.file, launched.symbol, taken) + "\n"


def _check_fields(kernel: KernelSpec, written: Written, fmt: Format | None, target: Target) -> None:
    """Fields in the natural layout: the others' are the hardware's."""
    body, source = written.body, written.sources[target.backend]
    kinds = {n: each.get("kind", "array") for n, each in {**body["operands"], **body["output"]}.items()}
    fields = [field.name for field in fmt.layout.fields] if fmt else []
    for name, _, _ in source.args:
        base, _, part = name.partition(".")
        if part and kinds[base] == "quantised" and part not in fields:
            known = ", ".join(f"{base}.{field}" for field in fields)
            raise ProjectError(
                f"{source.file}: args has {name}; of format {fmt and fmt.name} there are {known}"
            )


def _entry(kernel: KernelSpec, written: Written, fmt: Format | None, launched: Launched) -> str:
    """The loader's interface to a function, as csrc/cpu.hpp has it."""
    own = kernel.own
    assert own is not None
    made = family(own, kernel.name, tuple(kernel.options.items()))
    dtypes = {o.name: o.dtype or launched.dtype for o in (*made.operands, made.output)}
    called = spelt(launched.source.symbol, kernel, fmt.name if fmt else "", launched.dtype, launched.options)
    passed = [f"        {_argument(i, arg, dtypes)}," for i, arg in enumerate(launched.args)]
    taken = [Parameter(arg.name, _type(arg, dtypes)) for arg in launched.args]
    return "\n".join(
        [
            f'#line 1 "the declared call of {called}"',
            parameters.asserted(
                launched.source.file, called, [*taken, Parameter("block", "const uint32_t*")]
            ),
            'extern "C" __attribute__((visibility("default"))) void',
            f"{launched.symbol}(void* const* args, const uint32_t* grid, uint32_t begin, uint32_t end)",
            "{",
            "    for (uint32_t linear = begin; linear < end; ++linear) {",
            "        const uint32_t block[3] = {linear % grid[0], linear / grid[0] % grid[1],",
            "                                   linear / grid[0] / grid[1]};",
            f"        {called}(",
            *passed,
            "            block);",
            "    }",
            "}",
            "",
        ]
    )


def _type(arg: Arg, dtypes: Mapping[str, str]) -> str:
    """The C type of a parameter; of a pointer whose elements are not declared, any."""
    if arg.type != "ptr":
        return _C[arg.type]
    dtype = dtypes.get(arg.name, FIELD)
    written = arg.role in ("out", "workspace")
    return f"{'' if written else 'const '}{_C[dtype]}*" if dtype else parameters.POINTER


def _argument(index: int, arg: Arg, dtypes: Mapping[str, str]) -> str:
    if arg.type != "ptr":
        return f"    *static_cast<const {_C[arg.type]}*>(args[{index}])"
    pointer = _type(arg, dtypes)
    if pointer == parameters.POINTER:
        return f"    wootz_field{{*static_cast<void* const*>(args[{index}])}}"
    return f"    *static_cast<{pointer} const*>(args[{index}])"
