"""Entries that take tensor maps, as a CPU runs them: maps are made of arrays where the entry begins."""

from __future__ import annotations

from lanes import Arg

from gen.variants.family import Formula, Instance, TensorMap

BYTES = {"u8": 1, "e4m3": 1, "f16": 2, "bf16": 2, "f32": 4}
_INFIX = {"mul": "*", "add": "+", "div": "/", "sub": "-"}


def cpp(formula: Formula) -> str:
    """C++ of a formula of extents."""
    if not isinstance(formula, list):
        return f"uint64_t({formula})"
    name, a, b = formula[0], cpp(formula[1]), cpp(formula[2])
    if name == "ceildiv":
        return f"(({a} + {b} - 1) / {b})"
    return f"({a} {_INFIX[name]} {b})" if name in _INFIX else f"{name}({a}, {b})"


def from_arrays(instance: Instance, text: str) -> str:
    """The entry's text with an array, `<map>_of`, in place of each map."""
    for each in instance.maps:
        space = text[: text.index(f"::TensorMap {each.name},")].rpartition(" ")[2]
        old = f"const __grid_constant__ {space}::TensorMap {each.name},"
        text = text.replace(old, f"const void* __restrict__ {each.name}_of,")
        text = text.replace("\n{\n", f"\n{{\n{_made(each, space)}\n", 1)
    return text


def arguments_of(instance: Instance) -> tuple[Arg, ...]:
    """What the entry takes then."""
    of = {each.name: each.of for each in instance.maps}
    return tuple(
        Arg(of[a.name], "ptr", "in") if a.role == "map" else Arg(a.name, a.type, a.role)
        for a in instance.args
    )


def _made(each: TensorMap, space: str) -> str:
    """A map of the array, as the loader makes it."""
    dims = ", ".join([*map(cpp, each.dims), "1"][:3])
    box = ", ".join([*map(str, each.box), "1"][:3])
    strides = ", ".join(map(cpp, each.strides))
    how = f"{BYTES[each.dtype]}, {str(each.swizzle == 128).lower()}"
    values = f"{each.name}_of, {{{dims}}}, {{{strides}}}, {{{box}}}, {how}"
    return f"const {space}::TensorMap {each.name} = {{{values}}};"
