"""A CUTLASS configuration -> the text of its instance and of its host stub. Pure: data in, text out.

Both texts name the same types, so the parameter block that the stub fills is the one that the kernel reads.
They begin with `#include "x.cuh"` of the headers in cutlass/, which emission puts in their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from ..variants.family import Arg, Formula, Instance

SYMBOL = "$SYMBOL"
"""Where an entry's symbol goes."""

ELEMENTS = {
    "f16": "cutlass::half_t",
    "bf16": "cutlass::bfloat16_t",
    "f32": "float",
    "e4m3": "cutlass::float_e4m3_t",
    "e5m2": "cutlass::float_e5m2_t",
    "i8": "int8_t",
    "i32": "int32_t",
}
"""dtype -> its type in C++; a configuration may also spell a type out."""

BYTES = {"f16": 2, "bf16": 2, "f32": 4, "e4m3": 1, "e5m2": 1, "i8": 1, "i32": 4}

STUB_HEADER = "stub.hpp"
"""What a stub's text begins with, before any header of CUTLASS."""

_AUTO_MAIN = "cutlass::gemm::collective::KernelScheduleAuto"
_AUTO_EPILOGUE = "cutlass::epilogue::collective::EpilogueScheduleAuto"


@dataclass(frozen=True)
class Matrix:
    """One matrix of a configuration. element: a dtype, or C++; layout: C++; align: elements that its rows'
    addresses are a multiple of."""

    element: str
    align: int
    layout: str = "Row"

    def text(self) -> str:
        return f"Operand<{ELEMENTS.get(self.element, self.element)}, {self.layout}, {self.align}>"


@dataclass(frozen=True)
class Collective:
    """A GEMM of CUTLASS 3.x. generation: the number of its collectives (90, 100, 120). tile and cluster: M,
    N, K. Schedules, fusion and scheduler: C++, read inside namespace wootz; `preamble`: declarations before.
    """

    generation: int
    a: Matrix
    b: Matrix
    c: Matrix
    d: Matrix
    tile: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    accumulator: str = "f32"
    op: str = "OpClassTensorOp"
    main: str = _AUTO_MAIN
    epilogue: str = _AUTO_EPILOGUE
    fusion: str = ""
    scheduler: str = "cutlass::gemm::PersistentScheduler"
    preamble: str = ""


@dataclass(frozen=True)
class Instantiation:
    """A configuration with what its stub needs. headers: of cutlass/; host: a class template over the GEMM
    (and `host_arguments`) that turns a problem into CUTLASS' arguments."""

    gemm: Union[Collective, str]
    headers: tuple[str, ...]
    host: str
    host_arguments: tuple[Union[int, str], ...] = ()


def shape(numbers: tuple[int, int, int]) -> str:
    """A static CuTe shape."""
    return f"cute::Shape<{', '.join(f'cute::Int<{n}>' for n in numbers)}>"


def collective_text(config: Collective) -> str:
    """The GEMM's type."""
    c, d = (ELEMENTS.get(matrix.element, matrix.element) for matrix in (config.c, config.d))
    fusion = config.fusion or f"cutlass::epilogue::fusion::LinearCombination<{d}, float, {c}>"
    parts = [
        f"WOOTZ_GENERATION({config.generation})",
        f"cutlass::arch::{config.op}",
        *(matrix.text() for matrix in (config.a, config.b, config.c, config.d)),
        ELEMENTS.get(config.accumulator, config.accumulator),
        shape(config.tile),
        shape(config.cluster),
        config.main,
        config.epilogue,
        fusion,
        config.scheduler,
    ]
    return "Collective<\n    " + ",\n    ".join(parts) + ">"


def types_text(instance: Instantiation) -> str:
    """What the kernel and the stub have in common: namespace wootz::of_<symbol> with the type Gemm."""
    gemm = instance.gemm
    preamble = gemm.preamble if isinstance(gemm, Collective) else ""
    text = collective_text(gemm) if isinstance(gemm, Collective) else gemm
    return f"namespace wootz::of_{SYMBOL} {{\n{preamble}using Gemm = {text};\n}}\n"


def device_text(instance: Instantiation) -> str:
    """The instance's text, after the headers."""
    return f"{types_text(instance)}WOOTZ_ENTRY({SYMBOL}, wootz::of_{SYMBOL}::Gemm::Kernel)\n"


def stub_text(instance: Instantiation) -> str:
    """The stub's text, headers included."""
    includes = "".join(f'#include "{name}"\n' for name in (STUB_HEADER, *instance.headers))
    arguments = ", ".join(["Gemm", *map(str, instance.host_arguments)])
    host = f"namespace wootz::of_{SYMBOL} {{\nusing Host = {instance.host}<{arguments}>;\n}}\n"
    call = f"wootz::of_{SYMBOL}::Host"
    return (
        f"{includes}{types_text(instance)}{host}"
        f"WOOTZ_EXPORT int {SYMBOL}_query(const wootz_problem* problem, wootz_launch* launch) {{\n"
        f"  return wootz::query<{call}>(problem, launch);\n}}\n"
        f"WOOTZ_EXPORT int {SYMBOL}_fill(const wootz_problem* problem, void* params, wootz_memset set,\n"
        f"    void* context) {{\n"
        f"  return wootz::fill<{call}>(problem, params, set, context);\n}}\n"
    )


def instance(
    suffix: str,
    made: Instantiation,
    args: tuple[Arg, ...],
    when: tuple[Formula, ...],
    options: dict[str, str],
    gate: str,
) -> Instance:
    """The entry of a configuration, launched as its stub says. args: what the stub is given, in order."""
    return Instance(
        suffix, made.headers, device_text(made), args, 0, (1, 1, 1), when, options,
        gate=gate, stub=stub_text(made),
    )  # fmt: skip
