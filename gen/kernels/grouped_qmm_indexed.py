"""grouped_qmm_indexed: y[g, i, n] = sum over k of x[g, i, k] * w[indices[g], n, k].

Every group has the same number of rows; indices may repeat. An index that the bank does not have leaves the
rows of its group alone."""

from ._grouped import family
from ._groups import INDEXED

FAMILY = family(INDEXED, "grouped_qmm_indexed")
