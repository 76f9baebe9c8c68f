"""The plan of an SpMM on one graph: how its rows are shared out, and how far gathers run ahead.

Rules, each with the measurement behind it in docs/performance.md:

- One thread where the work is less than a parallel region costs; else groups of rows of equal cost, taken dynamically.
- Prefetch where the dense operand does not fit half of the last-level cache, its rows are a few cache lines, and each is
  gathered a few times only. Elsewhere most gathers hit a cache, or the hardware streams along a long row by itself.
- Lanes where features are few and rows are long. Short rows are independent chains of additions already: the processor
  has several of them under way.
- Column partitions where each row of the dense operand is gathered many times, by rows that lie too far apart for a cache
  to keep it: as many as make the slice of a partition fit a share of the last-level cache, but not so many that the
  pieces of a row are as short as the loop around them.
- Long rows in parts where one row is more than a task's share of all non-zeros.
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
LANES_PAY = 128
# The last-level cache holds so many slices of partitions; a row keeps so many non-zeros in each on average.
SLICES = 8
PIECE = 6
MOST_PARTITIONS = 64
# A row with fewer non-zeros is never cut. Where one is cut, parts are this fraction of all non-zeros.
LONG_ROW = 1 << 14
PARTS = 64


def plan_spmm(rows: int, cols: int, nnz: int, features: int, itemsize: int, threads: int, longest: int = 0,
              reach: int | None = None) -> Plan:
    """The plan for a sparse matrix (rows, cols) with nnz non-zeros times a dense one (cols, features).

    itemsize: bytes of a value. longest: non-zeros of the longest row; 0 where it is not known, and rows stay whole.
    reach: columns that the non-zeros of a neighbourhood spread over; None where it is not known, and columns stay whole.
    """
    row = features * itemsize
    longest_part = part_length(nnz, longest)
    far = row <= SHORT_ROW and cols * row > last_level_cache_bytes() // 2 and nnz < REUSED * cols
    return Plan(
        group_count(nnz, rows, features, threads),
        PREFETCH_DISTANCE if far else 0,
        reduction="parallel" if features <= NARROW and nnz >= LANES_PAY * rows else "sequential",
        partitions=1 if reach is None or longest_part else partition_count(rows, nnz, reach * row),
        longest_part=longest_part,
    )


def partition_count(rows: int, nnz: int, table: int) -> int:
    """Column partitions, a power of two; 1 where they do not pay.

    table: bytes of the dense operand that are gathered from in a neighbourhood.
    """
    slices = -(-table * SLICES // last_level_cache_bytes())
    pieces = min(nnz // (PIECE * max(rows, 1)), MOST_PARTITIONS)
    if slices < 2 or pieces < 4:
        return 1
    return min(1 << (slices - 1).bit_length(), 1 << (pieces.bit_length() - 1))


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
