"""grouped_qmm_paired: y[first + i, n] = activation(x w^T) * (x v^T), i < counts[g], first = offsets[g].

Groups as in grouped_qmm; w and v are banks of the same format, and one launch takes both."""

from ._grouped import family
from ._groups import PAIRED_VARIABLE

FAMILY = family(PAIRED_VARIABLE, "grouped_qmm_paired")
