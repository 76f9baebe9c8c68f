"""From a lazy message to its sum or mean over the edges into each node: one sparse kernel."""
from __future__ import annotations

import torch
from torch import Tensor

from ...ops.spmm import spmm
from ..counters import ours
from .gather import plain_index
from .graphs import GraphStore
from .lazy import HANDLERS, LazyMessage, Recipe

GRAPHS = GraphStore()
"""Graphs of the index tensors that PyG layers were called with."""

_REDUCES = {"sum": "sum", "add": "sum", "mean": "mean"}


def reduce_message(lazy: LazyMessage, index: Tensor, dim: int, dim_size: int | None, reduce: str) -> Tensor:
    """``torch_geometric.utils.scatter`` of a lazy message.

    Returns the (dim_size, ...) result of the sparse kernel, or NotImplemented with the message computed, so that the
    framework goes on by itself and reports what is wrong in its own words.
    """
    recipe = lazy._recipe
    index = plain_index(index)
    reason = _why_not(recipe, index, dim, dim_size, reduce)
    if reason is None:
        recipe.check_unmodified()
        if dim_size is None:
            dim_size = int(index.max()) + 1 if index.numel() else 0
        out = fused(recipe, index, dim_size, _REDUCES[reduce])
        if out is not None:
            return out
        reason = "an index is out of range"
    recipe.value(reason)
    return NotImplemented


def fused(recipe: Recipe, index: Tensor, dim_size: int, reduce: str) -> Tensor | None:
    """The reduction of a message by ``index`` (E,) into (dim_size, ...), or None if an index is out of range."""
    features, weight, trailing = recipe.features, recipe.weight, recipe.shape[1:]
    try:
        graph = GRAPHS.find("coo", index, recipe.index, (dim_size, features.shape[0]))
    except ValueError:
        return None
    if features.dtype is not recipe.dtype:
        features = features.to(recipe.dtype)
    if weight is None:
        kind = "copy"
        if features.dim() != 2:
            features = features.flatten(1)
    else:
        kind = "mul"
        if weight.dtype is not recipe.dtype:
            weight = weight.to(recipe.dtype)
        if weight.dim() == 3 and weight.shape[1] > 1:
            weight = weight.squeeze(2)
            features = features.reshape(features.shape[:1] + trailing)
        else:
            weight = weight.reshape(-1)
            if features.dim() != 2:
                features = features.flatten(1)
    out = spmm(graph, features, weight, reduce)
    ours("pyg", f"{kind}.{reduce}")
    return out if out.shape[1:] == trailing else out.view((dim_size, *trailing))


def _why_not(recipe: Recipe, index: Tensor | None, dim: int, dim_size, reduce: str) -> str | None:
    if reduce not in _REDUCES:
        return f"the reduction is {reduce!r}"
    if dim != 0 and dim != -len(recipe.shape):
        return f"the reduction is over dimension {dim}"
    if dim_size is not None and type(dim_size) is not int:
        return "the number of nodes is not an int"
    if index is None or index.shape[0] != recipe.shape[0]:
        return "the reduction's index is not one int64 per edge"
    if not recipe.pending():
        return "the message was already computed"
    return None


def _scatter_add(inplace: bool):
    def scatter_add(out, dim, index, src):
        if not _may_add(out, dim, src) or type(index) is not Tensor or index.shape != src.shape \
                or any(index.stride()[1:]) and index.shape[1:].numel() != 1:
            return NotImplemented
        return _add(out, dim, index.select(1, 0) if index.dim() == 2 else index[:, 0, 0], src, inplace)
    return scatter_add


def _index_add(inplace: bool):
    def index_add(out, dim, index, source):
        if not _may_add(out, dim, source):
            return NotImplemented
        return _add(out, dim, index, source, inplace)
    return index_add


def _may_add(out, dim, src) -> bool:
    return (type(src) is LazyMessage and type(out) is Tensor and dim in (0, -out.dim())
            and out.shape[1:] == src.shape[1:] and out.dtype is src._recipe.dtype
            and out.device == src._recipe.features.device and src.shape[1:].numel() > 0)


def _add(out: Tensor, dim: int, index: Tensor, src: LazyMessage, inplace: bool):
    sums = reduce_message(src, index, dim, out.shape[0], "sum")
    if sums is NotImplemented:
        return NotImplemented
    return out.add_(sums) if inplace else out + sums


HANDLERS.update({
    Tensor.scatter_add_: _scatter_add(inplace=True),
    Tensor.scatter_add: _scatter_add(inplace=False), torch.scatter_add: _scatter_add(inplace=False),
    Tensor.index_add_: _index_add(inplace=True),
    Tensor.index_add: _index_add(inplace=False), torch.index_add: _index_add(inplace=False),
})
