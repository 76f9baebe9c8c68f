"""Slices of features: where a dense operand that no cache holds is better packed a few features at a time.

Measured in docs/decisions/slices-of-wide-operands.md.
"""

from __future__ import annotations

from ..machine import last_level_cache_bytes
from ..problem import Problem, operands_of_kind

# Bytes of a row of a slice: two lines, which the processor fetches together. Slices of an operand, fewer of which save
# less than packing takes.
SLICE_ROW, FEWEST_SLICES = 128, 4
# Parts of the last-level cache that all slices side by side have to fill, and that one may take.
BEYOND, SLICE_SHARE = 2 / 3, 1 / 2
# How often each row has to be gathered for packing it to pay.
GATHERED_PAYS = 8


def slice_width(problem: Problem) -> int:
    """Features of a slice where slices can be held that whole rows cannot; 0 where they gain nothing."""
    _, gathered, _ = operands_of_kind(problem.kind)
    if not gathered or not may_slice(problem.cols, problem.row_bytes):
        return 0
    last = last_level_cache_bytes()
    if problem.nearby_bytes <= BEYOND * last or problem.cols * SLICE_ROW * gathered > SLICE_SHARE * last:
        return 0
    return SLICE_ROW // problem.itemsize


def pays_in_slices(problem: Problem) -> bool:
    """Whether rows are gathered so often that the rules slice them."""
    return problem.nnz >= GATHERED_PAYS * problem.cols


def may_slice(cols: int, row_bytes: int) -> bool:
    """Whether an operand of ``cols`` rows is wide and large enough, wherever its rows are gathered from."""
    return row_bytes >= FEWEST_SLICES * SLICE_ROW and cols * row_bytes > BEYOND * last_level_cache_bytes()
