"""Sums of formats: a matrix in several formats at once, each non-zero in one of them."""

from . import builtin as _builtin  # noqa: F401  (puts the formats of this package into the table)
