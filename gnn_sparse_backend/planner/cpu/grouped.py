"""Rules for grouped matrix products and sums: rows of a panel and of a chunk, and parts of a parallel loop."""

from __future__ import annotations

from ...compiler.codegen import Target, host_target
from .spmm import GROUPS_PER_THREAD, SERIAL_SPINNING, serial_work
from .tiling import product_rows

# Rows of a panel, and the relative time for a row in one.
PANEL_COST = {5: 0.9, 4: 1.0, 2: 1.3, 1: 1.8}
# Rows of a matrix that a sum accumulates at a time.
SUM_BLOCK = 4
# A chunk of rows that all blocks of a sum read should stay in the first-level cache.
CHUNK_BYTES = 32 << 10
SHORTEST_CHUNK, LONGEST_CHUNK = 32, 1024


def panel_heights(target: Target | None = None) -> list[int]:
    """Rows that a panel may have, by default on this machine."""
    return [rows for rows in PANEL_COST if rows <= product_rows(target or host_target())]


def panel_rows(counts: dict[int, int]) -> int:
    """Rows of a panel, where ``counts`` says how many panels of each height the relations make."""
    return min(counts, key=lambda rows: rows * counts[rows] * PANEL_COST[rows])


def block_rows(rows: int, target: Target) -> int:
    """Rows that are multiplied at a time, of a matrix with ``rows`` rows."""
    return panel_rows({height: -(-rows // height) for height in panel_heights(target)})


def chunk_rows(out_features: int, itemsize: int) -> int:
    """Rows that a sum runs through for all blocks of a matrix before it goes on."""
    return max(SHORTEST_CHUNK, min(LONGEST_CHUNK, CHUNK_BYTES // max(1, out_features * itemsize)))


def parts(work: int, threads: int) -> int:
    """Parts of a parallel loop over ``work`` multiply-adds; 1 where one thread is fastest."""
    if threads < 2 or work < serial_work():
        return 1
    return min(GROUPS_PER_THREAD * threads, max(threads, work // (SERIAL_SPINNING // 2)))
