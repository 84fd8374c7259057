"""The functions that the DSL makes of a few (gen/ir/maths.py), as host C++ against float64: their bounds,
limits at infinity, NaN."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

from gen.ir import maths
from gen.ir.dsl import Builder, Val
from gen.ir.nodes import MATH

sys.path.insert(0, str(Path(__file__).resolve().parent))
import host

Array = Any
RNG = np.random.default_rng(5)
WIDE = np.concatenate(
    [RNG.uniform(-12, 12, 40000), RNG.standard_normal(20000) * 2.0 ** RNG.uniform(-30, 6, 20000)]
)
POSITIVE = np.abs(WIDE) + 1e-9


def _gelu_tanh(x: Array) -> Array:
    return x * special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


def _slope(x: Array) -> Array:
    """How much more a rounding of x counts in the tail of a bell."""
    return 1 + x * x


# name: (function, numbers, float64 function, bound in ulp of the result as a function of x)
COMPOSED: dict[str, tuple[Any, Any, Any, Any]] = {
    "tan": (maths.tan, WIDE, np.tan, 4.0),
    "expm1": (maths.expm1, WIDE, np.expm1, 4.0),
    "log1p": (maths.log1p, np.concatenate([POSITIVE, -1 + 2.0 ** RNG.uniform(-20, 0, 9000)]), np.log1p, 4.0),
    "erf": (maths.erf, WIDE, special.erf, 3.0),
    "erfc": (maths.erfc, np.abs(WIDE), special.erfc, 7.0),
    "sigmoid": (maths.sigmoid, WIDE, special.expit, 4.0),
    "silu": (maths.silu, WIDE, lambda x: x * special.expit(x), lambda x: 4 + np.abs(x)),
    "softplus": (maths.softplus, WIDE, lambda x: np.logaddexp(0, x), 5.0),
    "gelu": (maths.gelu, WIDE, lambda x: x * special.ndtr(x), lambda x: 8 * _slope(x)),
    "gelu_tanh": (maths.gelu_tanh, WIDE, _gelu_tanh, lambda x: 6 * (1 + np.abs(x) ** 3)),
}
NATIVE: dict[str, tuple[Any, Any, float]] = {
    "abs": (WIDE, np.abs, 0), "floor": (WIDE, np.floor, 0), "ceil": (WIDE, np.ceil, 0),
    "round": (np.concatenate([WIDE, np.arange(-9, 9) + 0.5]), np.round, 0), "trunc": (WIDE, np.trunc, 0),
    "sqrt": (POSITIVE, np.sqrt, 0.5), "rsqrt": (POSITIVE, lambda x: 1 / np.sqrt(x), 2),
    "exp": (WIDE, np.exp, 1), "exp2": (WIDE, np.exp2, 1), "log": (POSITIVE, np.log, 1),
    "log2": (POSITIVE, np.log2, 1), "sin": (WIDE, np.sin, 1), "cos": (WIDE, np.cos, 1),
    "tanh": (WIDE, np.tanh, 2.5),
}  # fmt: skip


def native(name: str) -> Callable[[Builder, Val], Val]:
    return lambda b, x: b.op(name, x)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Array], Array]:
    functions = {name: native(name) for name in MATH} | {name: row[0] for name, row in COMPOSED.items()}
    functions |= {"sign": maths.sign}

    def kernel(compute: Callable[[Builder, Val], Val]) -> Callable[[Builder], None]:
        def build(b: Builder) -> None:
            x, y = b.buffer("x", "f32"), b.buffer("y", "f32", "out")
            with b.loop(0, b.scalar("n")) as i:
                b.store(y, i, compute(b, b.load(x, i)))

        return build

    made = [host.function(f"k_{name}", kernel(compute)) for name, compute in functions.items()]
    library = host.Library(tmp_path_factory.mktemp("maths"), made)

    def call(name: str, x: Array) -> Array:
        x = np.ascontiguousarray(x, np.float32)
        y = np.full_like(x, np.nan)
        library.run(f"k_{name}", {"x": x, "y": y}, n=x.size)
        return y

    return call


def ulps(found: Array, wanted: Array) -> Array:
    """Errors in units of the last place of a float32 of the size of what is wanted."""
    size = np.maximum(np.abs(wanted), 2.0**-126)
    return np.abs(found - wanted) / 2.0 ** (np.floor(np.log2(size)) - 23)


@pytest.mark.parametrize("name", [*NATIVE, *COMPOSED])
def test_error(name: str, run: Callable[[str, Array], Array]) -> None:
    numbers, reference, most = NATIVE[name] if name in NATIVE else COMPOSED[name][1:]
    x = numbers.astype(np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        wanted = reference(x)
        found = run(name, x).astype(np.float64)
    normal = np.abs(wanted) < 3e38
    error = ulps(found, wanted)[normal]
    limit = (most(x) if callable(most) else np.full_like(x, most))[normal]
    worst = int(np.argmax(error / np.maximum(limit, 1e-9)))
    assert (error <= limit).all(), f"{name}({x[normal][worst]}): {error[worst]} ulp"


ENDS = {
    "tan": (0.0, np.nan, np.nan), "expm1": (0.0, -1.0, np.inf), "log1p": (0.0, np.nan, np.inf),
    "erf": (0.0, -1.0, 1.0), "sigmoid": (0.5, 0.0, 1.0), "silu": (0.0, 0.0, np.inf),
    "softplus": (float(np.float32(np.log(2))), 0.0, np.inf), "gelu": (0.0, 0.0, np.inf),
    "gelu_tanh": (0.0, 0.0, np.inf), "sign": (0.0, -1.0, 1.0), "tanh": (0.0, -1.0, 1.0),
    "exp": (1.0, 0.0, np.inf), "log": (-np.inf, np.nan, np.inf), "rsqrt": (np.inf, np.nan, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_limits(name: str, run: Callable[[str, Array], Array]) -> None:
    """At 0, -inf and inf; far out, where they must have saturated; NaN stays NaN."""
    found = run(name, np.array([0.0, -np.inf, np.inf, np.nan]))
    np.testing.assert_array_equal(found, [*ENDS[name], np.nan])
    if np.isfinite(ENDS[name][1]):
        assert (run(name, np.array([-300.0, -3e38])) == ENDS[name][1]).all()


def test_small_numbers_are_kept(run: Callable[[str, Array], Array]) -> None:
    """Where a function is x near 0, subnormal x comes back bit for bit, and -0 where that costs nothing."""
    x = np.array([2.0**-140, -(2.0**-130), 2.0**-60, -0.0], np.float32)
    for name in ("expm1", "log1p", "tan", "tanh"):
        assert (run(name, x) == x).all(), name
    assert np.signbit(run("sign", x)).tolist() == [False, True, False, True]
    for name in ("log1p", "tan", "tanh", "erf"):
        assert np.signbit(run(name, x)).tolist() == [False, True, False, True], name
