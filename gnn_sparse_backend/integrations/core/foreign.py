"""The graphs inside objects of other libraries, recognised without importing the libraries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from ...structures.graph import Graph
from ...structures.relational.graph import RelGraph
from ...tuning.precompile_operators import KINDS  # of all families, which it imports

_ACCEPTED = (
    "a gsb.Graph, RelGraph, Segments or KernelMap, a DGL graph or block, a PyG Data, HeteroData, Batch, EdgeIndex or "
    "edge_index of shape (2, edges), a pair (edge_index, edge_type), a SciPy sparse matrix, a sparse torch tensor, or "
    "a dataset or iterable of these"
)
# Names under which DGL's graphs of one edge type keep the relations of their edges: as dgl.to_homogeneous gives it, and
# as users do.
_DGL_TYPES = ("_TYPE", "etype")


def graphs_of(data, limit: int | None = None) -> Iterator[tuple[str, Graph]]:
    """(name, graph) of every graph in ``data``; rows are destinations.

    A matrix is taken as the adjacency ``matrix[destination, source]``. Graphs of several edge types give one graph for
    each type.
    limit: how many members of each dataset or iterable to look at; all by default.

    Raises TypeError for what holds no graph, and ValueError for indices that are none.
    """
    found = _graphs_in(data)
    if found is not None:
        yield from found
        return
    for number, member in enumerate(_members_or_raise(data)):
        if limit is not None and number >= limit:
            return
        for name, graph in graphs_of(member, limit):
            yield f"[{number}] {name}", graph


def structures_of(data, kinds: Iterable[type]) -> Iterator[tuple[str, Any]]:
    """(name, structure) of everything in ``data`` that operators on these ``kinds`` run on: ``Graph``, ``RelGraph``,
    ``Segments``, ``KernelMap``.

    Structures of this package are given as they are, whatever the kinds. Another library's graph gives those of
    ``graphs_of``, and its edges with their types as one ``RelGraph``.

    Raises as ``graphs_of``; ValueError for a graph without edge types where a ``RelGraph`` is wanted, and for any where
    what no other library has is.
    """
    if type(data) in KINDS:
        yield KINDS[type(data)].name(data), data
        return
    kinds = tuple(kinds)
    relations = _relations_in(data) if RelGraph in kinds else None
    graphs = _graphs_in(data) if relations is None or Graph in kinds else ()
    if graphs is None and relations is None:
        for number, member in enumerate(_members_or_raise(data)):
            for name, structure in structures_of(member, kinds):
                yield f"[{number}] {name}", structure
        return
    missing = next((kind for kind in kinds if kind not in (Graph, RelGraph)), None)
    if missing is None and RelGraph in kinds and relations is None:
        missing = RelGraph
    if missing is not None:
        raise ValueError(
            f"some operator in ops runs on {KINDS[missing].words}, which an object of type {type(data).__name__} is not"
            + (": it has no types of edges" if missing is RelGraph else "")
        )
    if Graph in kinds:
        yield from graphs
    if relations is not None:
        yield f"{relations[0]} {KINDS[RelGraph].name(relations[1])}", relations[1]


def _graphs_in(data) -> Iterable[tuple[str, Graph]] | None:
    """What the first recogniser that knows ``data`` finds; None where none does."""
    return next((found for recognise in _RECOGNISERS if (found := recognise(data)) is not None), None)


def _members(data) -> Iterable | None:
    """The members of a collection; None for what is none."""
    if isinstance(data, (str, bytes, dict, Tensor)):
        return None
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):  # datasets may have no end to iterate to
        return (data[number] for number in range(len(data)))
    return data if hasattr(data, "__iter__") else None


def _members_or_raise(data) -> Iterable:
    members = _members(data)
    if members is None:
        raise TypeError(
            f"no graph in an object of type {type(data).__module__}.{type(data).__qualname__}: give {_ACCEPTED}"
        )
    return members


def _own(data):
    if isinstance(data, Graph):
        return [(_size(data), data)]
    if isinstance(data, RelGraph):
        raise TypeError("expected a graph, got a gsb.RelGraph: give the graphs of its relations")
    if type(data) in KINDS:
        raise TypeError(f"expected a graph, got gsb.{type(data).__name__}")
    return None


def _scipy(data):
    if type(data).__module__.partition(".")[0] != "scipy":
        return None
    graph = Graph.from_scipy(data)
    return [(f"SciPy {data.format} {_size(graph)}", graph)]


def _torch_sparse(data):
    if not isinstance(data, Tensor) or data.layout is torch.strided or _is(data, "torch_geometric", "EdgeIndex"):
        return None
    if data.dim() != 2:
        raise ValueError(f"a sparse tensor must have two dimensions to be a graph, got shape {tuple(data.shape)}")
    shape = tuple(data.shape)
    if data.layout is torch.sparse_csr:
        graph = Graph.from_csr(data.crow_indices(), data.col_indices(), shape)
    else:
        coo = data if data.layout is torch.sparse_coo else data.to_sparse_coo()
        row, col = coo.coalesce().indices()
        graph = Graph.from_coo(row, col, shape)
    return [(f"torch {str(data.layout).removeprefix('torch.')} {_size(graph)}", graph)]


def _edge_index(data):
    if not isinstance(data, Tensor) or data.layout is not torch.strided:
        return None
    size = None
    if _is(data, "torch_geometric", "EdgeIndex"):
        size = data.get_sparse_size()  # (sources, destinations), or the reverse of a transposed one
        if getattr(data, "_transposed", False):
            size = (size[1], size[0])
    graph = Graph.from_edge_index(data, size)
    return [(f"edge_index {_size(graph)}", graph)]


def _typed_edges(data):
    return _edge_index(data[0]) if _is_typed(data) else None


def _dgl(data):
    if not _is_dgl(data):
        return None
    several = len(data.canonical_etypes) > 1

    def found():
        for etype in data.canonical_etypes:
            graph = Graph.from_dgl(data, etype)
            yield (f"DGL {'/'.join(etype) + ' ' if several else ''}{_size(graph)}"), graph

    return found()


def _pyg(data):
    if _is_hetero(data):
        return _hetero(data)
    if not _is(data, "torch_geometric", "BaseData") or not hasattr(data, "num_nodes"):
        return None
    edges, transpose = data.get("edge_index"), data.get("adj_t")
    if edges is None and transpose is None:
        raise ValueError(f"{type(data).__name__} has neither edge_index nor adj_t: it has {', '.join(data.keys())}")
    graph = _pyg_edges(edges, transpose, (data.num_nodes, data.num_nodes))
    return [(f"PyG {_size(graph)}", graph)]


def _hetero(data):
    for etype in data.edge_types:
        store = data[etype]
        size = (data[etype[0]].num_nodes, data[etype[2]].num_nodes)
        graph = _pyg_edges(store.get("edge_index"), store.get("adj_t"), size)
        yield f"PyG {'/'.join(etype)} {_size(graph)}", graph


def _relations_in(data) -> tuple[str, RelGraph] | None:
    """(library, edges with their types) of a graph that has types of edges; None for anything else."""
    if _is_typed(data):
        return "edge_index, edge_type", RelGraph.from_edge_index(*data)
    if _is_dgl(data):
        kinds = data.canonical_etypes
        if len(kinds) > 1 or (kinds and kinds[0][0] != kinds[0][2]):
            return "DGL", RelGraph.from_dgl(data)
        types = next((data.edata[name] for name in _DGL_TYPES if name in data.edata), None)
        return None if types is None else ("DGL", RelGraph.from_dgl(data, types))
    if _is_hetero(data):
        return "PyG", RelGraph.from_pyg(data)
    if not _is(data, "torch_geometric", "BaseData") or data.get("edge_index") is None or data.get("edge_type") is None:
        return None
    return "PyG", RelGraph.from_pyg(data)


def _is_typed(data) -> bool:
    """Whether it is a pair (edge_index, edge_type) of tensors."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        return False
    if not all(isinstance(x, Tensor) and x.layout is torch.strided and not x.is_floating_point() for x in data):
        return False
    index, types = data
    return index.dim() == 2 and types.dim() == 1 and index.shape == (2, types.numel())


def _is_dgl(data) -> bool:
    return type(data).__module__.partition(".")[0] == "dgl" and hasattr(data, "canonical_etypes")


def _is_hetero(data) -> bool:
    """Whether it is a PyG ``HeteroData``."""
    return all(hasattr(data, name) for name in ("edge_types", "node_types", "edge_stores"))


def _pyg_edges(edges, transpose, size) -> Graph:
    if edges is not None:
        return Graph.from_edge_index(edges, size)
    if hasattr(transpose, "csr"):  # torch_sparse.SparseTensor
        indptr, indices, _ = transpose.csr()
        return Graph.from_csr(indptr, indices, (size[1], size[0]))
    return next(graph for _, graph in graphs_of(transpose))


def _is(data, package: str, name: str) -> bool:
    """Whether the object is of a class of this name in a package that may not be imported."""
    return any(c.__name__ == name and c.__module__.partition(".")[0] == package for c in type(data).__mro__)


def _size(graph: Graph) -> str:
    return KINDS[Graph].name(graph)


_RECOGNISERS = (_own, _scipy, _torch_sparse, _edge_index, _typed_edges, _dgl, _pyg)
"""Each takes an object, and gives an iterable of (name, graph), or None for what it does not know."""
