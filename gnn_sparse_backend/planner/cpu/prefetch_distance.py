"""How far gathers of rows run ahead of the arithmetic.

A row is fetched by prefetch instructions, one for each of its cache lines, some non-zeros before it is needed. What
counts is the bytes under way: enough to cover the latency of the next cache level, and few enough to be there still
when their turn comes. Measured in docs/decisions/prefetching-gathers.md.
"""

from __future__ import annotations

MOST, FEWEST = 16, 2


def distance(row: int, under_way: int) -> int:
    """Non-zeros to run ahead, for rows of ``row`` bytes each and ``under_way`` bytes in flight."""
    return max(FEWEST, min(MOST, under_way // max(row, 1)))
