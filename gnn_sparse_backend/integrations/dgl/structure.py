"""The ``Graph`` of a DGL graph index, found again at every layer, epoch and backward pass.

A DGLGraph holds one index object for as long as its structure stays the same, so the structure belongs to that
object. Two methods hand out new objects for a structure that is known already, and are replaced to pass it on:
``reverse``, called by every backward pass, and ``get_relation_graph``, called by every use of one edge type.
"""
from __future__ import annotations

from collections.abc import Callable

import torch
from dgl import DGLError

from ...ops.graph import Graph
from ..handles import Handles


class Structure:
    """The Graph of an edge set in both directions, taken from DGL in the direction that is used first.

    Side 0 has the rows that the first index seen has as destinations, side 1 those of its reverse.
    """

    __slots__ = ("graphs", "incidences")

    def __init__(self) -> None:
        self.graphs: list[Graph | None] = [None, None]
        self.incidences: list[Graph | None] = [None, None]


_handles = Handles()


def graph_of(gidx) -> Graph | None:
    """Rows = destinations, columns = sources; edge e is DGL's edge e. None if there are several edge types."""
    structure, side = _side_of(gidx)
    graph = structure.graphs[side]
    if graph is None:
        other = structure.graphs[1 - side]
        graph = structure.graphs[side] = _build(gidx) if other is None else other.transpose()
    return graph


def incidence_of(gidx) -> Graph | None:
    """Rows = destinations, columns = edges: summing over it adds up edge features. None for several edge types."""
    structure, side = _side_of(gidx)
    incidence = structure.incidences[side]
    if incidence is None:
        graph = graph_of(gidx)
        if graph is None:
            return None
        edges = graph.edge_ids
        if edges is None:
            edges = torch.arange(graph.num_edges, dtype=graph.indices.dtype, device=graph.device)
        incidence = structure.incidences[side] = Graph.from_csr(
            graph.indptr, edges, (graph.shape[0], graph.num_edges), trusted=True)
    return incidence


def linked_reverse(original: Callable) -> Callable:
    """``HeteroGraphIndex.reverse`` whose result is known to be the other side of the same structure."""

    def reverse(self):
        result = original(self)
        structure, side = _side_of(self)
        _handles.put(result, (structure, 1 - side))
        return result

    reverse.__doc__ = original.__doc__
    return reverse


def linked_relation(original: Callable) -> Callable:
    """``HeteroGraphIndex.get_relation_graph`` whose results for one edge type share one structure."""

    def get_relation_graph(self, etype):
        result = original(self, etype)
        structure = _handles.get(self, etype)
        if structure is None:
            structure = Structure()
            _handles.put(self, structure, etype)
        _handles.put(result, (structure, 0))
        return result

    get_relation_graph.__doc__ = original.__doc__
    return get_relation_graph


def forget_all() -> None:
    """Drop every structure."""
    _handles.clear()


def _side_of(gidx) -> tuple[Structure, int]:
    side = _handles.get(gidx)
    if side is None:
        side = (Structure(), 0)
        _handles.put(gidx, side)
    return side


def _build(gidx) -> Graph | None:
    if gidx.number_of_etypes() != 1:
        return None
    try:
        rows, cols, indptr, indices, edge_ids = gidx.adjacency_matrix_tensors(0, True, "csr")
    except DGLError:
        # The user restricted the graph to formats without this CSR: take the edge list, which every format gives.
        source_type, destination_type = gidx.metagraph.find_edge(0)
        source, destination, ids = gidx.edges(0)
        row, col = torch.empty_like(destination), torch.empty_like(source)
        row[ids.long()], col[ids.long()] = destination, source
        return Graph.from_coo(row, col, (gidx.num_nodes(destination_type), gidx.num_nodes(source_type)))
    # DGL leaves the ids out where they count up.
    return Graph.from_csr(indptr, indices, (rows, cols), edge_ids if edge_ids.numel() == indices.numel() else None,
                          trusted=True)
