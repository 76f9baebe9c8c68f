"""Graphs as kernels take them: with weights in the order of the rows, and rows in the order of their times."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..compiler.cache.bounded import KernelCache
from ..structures.derived import fact
from ..structures.graph import Graph
from .draws import Relation


class Numbered(NamedTuple):
    """edges: of each position, the edge in the user's order; None where they are the same."""

    relation: Relation
    edges: Tensor | None


def numbered_relation(
    graph: Graph,
    source: str,
    destination: str,
    weights: Tensor | None,
    time: Tensor | None,
    edge_time: Tensor | None,
) -> Numbered:
    """Arguments are checked. What takes a pass over the edges is kept with the graph while it is asked for with the
    same tensors."""
    relation = Relation(source, destination, graph.indptr, graph.indices, graph.shape[1])
    times = time if edge_time is None else edge_time
    if times is not None:
        order, moments = _kept(graph, times, lambda: _by_time(graph, times, edge_time is not None))
        edges = order if graph.edge_ids is None else _kept(graph, order, lambda: graph.edge_numbers[order])
        indices = _kept(graph, moments, lambda: graph.indices[order])
        return Numbered(changed(relation, indices=indices, times=moments, of_edges=True), edges)
    if weights is not None:
        in_rows = weights if graph.edge_ids is None else _kept(graph, weights, lambda: weights[graph.edge_numbers])
        relation = changed(relation, weights=in_rows.contiguous())
    return Numbered(relation, graph.edge_ids)


def _by_time(graph: Graph, times: Tensor, of_edges: bool) -> tuple[Tensor, Tensor]:
    """The positions with each row in the order of its times, and these times, which are int64."""
    moments = times[graph.edge_numbers if of_edges else graph.indices].to(torch.int64)
    rows = torch.arange(graph.shape[0]).repeat_interleave(graph.indptr.diff())
    order = moments.argsort(stable=True)
    order = order[rows[order].argsort(stable=True)]
    return order, moments[order]


class _Same:
    """A tensor with the values that it has now."""

    __slots__ = ("at", "tensor", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.at = weakref.ref(tensor), id(tensor)
        self.version = -1 if tensor.is_inference() else tensor._version

    def __hash__(self) -> int:
        return hash((self.at, self.version))

    def __eq__(self, other: object) -> bool:
        mine = self.tensor()
        return (
            isinstance(other, _Same) and mine is not None and mine is other.tensor() and self.version == other.version
        )


@fact
def rows_in_order(graph: Graph) -> KernelCache[Any, Any]:
    """What was found of the last tensors that a graph was sampled with."""
    return KernelCache("tensors in the order of rows", 8)


def _kept(graph: Graph, tensor: Tensor, make: Callable[[], Any]) -> Any:
    return rows_in_order(graph).found(_Same(tensor), make)
