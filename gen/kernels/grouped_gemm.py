"""grouped_gemm: y[first + i, n] = sum over k of x[first + i, k] * w[g, n, k] for i < counts[g], where first
is offsets[g]. Groups as in grouped_qmm."""

from ._grouped_dense import family
from ._groups import VARIABLE

FAMILY = family(VARIABLE, "grouped_gemm", ("f16", "bf16"))
