"""grouped_gemm_fp8_indexed: as grouped_gemm_indexed, e4m3, sums times
scale_x of the row and scale_w[matrix, n]."""

from ._grouped_dense import family
from ._groups import INDEXED

FAMILY = family(INDEXED, "grouped_gemm_fp8_indexed", ("e4m3",))
