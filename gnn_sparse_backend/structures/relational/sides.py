"""The edges of a relational graph from either end, and their pairs with relations, which products work on."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ...formats.counts import prefix_sums
from ...formats.partitions.relational import Panels, RelationPairs, pairs_of_ends, relation_pairs, relation_tasks
from ...formats.structure import index_type
from ...runtime import devices
from ..graph import Graph
from ..immutable import once
from ..segments import Segments


class Derived:
    """Something of a structure that keeps what is derived from it, made once, lazily."""

    def __init__(self):
        self._derived: dict = {}

    def once(self, key, make):
        """The value under ``key``, made at its first use."""
        return once(self._derived, key, make)


class RelationSplit(Derived):
    """The pairs of some of the relations, at one end of the edges."""

    def __init__(self, pairs: RelationPairs):
        super().__init__()
        self.pairs = pairs

    def relation_tasks(self, limit: float, most: int, cost: float) -> tuple[Tensor, Panels]:
        return self.once(("relations", limit, most), lambda: relation_tasks(self.pairs, limit, most, cost))


class Ends(Derived):
    """Both ends of the edges of a ``RelGraph``, and their pairs, seen from the rows or, where ``transposed``, from the
    columns.
    """

    def __init__(self, row: Tensor, col: Tensor, relation: Tensor, num_rows: int, num_cols: int, num_relations: int):
        super().__init__()
        self.arrays = (row, col, relation), (col, row, relation)
        self.sizes = (num_rows, num_cols, num_relations), (num_cols, num_rows, num_relations)

    def pairs(self, transposed: bool) -> RelationPairs:
        """On a GPU those of both ends are made together, so that it is waited for once."""
        if devices.on_cpu(self.arrays[0][0].device):
            return self.once(transposed, lambda: relation_pairs(*self.arrays[transposed], *self.sizes[transposed]))
        return self.once("both", lambda: pairs_of_ends(*self.arrays[0], *self.sizes[0]))[transposed]


class Side(Derived):
    """The edges of a ``RelGraph`` seen from one end, their row, with what is derived from that."""

    def __init__(self, ends: Ends, transposed: bool):
        super().__init__()
        self.arrays, self.sizes = ends.arrays[transposed], ends.sizes[transposed]
        self._pairs = functools.partial(ends.pairs, transposed)

    @property
    def pairs(self) -> RelationPairs:
        return self.once("pairs", self._pairs)

    def split(self, chosen: Tensor) -> RelationSplit | None:
        """The pairs of those relations for which ``chosen``, (relations,) bool, is true; None for none."""
        if not chosen.any():
            return None
        key = ("split", tuple(chosen.nonzero().flatten().tolist()))
        return self.once(key, lambda: RelationSplit(self.pairs.of_relations(chosen)))

    @property
    def pair_of_edge(self) -> Tensor:
        """(E,) by edge, in the user's order."""
        return self.once("pair_of_edge", lambda: self.pairs.pair_of_edge())

    @property
    def segments(self) -> Segments:
        """Pairs by relation."""
        return self.once(
            "segments", lambda: Segments(self.pairs.relation_ptr.to(self.pairs.row.dtype), None, self.pairs.count)
        )

    def blocks(self, count: int) -> tuple[Segments, Tensor]:
        """(segments, rows) of pairs in so many blocks of features: row p * count + d of the segments is block d of pair
        p, which belongs to segment r * count + d of relation r, and stands in rows[p * count + d] of the nodes'
        blocks."""
        if count == 1:
            return self.segments, self.pairs.row
        return self.once(("blocks", count), lambda: _blocks_of(self.pairs, count))

    @property
    def edges_of_pairs(self) -> Graph:
        """Rows are pairs, columns those of the edges."""

        def make() -> Graph:
            pairs = self.pairs
            return Graph.from_csr(
                pairs.indptr, pairs.indices, (pairs.count, self.sizes[1]), pairs.edge_ids, trusted=True
            )

        return self.once("edges_of_pairs", make)

    @property
    def pairs_of_rows(self) -> Graph:
        """Rows are those of the edges, columns pairs."""
        pairs = self.pairs
        return self.once(
            "pairs_of_rows",
            lambda: Graph.from_coo(
                pairs.row,
                torch.arange(pairs.count, dtype=pairs.row.dtype, device=pairs.row.device),
                (self.sizes[0], pairs.count),
            ),
        )


def _blocks_of(pairs: RelationPairs, count: int) -> tuple[Segments, Tensor]:
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
