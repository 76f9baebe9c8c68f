"""The plan of an edge map on one graph: how its rows are shared out, and how far gathers run ahead.

Nothing is reduced over edges, so there are no lanes, partitions or parts of rows to choose. Gathers run ahead wherever
the operand exceeds a core's own cache, but for rows so long that the processor fetches them ahead by itself, several
side by side.
"""

from __future__ import annotations

from ..machine import private_cache_bytes
from ..plan import Plan
from .prefetch_distance import distance
from .spmm import group_count

# Bytes to fetch ahead. Beside them the row operand has to stay in the first-level cache.
BYTES_AHEAD = 8 << 10
LONGEST_AHEAD = 1 << 10


def plan_sddmm(rows: int, cols: int, nnz: int, features: int, itemsize: int, threads: int) -> Plan:
    """The plan for messages of ``features`` values, summed or not, at nnz edges of a graph of shape (rows, cols)."""
    row = features * itemsize
    ahead = distance(row, BYTES_AHEAD) if row <= LONGEST_AHEAD and cols * row > private_cache_bytes() else 0
    return Plan(group_count(nnz, rows, features, threads), ahead)
