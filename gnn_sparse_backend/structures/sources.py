"""From the objects of libraries and frameworks to index arrays, without importing the frameworks."""

from __future__ import annotations

import torch
from torch import Tensor

from ..formats.counts import extent_of
from .checks import as_index_vector, plain_tensor


def scipy_arrays(matrix):
    """``("csr", (indptr, indices), shape)`` or ``("coo", (row, col), shape)`` of a SciPy sparse matrix."""
    from scipy import sparse

    if not sparse.issparse(matrix):
        raise TypeError(f"expected a SciPy sparse matrix or array, got {type(matrix).__name__}")
    if matrix.ndim != 2:
        raise ValueError(f"expected a 2-D sparse array, got shape {matrix.shape}")
    if matrix.format == "coo":
        return "coo", (matrix.row, matrix.col), matrix.shape
    csr = matrix.tocsr()
    return "csr", (csr.indptr, csr.indices), csr.shape


def edge_index_arrays(edge_index, size) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """``(source, destination, (destinations, sources))`` of a (2, edges) tensor in PyG's convention."""
    if not isinstance(edge_index, Tensor):
        raise TypeError(f"edge_index must be a torch tensor of shape (2, edges), got {type(edge_index).__name__}")
    if edge_index.layout is not torch.strided:
        raise TypeError(
            f"edge_index must be a dense (2, edges) tensor, got layout {edge_index.layout}; "
            "use Graph.from_csr with crow_indices() and col_indices() for a sparse CSR tensor"
        )
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise ValueError(f"edge_index must have shape (2, edges), got {tuple(edge_index.shape)}")
    plain = plain_tensor(edge_index)
    source, destination = as_index_vector("edge_index[0]", plain[0]), as_index_vector("edge_index[1]", plain[1])
    num_sources, num_destinations = (None, None) if size is None else _pair(size)
    if num_sources is None or num_destinations is None:
        inferred = extent_of(plain)
        num_sources = inferred if num_sources is None else num_sources
        num_destinations = inferred if num_destinations is None else num_destinations
    return source, destination, (num_destinations, num_sources)


def check_plain(edge_index: Tensor) -> None:
    """A tensor may be left without its memory: it has no class that knows more of it."""
    if type(edge_index) is not Tensor:
        raise TypeError(
            f"release=True takes a plain tensor, got {type(edge_index).__name__}; give its data, edge_index.as_tensor()"
        )


def let_go(edge_index: Tensor) -> None:
    """Leave a tensor without its memory, with shape (0,), which no layer takes for edges."""
    with torch.inference_mode(edge_index.is_inference()):
        edge_index.set_()


def dgl_arrays(graph, etype):
    """``(indptr, indices, edge_ids, (destinations, sources))`` of a DGL graph, without a copy where DGL has the CSR."""
    index = getattr(graph, "_graph", None)
    if index is None or not hasattr(index, "adjacency_matrix_tensors"):
        raise TypeError(f"expected a DGL graph or block, got {type(graph).__name__}")
    if etype is None:
        if len(graph.canonical_etypes) != 1:
            raise ValueError(
                f"the graph has {len(graph.canonical_etypes)} edge types {graph.canonical_etypes}; "
                "say which with etype=, or take one with graph[etype]"
            )
        number = 0
    else:
        number = graph.get_etype_id(etype)
    rows, cols, indptr, indices, edge_ids = index.adjacency_matrix_tensors(number, True, "csr")
    # DGL may leave the ids out when they count up
    return indptr, indices, edge_ids if edge_ids.numel() == indices.numel() else None, (rows, cols)


def _pair(size):
    try:
        first, second = size
    except (TypeError, ValueError):
        raise TypeError(f"size must be (number of sources, number of destinations), got {size!r}") from None
    return first, second
