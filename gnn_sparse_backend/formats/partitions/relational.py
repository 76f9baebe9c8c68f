"""Edges of several relations by (row, relation) pairs, and pairs in panels (3-D CSR; SparseTIR, section 4.4).

Edges that share a row and a relation share the matrix of the relation. Pairs are what a relational product multiplies,
and their number decides which order of its operations is cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ...frozen import dataclass
from .. import counts
from ..counts import added_at, begins_of, numbers_of, prefix_sums
from ..structure import index_type, positions_of_rows
from .row_groups import balanced_row_groups


@dataclass(frozen=True)
class RelationPairs:
    """The distinct pairs of a row and a relation, by relation and then by row, and the edges of each.

    num_rows, num_cols, num_relations: sizes.
    row, relation: (pairs,) of each pair.
    indptr: (pairs + 1,) offsets of a pair's edges in ``indices``.
    indices: (edges,) column of each position. edge_ids: (edges,) number of the edge at each position.
    """

    num_rows: int
    num_cols: int
    num_relations: int
    row: Tensor
    relation: Tensor
    indptr: Tensor
    indices: Tensor
    edge_ids: Tensor

    @property
    def count(self) -> int:
        """Number of pairs."""
        return self.row.numel()

    def of_relations(self, chosen: Tensor) -> RelationPairs:
        """The pairs of those relations for which ``chosen``, (num_relations,) bool, is true."""
        return _taken(self, chosen[self.relation.long()].nonzero().flatten())

    @property
    def relation_ptr(self) -> Tensor:
        """(num_relations + 1,) offsets of a relation's pairs; int64."""
        bounds = torch.arange(self.num_relations + 1, device=self.relation.device, dtype=self.relation.dtype)
        return torch.searchsorted(self.relation.contiguous(), bounds)

    def pair_of_edge(self) -> Tensor:
        """(edges,) the pair that each edge belongs to, by the number of the edge."""
        numbers = torch.arange(self.count, dtype=self.row.dtype, device=self.row.device)
        pair = torch.repeat_interleave(numbers, self.indptr.diff(), output_size=self.indices.numel())
        return torch.empty_like(pair).index_copy_(0, self.edge_ids.long(), pair)


def relation_pairs(
    row: Tensor, col: Tensor, relation: Tensor, num_rows: int, num_cols: int, num_relations: int
) -> RelationPairs:
    """The pairs of edges ``(row[e], col[e], relation[e])``, each (edges,), int32 or int64, in any order, in range.

    Edges of one pair keep their order: one stable sort, vectorised, on the device of the arrays, which is waited for
    once, for the number of pairs.
    """
    laid = _ByPair(row, relation, num_rows)
    return laid.pairs(laid.begins.nonzero().flatten(), col, num_cols, num_relations)


def pairs_of_ends(
    row: Tensor, col: Tensor, relation: Tensor, num_rows: int, num_cols: int, num_relations: int
) -> tuple[RelationPairs, RelationPairs]:
    """`relation_pairs` of the rows and of the columns of the same edges. The device is waited for once, for both."""
    by_row, by_col = laid = _ByPair(row, relation, num_rows), _ByPair(col, relation, num_cols)
    starts = [numbers_of(of.begins, count) for of, count in zip(laid, counts.read(*(of.begins.sum() for of in laid)))]
    return by_row.pairs(starts[0], col, num_cols, num_relations), by_col.pairs(starts[1], row, num_rows, num_relations)


class _ByPair:
    """Edges in the order of relations and rows, and where pairs begin, before anybody knows how many there are."""

    def __init__(self, row: Tensor, relation: Tensor, num_rows: int):
        self.num_rows, self.dtype = num_rows, row.dtype
        self.key, self.order = torch.sort(relation.long() * num_rows + row, stable=True)
        self.begins = begins_of(self.key)

    def pairs(self, start: Tensor, col: Tensor, num_cols: int, num_relations: int) -> RelationPairs:
        dtype = index_type(self.dtype, self.num_rows, num_cols, num_relations, self.key.numel())
        key = self.key.index_select(0, start)
        relation = torch.div(key, max(self.num_rows, 1), rounding_mode="floor")
        indptr = torch.cat([start, start.new_full((1,), self.key.numel())])
        arrays = key - relation * self.num_rows, relation, indptr, col.index_select(0, self.order), self.order
        return RelationPairs(self.num_rows, num_cols, num_relations, *(a.to(dtype) for a in arrays))


@dataclass(frozen=True)
class Panels:
    """Pairs in the order in which a kernel takes them: tasks, panels of a task, pairs of a panel, edges of a pair.

    panel_ptr: (tasks + 1,). pair_ptr: (panels + 1,). indptr: (pairs + 1,). indices, edge_ids: (edges,).
    size, relation: (panels,) number of pairs, and their common relation. row: (pairs,).
    """

    panel_ptr: Tensor
    pair_ptr: Tensor
    indptr: Tensor
    indices: Tensor
    edge_ids: Tensor
    size: Tensor
    relation: Tensor
    row: Tensor

    @property
    def tasks(self) -> int:
        return self.panel_ptr.numel() - 1


def row_tasks(
    rows: RelationPairs,
    columns: RelationPairs,
    tasks: int,
    most: int,
    cost_per_pair: float,
    by_column: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> tuple[Tensor, Panels, Panels]:
    """(row_ptr, panels of row pairs, panels of column pairs): task t has rows row_ptr[t] .. row_ptr[t + 1] - 1 and
    every edge of theirs, in either the one or the other, by relation.

    rows, columns: the pairs of the same edges at either end. Tasks cost about the same, where a pair costs
    ``cost_per_pair`` edges. A panel has at most ``most`` pairs. by_column: given int64 counts for each task and
    relation, of its row pairs, column pairs and edges, (tasks * relations,) each, says (bool) whose edges go by column
    pairs. A column pair stands in every task where it has edges.
    """
    relations, row = rows.num_relations, rows.row.long()
    lengths = rows.indptr.diff()
    cost = torch.zeros(rows.num_rows + 1, dtype=torch.float64, device=row.device)
    cost[1:].index_add_(0, row, lengths.double() + cost_per_pair)
    row_ptr = balanced_row_groups(cost.cumsum(0).round().long(), tasks, cost_per_row=0.5)
    task_of_row = torch.repeat_interleave(row_ptr.diff(), output_size=rows.num_rows)
    slot = task_of_row.index_select(0, row) * relations + rows.relation
    slot, order = torch.sort(slot, stable=True)
    row_pairs = torch.bincount(slot, minlength=tasks * relations)
    edges = added_at(slot, lengths.index_select(0, order).long(), tasks * relations)

    # the pairs of columns in each task
    pair = torch.repeat_interleave(columns.indptr.diff(), output_size=columns.indices.numel())
    key = task_of_row.index_select(0, columns.indices) * columns.count + pair
    key, at = torch.sort(key, stable=True)
    start = _starts(key)
    pair = key[start] % max(columns.count, 1)
    column_slot = key[start] // max(columns.count, 1) * relations + columns.relation[pair]
    column_pairs = torch.bincount(column_slot, minlength=tasks * relations)

    chosen = by_column(row_pairs, column_pairs, edges)
    kept = ~chosen[slot]
    slot = slot[kept]
    gathers = _panels(_taken(rows, order[kept]), slot, slot // max(relations, 1), tasks, most)
    in_tasks = replace(
        columns,
        row=columns.row[pair],
        relation=columns.relation[pair],
        indptr=torch.cat([start, start.new_full((1,), key.numel())]).to(columns.indptr.dtype),
        indices=columns.indices.index_select(0, at),
        edge_ids=columns.edge_ids.index_select(0, at),
    )
    kept = chosen[column_slot].nonzero().flatten()
    column_slot = column_slot[kept]
    scatters = _panels(_taken(in_tasks, kept), column_slot, column_slot // max(relations, 1), tasks, most)
    return row_ptr.to(rows.row.dtype), gathers, scatters


def relation_tasks(pairs: RelationPairs, limit: float, most: int, cost_per_pair: float) -> tuple[Tensor, Panels]:
    """(relation, panels): task t has pairs of relation[t]; a relation that costs more than ``limit`` has several tasks.

    The tasks depend on the structure alone, so that what they add up to is the same for any number of threads.
    """
    cost = prefix_sums(pairs.indptr.diff().double() + cost_per_pair)
    begin = cost[pairs.relation_ptr[:-1]][pairs.relation.long()]
    part = torch.div(cost[:-1] - begin, limit, rounding_mode="floor").long()
    # within a relation parts ascend
    changes = torch.ones(pairs.count, dtype=torch.bool, device=pairs.row.device)
    changes[1:] = (pairs.relation[1:] != pairs.relation[:-1]) | (part[1:] != part[:-1])
    task = changes.cumsum(0) - 1
    relation = pairs.relation[changes]
    return relation, _panels(pairs, task, task, relation.numel(), most)


def _taken(pairs: RelationPairs, order: Tensor) -> RelationPairs:
    """Some pairs, in another order, with their edges."""
    indptr, at = positions_of_rows(pairs.indptr, order)
    indices, edge_ids = pairs.indices.index_select(0, at), pairs.edge_ids.index_select(0, at)
    row, relation = pairs.row[order], pairs.relation[order]
    return replace(pairs, row=row, relation=relation, indptr=indptr, indices=indices, edge_ids=edge_ids)


def _starts(key: Tensor) -> Tensor:
    """Where runs of equal entries begin."""
    return begins_of(key).nonzero().flatten()


def _panels(pairs: RelationPairs, run: Tensor, task: Tensor, tasks: int, most: int) -> Panels:
    """Runs of pairs with equal ``run``, cut into panels; ``task`` of each pair does not decrease."""
    dtype, count = pairs.row.dtype, pairs.count
    begin = _starts(run)
    end = torch.cat([begin[1:], begin.new_full((min(1, count),), count)])
    panels = -(-(end - begin) // most)
    of_run = torch.repeat_interleave(panels)
    within = torch.arange(of_run.numel(), device=run.device) - (panels.cumsum(0) - panels)[of_run]
    start = begin[of_run] + within * most
    stop = torch.minimum(start + most, end[of_run])
    bounds = torch.arange(tasks + 1, device=run.device)
    panel_ptr = torch.searchsorted(task[start].contiguous(), bounds)
    pair_ptr = torch.cat([start, start.new_full((1,), count)])
    return Panels(
        panel_ptr.to(dtype),
        pair_ptr.to(dtype),
        pairs.indptr,
        pairs.indices,
        pairs.edge_ids,
        (stop - start).to(dtype),
        pairs.relation[start],
        pairs.row,
    )
