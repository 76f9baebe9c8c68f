"""``torch_geometric.utils.scatter``, ``segment`` and ``softmax``: of lazy messages, and of ordinary edge features."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import torch
import torch_geometric.typing
from torch import Tensor

from ...compiler.language.reduction import REDUCTIONS
from ...ops.attention.operators import softmax_edges
from ...ops.message.message_op import message_op
from ...ops.message.operators import aggregate
from ..core.counters import fallback, ours
from ..lazy import LazyTensor, NoGraph, materialise, reduced, softmaxed, value, why_not
from .gather import plain_index
from .host import HOST, IndexEnd, segments

_REDUCES = {"sum": "sum", "mean": "mean", "mul": "prod", "max": "max", "min": "min"}
_REDUCES |= {"add": "sum", "amax": "max", "amin": "min"}
_FORMS = {
    name: message_op("x0", ("edge",), name, "even" if reduction.chooses else None)
    for name, reduction in REDUCTIONS.items()
}


def fused_scatter(original):
    """``torch_geometric.utils.scatter`` that reduces on our kernels."""

    @functools.wraps(original)
    def scatter(src: Tensor, index: Tensor, dim: int = 0, dim_size: int | None = None, reduce: str = "sum") -> Tensor:
        if torch.compiler.is_compiling():
            return original(src, index, dim, dim_size, reduce)
        reason = _why_not_reduce(src, reduce) or _why_not(src, index, dim, dim_size)
        if reason is None:
            try:
                return _scatter(src, plain_index(index), dim % src.dim(), dim_size, _REDUCES[reduce])
            except NoGraph:
                reason = "an index is out of range"
        fallback("pyg", f"scatter.{reduce}", reason)
        return original(materialise(src, reason), index, dim, dim_size, reduce)

    return scatter


def _scatter(src: Tensor, index: Tensor, dim: int, size: int | None, reduce: str) -> Tensor:
    size = _size(index) if size is None else size
    if type(src) is LazyTensor:
        if dim == 0:
            out = reduced(src, IndexEnd(index, size), reduce)
            if out is not None:
                return out
        src = value(src, "its reduction")
    out = _along(dim, src, lambda x: aggregate(_FORMS[reduce], HOST.graph(IndexEnd(index, size), None), x))
    ours("pyg", f"scatter.{reduce}")
    return out


def fused_segment(original):
    """``torch_geometric.utils.segment`` that reduces on our kernels."""

    @functools.wraps(original)
    def segment(src: Tensor, ptr: Tensor, reduce: str = "sum") -> Tensor:
        if torch.compiler.is_compiling():
            return original(src, ptr, reduce)
        src = materialise(src, "its segments are reduced")
        reason = why_not(src) or _why_not_pointers(src, ptr) or _why_not_segment(reduce)
        if reason is None:
            try:
                graph = segments(ptr, src.shape[0])
            except NoGraph:
                reason = "the pointers are not those of segments"
            else:
                out = aggregate(_FORMS[reduce], graph, src)
                ours("pyg", f"segment.{reduce}")
                # PyG takes an infinite result for that of an empty segment
                return out if reduce in ("sum", "mean") else torch.where(out.isinf(), 0, out)
        fallback("pyg", f"segment.{reduce}", reason)
        return original(src, ptr, reduce)

    return segment


def fused_softmax(original):
    """``torch_geometric.utils.softmax`` on our kernel."""

    @functools.wraps(original)
    def softmax(
        src: Tensor, index: Tensor | None = None, ptr: Tensor | None = None, num_nodes: int | None = None, dim: int = 0
    ) -> Tensor:
        if torch.compiler.is_compiling():
            return original(src, index, ptr, num_nodes, dim)
        if index is None and ptr is not None:
            reason = _why_not_values(src, dim) or _why_not_pointers(src, ptr)
        else:
            reason = _why_not(src, index, dim, num_nodes)
        if reason is None:
            try:
                if index is not None:
                    out = _softmax(src, plain_index(index), dim % src.dim(), num_nodes, original)
                else:
                    out = _along(
                        dim % src.dim(),
                        materialise(src, "its softmax"),
                        lambda x: softmax_edges(segments(ptr, x.shape[0]), x),
                    )
            except NoGraph:
                reason = "an index is out of range"
            else:
                if type(out) is not LazyTensor:
                    ours("pyg", "softmax")
                elif _returns_weights(sys._getframe(1)):
                    return value(out, "its layer returns it")
                return out
        fallback("pyg", "softmax", reason)
        return original(materialise(src, reason), index, ptr, num_nodes, dim)

    return softmax


def _softmax(src: Tensor, index: Tensor, dim: int, size: int | None, original: Callable) -> Tensor:
    rows = IndexEnd(index, _size(index) if size is None else size)
    if type(src) is LazyTensor:
        if dim == 0:
            weights = softmaxed(src, rows, lambda scores: original(scores, index, None, rows.size))
            if weights is not None:
                return weights
        src = value(src, "its softmax")
    return _along(dim, src, lambda x: softmax_edges(HOST.graph(rows, None), x))


def _along(dim: int, src: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """A function of dimension 0 applied along another one."""
    return function(src) if dim == 0 else function(src.movedim(dim, 0)).movedim(0, dim).contiguous()


def _returns_weights(frame) -> bool:
    """Whether a layer that was asked for its attention weights is on its way: then they must be a tensor of their own.

    A gradient to the weights themselves exists only if they were computed. Layers call the argument
    ``return_attention_weights``, and ask for a softmax within a few calls.
    """
    for _ in range(5):
        if frame is None:
            return False
        if "return_attention_weights" in frame.f_code.co_varnames:
            return frame.f_locals.get("return_attention_weights") is not None
        frame = frame.f_back
    return False


def _size(index: Tensor) -> int:
    return int(index.max()) + 1 if index.numel() else 0


def _why_not(src, index, dim, size) -> str | None:
    """Why a reduction over dimension ``dim`` by ``index`` into ``size`` nodes is the framework's, or None."""
    reason = _why_not_values(src, dim)
    if reason is not None:
        return reason
    index = plain_index(index)
    if index is None or index.shape[0] != src.shape[dim] or index.device != src.device:
        return "the index is not one int64 per edge"
    if size is not None and type(size) is not int:
        return "the number of nodes is not an int"
    return None


def _why_not_values(src, dim) -> str | None:
    if type(src) is not LazyTensor:
        reason = why_not(src)
        if reason is not None:
            return reason
    if type(dim) is not int or not -src.dim() <= dim < src.dim():
        return "there is no such dimension"
    return None


def _why_not_pointers(src, ptr) -> str | None:
    ptr = plain_index(ptr)
    return None if ptr is not None and ptr.device == src.device else "the pointers are not a vector of int64"


def _why_not_reduce(src, reduce) -> str | None:
    if reduce not in _REDUCES:
        return f"the reduction is {reduce!r}"
    if type(src) is Tensor and src.dim() == 1 and _REDUCES[reduce] == "sum":
        return "a sum of one number per edge is no faster on a kernel"
    return None


def _why_not_segment(reduce) -> str | None:
    if reduce in ("sum", "mean") or (reduce in ("max", "min") and not torch_geometric.typing.WITH_TORCH_SCATTER):
        return None
    return f"the reduction is {reduce!r}"
