"""Sparse adjacencies: ``torch_geometric.utils.spmm`` and ``EdgeIndex.matmul``, which ``message_and_aggregate`` calls.

Of equal products PyTorch, and torch-sparse where it is installed, give the gradient of a maximum to the first one, a
rule that our kernels do not have: a maximum or minimum of theirs is ours where nobody asks for its gradient. PyG itself
has equal shares.
"""

from __future__ import annotations

import torch
import torch_geometric.typing
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.edge_index import EdgeIndex

from ...ops.message.api.spmm import spmm
from ...ops.message.message_op import message_op
from ...ops.message.operators import aggregate
from ...structures.graph import Graph
from ..core.graphs import GRAPHS
from ..core.refusal import PASS, Refusal
from ..lazy import INTO_ZEROS, refuse

_REDUCES = {"sum": "sum", "add": "sum", "mean": "mean", "max": "max", "amax": "max", "min": "min", "amin": "min"}
_CHOICES = {
    (reduce, weighted): message_op(
        "mul(x1, x0)" if weighted else "x0", ("column", "edge")[: 1 + weighted], reduce, INTO_ZEROS
    )
    for reduce in ("max", "min")
    for weighted in (False, True)
}
_LAYOUTS = {torch.sparse_csr: "csr", torch.sparse_csc: "csc", torch.sparse_coo: "coo"}


def pyg_spmm(src, other: Tensor, reduce: str = "sum"):
    """``torch_geometric.utils.spmm``: sums and means over torch sparse matrices."""
    if isinstance(src, EdgeIndex):
        return PASS  # it calls EdgeIndex.matmul
    if (
        refusal := _refuse_matrix(src, other) or _refuse_product(other, reduce) or _refuse_gradient(other, src, reduce)
    ) is not None:
        return refusal
    kind = _LAYOUTS[src.layout]
    if kind == "csr":
        first, second = src.crow_indices(), src.col_indices()
    elif kind == "csc":
        first, second = src.ccol_indices(), src.row_indices()
    else:
        first, second = src.indices()
    graph = _graph(kind, first, second, tuple(src.shape), src)
    return graph if type(graph) is Refusal else _product("spmm", graph, other, src.values(), reduce)


def is_sparse(src) -> bool:
    """Whether it is a sparse matrix of PyTorch."""
    return isinstance(src, Tensor) and src.layout is not torch.strided


def is_untraceable(src, other=None, reduce: str = "sum") -> bool:
    """Whether a traced program ends at ``torch_geometric.utils.spmm``, or PyTorch (2.4) fails to trace it."""
    return isinstance(src, EdgeIndex) or is_sparse(src)


def matmul(edges, other, input_value=None, other_value=None, reduce="sum", transpose=False):
    """``EdgeIndex.matmul`` with a dense matrix."""
    refusal = _refuse_edge_index(edges, other, input_value, other_value, transpose) or _refuse_product(other, reduce)
    if refusal is None and torch_geometric.typing.WITH_TORCH_SPARSE:
        refusal = _refuse_gradient(other, input_value, reduce)
    if refusal is not None:
        return refusal
    row, col = edges._data
    shape = edges.get_sparse_size()
    if transpose:
        row, col, shape = col, row, shape[::-1]
    graph = _graph("coo", row, col, tuple(shape))
    return graph if type(graph) is Refusal else _product("matmul", graph, other, input_value, reduce)


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


def _product(operator: str, graph, other: Tensor, value: Tensor | None, reduce: str) -> tuple[Tensor, str]:
    reduce = _REDUCES[reduce]
    if reduce in ("max", "min"):
        operands = [other] if value is None else [other, value.unsqueeze(1)]
        out = aggregate(_CHOICES[reduce, value is not None], graph, *operands)
    else:
        out = spmm(graph, other, value, reduce)
    return out, f"{operator}.{reduce}"


def _refuse_product(other, reduce: str) -> Refusal | None:
    if reduce not in _REDUCES:
        return Refusal(f"the reduction is {reduce!r}")
    if type(other) in (Tensor, Parameter) and (other.dim() != 2 or other.layout is not torch.strided):
        return Refusal("the features are not a dense matrix")
    return refuse(other)


def _refuse_gradient(other, values, reduce: str) -> Refusal | None:
    asked = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (other, values))
    if asked and _REDUCES[reduce] in ("max", "min"):
        return Refusal(f"a gradient of the {_REDUCES[reduce]} may be asked for")
    return None


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
