"""scaled_grouped_gemm: rows of x in groups, each multiplied by its own matrix of a bank of weights.

    y[first + i, n] = alpha * sum over k of x[first + i, k] * w[g, n, k],  i < counts[g], first = offsets[g]

All operands block-scaled and tiled. Counts and offsets are int32 on the device and never read by the host: a
kernel before the main one writes what that reads about its groups to the workspace, whose size depends on the
number of groups alone. A group may be empty. It begins at a whole tile of x's scales: its offset is a
multiple of 128. A group that does not, or that does not lie in x, is taken as empty; rows of y in no group
are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..lower.cutlass import SYMBOL, Instantiation, collective_text, device_text, stub_text
from ..manifest.target import Target
from ..variants.family import Arg, Family, Instance, Launch, Operand, Scalar
from . import _scaled
from ._scaled import Scaling

HEADER, THREADS = "scaled_grouped.cuh", 128
SIZES = ("m", "experts", "n", "k")
ALPHA = Arg("alpha", "f32", "scalar")


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    return _scaled.refused(fmt)


SETUP = """
extern "C" __global__ void __launch_bounds__({threads}) {symbol}_groups({parameters})
{{
    const uint32_t g = blockIdx.x * blockDim.x + threadIdx.x;
    if (g < experts) {{
        const wootz::GroupInputs in{{{values}}};
        wootz::describe_group<wootz::of_{symbol}::Gemm>(in, workspace, int(g));
    }}
}}
"""


def setup(of: Scaling) -> tuple[Launch, str]:
    """The launch that writes what the main kernel reads about its groups, and its text: a thread a group."""
    scale = [("scale1", "const float*")] if of.globally else []
    tensors = [
        (f"{name}.{field}", kind)
        for name in ("x", "w")
        for field, kind in (("codes", "const char*"), ("tiles", "const char*"), *scale)
    ]
    arrays = [*tensors, ("counts", "const int32_t*"), ("offsets", "const int32_t*"), ("y", "char*")]
    sizes, last = [(name, "uint32_t") for name in SIZES], [("alpha", "float"), ("workspace", "char*")]
    names = {name: name.replace(".", "_") for name, _ in (*arrays, *sizes, *last)}
    parameters = [f"{kind} {names[name]}" for name, kind in (*arrays, *sizes, *last)]
    order = [f"{name}.{field}" for name in ("x", "w") for field in ("codes", "tiles", "scale1")]
    values = [names.get(name, "nullptr") for name in (*order, "counts", "offsets", "y")]
    values += [f"int({name})" for name in SIZES]
    text = SETUP.format(
        threads=THREADS, symbol=SYMBOL, parameters=", ".join(parameters), values=", ".join([*values, "alpha"])
    )
    args = (*_arrays(of), *_sizes(), ALPHA, Arg("workspace", "ptr", "workspace"))
    return Launch("groups", args, THREADS, (["ceildiv", "experts", THREADS], 1, 1)), text


def _arrays(of: Scaling) -> tuple[Arg, ...]:
    rows = (Arg("counts", "ptr", "in"), Arg("offsets", "ptr", "in"))
    return (*_scaled.tiled("x", of), *_scaled.tiled("w", of), *rows, Arg("y", "ptr", "out"))


def _sizes() -> tuple[Arg, ...]:
    return tuple(Arg(name, "u32", "shape") for name in SIZES)


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Instance]:
    of = _scaled.weights(fmt, "scaled_grouped_gemm")
    tile = _scaled.grouped_tile(target)
    config = _scaled.grouped(target, of, dtype, tile)
    instance = Instantiation(f"Grouped<{collective_text(config)}>", (HEADER,), "GroupedHost")
    before, text = setup(of)
    yield Instance(
        tile.suffix,
        (HEADER,),
        device_text(instance) + text,
        (*_arrays(of), *_sizes(), ALPHA),
        threads=1,
        grid=(1, 1, 1),
        when=(_scaled.whole_rows(dtype),),
        options=options,
        cluster=tile.cluster,
        gate=_scaled.gate(target, of, of),
        stub=stub_text(instance),
        prologue=(before,),
        spills=_scaled.grouped_spills(target),
    )


FAMILY = Family(
    (
        Operand("x", "tiled", ("m", "k")),
        Operand("w", "tiled", ("experts", "n", "k")),
        Operand("counts", "array", ("experts",), "i32"),
        Operand("offsets", "array", ("experts",), "i32"),
    ),
    Operand("y", "array", ("m", "n")),
    variants,
    limits=_scaled.LIMITS | {"experts": (1, 1 << 16)},
    needs=frozenset({"block_scale"}),
    scalars=(Scalar("alpha", "f32", 1.0),),
    accepts=accepts,
    partial=True,
)
