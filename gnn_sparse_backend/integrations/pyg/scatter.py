"""``torch_geometric.utils.scatter``, ``segment`` and ``softmax``: of lazy messages, and of ordinary edge features."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch_geometric.typing
from torch import Tensor
from torch.nn import Parameter

from ...formats.counts import extent_of
from ...ops.attention.operators import softmax_edges, softmax_segments
from ...ops.core.executable import OutOfRange
from ...ops.message.operators import aggregate
from ...planner.cpu.listed import FEW
from ...structures.checks import COMPLEX, FLOATING, WHOLE
from ...structures.graph import Graph
from ..core.refusal import PASS, Refusal
from ..few import reductions as few
from ..few.listed import graph_of_end, is_list
from ..lazy import (
    OF_SEGMENTS,
    LazyTensor,
    as_real,
    deferred,
    materialise,
    of_edges,
    reduced,
    refuse,
    softmaxed,
    value,
)
from ..scopes import current
from ..scopes.given import passing
from .gather import plain_index
from .host import HOST, OUT_OF_RANGE, TINY, IndexEnd, segments

_REDUCES = {"sum": "sum", "mean": "mean", "mul": "prod", "max": "max", "min": "min"}
_REDUCES |= {"add": "sum", "amax": "max", "amin": "min"}
_FEW = {name: kind for name, kind in _REDUCES.items() if kind != "prod"}
_NAMES = {kind: f"scatter.{kind}" for kind in _FEW.values()}
_ADDS = ("sum", "add")  # what PyTorch has of complex numbers
_PLAIN = (Tensor, Parameter)
_REDUCED = FLOATING | WHOLE
_NUMBERS = Refusal("a sum of one number per edge is no faster on a kernel")


def scatter_beside(original):
    """``torch_geometric.utils.scatter``, which itself is ``original``."""

    def scatter(src: Tensor, index: Tensor, dim: int = 0, dim_size: int | None = None, reduce: str = "sum"):
        if torch.compiler.is_compiling():
            return PASS
        kind = _FEW.get(reduce)
        if type(src) is Tensor and current() is None and not torch.jit.is_tracing() and few.is_left(src, kind):
            return TINY
        if kind is not None and type(dim_size) is int and dim in (0, -src.dim()):
            found = few.reduced(src, index, dim_size, kind)
            if found is not None:
                return found, _NAMES[kind]
        if type(src) in _PLAIN and src.dtype in COMPLEX and reduce in _ADDS and _has_dimension(src, dim):
            found = scatter(as_real(src), index, dim if dim >= 0 else dim - 1, dim_size, reduce)
            return found if type(found) is Refusal else (torch.view_as_complex(found[0]), found[1])
        if (refusal := _refuse_reduce(src, reduce) or _refuse(src, index, dim, dim_size, _REDUCED)) is not None:
            return refusal
        rows, dim, reduce = _rows(index, dim_size), dim % src.dim(), _REDUCES[reduce]
        if type(src) is LazyTensor:
            if dim == 0:
                waiting = deferred(src, rows, reduce, lambda x: original(x, index, 0, rows.size, reduce))
                found = reduced(src, rows, reduce) if waiting is None else (waiting, None)
                if found is not None:
                    return found
            src = value(src, "its reduction")
        if src.dtype in WHOLE:
            return _of_integers(src, rows, dim, reduce)
        graph = _graph_into(rows, src)
        if type(graph) is Refusal:
            return graph
        try:
            return _along(dim, src, lambda x: aggregate(of_edges(reduce), graph, x)), f"scatter.{reduce}"
        except OutOfRange:
            return Refusal(OUT_OF_RANGE)

    return scatter


def _of_integers(src: Tensor, rows: IndexEnd, dim: int, reduce: str) -> tuple[Tensor, str] | Refusal:
    """The reduction of integers or truth values. Sums wrap around as PyTorch's do, and means are quotients."""
    graph = HOST.graph(rows, None)
    if type(graph) is Refusal:
        return graph
    kind = "sum" if reduce == "mean" else reduce
    out = _along(dim, src.to(torch.int64), lambda x: aggregate(of_edges(kind), graph, x)).to(src.dtype)
    if reduce == "mean":
        count = graph.in_degrees.to(src.dtype).clamp(min=1)
        out = out / count.view(-1, *(1,) * (out.dim() - dim - 1))
    return out, f"scatter.{reduce}"


def passes(*_, **__) -> bool:
    """Whether a layer is being called of which all is the framework's."""
    return passing()


def segment(src: Tensor, ptr: Tensor, reduce: str = "sum"):
    """``torch_geometric.utils.segment``."""
    if torch.compiler.is_compiling():
        return PASS
    src = materialise(src, "its segments are reduced")
    if (refusal := refuse(src) or _refuse_pointers(src, ptr) or _refuse_segment(reduce)) is not None:
        return refusal
    graph = segments(ptr, src.shape[0], "the pointers are not those of segments")
    if type(graph) is Refusal:
        return graph
    out = aggregate(of_edges(reduce, OF_SEGMENTS), graph, src)
    # PyG takes an infinite result for that of an empty segment
    return out if reduce in ("sum", "mean") else torch.where(out.isinf(), 0, out), f"segment.{reduce}"


def softmax_beside(original):
    """``torch_geometric.utils.softmax``, which itself is ``original``."""

    def softmax(
        src: Tensor, index: Tensor | None = None, ptr: Tensor | None = None, num_nodes: int | None = None, dim: int = 0
    ):
        if torch.compiler.is_compiling():
            return PASS
        if type(num_nodes) is int and index is not None and dim in (0, -src.dim()):
            found = few.softmaxed(src, index, num_nodes)
            if found is not None:  # somebody may write to it, and the operator reads what it gave again
                return found.clone() if found.requires_grad else found, "softmax"
        by_pointers = index is None and ptr is not None
        if by_pointers:
            refusal = _refuse_values(src, dim) or _refuse_pointers(src, ptr)
        else:
            refusal = _refuse(src, index, dim, num_nodes)
        if refusal is not None:
            return refusal
        rows, dim = None if by_pointers else _rows(index, num_nodes), dim % src.dim()
        if type(src) is LazyTensor:
            if rows is not None and dim == 0:
                found = softmaxed(src, rows, lambda scores: original(scores, rows.index, None, rows.size))
                if type(found) is Refusal:
                    return found
                if found is not None:
                    return found, None
            src = value(src, "its softmax")
        graph = segments(ptr, src.shape[dim], OUT_OF_RANGE) if rows is None else _graph_into(rows, src)
        if type(graph) is Refusal:
            return graph
        function = softmax_edges if rows is not None else softmax_segments
        try:
            weights = _along(dim, src, lambda x: function(graph, x))
        except OutOfRange:
            return Refusal(OUT_OF_RANGE)
        # somebody may write to them, and the operator reads what it gave again
        return weights.clone() if weights.requires_grad else weights, "softmax"

    return softmax


def _graph_into(rows: IndexEnd, src: Tensor) -> Graph | Refusal:
    """The graph of the edges into rows, listed as long as they are few."""
    if rows.size and src.numel() <= FEW.features and is_list(rows.index, 1):
        return graph_of_end(rows.index, rows.size)
    return HOST.graph(rows, None)


def _along(dim: int, src: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """A function of dimension 0 applied along another one."""
    return function(src) if dim == 0 else function(src.movedim(dim, 0)).movedim(0, dim).contiguous()


def _rows(index: Tensor, size: int | None) -> IndexEnd:
    index = plain_index(index)
    if size is None:
        size = extent_of(index)
    return IndexEnd(index, size)


def _refuse(src, index, dim, size, types=FLOATING) -> Refusal | None:
    """Why a reduction over dimension ``dim`` by ``index`` into ``size`` nodes is the framework's, or None."""
    if (refusal := _refuse_values(src, dim, types)) is not None:
        return refusal
    index = plain_index(index)
    if index is None or index.shape[0] != src.shape[dim] or index.device != src.device:
        return Refusal("the index is not one int64 per edge")
    return None if size is None or type(size) is int else Refusal("the number of nodes is not an int")


def _refuse_values(src, dim, types=FLOATING) -> Refusal | None:
    if type(src) is not LazyTensor and (refusal := refuse(src, types)) is not None:
        return refusal
    return None if _has_dimension(src, dim) else Refusal("there is no such dimension")


def _has_dimension(src: Tensor, dim) -> bool:
    return type(dim) is int and -src.dim() <= dim < src.dim()


def _refuse_pointers(src, ptr) -> Refusal | None:
    ptr = plain_index(ptr)
    return None if ptr is not None and ptr.device == src.device else Refusal("the pointers are not a vector of int64")


def _refuse_reduce(src, reduce) -> Refusal | None:
    if reduce not in _REDUCES:
        return Refusal(f"the reduction is {reduce!r}")
    if type(src) is Tensor and src.dim() == 1 and _REDUCES[reduce] == "sum":
        return _NUMBERS
    return None


def _refuse_segment(reduce) -> Refusal | None:
    if reduce in ("sum", "mean") or (reduce in ("max", "min") and not torch_geometric.typing.WITH_TORCH_SCATTER):
        return None
    return Refusal(f"the reduction is {reduce!r}")
