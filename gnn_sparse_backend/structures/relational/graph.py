"""``RelGraph``: an immutable graph whose edges belong to relations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ...compiler.cache.bounded import KernelCache
from ...dynamo import not_traced
from ...frozen import dataclass
from ...planner.cpu.relational import RelationCounts
from ...runtime.memory import check_memory
from ..build import csr_to_coo, index_dtype
from ..checks import IndexArray, as_index_vector, check_count, check_ranges, check_same_device, check_shape
from ..derived import Derived, Keeper, fact
from ..graph import Graph
from ..immutable import Structure
from ..sources import edge_index_arrays
from . import sources as rel_sources
from .sides import Chooser, Ends, RelationSplit, Side


class RelGraph(Structure):
    """Edges ``source[e] -> destination[e]`` of relation ``relation[e]``, between n_src sources and n_dst destinations.

    Made by ``from_triples``, ``from_graph``, ``from_edge_index``, ``from_dgl`` or ``from_pyg``. Edges keep the order in
    which the user gave them, which is that of edge weights; relations may come in any order, and have any number of
    edges. Index arrays are int32 if all sizes fit, else int64; they belong to the graph and must not be written to.
    What kernels need beside is derived when it is first used, once.

    Nodes of several types stand one type after the other, in the order of ``source_types`` and ``destination_types``.

    Attributes:
        shape: (n_dst, n_src). num_edges, num_relations: sizes.
        source, destination, relation: (num_edges,).
        relations: names of the relations, or None.
        source_types, destination_types: for each node type its number of nodes, in order; None for nodes of one kind.
        edge_counts: (num_relations,) a tuple, edges of each relation, where edges come relation by relation; else None.
    """

    __slots__ = (
        "_sides",
        "calls",
        "destination",
        "destination_types",
        "edge_counts",
        "facts",
        "num_edges",
        "num_relations",
        "relation",
        "relations",
        "shape",
        "source",
        "source_types",
    )

    shape: tuple[int, int]
    num_edges: int
    num_relations: int
    source: Tensor
    destination: Tensor
    relation: Tensor
    relations: tuple[Any, ...] | None
    source_types: dict[str, int] | None
    destination_types: dict[str, int] | None
    edge_counts: tuple[int, ...] | None
    facts: dict[Any, Any]
    calls: KernelCache[Any, Any]
    _sides: tuple[Side, Side]

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise TypeError("make a RelGraph with RelGraph.from_triples, from_graph, from_edge_index, from_dgl or from_pyg")

    @classmethod
    def from_triples(
        cls,
        source: IndexArray,
        destination: IndexArray,
        relation: IndexArray,
        shape: Sequence[int],
        num_relations: int | None = None,
    ) -> RelGraph:
        """A graph of edges ``source[e] -> destination[e]`` of relation ``relation[e]``.

        Args:
            source, destination, relation: (E,) integers, torch tensors or NumPy arrays on one device, in any order.
            shape: (destinations, sources), as of a ``Graph``.
            num_relations: how many relations there are, with or without edges; by default the largest plus one.

        Raises:
            TypeError, ValueError: an argument is not as above; the first bad entry is quoted.
        """
        shape = check_shape(shape)
        source, destination = as_index_vector("source", source), as_index_vector("destination", destination)
        relation = as_index_vector("relation", relation)
        check_same_device(source=source, destination=destination, relation=relation)
        if not source.numel() == destination.numel() == relation.numel():
            raise ValueError(
                "source, destination and relation must have one entry per edge, got "
                f"{source.numel()}, {destination.numel()} and {relation.numel()}"
            )
        if num_relations is not None:
            num_relations = check_count("num_relations", num_relations)
        *_, num_relations = check_ranges(
            ("destination", destination, shape[0], "destinations"),
            ("source", source, shape[1], "sources"),
            ("relation", relation, num_relations, "relations"),
        )
        _check_sizes(shape, num_relations)
        dtype = index_dtype((*shape[:1], max(shape[1], num_relations)), source.numel())
        with torch.inference_mode(False):  # made now, kept for a backward pass later
            arrays = [a.detach().to(dtype, copy=True).contiguous() for a in (source, destination, relation)]
        return cls._make(*arrays, shape, num_relations)

    @classmethod
    def from_graph(cls, graph: Graph, relation: IndexArray, num_relations: int | None = None) -> RelGraph:
        """The edges of a ``Graph``, with a relation for each, (E,) in the user's edge order."""
        if not isinstance(graph, Graph):
            raise TypeError(f"expected a gsb.Graph, got {type(graph).__name__}")
        rows, cols = csr_to_coo(graph.indptr, graph.indices, graph.edge_ids)
        return cls.from_triples(cols, rows, relation, graph.shape, num_relations)

    @classmethod
    def from_edge_index(
        cls,
        edge_index: IndexArray,
        edge_type: IndexArray,
        size: Sequence[int | None] | None = None,
        num_relations: int | None = None,
    ) -> RelGraph:
        """A graph from PyG's (2, E) ``edge_index``, row 0 the sources, and (E,) ``edge_type``.

        ``size`` is (number of sources, number of destinations), as in ``Graph.from_edge_index``.
        """
        source, destination, shape = edge_index_arrays(edge_index, size)
        return cls.from_triples(source, destination, edge_type, shape, num_relations)

    @classmethod
    def from_dgl(cls, graph: object, etype: IndexArray | None = None, num_relations: int | None = None) -> RelGraph:
        """A DGL graph: of several edge types, each a relation, or of one with a relation for each edge.

        Args:
            graph: a DGLGraph or block. With several edge types, relation r is ``graph.canonical_etypes[r]``, edges come
                relation by relation, and nodes type by type (``graph.srctypes``, ``graph.dsttypes``).
            etype: (E,) relation of each edge of a graph with one edge type, in DGL's edge order.
        """
        return cls._of_parts(rel_sources.dgl_parts(graph), etype, num_relations)

    @classmethod
    def from_pyg(cls, data: Any, num_relations: int | None = None) -> RelGraph:
        """A PyG ``HeteroData``, relation r being ``data.edge_types[r]``, or ``Data`` with ``edge_index`` and
        ``edge_type``.
        """
        if not hasattr(data, "edge_types"):
            size = (data.num_nodes, data.num_nodes) if getattr(data, "num_nodes", None) is not None else None
            if getattr(data, "edge_index", None) is None or getattr(data, "edge_type", None) is None:
                raise TypeError(
                    f"expected a HeteroData, or a Data with edge_index and edge_type, got {type(data).__name__}"
                )
            return cls.from_edge_index(data.edge_index, data.edge_type, size, num_relations)
        return cls._of_parts(rel_sources.pyg_parts(data), None, num_relations)

    @classmethod
    def _of_parts(cls, parts: rel_sources.Parts, etype: IndexArray | None, num_relations: int | None) -> RelGraph:
        source, destination, counts = parts.joined()
        shape = (sum(parts.destination_types.values()), sum(parts.source_types.values()))
        if etype is not None:
            if len(counts) != 1:
                raise ValueError(
                    f"etype is for graphs with one edge type; this one has {len(counts)}, each a relation: "
                    "leave etype out"
                )
            return cls.from_triples(source, destination, etype, shape, num_relations)
        made = cls.from_triples(
            source, destination, parts.relation_numbers(), shape, max(len(counts), num_relations or 0)
        )
        return made._named(parts.relations, parts.source_types, parts.destination_types, tuple(counts))

    def _named(self, relations, source_types, destination_types, edge_counts) -> RelGraph:
        """Set the names of what a new graph is made of; returns it."""
        _set(self, "relations", relations)
        _set(self, "source_types", source_types)
        _set(self, "destination_types", destination_types)
        _set(self, "edge_counts", edge_counts)
        return self

    def _with_ends(self, source: Tensor, destination: Tensor) -> RelGraph:
        """Return a graph of these edges between other nodes, of which there are as many of each type."""
        made = type(self).from_triples(source, destination, self.relation, self.shape, self.num_relations)
        return made._named(self.relations, self.source_types, self.destination_types, self.edge_counts)

    @classmethod
    def _make(cls, source: Tensor, destination: Tensor, relation: Tensor, shape, num_relations: int) -> RelGraph:
        ends = Ends(destination, source, relation, *shape, num_relations)
        return cls._new(
            shape=shape,
            num_edges=source.numel(),
            num_relations=num_relations,
            source=source,
            destination=destination,
            relation=relation,
            relations=None,
            source_types=None,
            destination_types=None,
            edge_counts=None,
            facts={},
            calls=KernelCache("calls of a relational graph", MOST_CALLS),
            _sides=(Side(ends, False), Side(ends, True)),
        )._found_by(source, destination, relation, shape[1], shape[0], num_relations)

    @property
    def device(self) -> torch.device:
        return self.source.device

    @property
    @fact
    def counts(self) -> RelationCounts:
        """Rows, edges, and distinct (destination, relation) and (source, relation) pairs."""
        return RelationCounts(self.shape[0], self.num_edges, *(self.side(end).pairs.count for end in (False, True)))

    def side(self, transposed: bool) -> Side:
        """The edges by destination; by source where ``transposed``."""
        return self._sides[transposed]

    @property
    def ends(self) -> Ends:
        """Both ends of the edges, with what is derived from them."""
        return self._sides[0].ends

    @fact
    def pairs_of_edges(self, transposed: bool) -> Graph:
        """Rows are those of a side, columns the pairs of the other one."""
        side, other = self.side(transposed), self.side(not transposed)
        return Graph.from_coo(side.arrays[0], other.pair_of_edge, (side.sizes[0], other.pairs.count))

    def split(
        self, transposed: bool, by_column: Chooser, *widths: int
    ) -> tuple[RelationSplit | None, RelationSplit | None]:
        """The row pairs of some relations and the column pairs of the others, None where there are none.

        by_column: says for arrays of row pairs, column pairs and edges of each relation, and ``widths``, whose edges go
        by column pairs.
        """
        return _split(self, transposed, by_column, widths)

    def of_relations(self, numbers: tuple[int, ...]) -> RelGraph:
        """The edges of some relations of a graph with node types, relation by relation, between the types at their
        ends, which keep their order. Made once, and not while a program is traced: that is a graph break."""
        return self.derived(OfRelations(numbers))

    def mean_scale(self, dtype: torch.dtype) -> Tensor:
        """(E,) for each edge 1 / the number of edges of its relation into its destination."""
        return self.ends.mean_scale(dtype)

    def keepers(self) -> Iterator[Keeper]:
        """The edges, both ends of them together, and each end."""
        yield Keeper("relational graph", self, (self.source, self.destination, self.relation))
        yield Keeper("both ends", self.ends)
        for of, side in zip(("destinations", "sources"), self._sides):
            yield Keeper(of, side)

    def __repr__(self) -> str:
        return (
            f"RelGraph({self.shape[0]} destinations, {self.shape[1]} sources, {self.num_edges} edges, "
            f"{self.num_relations} relations, {self.device})"
        )


@fact
def _split(rel: RelGraph, transposed: bool, by_column: Chooser, widths: tuple[int, ...]) -> tuple:
    sides = rel.side(transposed), rel.side(not transposed)
    ends = [side.pairs.relation_ptr for side in sides]
    edges = sides[0].pairs.indptr[ends[0]].diff()
    chosen = by_column(*(ptr.diff() for ptr in ends), edges, *widths)
    return tuple(side.split(own & (edges > 0)) for side, own in zip(sides, (~chosen, chosen)))


@dataclass(frozen=True)
class OfRelations(Derived[RelGraph]):
    """`RelGraph.of_relations`."""

    numbers: tuple[int, ...]

    def compute(self, rel: RelGraph) -> RelGraph:
        return _relations_of(rel, self.numbers)


MOST_CALLS = 256
"""Signatures of calls that a graph remembers."""
_set = object.__setattr__


@not_traced
def _relations_of(rel: RelGraph, numbers: tuple[int, ...]) -> RelGraph:
    names = tuple(rel.relations[number] for number in numbers)
    sources, destinations = (
        {kind: count for kind, count in types.items() if kind in {name[end] for name in names}}
        for types, end in ((rel.source_types, 0), (rel.destination_types, 2))
    )
    by_relation = [ends.split(list(rel.edge_counts)) for ends in (rel.source, rel.destination)]
    first = [rel_sources.offsets(types) for types in (rel.source_types, rel.destination_types)]
    edges = [
        (name[0], by_relation[0][number] - first[0][name[0]], name[2], by_relation[1][number] - first[1][name[2]])
        for number, name in zip(numbers, names)
    ]
    return RelGraph._of_parts(rel_sources.Parts(sources, destinations, names, edges), None, len(names))


def _check_sizes(shape: tuple[int, int], num_relations: int) -> None:
    """Arrays with an entry per node and per relation fit into memory, and pairs of the two can be numbered."""
    for name, count in (("destinations", shape[0]), ("sources", shape[1]), ("relations", num_relations)):
        check_memory(f"an array of the offsets of all {name}", (count + 1,), 8)
    if max(shape) * num_relations >= 2**63:
        raise ValueError(
            f"pairs of {max(shape)} nodes and {num_relations} relations are more than 2**63, which no index counts"
        )
