"""Sparse adjacencies: ``torch_geometric.utils.spmm``, ``torch_sparse.matmul`` and ``EdgeIndex.matmul``, which
``message_and_aggregate`` calls.

PyTorch and torch-sparse give the gradient of a maximum to the first of equal products, PyG itself gives equal shares.
What becomes of NaN and infinities then differs between the two, so that such operands are the framework's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch_geometric.typing
from torch import Tensor
from torch.nn import Parameter

from ...ops.message.api.spmm import spmm
from ...ops.message.message_op import message_op
from ...ops.message.operators import aggregate
from ...structures.checks import COMPLEX, FLOATING
from ...structures.graph import Graph
from ..core.graphs import GRAPHS
from ..core.refusal import PASS, Refusal
from ..lazy import INTO_ZEROS, as_real, refuse
from .releases import EdgeIndex

_REDUCES = {"sum": "sum", "add": "sum", "mean": "mean", "max": "max", "min": "min"}
_OF_EDGES = _REDUCES | {"amax": "max", "amin": "min"}
_FIRST = "first"
_CHOICES = {
    (reduce, weighted, ties): message_op(
        "mul(x1, x0)" if weighted else "x0", ("column", "edge")[: 1 + weighted], reduce, ties
    )
    for reduce in ("max", "min")
    for weighted in (False, True)
    for ties in (INTO_ZEROS, _FIRST)
}
_LAYOUTS = {torch.sparse_csr: "csr", torch.sparse_csc: "csc", torch.sparse_coo: "coo"}


def pyg_spmm(src, other: Tensor, reduce: str = "sum"):
    """``torch_geometric.utils.spmm``, of torch sparse matrices and those of torch-sparse."""
    if isinstance(src, EdgeIndex):
        return PASS  # it calls EdgeIndex.matmul
    if isinstance(src, torch_geometric.typing.SparseTensor):
        return sparse_matmul(src, other, reduce) if src.nnz() else PASS
    types = FLOATING | COMPLEX if reduce in ("sum", "add") else FLOATING
    if (refusal := _refuse_matrix(src, other) or _refuse_product(other, _REDUCES, reduce, types)) is not None:
        return refusal
    kind = _LAYOUTS[src.layout]
    if kind == "csr":
        first, second = src.crow_indices(), src.col_indices()
    elif kind == "csc":
        first, second = src.ccol_indices(), src.row_indices()
    else:
        first, second = src.indices()
    graph = _graph(kind, first, second, tuple(src.shape), src)
    return _product("spmm", graph, other, src.values(), reduce, _ties(other, src, reduce))


def sparse_matmul(src, other, reduce: str = "sum"):
    """The product of a matrix of torch-sparse with a dense one."""
    if (refusal := _refuse_product(other, _REDUCES, reduce)) is not None:
        return refusal
    rowptr, col, value = src.csr()
    shape = tuple(src.sparse_sizes())
    if col.device != other.device:
        return Refusal("the matrix differs from the features in type or device")
    if value is not None and value.dim() != 1:
        return Refusal("the matrix is not coalesced or its entries are not numbers")
    if shape[1] != other.shape[0]:
        return Refusal("the shapes of the matrix and the features do not fit")
    if value is not None:
        value = value.to(other.dtype)
    return _product("spmm", _graph("csr", rowptr, col, shape), other, value, reduce, _ties(other, value, reduce))


def of_torch_sparse() -> Callable:
    """The function that ``torch_sparse.matmul`` and the methods of its matrices call for a dense matrix."""
    called = torch_geometric.typing.torch_sparse.matmul
    return called.__globals__.get("spmm", called)


def is_sparse(src) -> bool:
    """Whether it is a sparse matrix of PyTorch."""
    return isinstance(src, Tensor) and src.layout is not torch.strided


def is_untraceable(src, other=None, reduce: str = "sum") -> bool:
    """Whether a traced program ends at ``torch_geometric.utils.spmm``, or PyTorch (2.4) fails to trace it."""
    return isinstance(src, EdgeIndex) or is_sparse(src)


def matmul(edges, other, input_value=None, other_value=None, reduce="sum", transpose=False):
    """``EdgeIndex.matmul`` with a dense matrix."""
    refusal = _refuse_edge_index(edges, other, input_value, other_value, transpose)
    if (refusal := refusal or _refuse_product(other, _OF_EDGES, reduce)) is not None:
        return refusal
    row, col = edges.as_tensor()
    shape = edges.get_sparse_size()
    if transpose:
        row, col, shape = col, row, shape[::-1]
    ties = _ties(other, input_value, reduce) if torch_geometric.typing.WITH_TORCH_SPARSE else INTO_ZEROS
    return _product("matmul", _graph("coo", row, col, tuple(shape)), other, input_value, reduce, ties)


def _graph(
    kind: str, first: Tensor, second: Tensor, shape: tuple[int, int], owner: Tensor | None = None
) -> Graph | Refusal:
    """The graph of an adjacency's two indices.

    Raises ValueError, as ``EdgeIndex.validate`` does, for indices out of range: PyTorch trusts them, and reads and
    writes beyond its memory.
    """
    try:
        return GRAPHS.find(kind, first, second, shape, owner)
    except MemoryError:
        return Refusal("the graph does not fit into memory")


def _product(operator: str, graph: Graph | Refusal, other: Tensor, value: Tensor | None, reduce: str, ties: str):
    """The product, and what it is counted as. ties: who gets the gradient of a maximum or minimum."""
    if type(graph) is Refusal:
        return graph
    reduce = _OF_EDGES[reduce]
    if other.is_complex():
        return _of_complex(graph, other, value), f"{operator}.{reduce}"
    if reduce not in ("max", "min"):
        return spmm(graph, other, value, reduce), f"{operator}.{reduce}"
    operands = [other] if value is None else [other, value.unsqueeze(1)]
    if ties == _FIRST and not all(bool(x.detach().sum().isfinite()) for x in operands):
        return Refusal(f"a gradient of the {reduce} of NaN or infinities may be asked for")
    out = aggregate(_CHOICES[reduce, value is not None, ties], graph, *operands)
    if ties == _FIRST:  # which leaves the neutral element in rows without entries
        out = out.masked_fill((graph.in_degrees == 0).unsqueeze(1), 0)
    return out, f"{operator}.{reduce}"


def _of_complex(graph: Graph, other: Tensor, value: Tensor | None) -> Tensor:
    """The sum of complex features, which are two real ones each."""
    x = as_real(other)
    if value is None or not value.is_complex():
        return torch.view_as_complex(spmm(graph, x, value))
    parts = as_real(value.clone()).unbind(-1)  # PyTorch has no such view of a matrix's own numbers
    real, imaginary = (torch.view_as_complex(spmm(graph, x, part)) for part in parts)
    return real + 1j * imaginary


def _ties(other, values, reduce: str) -> str:
    """Who gets the gradient of equal products, if somebody may ask for it."""
    asked = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (other, values))
    return _FIRST if asked and _OF_EDGES[reduce] in ("max", "min") else INTO_ZEROS


def _refuse_product(other, reduces: dict[str, str], reduce: str, types=FLOATING) -> Refusal | None:
    if reduce not in reduces:
        return Refusal(f"the reduction is {reduce!r}")
    if type(other) in (Tensor, Parameter) and (other.dim() != 2 or other.layout is not torch.strided):
        return Refusal("the features are not a dense matrix")
    return refuse(other, types)


def _refuse_matrix(src, other) -> Refusal | None:
    if type(src) is not Tensor and type(src) is not Parameter:
        return Refusal(f"the matrix is a {type(src).__name__}")
    if src.layout not in _LAYOUTS or src.dim() != 2:
        return Refusal(f"the matrix has layout {src.layout}")
    if not isinstance(other, Tensor) or src.device != other.device or src.dtype is not other.dtype:
        return Refusal("the matrix differs from the features in type or device")
    if src.dense_dim() or (src.layout is torch.sparse_coo and not src.is_coalesced()):
        return Refusal("the matrix is not coalesced or its entries are not numbers")
    if src.shape[1] != other.shape[0]:
        return Refusal("the shapes of the matrix and the features do not fit")
    return None


def _refuse_edge_index(edges, other, value, other_value, transpose: bool) -> Refusal | None:
    if not isinstance(other, Tensor) or isinstance(other, EdgeIndex) or other_value is not None:
        return Refusal("the product of two sparse matrices")
    if not (edges.is_sorted_by_col if transpose else edges.is_sorted_by_row):
        return Refusal("the edge index is not sorted for this product")
    if edges.device != other.device:
        return Refusal("the edge index and the features are on two devices")
    if other.dim() != 2 or other.shape[0] != edges.get_sparse_size(0 if transpose else 1):
        return Refusal("the shapes of the edge index and the features do not fit")
    if value is not None and (
        type(value) not in (Tensor, Parameter)
        or value.shape != edges.shape[1:]
        or value.dtype is not other.dtype
        or value.device != other.device
    ):
        return Refusal("the values are not one number per edge of the features' type")
    return None
