"""grouped_gemm_paired: y[first + i, n] = activation(x w^T) * (x v^T), i < counts[g], first = offsets[g].

Groups as in grouped_qmm; w and v are banks of x's type, and one launch takes both."""

from ._grouped_dense import family
from ._groups import PAIRED_VARIABLE

FAMILY = family(PAIRED_VARIABLE, "grouped_gemm_paired", ("f16", "bf16"))
