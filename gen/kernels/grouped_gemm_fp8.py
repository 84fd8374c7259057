"""grouped_gemm_fp8: as grouped_gemm, e4m3, sums times
scale_x of the row and scale_w[matrix, n]."""

from ._grouped_dense import family
from ._groups import VARIABLE

FAMILY = family(VARIABLE, "grouped_gemm_fp8", ("e4m3",))
