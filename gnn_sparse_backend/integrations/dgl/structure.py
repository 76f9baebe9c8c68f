"""The ``Graph`` of a DGL graph index, found again at every layer, epoch and backward pass.

A DGLGraph holds one index object for as long as its structure stays the same, so the structures of its edge types
belong to that object. Two methods hand out new objects for structures that are known already, and are replaced to pass
them on: ``reverse``, called by every backward pass, and ``get_relation_graph``, called by every use of one edge type.

Index arrays are DGL's own in both directions: it has them in memory or makes them faster than a sort, and the order of
a row's edges, which decides between equal maxima, is then its order.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from dgl import DGLError, heterograph_index
from torch import Tensor

from ...frozen import dataclass
from ...planner.cpu.listed import FEW
from ...structures.csr import EdgeList
from ...structures.derived import Derived
from ...structures.graph import Graph
from ..core.handles import Handles
from ..scopes import current

if TYPE_CHECKING:
    from ...structures.relational.graph import RelGraph


class _Source:
    """A live index that has the edges of a structure, as ``edge_type``; its destinations are the rows of ``side``."""

    __slots__ = ("edge_type", "index", "side")

    def __init__(self, gidx, edge_type: int, side: int) -> None:
        self.index, self.edge_type, self.side = weakref.ref(gidx), edge_type, side

    def csr(self, side: int) -> tuple[tuple[int, int], tuple] | None:
        """The shape with the rows of ``side``, and (indptr, indices, edge_ids); None if the index cannot make them."""
        gidx = self.index()
        if gidx is None:
            return None
        try:
            rows, columns, indptr, indices, ids = gidx.adjacency_matrix_tensors(
                self.edge_type, side == self.side, "csr"
            )
        except DGLError:  # the user restricted the graph to other formats
            return None
        # DGL leaves the ids out where they count up
        return (rows, columns), (indptr, indices, ids if ids.numel() == indices.numel() else None)

    def arrays(self, side: int) -> tuple | None:
        """The arrays of ``csr``."""
        found = self.csr(side)
        return None if found is None else found[1]


class Structure:
    """The edges of one type.

    graphs: by side. Side 0 has as rows what were destinations for the first index seen; side 1 is its transpose.
    relations: what is known of relations among these edges (``relations.py``). listed: the edges as they are listed,
    with the rows of side 0; None before somebody asked, False where they are not for that. in_order: as of
    ``lists_in_order``, once somebody has asked. degrees: of the rows of each side, once somebody has asked.
    """

    __slots__ = ("degrees", "graphs", "in_order", "listed", "relations", "source")

    def __init__(self) -> None:
        self.graphs: list[Graph | None] = [None, None]
        self.relations: dict[tuple, list] = {}
        self.source: _Source | None = None
        self.listed: EdgeList | bool | None = None
        self.in_order: bool | None = None
        self.degrees: list[Tensor | None] = [None, None]

    def graph(self, gidx, edge_type: int, side: int) -> Graph:
        """The graph that ``gidx`` shows."""
        graph = self.graphs[side]
        if graph is None:
            self.seen(gidx, edge_type, side)
            other = self.graphs[1 - side]
            graph = self.graphs[side] = self._build(side) if other is None else other.transpose()
        return graph

    def seen(self, gidx, edge_type: int, side: int) -> None:
        """Remember an index that has these edges, unless there is one that lives."""
        if self.source is None:
            self.source = _Source(gidx, edge_type, side)
        elif self.source.index() is None:
            # graphs know this very object
            self.source.__init__(gidx, edge_type, side)

    def _build(self, side: int) -> Graph:
        source = self.source
        found = source.csr(side)
        if found is not None:
            shape, (indptr, indices, ids) = found
            return Graph.from_csr(indptr, indices, shape, ids, trusted=True, opposite=partial(source.arrays, 1 - side))
        # no CSR in the formats that the user allows: every format gives the list of edges
        gidx = source.index()
        columns, rows, ids = gidx.edges(source.edge_type)
        shape = [gidx.num_nodes(node_type) for node_type in reversed(gidx.metagraph.find_edge(source.edge_type))]
        if side != source.side:
            rows, columns = columns, rows
            shape.reverse()
        row, column = torch.empty_like(rows), torch.empty_like(columns)
        row[ids.long()], column[ids.long()] = rows, columns
        return Graph.from_coo(row, column, tuple(shape))


class Structures:
    """The structures of all edge types of an index.

    edge_types: how many there are. known: by edge type, made when first used. relations: graphs of several edge types,
    by side and numbers of types. seen: whether a layer over several edge types has met it. steps: how many have asked
    whether it is small. edges, on_cpu: as of the methods, once somebody has asked.
    """

    __slots__ = ("edge_types", "edges", "known", "on_cpu", "relations", "seen", "steps")

    def __init__(self, edge_types: int) -> None:
        self.edge_types = edge_types
        self.known: dict[int, Structure] = {}
        self.relations: dict[tuple, RelGraph] = {}
        self.seen, self.steps = False, 0
        self.edges: int | None = None
        self.on_cpu: bool | None = None

    def count_in(self, gidx) -> int:
        """How many edges there are of all types."""
        if self.edges is None:
            self.edges = sum(map(gidx.num_edges, range(self.edge_types)))
        return self.edges

    def is_on_cpu(self, gidx) -> bool:
        """Whether the index is on the CPU, in memory that nobody has pinned for a GPU."""
        if self.on_cpu is None:
            self.on_cpu = gidx.ctx.device_type == _CPU and not torch.cuda.is_available()
        return self.on_cpu

    def of(self, edge_type: int) -> Structure:
        structure = self.known.get(edge_type)
        return self.known.setdefault(edge_type, Structure()) if structure is None else structure


_CPU = 1
"""DGL's number of that kind of devices."""

STEPS = 24
"""Steps on a graph, some for each layer, from which on it is one that comes again and again."""

KEPT = Handles()
"""The structures of each index, and the side that its destinations are on."""


def structures_of(gidx) -> tuple[Structures, int]:
    """The structures of an index, and the side that its destinations are on."""
    found = KEPT.get(gidx)
    if found is None:
        found = (Structures(gidx.number_of_etypes()), 0)
        KEPT.put(gidx, found)
    return found


def graph_of(gidx, edge_type: int = 0) -> Graph:
    """Rows = destinations, columns = sources; edge e is DGL's edge e of this type."""
    structures, side = structures_of(gidx)
    structure = structures.known.get(edge_type)
    if structure is not None:
        graph = structure.graphs[side]
        if graph is not None:
            return graph
    return structures.of(edge_type).graph(gidx, edge_type, side)


def only_graph_of(gidx) -> Graph | None:
    """``graph_of`` an index with one edge type; None if there are several, or none."""
    structures, side = structures_of(gidx)
    if structures.edge_types != 1:
        return None
    structure = structures.known.get(0)
    graph = None if structure is None else structure.graphs[side]
    return graph_of(gidx) if graph is None else graph


def linked_reverse(original: Callable) -> Callable:
    """``HeteroGraphIndex.reverse`` whose result is known to be the other side of the same structures."""

    def reverse(self):
        result = original(self)
        structures, side = structures_of(self)
        KEPT.put(result, (structures, 1 - side))
        return result

    reverse.__doc__ = original.__doc__
    return reverse


def linked_relation(original: Callable) -> Callable:
    """``HeteroGraphIndex.get_relation_graph`` whose results for one edge type share one structure."""

    def get_relation_graph(self, etype):
        result = original(self, etype)
        structures, side = structures_of(self)
        structure = structures.of(etype)
        structure.seen(self, etype, side)
        one = Structures(1)
        one.known[0] = structure
        KEPT.put(result, (one, side))
        return result

    get_relation_graph.__doc__ = original.__doc__
    return get_relation_graph


def edges_of(gidx, x: Tensor | None = None) -> EdgeList | None:
    """The edges of an index of one edge type, in DGL's order. None if there are many, if they are no int64, and in a
    scope, which reads rows. x: the operand, whose features count towards what is many.
    """
    structures, side = structures_of(gidx)
    if structures.edge_types != 1:
        return None
    structure = structures.of(0)
    if structure.listed is None:
        rows = 0 if x is None or not x.dim() else x.shape[0]
        if rows and gidx.num_edges(0) * (x.numel() // rows) > FEW.features:
            return None
    if structure.listed is False or current() is not None:
        return None
    if structure.listed is None:
        structure.listed = _listed(gidx, side)
        if structure.listed is False:
            return None
    return structure.listed.reversed() if side else structure.listed


def lists_in_order(gidx) -> bool:
    """Whether DGL takes the edges of a row in the order of ``edges_of``, for certain: it was given that list, and has
    made nothing of it yet. Their order chooses one of equal maxima.
    """
    structure = structures_of(gidx)[0].of(0)
    if structure.in_order is None:
        structure.in_order = list(heterograph_index._CAPI_DGLHeteroGetCreatedFormats(gidx)) == ["coo"]
    return structure.in_order


def rows_in_order(gidx) -> bool:
    """Whether the edges of each row ascend by their numbers, as in every graph whose rows DGL has made."""
    if structures_of(gidx)[0].of(0).in_order:
        return True
    graph = only_graph_of(gidx)
    return graph is not None and bool(graph.derived(RowsAscend()))


@dataclass(frozen=True)
class RowsAscend(Derived[bool]):
    """Whether the edges of each row ascend by their numbers."""

    def compute(self, graph: Graph) -> bool:
        if graph.edge_ids is None:
            return True
        falls = graph.edge_ids[1:] < graph.edge_ids[:-1]
        ends = graph.indptr[1:-1].long()
        falls[ends[(ends > 0) & (ends < graph.num_edges)] - 1] = False
        return not bool(falls.any())


def listed_graph_of(gidx, x: Tensor) -> Graph | None:
    """``only_graph_of`` an index, of few edges in their order as they are listed. x: as of ``edges_of``."""
    edges = edges_of(gidx, x)
    if edges is None or not lists_in_order(gidx):
        return only_graph_of(gidx)
    structures, side = structures_of(gidx)
    graphs = structures.of(0).graphs
    if graphs[side] is None:
        other = graphs[1 - side]
        graphs[side] = Graph._of_list(edges) if other is None else other.transpose()
    return graphs[side]


def _listed(gidx, side: int) -> EdgeList | bool:
    if gidx.dtype != "int64" or not 0 < gidx.num_edges(0) <= FEW.features:
        return False
    try:
        arrays = heterograph_index._CAPI_DGLHeteroEdges(gidx, 0, "eid")
    except DGLError:  # the user restricted the graph to other formats
        return False
    # DGL's own conversion takes four times as long, and is of a third array as well
    source, destination = (torch.from_dlpack(arrays(end).to_dlpack()) for end in (0, 1))
    if not source.is_cpu:
        return False
    first, second = gidx.metagraph.find_edge(0)
    edges = EdgeList(destination, source, (gidx.num_nodes(second), gidx.num_nodes(first)))
    return edges.reversed() if side else edges


def is_small(g) -> bool:
    """Whether nothing that is computed on a graph is worth following. Steps on a graph ask, and are counted."""
    structures, _ = structures_of(g._graph)
    edges = structures.count_in(g._graph)
    if edges <= FEW.often // 32 or edges > FEW.edges:
        return edges <= FEW.edges
    structures.steps += 1
    return structures.steps <= STEPS


def edges_in(gidx) -> int:
    """How many edges there are of all types."""
    return structures_of(gidx)[0].count_in(gidx)
