"""How the rows of a graph are shared out on a CPU, and how far gathers run ahead, whatever the strategy.

Rules, each with a page in docs/decisions/ that has the measurement behind it; those of the strategies stand in a file
each beside this one:

- One thread where the work is less than a parallel region costs, which is more where threads sleep while they wait;
  else groups of rows of equal cost, taken dynamically.
  Work is counted as time goes: a non-zero takes an index and a vector of features, however few, and the end of a row
  is mispredicted.
- Gathers run ahead where the dense operand exceeds half of a core's own caches, near each other or not. With rows of
  one cache line, or of two where they are summed, the processor has enough under way by itself, unless they come from
  memory: where the operand exceeds what a call can count on of the last level, through which structure and results pass
  too. Half types take more instructions for as many bytes, which leaves fewer rows under way: all of these are fetched
  ahead but the narrowest.
- A message with sums over features waits for each gather, so that the processor looks fewer edges ahead: gathers run
  ahead as soon as the operand exceeds a quarter of a core's own caches.
- Where gradients are wanted, sums over features are kept for each edge, which gradients would gather rows for again:
  where edges come in the order of rows, or their numbers take a small part of the last-level cache.
- Edge maps reduce over no edges. Their gathers run ahead wherever the operand exceeds a core's own cache, but for rows
  so long that the processor fetches them ahead by itself, several side by side.
"""

from __future__ import annotations

from ...compiler.language.reduction import adds
from .. import machine
from ..problem import Problem
from ..words import about, size
from .prefetch_distance import distance

# Below this many multiply-adds a parallel region costs more than it saves: about 10 microseconds of one core where
# threads spin while they wait, and 30 to 50 where the system has to wake them. Below: multiply-adds that take as long
# as a non-zero at least, and as the loop around a row.
SERIAL_SPINNING, SERIAL_SLEEPING = 1 << 16, 1 << 20
WORK_OF_NONZERO, WORK_OF_ROW = 8, 32
# Groups per thread: enough that a slow core, or one heavy row, does not leave the others waiting. Multiply-adds of a
# group at least: a smaller one costs more than that saves.
GROUPS_PER_THREAD = 16
LEAST_GROUP = 1 << 13
# Bytes of a cache line, and to fetch ahead: half of a first-level cache.
LINE, BYTES_AHEAD = 64, 16 << 10
# Bytes from which rows are fetched ahead that the last-level cache may hold, where they are summed, and where they are
# compared, which is slower, so that the processor has fewer under way. That cache holds the shorter ones where they
# take at most one of ``HELD_PARTS`` parts of it.
SHORTEST_SUMMED, SHORTEST_CHOSEN, SHORTEST_HALF = 3 * LINE, 2 * LINE, LINE // 2
HELD_PARTS = 5
# Bytes to fetch ahead in an edge map: beside them the row operand has to stay in the first-level cache. Bytes of the
# longest row that is.
MAP_BYTES_AHEAD, LONGEST_AHEAD = 8 << 10, 1 << 10
# Sums of all edges that are kept for gradients take at most one of these parts of the last-level cache, where edges are
# in an order of their own: there are some four such arrays in a step, which are read and written at random.
KEPT_PARTS = 16


def groups_of(problem: Problem) -> int:
    """Row groups of a problem, by the rules."""
    return group_count(problem.nnz, problem.rows, problem.features, problem.threads)


def ahead_of(problem: Problem, partitions: int = 1) -> int:
    """How far gathers of a problem run ahead, by the rules; 0 where they do not."""
    if problem.waits:
        near = problem.row_bytes > LONGEST_AHEAD or problem.table_bytes <= waiting_bytes(problem)
        return 0 if near else distance(problem.row_bytes, MAP_BYTES_AHEAD)
    if slices_stay(problem.table_bytes, partitions):
        return 0
    short = problem.row_bytes < shortest_ahead(adds(problem.reduce), problem.itemsize)
    held = held_bytes() if short else machine.private_cache_bytes() // 2
    return distance(problem.row_bytes, BYTES_AHEAD) if problem.table_bytes > held else 0


def held_bytes() -> int:
    """Bytes of short rows that no call has fetched ahead: of half of a core's own caches, or of what the last level
    holds.
    """
    return max(machine.private_cache_bytes() // 2, machine.last_level_cache_bytes() // HELD_PARTS)


def waiting_bytes(problem: Problem) -> int:
    """Bytes of rows that no call has fetched ahead where messages wait for sums over features."""
    cache = machine.private_cache_bytes()
    return cache if problem.reduce == "map" else cache // 4


def keeps_sums(edge_bytes: int, in_order: bool) -> bool:
    """Whether a step keeps the sums over features that its messages read. edge_bytes: of such a sum, for all edges.
    in_order: whether edges come in the order of rows.
    """
    return in_order or edge_bytes <= machine.last_level_cache_bytes() // KEPT_PARTS


def shortest_ahead(summed: bool, itemsize: int) -> int:
    """Bytes of the shortest rows that are fetched ahead though the last-level cache may hold them."""
    return SHORTEST_HALF if itemsize < 4 else SHORTEST_SUMMED if summed else SHORTEST_CHOSEN


def slices_stay(table: int, partitions: int) -> bool:
    """Whether columns are cut, and a core's own cache keeps what a partition gathers from. table: bytes of the dense
    operand.
    """
    return partitions > 1 and table <= partitions * machine.private_cache_bytes()


def serial_work() -> int:
    """The multiply-adds from which other threads save more than starting them costs."""
    return SERIAL_SLEEPING if machine.threads_sleep() else SERIAL_SPINNING


def work_of(nnz: int, rows: int, width: int) -> int:
    """What a pass over ``nnz`` non-zeros in ``rows`` rows takes, in multiply-adds. width: those of a non-zero."""
    return nnz * max(width, WORK_OF_NONZERO) + rows * WORK_OF_ROW


def group_count(nnz: int, rows: int, width: int, threads: int) -> int:
    """Row groups of equal cost for a parallel loop over them, as many for each thread; 1 where one thread is
    fastest.
    """
    work = work_of(nnz, rows, width)
    if threads < 2 or work < serial_work():
        return 1
    shares = min(GROUPS_PER_THREAD, max(1, -(-work // (LEAST_GROUP * threads))))
    return min(shares * threads, max(rows, 1))


def why_shared(problem: Problem, groups: int) -> str:
    """Why rows are in one group, or several."""
    work = work_of(problem.nnz, problem.rows, problem.features)
    counted = (
        f"The work counts as about {about(work)} multiply-adds (a non-zero as {WORK_OF_NONZERO} at least, and a row "
        f"as {WORK_OF_ROW} more), "
    )
    if groups > 1:
        return (
            f"{counted}{serial_work():,} or more: the {problem.threads} threads share it, in {groups} groups of "
            "rows that cost about the same; whoever is done takes the next."
        )
    if problem.threads < 2:
        return "PyTorch has one thread here (torch.set_num_threads): it takes all rows."
    if work < serial_work():
        return f"{counted}fewer than {serial_work():,}, from which on other threads save more than starting them costs."
    return "There is one row, which one thread takes."


def why_ahead(problem: Problem, ahead: int, partitions: int) -> str:
    """Why gathers run so far ahead, or do not."""
    reduce, row = problem.reduce, problem.row_bytes
    table = f"The rows that edges gather have {row:,} bytes, about {size(problem.table_bytes, 2)} in all, "
    shortest = shortest_ahead(adds(reduce), problem.itemsize)
    if problem.waits:
        part = "" if reduce == "map" else "a quarter of "
        cache = f"{part}a core's own cache ({size(machine.private_cache_bytes())})"
    elif row >= shortest or held_bytes() <= machine.private_cache_bytes() // 2:
        cache = f"half of a core's own cache ({size(machine.private_cache_bytes())})"
    else:  # the processor has enough of them under way by itself
        cache = (
            f"1/{HELD_PARTS} of the last-level cache ({size(machine.last_level_cache_bytes())}), "
            f"what counts for rows of less than {shortest} bytes"
        )
    if ahead:
        return f"{table}more than {cache}: they are fetched {ahead} edges ahead."
    if problem.waits and row > LONGEST_AHEAD:
        return (
            f"{table}but rows of more than {LONGEST_AHEAD:,} bytes the processor fetches ahead by itself: "
            "nothing is fetched ahead."
        )
    if slices_stay(problem.table_bytes, partitions):
        cache = f"a core's own cache ({size(machine.private_cache_bytes())}) in each partition"
    return f"{table}no more than {cache}: nothing is fetched ahead."
