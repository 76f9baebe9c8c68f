"""The edges of a relational graph from either end, and their pairs with relations, which products work on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ...compiler.cache.bounded import KernelCache
from ...formats.counts import prefix_sums
from ...formats.partitions.relational import (
    Panels,
    RelationPairs,
    pairs_of_ends,
    relation_pairs,
    relation_tasks,
    row_tasks,
)
from ...formats.structure import index_type
from ...frozen import dataclass
from ...runtime import devices
from ..derived import Derived, Keeps, fact
from ..graph import Graph
from ..segments import Segments


class RelationSplit(Keeps):
    """The pairs of some of the relations, at one end of the edges."""

    def __init__(self, pairs: RelationPairs, ends: Ends):
        self.pairs, self.ends = pairs, ends
        self.facts: dict[Any, Any] = {}


@dataclass(frozen=True)
class RelationTasks(Derived[tuple[Tensor, Panels]]):
    """`relation_tasks` of the pairs of a split. cost: decides where tasks are cut, and follows from the other two."""

    limit: float
    most: int
    cost: float = field(compare=False)

    def compute(self, split: RelationSplit) -> tuple[Tensor, Panels]:
        return relation_tasks(split.pairs, self.limit, self.most, self.cost)


class Ends(Keeps):
    """Both ends of the edges of a ``RelGraph``, and their pairs, seen from the rows or, where ``transposed``, from the
    columns.
    """

    def __init__(self, row: Tensor, col: Tensor, relation: Tensor, num_rows: int, num_cols: int, num_relations: int):
        self.arrays = (row, col, relation), (col, row, relation)
        self.sizes = (num_rows, num_cols, num_relations), (num_cols, num_rows, num_relations)
        self.facts: dict[Any, Any] = {}

    def pairs(self, transposed: bool) -> RelationPairs:
        """The pairs of one end; a GPU makes those of both ends together, so that it is waited for once."""
        if devices.on_cpu(self.arrays[0][0].device):
            return self.pairs_of_end(transposed)
        return self.pairs_of_both_ends()[transposed]

    @fact
    def pairs_of_end(self, transposed: bool) -> RelationPairs:
        """The distinct pairs of a node at one end of the edges and a relation."""
        return relation_pairs(*self.arrays[transposed], *self.sizes[transposed])

    @fact
    def pairs_of_both_ends(self) -> tuple[RelationPairs, RelationPairs]:
        """The distinct pairs of a node and a relation, for either end of the edges, made together."""
        return pairs_of_ends(*self.arrays[0], *self.sizes[0])

    @fact
    def pair_of_edge(self, transposed: bool) -> Tensor:
        """(E,) the pair of each edge at one end, in the user's order."""
        return self.pairs(transposed).pair_of_edge()

    @fact
    def mean_scale(self, dtype: torch.dtype) -> Tensor:
        """(E,) for each edge 1 / the number of edges of its relation into its destination."""
        with torch.inference_mode(False):
            inverse = self.pairs(False).indptr.diff().to(dtype).reciprocal()
            return inverse.index_select(0, self.pair_of_edge(False))


Chooser: TypeAlias = Callable[..., Any]
"""From row pairs, column pairs and edges of each relation, arrays or numbers: whose edges go by column pairs."""


@dataclass(frozen=True)
class RowTasks(Derived[tuple[Tensor, Panels, Panels]]):
    """``formats.partitions.relational.row_tasks`` of one end. key: what ``by_column`` chooses by; that and the cost,
    which follows from the widths, need not tell tasks apart.
    """

    transposed: bool
    key: tuple[Any, ...]
    tasks: int
    most: int
    cost: float = field(compare=False)
    by_column: Chooser = field(compare=False)

    def compute(self, ends: Ends) -> tuple[Tensor, Panels, Panels]:
        rows, columns = ends.pairs(self.transposed), ends.pairs(not self.transposed)
        return row_tasks(rows, columns, self.tasks, self.most, self.cost, self.by_column)


class Side(Keeps):
    """The edges of a ``RelGraph`` seen from one end, their row, with what is derived from that."""

    def __init__(self, ends: Ends, transposed: bool):
        self.arrays, self.sizes = ends.arrays[transposed], ends.sizes[transposed]
        self.ends, self.transposed = ends, transposed
        self.facts: dict[Any, Any] = {}
        self.calls: KernelCache[Any, Any] = KernelCache("calls of a relational graph", MOST_CALLS)

    @property
    def pairs(self) -> RelationPairs:
        return self.ends.pairs(self.transposed)

    def split(self, chosen: Tensor) -> RelationSplit | None:
        """The pairs of those relations for which ``chosen``, (relations,) bool, is true; None for none."""
        if not chosen.any():
            return None
        return self.pairs_of_relations(tuple(chosen.nonzero().flatten().tolist()))

    @fact
    def pairs_of_relations(self, relations: tuple[int, ...]) -> RelationSplit:
        """The pairs of some relations."""
        chosen = torch.zeros(self.sizes[2], dtype=torch.bool, device=self.arrays[0].device)
        chosen[list(relations)] = True
        return RelationSplit(self.pairs.of_relations(chosen), self.ends)

    @property
    def pair_of_edge(self) -> Tensor:
        """(E,) by edge, in the user's order."""
        return self.ends.pair_of_edge(self.transposed)

    @property
    @fact
    def segments(self) -> Segments:
        """Pairs by relation."""
        pairs = self.pairs
        return Segments(pairs.relation_ptr.to(pairs.row.dtype), None, pairs.count)

    def blocks(self, count: int) -> tuple[Segments, Tensor]:
        """(segments, rows) of pairs in ``count`` blocks of features: row p * count + d of the segments is block d of
        pair p, which belongs to segment r * count + d of relation r, and stands in rows[p * count + d] of the nodes'
        blocks."""
        if count == 1:
            return self.segments, self.pairs.row
        return self.blocks_of_pairs(count)

    @fact
    def blocks_of_pairs(self, count: int) -> tuple[Segments, Tensor]:
        """`blocks` of several."""
        pairs = self.pairs
        ptr, relation = pairs.relation_ptr, pairs.relation.long()
        lengths, block = ptr.diff(), torch.arange(count, device=relation.device)
        pair = torch.arange(pairs.count, device=relation.device)
        # by relation, then by block, then by pair
        position = (ptr[relation] * (count - 1) + pair).unsqueeze(1) + lengths[relation].unsqueeze(1) * block
        order = torch.empty_like(position.flatten())
        order[position.flatten()] = torch.arange(order.numel(), device=relation.device)
        offsets = prefix_sums(lengths.repeat_interleave(count))
        rows = (pairs.row.long() * count).unsqueeze(1) + block
        dtype = index_type(pairs.row.dtype, order.numel(), pairs.num_rows * count, pairs.num_relations * count)
        return Segments(offsets.to(dtype), order.to(dtype), order.numel()), rows.flatten().to(dtype)

    @property
    @fact
    def edges_of_pairs(self) -> Graph:
        """Rows are pairs, columns those of the edges."""
        pairs = self.pairs
        return Graph.from_csr(pairs.indptr, pairs.indices, (pairs.count, self.sizes[1]), pairs.edge_ids, trusted=True)

    @property
    @fact
    def pairs_of_rows(self) -> Graph:
        """Rows are those of the edges, columns pairs."""
        pairs = self.pairs
        numbers = torch.arange(pairs.count, dtype=pairs.row.dtype, device=pairs.row.device)
        return Graph.from_coo(pairs.row, numbers, (self.sizes[0], pairs.count))


MOST_CALLS = 64
"""Calls that a side keeps ready."""
