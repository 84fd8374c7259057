"""Direct convolution: the numbers of a call, and the variants that its kernels share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..ir.dsl import Builder
from ..manifest.target import Target
from ..variants.family import Formula, Operand, Scalar, Variant
from ._conv_block import AXES, Problem, Work
from ._conv_weights import Tile


def taps(axis: str) -> str:
    return f"kernel_{axis}"


def _extent(axis: str) -> Formula:
    """(d + 2 padding - dilation (kernel - 1) - 1) // stride + 1."""
    padded = ["add", axis, ["mul", 2, f"padding_{axis}"]]
    reach = ["add", ["mul", f"dilation_{axis}", ["sub", taps(axis), 1]], 1]
    return ["add", ["div", ["sub", padded, reach], f"stride_{axis}"], 1]


def product(*factors: Formula) -> Formula:
    """Of two or more."""
    first, *rest = factors
    return ["mul", first, product(*rest) if len(rest) > 1 else rest[0]]


CHANNELS: Formula = ["div", "c", "groups"]
FIELD = product(CHANNELS, *map(taps, AXES))
"""Numbers of a receptive field."""
EXTENTS: dict[str, Formula] = {
    **{f"out_{axis}": _extent(axis) for axis in AXES},
    "field": FIELD,
    "group": product(CHANNELS, *AXES),
    "positions": product(*map(_extent, AXES)),
}
SCALARS = (
    *(Scalar(f"stride_{axis}", "u32", 1) for axis in AXES),
    *(Scalar(f"padding_{axis}", "u32", 0) for axis in AXES),
    *(Scalar(f"dilation_{axis}", "u32", 1) for axis in AXES),
    Scalar("groups", "u32", 1),
)
MOST = 2**31 - 1
LIMITS = {
    "b": (0, MOST),
    **dict.fromkeys(("c", "o", *AXES, "field", "positions", "groups"), (1, MOST)),
    **{f"{name}_{axis}": (1, MOST) for name in ("kernel", "stride", "dilation", "out") for axis in AXES},
    **{f"padding_{axis}": (0, 2**30) for axis in AXES},
    "group": (1, 2**32 - 1),
}
"""A sample's numbers of a group are counted in 32 bits; samples and groups are not."""
X = Operand("x", "array", ("b", "c", *AXES))
BIAS = Operand("bias", "array", ("o",), optional=True)
Y = Operand("y", "array", ("b", "o", *(f"out_{axis}" for axis in AXES)))
OMISSIBLE = tuple(name for axis in AXES[:-1] for name in (axis, taps(axis), f"out_{axis}"))
EVEN: tuple[Formula, ...] = (["eq", ["mod", "c", "groups"], 0], ["eq", ["mod", "o", "groups"], 0])


def declare(b: Builder, taps_role: str) -> Problem:
    """The arguments of a convolution. taps_role: "shape" where an operand has the kernel's extents as axes,
    "scalar" where the call says them."""
    c, o = b.scalar("c"), b.scalar("o")
    groups = b.scalar("groups", role="scalar")
    size, kernel = [b.scalar(axis) for axis in AXES], [b.scalar(taps(axis), role=taps_role) for axis in AXES]
    out = [b.scalar(f"out_{axis}") for axis in AXES]
    stride, padding, dilation = (
        [b.scalar(f"{name}_{axis}", role="scalar") for axis in AXES]
        for name in ("stride", "padding", "dilation")
    )
    return Problem(c, o, groups, size, kernel, out, stride, padding, dilation)


# ------------------------------------------------------------ variants
DEPTHWISE: Formula = ["eq", "o", "groups"]
SMALL: Formula = ["le", "positions", 1024]


def tiles(target: Target, depthwise: bool) -> Iterator[Tile]:
    """The first whose conditions hold is taken."""
    threads, each = (128, 4) if target.simd > 1 else (1, 64)
    if depthwise:
        yield Tile("depthwise", threads, 1, each, (DEPTHWISE,))
    if threads > 1:
        yield Tile("small", 64, 16, 1, (SMALL,), 8)
    yield Tile("", threads, 16, each, resident=3 if threads > 1 else 0)


def _grid(tile: Tile, groups: Formula) -> Formula:
    rows: Formula = ["ceildiv", ["div", "o", groups], tile.rows]
    return product("b", groups, rows, ["ceildiv", "positions", tile.threads * tile.each])


def variants_of(
    operands: Callable[[Builder, Tile], Work],
    target: Target,
    options: dict[str, str],
    groups: Formula = "groups",
    even: tuple[Formula, ...] = EVEN,
) -> Iterable[Variant]:
    """operands: declares the arguments, and gives a block's work."""
    for tile in tiles(target, groups == "groups"):
        grid = _grid(tile, groups)
        when = (*even, ["lt", grid, 2**31], *tile.when)

        def build(b: Builder, tile: Tile = tile) -> None:
            b.function.min_blocks = tile.resident
            operands(b, tile).run()

        yield Variant(tile.suffix, tile.threads, (grid, 1, 1), build, when, options)
