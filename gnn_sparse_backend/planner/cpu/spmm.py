"""The plan of an SpMM on one graph: how its rows are shared out, and how far gathers run ahead.

Rules, each with a page in docs/decisions/ that has the measurement behind it:

- One thread where the work is less than a parallel region costs, which is more where threads sleep while they wait;
  else groups of rows of equal cost, taken dynamically.
  Work is counted as time goes: a non-zero takes an index and a vector of features, however few, and the end of a row
  is mispredicted.
- Gathers run ahead where the dense operand exceeds half of a core's own caches, near each other or not. With rows of
  one cache line, or of two where they are summed, the processor has enough under way by itself, unless they come from
  memory: where the operand exceeds what a call can count on of the last level, through which structure and results pass
  too. Half types take more instructions for as many bytes, which leaves fewer rows under way: all of these are fetched
  ahead but the narrowest.
- Lanes where features are few, in whole vectors, and most non-zeros stand in rows of some tens of them. Short rows are
  independent chains of additions already: the processor has several of them under way. A step of a maximum waits longer
  than one of a sum, so that there lanes pay with more features.
- Scattered sums where features are few and rows have a handful of non-zeros, where the end of each row is mispredicted.
  A long row is one chain of additions in memory, twice as slow as in a register: not where such rows have a good part
  of the non-zeros.
- Column partitions where each row of the dense operand is gathered many times, by rows that lie too far apart for a
  cache to keep it: as many as make the slice of a partition fit a share of the last-level cache, or of a core's own
  where the last level is a whole socket's, but not so many that the pieces of a row are as short as the loop around
  them.
- Rows in the order of their lengths, within windows, where they have a few features and at most some tens of non-zeros:
  the end of each is then where the processor expects it. A structure that is used once is left as it is.
- Slices of the features, packed one after the other, where rows are wide, each is gathered often, and no cache holds
  what a neighbourhood gathers but one holds a slice of all (`slices`); no partitions then.
- Long rows in parts where one of them would keep a thread busy that has sixteen beside it.
"""

from __future__ import annotations

from ...compiler.language.reduction import adds
from .. import machine
from ..machine import last_level_cache_bytes, private_cache_bytes
from ..plan import Plan
from ..problem import Problem, operands_of_kind
from .prefetch_distance import distance
from .slices import SLICE_ROW, pays_in_slices, slice_width

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
# Widest row of features that is narrow. Widths that are cut into lanes, and those of sums and of maxima without an
# operand at the edges: code for vectors of other widths takes up to twice as long. The non-zeros of the row of a
# typical non-zero, or of its piece in a partition, from which that pays.
NARROW = 8
IN_LANES, SUMMED_IN_LANES, CHOSEN_IN_LANES = (1, 4, 8), (1, 2, 4, 8), (1, 4, 8, 16, 32)
LANES_PAY = 24
# Most non-zeros of a mean row whose sums are scattered, and fewest of a graph: the row of each non-zero is kept for it.
SCATTERED_PAYS = 6
FEWEST_SCATTERED = 1 << 15
# Where one row has a 32nd of all non-zeros, there are others, and sums are not scattered.
LONGEST_SCATTERED = 32
# Slices of partitions that the last-level cache holds, and non-zeros that a row keeps in each on average. A last level
# of more bytes is a whole socket's, far from its cores and shared with others: there a slice is half of the second
# level.
SLICES = 8
SOCKET = 128 << 20
# Where slices are so small, an operand at the edges, read out of order, costs more than fewer of them save.
FEWEST_WITH_EDGES = 17
PIECE = 6
MOST_PARTITIONS = 64
# Consecutive rows that are put in the order of their lengths, and calls on a structure from which that is done.
# Non-zeros from which it pays, most of a mean row, and features of the widest; the last two where an operand at the
# edges is then read by the numbers of the edges, out of order, and these do not stay in a core's own cache.
ORDER_WINDOW, USED_AGAIN = 2048, 8
FEWEST_ORDERED, ORDERED_PAYS, WIDEST_ORDERED = 1 << 15, 64, 16
ORDERED_WITH_EDGES, WIDEST_WITH_EDGES, NUMBER_BYTES = 8, 2, 4
# A row with fewer non-zeros is never cut. Where one holds a sixteenth of all, parts are a 64th.
LONG_ROW = 1 << 14
PARTS = 64
UNBALANCED = PARTS // 16


def plan_spmm(problem: Problem) -> Plan:
    """The plan of an aggregation by the rules. Scattered sums are for sums and means alone, and not for half types."""
    reduce, gathered, at_edges = operands_of_kind(problem.kind)
    rows, nnz, features, longest = problem.rows, problem.nnz, problem.features, problem.longest
    summed, edges = adds(reduce), at_edges > 0
    longest_part = part_length(nnz, longest)
    partitions = 1
    if gathered and not longest_part:
        if pays_in_slices(problem) and (width := slice_width(problem)):
            return sliced_plan(problem, width)
        partitions = partition_count(rows, nnz, problem.reach * problem.row_bytes, edges)
    one_pass = partitions == 1 and not longest_part
    reduction = "sequential"
    if summed and features <= NARROW and problem.itemsize >= 4 and one_pass and pays_scattered(rows, nnz, longest):
        reduction = "scattered"
    elif (
        fits_lanes(features, summed, edges, problem.itemsize)
        and (problem.typical or nnz // max(rows, 1)) >= LANES_PAY * partitions
    ):
        reduction = "simd"
    ahead = 0
    if not slices_stay(problem.table_bytes, partitions):
        shortest = shortest_ahead(summed, problem.itemsize)
        ahead = prefetch_distance(problem.row_bytes, problem.table_bytes, shortest)
    groups = group_count(nnz, rows, features, problem.threads)
    return Plan(groups, ahead, reduction=reduction, partitions=partitions, longest_part=longest_part)


def sliced_plan(problem: Problem, width: int) -> Plan:
    """The plan by slices of ``width`` features, whose rows are fetched ahead: they come from the last level."""
    groups = group_count(problem.nnz, problem.rows, problem.features, problem.threads)
    return Plan(groups, distance(SLICE_ROW, BYTES_AHEAD), sliced=width)


def fits_lanes(features: int, summed: bool, edges: bool, itemsize: int = 4) -> bool:
    """Whether rows of ``features`` features may be taken in lanes. summed: it is a sum or a mean. edges: there is an
    operand at the edges, which partitions do not read in order. itemsize: bytes of a feature.
    """
    if edges or (itemsize < 4 and features > NARROW):  # half types are taken two features at a time then
        return features in IN_LANES
    return features in (SUMMED_IN_LANES if summed else CHOSEN_IN_LANES)


def prefetch_distance(row: int, table: int, shortest: int) -> int:
    """How far gathers of rows of ``row`` bytes run ahead; 0 where they do not. table: bytes of the dense operand."""
    held = held_bytes() if row < shortest else private_cache_bytes() // 2
    return distance(row, BYTES_AHEAD) if table > held else 0


def held_bytes() -> int:
    """Bytes of short rows that no call has fetched ahead: of half of a core's own caches, or of what the last level
    holds.
    """
    return max(private_cache_bytes() // 2, last_level_cache_bytes() // HELD_PARTS)


def shortest_ahead(summed: bool, itemsize: int) -> int:
    """Bytes of the shortest rows that are fetched ahead though the last-level cache may hold them."""
    return SHORTEST_HALF if itemsize < 4 else SHORTEST_SUMMED if summed else SHORTEST_CHOSEN


def partition_count(rows: int, nnz: int, table: int, edges: bool = False) -> int:
    """Column partitions, a power of two; 1 where they do not pay.

    table: bytes of the dense operand that are gathered from in a neighbourhood. edges: as in `fits_lanes`.
    """
    slices = -(-table // slice_bytes())
    pieces = min(nnz // (PIECE * max(rows, 1)), MOST_PARTITIONS)
    fewest = FEWEST_WITH_EDGES if edges and last_level_is_far() else 2
    if slices < fewest or pieces < 4:
        return 1
    return min(1 << (slices - 1).bit_length(), 1 << (pieces.bit_length() - 1))


def slice_bytes() -> int:
    """Bytes of the dense operand that a partition is to gather from at most."""
    return private_cache_bytes() // 2 if last_level_is_far() else last_level_cache_bytes() // SLICES


def last_level_is_far() -> bool:
    """Whether the last-level cache is a whole socket's."""
    return last_level_cache_bytes() > SOCKET


def slices_stay(table: int, partitions: int) -> bool:
    """Whether columns are cut, and a core's own cache keeps what a partition gathers from. table: bytes of the dense
    operand.
    """
    return partitions > 1 and table <= partitions * private_cache_bytes()


def pays_scattered(rows: int, nnz: int, longest: int) -> bool:
    """Whether rows are so short that the ends of most of them cost more than additions in memory. longest: non-zeros
    of the longest row, 0 where it is not known.
    """
    return FEWEST_SCATTERED <= nnz <= SCATTERED_PAYS * rows and longest * LONGEST_SCATTERED <= nnz


def part_length(nnz: int, longest: int) -> int:
    """How long the parts of long rows are, for any number of threads; 0 where no row is worth cutting."""
    share = nnz // PARTS
    return max(share, LONG_ROW // PARTS) if longest >= LONG_ROW and longest > UNBALANCED * share else 0


def pays_in_order(rows: int, nnz: int, features: int, edges: bool) -> bool:
    """Whether the ends of rows cost enough that rows are better taken in the order of their lengths. edges: as in
    `fits_lanes`.
    """
    longest, widest = ORDERED_PAYS, WIDEST_ORDERED
    if edges and NUMBER_BYTES * nnz > private_cache_bytes():
        # instead of additions in memory, or of rows as they stand
        longest, widest = ORDERED_WITH_EDGES, NARROW if nnz <= SCATTERED_PAYS * rows else WIDEST_WITH_EDGES
    return FEWEST_ORDERED <= nnz <= longest * rows and features <= widest


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
