"""The plan of an edge map on one graph: how its rows are shared out, and how far gathers run ahead.

Nothing is reduced over edges, so there are no lanes, partitions or parts of rows to choose. Unlike those of an SpMM,
gathers run ahead wherever the operand exceeds a core's own cache: a dot product ends in a chain of dependent additions,
behind which the processor looks fewer edges ahead by itself. (Measured in docs/performance.md.)
"""

from __future__ import annotations

from .machine import private_cache_bytes
from .plan import Plan
from .spmm import group_count

# Bytes that are fetched ahead at most, and edges.
BYTES_AHEAD = 8 << 10
EDGES_AHEAD = 16


def plan_sddmm(rows: int, cols: int, nnz: int, features: int, itemsize: int, threads: int) -> Plan:
    """The plan for messages of ``features`` values, summed or not, at nnz edges of a graph of shape (rows, cols)."""
    row = features * itemsize
    distance = max(2, min(EDGES_AHEAD, BYTES_AHEAD // max(row, 1)))
    return Plan(group_count(nnz, rows, features, threads), distance if cols * row > private_cache_bytes() else 0)


__all__ = ["plan_sddmm"]
