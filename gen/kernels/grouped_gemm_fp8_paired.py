"""grouped_gemm_fp8_paired: grouped_gemm_paired of e4m3, with a scale for each row of x, of w and of v."""

from ._grouped import PAIRED_VARIABLE
from ._grouped_dense import family

FAMILY = family(PAIRED_VARIABLE, "grouped_gemm_fp8_paired", ("e4m3",))
