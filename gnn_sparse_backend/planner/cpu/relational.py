"""Rules for relational gather-matmul-scatter (RGMS): in which order the products of each relation are made.

An edge's product can be made in two orders, by the distinct (row, relation) or the distinct (column, relation) pairs of
the edges (counts decide; SparseTIR, section 4.4 has the first):

- ``gather``: the rows of X of a row's pair are summed, and the sum multiplied. A product for each row pair.
- ``scatter``: the row of X of a column's pair is multiplied, and the product added to the rows. One for each column
  pair.

Neither stores a sum or a product beyond a panel in the first-level cache. The choice is made for each relation, and in
each task (a range of rows), by the cost of either. ``transform`` and ``aggregate`` are the same orders as libraries
have them, for all relations and with the products of all pairs stored; rules never choose them, a search may.

Tasks of a product are ranges of rows that stay near, and enough for the threads to share; but so few that a relation
has some panels of pairs in each. What confirms the constants, and how far, is in
docs/decisions/rgms-order-per-relation.md.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from ...compiler.codegen import host_target
from ...compiler.language.types import BYTES
from ...frozen import dataclass
from .products import BY_RULES, RelationalPlan
from .spmm import serial_work
from .tiling import product_rows

Count = TypeVar("Count", float, np.ndarray)
"""A number of pairs or edges, or an array of such numbers."""
ORDERS = ("gather", "scatter", "transform", "aggregate")
# Bytes of the sums of a panel, and pairs of one at most: they stay in the first-level cache beside a tile of the
# matrix.
PANEL_BYTES = 8 << 10
LONGEST_PANEL = 16
# Bytes of a block on the diagonal of a matrix up to which it is read as it is, and no copy is made: half of a
# first-level cache, where the rows of a tile find place however far apart they are (not measured).
WHOLE_BYTES = 16 << 10
# Bytes of the rows that a task adds to: they stay near while the relations take turns. The fewer tasks, the fewer
# products are made again for edges of another task.
ROW_BYTES = 1 << 20
# Tasks of a product that is worth several threads.
FEWEST_TASKS = 8
# Multiply-adds that take as long as fetching one byte of a gathered row.
FETCH_COST = 1.0
# Multiply-adds that take as long as adding to one byte of a row of the result, which is read and written.
ADD_COST = 2.0
# How much cheaper than the row pairs' the column pairs' order must be (not measured).
MARGIN = 0.9
# Bytes of the matrices of relations that are made of bases at a time. Each time is a pass over the rows of the result,
# so it is not the size of a cache; a graph of few relations goes in one.
MATRIX_BYTES = 8 << 20
# Sampled batches may differ in work by this factor: kernels for either side of a limit that is so near are made at
# once.
NEAR = 8
# Parts that the pairs of all relations are cut into for a sum of outer products: alike for any number of threads.
PARTS = 64


@dataclass(frozen=True)
class RelationCounts:
    """What of a structure decides: rows, edges, distinct pairs of a row, and of a column, with a relation."""

    rows: int
    edges: int
    row_pairs: int
    column_pairs: int


def order_costs(
    row_pairs: Count, column_pairs: Count, edges: Count, in_features: int, out_features: int, blocks: int, itemsize: int
) -> tuple[Count, Count]:
    """Costs of ``gather`` and ``scatter``, in multiply-adds, for these numbers of pairs and edges, which may be arrays.

    Features are those of one block on the diagonal.
    """
    product = in_features * out_features * blocks
    fetch, add = FETCH_COST * itemsize * in_features * blocks, ADD_COST * itemsize * out_features * blocks
    return row_pairs * (product + add) + edges * fetch, column_pairs * (product + fetch) + edges * add


def by_column(*counts_and_widths: Any) -> Any:
    """Whether column pairs are cheaper, by `order_costs` of the same."""
    gather, scatter = order_costs(*counts_and_widths)
    return scatter < MARGIN * gather


def sum_by_columns(row_pairs: Count, column_pairs: Count, edges: Count, wide_in: int, wide_out: int) -> Any:
    """Whether a sum of outer products adds up G over column pairs, and not X over row pairs: for numbers, or arrays."""
    # one row of each pair is added up and one is read
    by_rows = row_pairs * (wide_in * wide_out + wide_out) + edges * wide_in
    return column_pairs * (wide_in * wide_out + wide_in) + edges * wide_out < by_rows


def relations_at_a_time(bases: int, in_features: int, out_features: int, itemsize: int) -> int:
    """Relations whose matrices are made of bases at a time, in the accumulation type: they fit ``MATRIX_BYTES``, or are
    as many as the bases, whichever is more."""
    return max(1, bases, MATRIX_BYTES // max(1, in_features * out_features * itemsize))


def panel_pairs(features: int, itemsize: int) -> int:
    """Most pairs of a panel, of rows of ``features`` features in the accumulation type."""
    rows = product_rows(host_target())
    fit = min(LONGEST_PANEL, PANEL_BYTES // max(1, features * itemsize))
    return max(1, fit // rows) * rows


def is_small(counts: RelationCounts, wide_in: int, wide_out: int) -> bool:
    """Whether one thread is fastest. Then all goes by row pairs: small graphs are sampled batches, alike but for a few
    edges, and are to run on the same kernels.
    """
    return _work(counts, wide_in, wide_out) < serial_work()


def is_near_limit(counts: RelationCounts, wide_in: int, wide_out: int) -> bool:
    """Whether ``is_small`` may answer otherwise for the next batch of this kind."""
    return serial_work() < NEAR * _work(counts, wide_in, wide_out) < NEAR * NEAR * serial_work()


def _work(counts: RelationCounts, wide_in: int, wide_out: int) -> int:
    """Multiply-adds by row pairs."""
    return counts.row_pairs * wide_in * wide_out + counts.edges * wide_in


def row_task_count(counts: RelationCounts, relations: int, wide_in: int, wide_out: int) -> int:
    """Tasks of a product from rows of ``wide_in`` to rows of ``wide_out`` features, alike for any number of threads:
    the order of additions depends on them.
    """
    if is_small(counts, wide_in, wide_out):
        return 1
    wanted = max(FEWEST_TASKS, -(-counts.rows * wide_out * 4 // ROW_BYTES))
    # a panel that a task cuts off is half empty: at least four full blocks of a relation for each cut
    filled = counts.row_pairs // max(1, 4 * product_rows(host_target()) * min(relations, counts.row_pairs))
    return max(FEWEST_TASKS, min(wanted, filled))


def part_limit(edges: int, pairs: int, cost_per_pair: float, plan: RelationalPlan = BY_RULES) -> float:
    """The cost, in edges, from which a relation is shared by several tasks."""
    return max(4096.0, (edges + pairs * cost_per_pair) / PARTS) * 1000 / (plan.tasks or 1000)


def cost_per_pair(out_features: int, itemsize: int) -> float:
    """What the product of a pair costs, in edges."""
    return 1 + out_features / (FETCH_COST * itemsize)


def is_tiled(in_features: int, out_features: int, dtype: str) -> bool:
    """Whether programs want matrices with blocks of this size on the diagonal tile by tile."""
    return in_features * out_features * BYTES[dtype] > WHOLE_BYTES


def predicted_costs(
    what: str,
    row_pairs: np.ndarray,
    column_pairs: np.ndarray,
    edges: np.ndarray,
    blocks: int,
    in_features: int,
    out_features: int,
    itemsize: int,
) -> dict[str, float]:
    """Multiply-adds, or what takes as long, by the dataflow of a plan, of a pass ("product", "sum" or "dots") over
    relations with these numbers of pairs and edges.
    """
    wide_in, wide_out = blocks * in_features, blocks * out_features
    product = in_features * out_features * blocks
    if what == "product":
        gather, scatter = order_costs(row_pairs, column_pairs, edges, in_features, out_features, blocks, itemsize)
        stored = ADD_COST * itemsize
        return {
            "": float(np.minimum(gather, scatter).sum()),
            "gather": float(gather.sum()),
            "scatter": float(scatter.sum()),
            "transform": float((scatter + column_pairs * stored * wide_out).sum()),
            "aggregate": float((gather + row_pairs * stored * (wide_in + wide_out)).sum()),
        }
    fetched = (wide_in, wide_out) if what == "sum" else (wide_out, wide_in)
    by_rows = row_pairs * (product + fetched[1]) + edges * fetched[0]
    by_columns = column_pairs * (product + fetched[0]) + edges * fetched[1]
    return {
        "": float(np.minimum(by_rows, by_columns).sum()),
        "rows": float(by_rows.sum()),
        "columns": float(by_columns.sum()),
    }
