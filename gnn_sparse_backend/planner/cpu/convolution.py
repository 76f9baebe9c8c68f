"""Rules for sparse convolution on a CPU: the block of sums, the dataflow, and what threads share.

A *dataflow* is the order in which pairs, terms and columns of one product are visited:

- ``offsets`` (weight-stationary): offset after offset over a range of rows, whose sums wait in the first-level cache.
  A block of an offset has any rows that meet it; a sum is loaded and stored again for each of its pairs.
- ``rows`` (output-stationary): the sums of a block of rows stay in registers for all of their offsets. Rows of a block
  meet the same offsets, so that none is multiplied by zeros: blocks are full where few sets of offsets occur, as in
  transposed and pointwise convolutions. With one row in a block (``row``) any map will do, but every term of it loads a
  row of a matrix.
- ``rgms``: the panels of `gnn_sparse_backend.planner.cpu.relational`, with blocks as narrow as a group's channels are.

What measured the constants, and how far predictions hold, is in docs/decisions/sparse-convolution-dataflows.md.
"""

from __future__ import annotations

from ...compiler.codegen import Target
from ...frozen import dataclass
from .products import ROW_VECTORS
from .relational import order_costs
from .spmm import serial_work

ORDERS = ("offsets", "rows", "row", "rgms")
# Rows of a block of sums by the vectors of a row: with a row of the matrix and one factor they fill the registers.
BLOCK = {False: {2: 6, 1: 8}, True: {2: 8, 1: 8}}
# Rows of a smaller block, and what one takes of its multiply-adds: its sums are too few for additions not to wait.
SMALL, SMALL_COST = 4, 1.15
# Rows of a task whose sums of a tile, one vector of 64 bytes wide, fill the first-level cache (32 KiB).
MOST_ROWS = 512
# Multiply-adds of one lane that take as long as: loading and storing a sum again; finding the rows of a pair and
# visiting it, for each tile; storing a sum at last; a multiply-add that is all alone with its row of the matrix.
ADD_COST, PAIR_COST, STORE_COST, ALONE = 2.0, 30.0, 2.0, 1.6
# Factors of the cost of multiply-adds: in a block that is one vector wide, and in the panels of RGMS.
NARROW, PANELS = 1.15, 1.1
# Tasks for each thread, whose costs are alike; and rows that a range has at least before columns are shared out.
TASKS_PER_THREAD, FEWEST_ROWS = 2, 64
# Elements of the rows of a chunk of a sum of outer products, on either side, which stay in the second-level cache, and
# pairs of one at most.
CHUNK_ELEMENTS, LONGEST_CHUNK = 1 << 15, 128
# Multiply-adds and pairs of a share of a sum at least: adding a matrix to another takes as long as some 20 pairs.
# Shares at most, fewer where their matrices would have more elements than that together, but as many as a few threads
# want.
SHARE_WORK, SHARE_PAIRS = 1 << 21, 256
MOST_SHARES, SHARE_ELEMENTS, SHARES = 64, 1 << 18, 8
# Elements of a line of the cache.
LINE = 16


@dataclass(frozen=True)
class ConvCounts:
    """What of a map decides: rows, offsets, pairs; pairs of its blocks by offsets, those filled up included; blocks of
    rows with the same offsets, and pairs that these have.
    """

    rows: int
    offsets: int
    pairs: int
    padded: int
    row_blocks: int
    row_padded: int


def vectors_of(out_features: int, lanes: int, choices: tuple[int, ...] = (2, 1)) -> int:
    """Vectors of a tile, so that tiles cover a group's columns with the least arithmetic; the more, the fewer tiles."""
    return min(choices, key=lambda v: (-(-out_features // (v * lanes)) * v * (NARROW if v == 1 else 1.0), -v))


def block_of(vectors: int, target: Target) -> int:
    """Rows of a block of sums."""
    return BLOCK[target.registers > 16][vectors]


def sum_block_of(in_features: int, block: int) -> int:
    """Rows of a block of sums of outer products, which have ``in_features`` rows: ``block``, or `SMALL` where the last
    block would be too empty."""
    small = SMALL * SMALL_COST * -(-in_features // SMALL)
    return SMALL if small < block * -(-in_features // block) else block


def conv_costs(
    counts: ConvCounts, groups: int, in_features: int, out_features: int, lanes: int, itemsize: int
) -> dict[str, float]:
    """Multiply-adds that each dataflow takes as long as. Features are those of one group."""
    found = {}
    for order, blocks, padded, choices in (
        ("offsets", counts.padded, counts.padded, (2, 1)),
        ("rows", counts.row_blocks, counts.row_padded, (2, 1)),
        ("row", counts.rows, counts.pairs, ROW_VECTORS),
    ):
        vectors = vectors_of(out_features, lanes, choices)
        tiles = -(-out_features // (vectors * lanes))
        columns = tiles * vectors * lanes
        slow = ALONE if order == "row" else NARROW if vectors == 1 else 1.0
        cost = padded * (in_features * columns * slow + PAIR_COST * tiles)
        if order == "offsets":
            cost += padded * ADD_COST * columns + counts.rows * STORE_COST * columns
        else:
            cost += blocks * STORE_COST * columns
        found[order] = groups * cost
    by_panels, _ = order_costs(counts.pairs, counts.pairs, counts.pairs, in_features, out_features, groups, itemsize)
    found["rgms"] = PANELS * by_panels + groups * counts.pairs * PAIR_COST * -(-out_features // (2 * lanes))
    return found


def shares_of_tasks(rows: int, tiles: int, work: int, threads: int) -> tuple[int, int]:
    """(ranges of rows, ranges of column tiles) that tasks are for. Sums do not depend on them.

    Columns are shared out where rows are few: every range of rows reads the matrices of all offsets.
    """
    # ranges of equal cost may have twice as many rows as on average, and one
    ranges = max(1, -(-2 * rows // (MOST_ROWS - 2)))
    if threads < 2 or work < serial_work():
        return ranges, 1
    ranges = -(-ranges // threads) * threads
    wanted = TASKS_PER_THREAD * threads
    if ranges < wanted and rows >= wanted * FEWEST_ROWS:
        ranges = wanted
    if rows < ranges * FEWEST_ROWS:
        ranges = max(1, rows // FEWEST_ROWS)
    return ranges, min(tiles, max(1, -(-threads // ranges)))


def is_parallel(work: int, threads: int) -> bool:
    """Whether several threads are fastest for ``work`` multiply-adds."""
    return threads > 1 and work >= serial_work()


def chunk_of(width: int) -> tuple[int, int]:
    """(pairs of a chunk, row stride in elements) for rows of ``width`` elements; the stride is an odd number of cache
    lines. 0 pairs: rows are too wide."""
    stride = (-(-width // LINE) | 1) * LINE
    return min(LONGEST_CHUNK, CHUNK_ELEMENTS // stride), stride


def shares_of_sum(pairs: int, matrix: int) -> int:
    """Shares of a sum of outer products in matrices of ``matrix`` elements, alike for any number of threads: the order
    of additions depends on them. Each may end in a matrix of its own.
    """
    most = min(MOST_SHARES, max(SHARES, SHARE_ELEMENTS // matrix))
    return max(1, min(most, pairs // SHARE_PAIRS, pairs * matrix // SHARE_WORK))


def splits_of_sum(shares: int, tiles: int, work: int, threads: int) -> int:
    """Ranges of column tiles that tasks of a share are for, so that there are some for each thread. Sums do not depend
    on them."""
    if not is_parallel(work, threads) or shares % threads == 0:
        return 1
    return min(tiles, -(-TASKS_PER_THREAD * threads // shares))
