"""The plan of an SpMM on one graph: how its rows are shared out, and how far gathers run ahead.

Rules, each with the measurement behind it in docs/performance.md:

- One thread where the work is less than a parallel region costs; else groups of rows of equal cost, taken dynamically.
- Prefetch where the dense operand does not fit half of the last-level cache, its rows are a few cache lines, and each is
  gathered a few times only. Elsewhere most gathers hit a cache, or the hardware streams along a long row by itself.
"""

from __future__ import annotations

from .machine import last_level_cache_bytes
from .plan import Plan

# Below this many multiply-adds a parallel region costs more than it saves (about 10 microseconds of one core).
SERIAL_WORK = 1 << 16
# Groups per thread: enough that a slow core, or one heavy row, does not leave the others waiting.
GROUPS_PER_THREAD = 16
# Non-zeros to look ahead: a gather from memory takes about as long as so many from the cache.
PREFETCH_DISTANCE = 8
# Widest row worth a prefetch, in bytes.
SHORT_ROW = 256
# Gathers per row of the dense operand from which most of them hit a cache.
REUSED = 16
# Widest row of features whose sums are cut into lanes, and the mean non-zeros of a row from which that pays.
NARROW = 8
LANES_PAY = 16
# A row with fewer non-zeros is never cut. Where one is cut, parts are this fraction of all non-zeros.
LONG_ROW = 1 << 14
PARTS = 64


def plan_spmm(rows: int, cols: int, nnz: int, features: int, itemsize: int, threads: int, longest: int = 0) -> Plan:
    """The plan for a sparse matrix (rows, cols) with nnz non-zeros times a dense one (cols, features).

    itemsize: bytes of a value. longest: non-zeros of the longest row; 0 where it is not known, and rows stay whole.
    """
    row = features * itemsize
    far = row <= SHORT_ROW and cols * row > last_level_cache_bytes() // 2 and nnz < REUSED * cols
    return Plan(
        group_count(nnz, rows, features, threads),
        PREFETCH_DISTANCE if far else 0,
        reduction="parallel" if features <= NARROW and nnz >= LANES_PAY * rows else "sequential",
        longest_part=part_length(nnz, longest),
    )


def part_length(nnz: int, longest: int) -> int:
    """How long the parts of long rows are; 0 where no row is worth cutting. The same for any number of threads."""
    share = nnz // PARTS
    return max(share, LONG_ROW // PARTS) if longest >= LONG_ROW and longest > 2 * share else 0


def group_count(nnz: int, rows: int, width: int, threads: int) -> int:
    """Row groups of equal cost for a parallel loop over them; 1 where one thread is fastest."""
    work = nnz * width + rows
    if threads < 2 or work < SERIAL_WORK:
        return 1
    return min(GROUPS_PER_THREAD * threads, max(threads, work // (SERIAL_WORK // 2)), max(rows, 1))
