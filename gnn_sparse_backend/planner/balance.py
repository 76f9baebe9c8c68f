"""How the rows of a graph are shared out to threads."""

from __future__ import annotations

# Below this many multiply-adds a parallel region costs more than it saves (about 10 microseconds of one core).
SERIAL_WORK = 1 << 16
# Groups per thread: enough that a slow core, or one heavy row, does not leave the others waiting.
GROUPS_PER_THREAD = 16


def group_count(num_edges: int, num_rows: int, width: int, threads: int) -> int:
    """Row groups of equal cost for a parallel loop over them; 1 where one thread is fastest."""
    work = num_edges * width + num_rows
    if threads < 2 or work < SERIAL_WORK:
        return 1
    return min(GROUPS_PER_THREAD * threads, max(threads, work // (SERIAL_WORK // 2)), max(num_rows, 1))
