"""grouped_gemm_fp8_paired: grouped_gemm_paired of e4m3, with a scale for each row of x, of w and of v."""

from ._grouped_dense import family
from ._groups import PAIRED_VARIABLE

FAMILY = family(PAIRED_VARIABLE, "grouped_gemm_fp8_paired", ("e4m3",))
