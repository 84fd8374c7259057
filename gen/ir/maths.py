"""Functions of one f32 that some language lacks, made of those that all have (`ir.MATH`): the same on every
target, so that their bounds hold wherever those of exp, log, sin, cos and tanh do (4, 4, 4, 4 and 5 ulp).

NaN goes through all of them. Infinities give limits: no 0 * inf, no inf / inf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, log, pi, sqrt

from .dsl import Builder, Val

Function = Callable[[Builder, Val], Val]

# Least largest error over the ranges given, in the Chebyshev sense; fitted to float64 values.
_EXPM1 = (
    0.166666672,
    0.041666735,
    0.00833327789,
    0.00138853234,
    0.000198492868,
    2.53667822e-05,
    2.74639433e-06,
)
"""(e^x - 1 - x - x^2 / 2) / x^3 for |x| <= 1."""
_ERF = (1.12837911, -0.376123250, 0.112801798, -0.0267113112, 0.00491755130, -0.000563142239)
"""erf(x) / x in x^2 for |x| <= 1."""
_ERFC = (
    0.282086045, 0.282381922, 0.243055776, 0.202876061, -0.0270713102, 0.278712094, -0.487762064, 0.284845769,
    -0.0591243356,
)  # fmt: skip
"""erfc(a) e^(a^2) / t in t = 1 / (1 + a / 2) for 0 <= a."""
_TAIL = (0.13977842, 0.136762455, 0.143952876, 0.00660233153, 0.214377075, -0.186699837, 0.0452267416)
"""The normal distribution up to -a, times e^(a^2 / 2) / t, in t = 1 / (1 + 0.35 a) for 0 <= a <= 14.5; errors
weighed by 1 / (1 + a^2)."""

_FAR = 200.0
"""Beyond -200 what these functions multiply by is 0 in f32; kept within it, -inf gives no 0 * inf."""


def polynomial(b: Builder, x: Val, coefficients: Sequence[float]) -> Val:
    """The sum of coefficients[i] * x^i, by fused multiply-adds."""
    total = b.const(coefficients[-1], "f32")
    for coefficient in reversed(coefficients[:-1]):
        total = b.fma(total, x, coefficient)
    return total


def absolute(b: Builder, x: Val) -> Val:
    return b.op("abs", x)


def sign(b: Builder, x: Val) -> Val:
    """-1, 0 or 1; zeros and NaN are themselves."""
    one = b.select(x > 0.0, b.const(1.0, "f32"), b.const(-1.0, "f32"))
    return b.select(absolute(b, x) > 0.0, one, x)


def negative(b: Builder, x: Val) -> Val:
    return b.op("neg", x)


def copy_sign(magnitude: Val, x: Val) -> Val:
    """The sign bit of x before a number that is not negative."""
    return (magnitude.bitcast("u32") | (x.bitcast("u32") & 0x80000000)).bitcast("f32")


def reciprocal(b: Builder, x: Val) -> Val:
    return b.const(1.0, "f32") / x


def tan(b: Builder, x: Val) -> Val:
    return b.op("sin", x) / b.op("cos", x)


def power(b: Builder, x: Val) -> Val:
    """e^x in fewer operations than exp takes; a rounding of x more, which counts |x| times."""
    if b.fast:
        return b.exp(x)
    return b.op("exp2", x * (1.0 / log(2)))


def expm1(b: Builder, x: Val) -> Val:
    """e^x - 1; within 2 ulp where |x| <= 1, else twice exp's bound."""
    square = x * x
    near = b.fma(square, b.fma(x, polynomial(b, x, _EXPM1), 0.5), x)
    return b.select(absolute(b, x) <= 1.0, near, b.op("exp", x) - 1.0)


def log1p(b: Builder, x: Val) -> Val:
    """log(1 + x), the rounding of 1 + x made good; twice log's bound."""
    y = x + 1.0
    same = y.eq(1.0) | y.eq(inf)
    return b.select(same, x, b.op("log", y) * (x / (y - 1.0)))


def erfc(b: Builder, a: Val) -> Val:
    """1 - erf(a) for a >= 0, relative error within 4 ulp beyond exp's; 0 from about 10 on."""
    a = b.minimum(a, 16.0)
    t = b.quotient(1.0, b.fma(a, 0.5, 1.0))
    square = a * a
    rest = b.fma(a, a, negative(b, square))  # what the square lost
    power = b.exp(negative(b, square))
    return b.fma(power, negative(b, rest), power) * (t * polynomial(b, t, _ERFC))


def erf(b: Builder, x: Val) -> Val:
    """Within 3 ulp."""
    a = absolute(b, x)
    near = x * polynomial(b, x * x, _ERF)
    far = copy_sign(b.const(1.0, "f32") - erfc(b, a), x)
    return b.select(a < 1.0, near, far)


def sigmoid(b: Builder, x: Val) -> Val:
    """1 / (1 + e^-x), from the power that does not overflow."""
    power = b.exp(negative(b, absolute(b, x)))
    return b.quotient(b.select(x < 0.0, power, b.const(1.0, "f32")), power + 1.0)


def relu(b: Builder, x: Val) -> Val:
    return b.maximum(x, 0.0)


def silu(b: Builder, x: Val) -> Val:
    """x * sigmoid(x)."""
    return b.maximum(x, -_FAR) * sigmoid(b, x)


def gelu(b: Builder, x: Val) -> Val:
    """x times the normal distribution up to x; no cancellation where x is negative. A rounding of x counts
    1 + x^2 times in the tail, and so may those of the exponent and of t."""
    a = absolute(b, x)
    a = b.select(a > _FAR, _FAR, a)
    bell = b.op("exp2", a * a * (-0.5 / log(2)))
    root = b.fma(a, 0.35, 1.0)
    t = b.op("rsqrt", root * root)  # cheaper than a division
    tail = bell * (a * t)
    return b.fma(negative(b, tail), polynomial(b, t, _TAIL), b.select(x > 0.0, x, 0.0))


def gelu_tanh(b: Builder, x: Val) -> Val:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), by a sigmoid of twice the angle."""
    cubic = b.fma(x * x, 0.044715, 1.0)
    return b.maximum(x, -_FAR) * sigmoid(b, x * cubic * (2.0 * sqrt(2.0 / pi)))


def softplus(b: Builder, x: Val) -> Val:
    """log(1 + e^x)."""
    return relu(b, x) + log1p(b, b.op("exp", negative(b, absolute(b, x))))
