"""Sums of formats: a matrix in several formats at once, each non-zero in one of them."""
