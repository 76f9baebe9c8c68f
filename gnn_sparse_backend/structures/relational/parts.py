"""The edges of a ``RelGraph`` a few relations at a time: for what holds something large for each relation."""

from __future__ import annotations

import torch
from torch import Tensor

from ...frozen import dataclass
from ..derived import fact
from .graph import RelGraph


@dataclass(frozen=True)
class RelationPart:
    """The edges of some relations, as a graph between the same nodes.

    graph: relation n of it is relation ``relations[n]`` of the whole, edge n edge ``edges[n]``; both int64, None for
    the whole graph itself.
    """

    graph: RelGraph
    relations: Tensor | None = None
    edges: Tensor | None = None

    def of_relations(self, x: Tensor) -> Tensor:
        """The rows of x that belong to the part's relations."""
        return x if self.relations is None else x.index_select(0, self.relations)

    def of_edges(self, a: Tensor | None) -> Tensor | None:
        """The entries of a that belong to the part's edges."""
        return a if a is None or self.edges is None else a.index_select(0, self.edges)


def relation_parts(rel: RelGraph, most: int) -> tuple[RelationPart, ...]:
    """Parts of at most ``most`` relations each, made once: the graph itself where it has no more, else as many
    relations in each part as can be, of those that have edges."""
    if rel.num_relations <= most:
        return (RelationPart(rel),)
    return parts_of_relations(rel, most)


@fact
def parts_of_relations(rel: RelGraph, most: int) -> tuple[RelationPart, ...]:
    """The edges of at most ``most`` relations at a time."""
    return tuple(_parts(rel, most))


def _parts(rel: RelGraph, most: int):
    with torch.inference_mode(False):  # made now, kept for a backward pass later
        # edges of one relation keep their order
        relation, order = torch.sort(rel.relation, stable=True)
        _present, counts = torch.unique_consecutive(relation, return_counts=True)
        bounds = counts.cumsum(0)[most - 1 :: most].tolist()  # the one wait for the device
        for first, stop in zip([0, *bounds], [*bounds, rel.num_edges]):
            if first == stop:
                continue
            edges = order[first:stop].clone()
            relations, number = torch.unique_consecutive(relation[first:stop], return_inverse=True)
            arrays = (
                rel.source.index_select(0, edges),
                rel.destination.index_select(0, edges),
                number.to(rel.relation.dtype),
            )
            yield RelationPart(RelGraph._make(*arrays, rel.shape, relations.numel()), relations.long(), edges)
