"""grouped_qmm: y[first + i, n] = sum over k of x[first + i, k] * w[g, n, k] for i < counts[g], where first is
offsets[g].

Groups may be empty and lie in any order. A group that does not lie in x is taken as empty; rows of y in no
group are left alone. Groups that overlap are not for this kernel."""

from ._grouped import family
from ._groups import VARIABLE

FAMILY = family(VARIABLE, "grouped_qmm")
