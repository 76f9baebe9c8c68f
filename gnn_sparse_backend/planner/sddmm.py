"""The plan of an edge map on one graph: how its rows are shared out, and how far gathers run ahead.

The rules are those of an SpMM (``spmm.py``): the column operand is gathered in the same way. Nothing is reduced over edges,
so there are no lanes, partitions or parts of rows to choose.
"""

from __future__ import annotations

from dataclasses import replace

from .plan import Plan
from .spmm import plan_spmm


def plan_sddmm(rows: int, cols: int, nnz: int, features: int, itemsize: int, threads: int) -> Plan:
    """The plan for messages of ``features`` values, summed or not, at nnz edges of a graph of shape (rows, cols)."""
    return replace(plan_spmm(rows, cols, nnz, features, itemsize, threads), reduction="sequential")


__all__ = ["plan_sddmm"]
