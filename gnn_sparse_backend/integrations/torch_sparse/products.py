"""Products of a sparse matrix with a dense one or another sparse one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...deferred import later
from ..core.substitutes.scripted import counted
from ..torch_scatter import reductions
from ..torch_scatter.segment_csr import extreme_segments
from .storage import SparseStorage

if TYPE_CHECKING:
    from ...ops.message.api import aggregate as aggregating
    from ...ops.message.api import spmm as kernels
    from .. import lazy
    from . import gustavson
else:
    aggregating = later(__name__, "...ops.message.api.aggregate")
    kernels = later(__name__, "...ops.message.api.spmm")
    lazy = later(__name__, "..lazy")
    gustavson = later(__name__, ".gustavson")

_counted = counted("torch_sparse")
_REDUCES = "sum", "add", "mean", "min", "max"


@_counted
def matmul(src: Any, other: Any, reduce: str = "sum") -> Any:
    """The product of a sparse matrix (M, N) with ``other``.

    Args:
        other: (..., N, F), of which products with entries are reduced over those of a row, to (..., M, F); or a sparse
            matrix (N, K), which gives one (M, K), with values where one of both has them.
        reduce: ``"sum"`` or ``"add"``, ``"mean"``, ``"min"`` or ``"max"``; of sparse matrices a sum. Rows without
            entries are 0. The gradient of an extreme goes to the first that is equal to it.

    Raises ValueError for shapes that do not fit, or another ``reduce``, and NotImplementedError for another one than a
    sum of sparse matrices.
    """
    return dense_product(src, other, reduce) if isinstance(other, Tensor) else _sparse(src, other, reduce)


@_counted
def spmm(src: Any, other: Tensor, reduce: str = "sum") -> Tensor:
    return dense_product(src, other, reduce)


@_counted
def spmm_sum(src: Any, other: Tensor) -> Tensor:
    return dense_product(src, other, "sum")


@_counted
def spmm_add(src: Any, other: Tensor) -> Tensor:
    return dense_product(src, other, "sum")


@_counted
def spmm_mean(src: Any, other: Tensor) -> Tensor:
    return dense_product(src, other, "mean")


@_counted
def spmm_min(src: Any, other: Tensor) -> tuple[Tensor, Tensor]:
    """The minima, and the entries that gave them, as many as there are where a row has none."""
    return extreme_product(src, other, "min")


@_counted
def spmm_max(src: Any, other: Tensor) -> tuple[Tensor, Tensor]:
    return extreme_product(src, other, "max")


@_counted
def spspmm(src: Any, other: Any, reduce: str = "sum") -> Any:
    return _sparse(src, other, reduce)


@_counted
def spspmm_sum(src: Any, other: Any) -> Any:
    return _sparse(src, other, "sum")


@_counted
def spspmm_add(src: Any, other: Any) -> Any:
    return _sparse(src, other, "sum")


def dense_product(src: Any, other: Tensor, reduce: str) -> Tensor:
    if reduce not in _REDUCES:
        raise ValueError(f"reduce must be one of {', '.join(map(repr, _REDUCES))}, got {reduce!r}")
    other = other[:, None] if other.dim() == 1 else other
    rows, columns = src.sparse_sizes()
    if other.shape[-2] != columns:
        raise ValueError(f"a matrix of {src.sparse_sizes()} has no product with one of {tuple(other.shape)}")
    value = src.storage.value()
    value = None if value is None else value.to(other.dtype)
    x = other.movedim(-2, 0)
    flat = x.reshape(columns, -1) if x.dim() > 2 else x
    if (value is not None and value.dim() != 1) or not src.nnz() or lazy.refuse(flat) is not None:
        return _by_messages(src, other, value, reduce)
    out = _by_kernel(src, flat, value, reduce)
    return out.view(rows, *x.shape[1:]).movedim(0, -2) if x.dim() > 2 else out


def _by_kernel(src: Any, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
    graph = src.storage.graph()
    if reduce in ("sum", "add", "mean"):
        return kernels.spmm(graph, x, value, "mean" if reduce == "mean" else "sum")
    if value is None:
        out = aggregating.aggregate(graph, "x0", [("u", x)], reduce, ties="first")
    else:
        out = aggregating.aggregate(graph, "mul(x1, x0)", [("u", x), ("e", value[:, None])], reduce, ties="first")
    return out.masked_fill((src.storage.rowcount() == 0)[:, None], 0)


def _by_messages(src: Any, other: Tensor, value: Tensor | None, reduce: str) -> Tensor:
    """Reduce what every entry gives, for values and types that kernels do not take."""
    messages = _messages(src, other, value)
    return reductions.reduced(reduce, messages, src.storage.row(), -2, None, src.sparse_size(0))


def _messages(src: Any, other: Tensor, value: Tensor | None) -> Tensor:
    messages = other.index_select(-2, src.storage.col())
    return messages if value is None else messages * value.unsqueeze(-1)


def extreme_product(src: Any, other: Tensor, reduce: str) -> tuple[Tensor, Tensor]:
    other = other[:, None] if other.dim() == 1 else other
    value = src.storage.value()
    messages = _messages(src, other, None if value is None else value.to(other.dtype))
    pointers = src.storage.rowptr()
    return extreme_segments(reduce, messages, pointers.expand(*messages.shape[:-2], -1))


def _sparse(src: Any, other: Any, reduce: str) -> Any:
    if reduce not in ("sum", "add"):
        if reduce in _REDUCES:
            raise NotImplementedError(f"the product of sparse matrices is a sum, got reduce={reduce!r}")
        raise ValueError(f"reduce must be 'sum' of sparse matrices, got {reduce!r}")
    if src.sparse_size(1) != other.sparse_size(0):
        raise ValueError(f"a matrix of {src.sparse_sizes()} has no product with one of {other.sparse_sizes()}")
    values = [each.storage.value() for each in (src, other)]
    if not src.device().type == other.device().type == "cpu" or any(v is not None and v.dim() > 1 for v in values):
        return _by_torch(src, other)
    return src.from_storage(gustavson.product(src.storage, other.storage))


def _by_torch(src: Any, other: Any) -> Any:
    product = torch.sparse.mm(src.to_torch_sparse_coo_tensor(), other.to_torch_sparse_coo_tensor()).coalesce()
    row, col = product.indices()
    value = product.values() if src.has_value() or other.has_value() else None
    made = SparseStorage(row, None, col, value, tuple(product.shape), is_sorted=True, trust_data=True)
    return src.from_storage(made)
