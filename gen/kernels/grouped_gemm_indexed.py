"""grouped_gemm_indexed: y[g, i, n] = sum over k of x[g, i, k] * w[indices[g], n, k]. Groups as in
grouped_qmm_indexed."""

from ._grouped_dense import family
from ._groups import INDEXED

FAMILY = family(INDEXED, "grouped_gemm_indexed", ("f16", "bf16"))
