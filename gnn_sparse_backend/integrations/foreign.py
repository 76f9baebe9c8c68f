"""The graphs inside objects of other libraries, recognised without importing the libraries."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from ..ops.graph import Graph
from ..ops.rel_graph import RelGraph

_ACCEPTED = ("a gsb.Graph, a DGL graph or block, a PyG Data, HeteroData, Batch, EdgeIndex or edge_index of shape "
             "(2, edges), a SciPy sparse matrix, a sparse torch tensor, or a dataset or iterable of these")


def graphs_of(data, limit: int | None = None) -> Iterator[tuple[str, Graph]]:
    """(name, graph) of every graph in ``data``; rows are destinations.

    A matrix is taken as the adjacency ``matrix[destination, source]``. Graphs of several edge types give one graph for each type.
    limit: how many members of each dataset or iterable to look at; all by default.

    Raises TypeError for what holds no graph, and ValueError for indices that are none.
    """
    for recognise in _RECOGNISERS:
        found = recognise(data)
        if found is not None:
            yield from found
            return
    members = _members(data)
    if members is None:
        raise TypeError(f"no graph in an object of type {type(data).__module__}.{type(data).__qualname__}: give {_ACCEPTED}")
    for number, member in enumerate(members):
        if limit is not None and number >= limit:
            return
        for name, graph in graphs_of(member, limit):
            yield f"[{number}] {name}", graph


def recogniser(function: Callable) -> Callable:
    """Let ``graphs_of`` ask ``function(data)``: an iterable of (name, graph), or None for what it does not know."""
    _RECOGNISERS.append(function)
    return function


_RECOGNISERS: list[Callable[[object], Iterable[tuple[str, Graph]] | None]] = []


def _members(data) -> Iterable | None:
    """The members of a collection; None for what is none."""
    if isinstance(data, (str, bytes, dict, Tensor)):
        return None
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):  # datasets may have no end to iterate to
        return (data[number] for number in range(len(data)))
    return data if hasattr(data, "__iter__") else None


@recogniser
def _own(data):
    if isinstance(data, Graph):
        return [(_size(data), data)]
    if isinstance(data, RelGraph):
        raise TypeError("the products of a RelGraph have no plans to choose: give the graphs of its relations")
    return None


@recogniser
def _scipy(data):
    if type(data).__module__.partition(".")[0] != "scipy":
        return None
    graph = Graph.from_scipy(data)
    return [(f"SciPy {data.format} {_size(graph)}", graph)]


@recogniser
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


@recogniser
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


@recogniser
def _dgl(data):
    if type(data).__module__.partition(".")[0] != "dgl" or not hasattr(data, "canonical_etypes"):
        return None
    several = len(data.canonical_etypes) > 1

    def found():
        for etype in data.canonical_etypes:
            graph = Graph.from_dgl(data, etype)
            yield (f"DGL {'/'.join(etype) + ' ' if several else ''}{_size(graph)}"), graph
    return found()


@recogniser
def _pyg(data):
    if hasattr(data, "edge_types") and hasattr(data, "node_types") and hasattr(data, "edge_stores"):  # HeteroData
        return _hetero(data)
    if not _is(data, "torch_geometric", "BaseData") or not hasattr(data, "num_nodes"):
        return None
    store = data
    edges, transpose = store.get("edge_index"), store.get("adj_t")
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
    return f"{graph.shape[0]:,} x {graph.shape[1]:,}, {graph.num_edges:,} edges"
