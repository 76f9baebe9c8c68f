"""Plans and kernels of relational gather-matmul-scatter.

The three orders of one product, with P distinct (row, relation) pairs and Q distinct (column, relation) pairs among E
edges (counts decide; SparseTIR, section 4.4 has the fused one):

- ``fused``: sums of a panel of row pairs, multiplied where they are, added to the rows. P products, E gathers of F_in.
- ``transform``: the rows of X of all column pairs multiplied first, then E gathers of F_out. Q products, stored.
- ``aggregate``: as ``fused``, but with the sums of all P pairs, and their products, stored.

Rules, whose constants are estimates that no benchmark has confirmed yet:

- ``transform`` where it costs less by a margin: it stores Q x F_out. Never ``aggregate``, which is there to compare with.
- Tasks of a product are ranges of rows that stay in the second-level cache, and enough for the threads to share; but so
  few that a relation has some panels of pairs in each.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from ..compiler.compile import compile_program
from ..compiler.kernels.kernel import Kernel
from ..compiler.programs.operands import ACCUMULATOR
from ..compiler.programs.rgms import RgmsSpec, rgms_product, rgms_sum
from ..compiler.schedule.cpu import CpuSchedule, Prefetch
from ..compiler.target import Target, host_target
from ..compiler.transform.tile import tile_axis
from .grouped import column_tile
from .spmm import GROUPS_PER_THREAD, SERIAL_WORK

ORDERS = ("fused", "transform", "aggregate")

_BYTES = {"float64": 8, "float32": 4}
# Rows of the block of accumulators.
BLOCK_ROWS = 4
# Bytes of the sums of a panel, and pairs of one at most: they stay in the first-level cache beside a tile of the matrix.
PANEL_BYTES = 8 << 10
LONGEST_PANEL = 16
# Edges that the gathers of a panel run ahead: sums of a pair are short, so rows of the next pairs are on their way too.
GATHER_AHEAD = 16
# Bytes of the rows that a task adds to: they stay in the second-level cache while the relations take turns.
ROW_BYTES = 256 << 10
# Vectors that a sum over the edges of a pair holds at a time.
PIECE_VECTORS = 8
# Multiply-adds that take as long as fetching one byte of a gathered row.
FETCH_COST = 1.5
# What storing a product costs beside: written, and read from memory again.
STORE_COST = 3.0
# How much cheaper ``transform`` must be.
MARGIN = 0.8
# Parts that the pairs of all relations are cut into for a sum of outer products: alike for any number of threads.
PARTS = 64


@dataclass(frozen=True)
class RelationCounts:
    """What of a structure decides: rows, edges, distinct pairs of a row, and of a column, with a relation."""

    rows: int
    edges: int
    row_pairs: int
    column_pairs: int


def order_of(counts: RelationCounts, in_features: int, out_features: int, blocks: int, itemsize: int) -> str:
    """The order of a product; features are those of one block on the diagonal."""
    product = in_features * out_features * blocks
    gather = FETCH_COST * itemsize * blocks
    fused = counts.row_pairs * product + counts.edges * in_features * gather
    stored = counts.column_pairs * (product + STORE_COST * out_features * gather)
    transform = stored + counts.edges * out_features * gather
    return "transform" if transform < MARGIN * fused else "fused"


def sum_by_columns(counts: RelationCounts, wide_in: int, wide_out: int) -> bool:
    """Whether a sum of outer products adds up G over column pairs, and not X over row pairs."""
    # of each pair one row is added up and one is read
    by_rows = counts.row_pairs * (wide_in * wide_out + wide_out) + counts.edges * wide_in
    by_columns = counts.column_pairs * (wide_in * wide_out + wide_in) + counts.edges * wide_out
    return by_columns < by_rows


def basis_first(counts: RelationCounts, relations: int, bases: int, in_features: int, out_features: int) -> bool:
    """Whether x is summed once for each basis, so that no matrix of a relation is made."""
    made = relations * bases * in_features * out_features + counts.row_pairs * in_features * out_features
    made += counts.edges * in_features
    return counts.edges * bases * in_features + counts.rows * bases * in_features * out_features < MARGIN * made


def panel_pairs(features: int, itemsize: int) -> int:
    """Pairs of a panel at most, of rows of so many features in the accumulation type."""
    fit = PANEL_BYTES // max(1, features * itemsize) // BLOCK_ROWS * BLOCK_ROWS
    return max(BLOCK_ROWS, min(LONGEST_PANEL, fit))


def row_task_count(counts: RelationCounts, relations: int, wide_in: int, wide_out: int, threads: int) -> int:
    """Tasks of a product from rows of ``wide_in`` to rows of ``wide_out`` features; 1 where one thread is fastest."""
    work = counts.row_pairs * wide_in * wide_out + counts.edges * wide_in
    if work < SERIAL_WORK:
        return 1
    fewest = 1 if threads < 2 else 2 * threads
    wanted = max(fewest * GROUPS_PER_THREAD // 4, -(-counts.rows * wide_out * 4 // ROW_BYTES))
    # a panel that a task cuts off is half empty: at least four full blocks of a relation for each cut
    filled = counts.row_pairs // max(1, 4 * BLOCK_ROWS * min(relations, counts.row_pairs))
    return max(fewest, min(wanted, filled))


def part_limit(counts: RelationCounts, pairs: int, cost_per_pair: float) -> float:
    """The cost, in edges, from which a relation is shared by several tasks of a sum."""
    return max(4096.0, (counts.edges + pairs * cost_per_pair) / PARTS)


def cost_per_pair(in_features: int, out_features: int, itemsize: int) -> float:
    """What the product of a pair costs, in edges."""
    return 1 + out_features / (FETCH_COST * itemsize)


def column_tile_of(out_features: int, dtype: str) -> int:
    """Columns of a tile of a matrix on this machine."""
    target = host_target()
    return column_tile(out_features, _lanes(dtype, target), target)


def _lanes(dtype: str, target: Target) -> int:
    return max(1, target.vector_bytes // _BYTES[ACCUMULATOR[dtype]])


@functools.lru_cache(maxsize=None)
def rgms_kernel(make: str, spec: RgmsSpec, parallel: bool, prefetch: int = GATHER_AHEAD) -> Kernel:
    """The kernel of ``product`` or ``sum``; the tiles are chosen here. prefetch: edges that gathers run ahead, 0 for none."""
    target = host_target()
    lanes = _lanes(spec.dtype, target)
    spec = replace(spec, tile=column_tile_of(spec.out_features, spec.dtype), rows=BLOCK_ROWS, piece=PIECE_VECTORS * lanes)
    program = {"product": rgms_product, "sum": rgms_sum}[make](spec)
    for axis in program.axes:
        if axis.name in _COLUMNS:
            full, rest = divmod(axis.length, lanes)
            program = tile_axis(program, axis.name, ((lanes,) * full + ((rest,) if rest else ()),))
    return compile_program(program, CpuSchedule(parallel=parallel, prefetch=_ahead(spec, prefetch)), target)


def _ahead(spec: RgmsSpec, distance: int) -> tuple[Prefetch, ...]:
    """The first pass over the edges of a pair fetches whole rows of X for edges further on, of whatever pair."""
    return (Prefetch("edges_tile_0", "X", 0, spec.wide_in, distance),) if distance else ()


# axes of the columns of tiles, in both programs
_COLUMNS = ("S", "U", "K", "L", "O", "E")
