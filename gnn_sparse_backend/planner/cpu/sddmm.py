"""The plan of an edge map on one graph: how its rows are shared out, and how far gathers run ahead.

Nothing is reduced over edges, so there are no lanes, partitions or parts of rows to choose. Gathers run ahead wherever
the operand exceeds a core's own cache, but for rows so long that the processor fetches them ahead by itself, several
side by side.
"""

from __future__ import annotations

from ..machine import private_cache_bytes
from ..plan import Plan
from ..problem import Problem
from .prefetch_distance import distance
from .spmm import group_count

# Bytes to fetch ahead. Beside them the row operand has to stay in the first-level cache.
BYTES_AHEAD = 8 << 10
LONGEST_AHEAD = 1 << 10


def plan_sddmm(problem: Problem) -> Plan:
    """The plan of an edge map by the rules."""
    row = problem.row_bytes
    near = row > LONGEST_AHEAD or problem.table_bytes <= private_cache_bytes()
    groups = group_count(problem.nnz, problem.rows, problem.features, problem.threads)
    return Plan(groups, 0 if near else distance(row, BYTES_AHEAD))
