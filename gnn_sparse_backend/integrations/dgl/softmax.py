"""``edge_softmax`` of DGL: softmax over the edges into each destination, or out of each source.

Taken over above DGL's autograd, and below it (``_edge_softmax_forward`` and ``_backward``) for what comes by there: a
part of the edges, autocast, and models recorded before the backend was enabled. On several edge types at once DGL
composes it of ``_gspmm_hetero`` and ``_gsddmm_hetero``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from dgl.base import is_all

from ...deferred import later
from ...ops.attention.operators import softmax_edges
from ..core.refusal import Refusal
from ..few import operators
from ..lazy import LazyTensor, softmaxed
from .host import GraphEnd
from .lazy_edges import belongs, computed
from .operands import graph_of_operands
from .structure import edges_of, only_graph_of

if TYPE_CHECKING:
    from ...ops.attention import softmax
else:
    softmax = later(__name__, "...ops.attention.softmax")

FORWARD, BACKWARD = "edge_softmax_forward", "edge_softmax_backward"
_BELOW, _BELOW_HETERO = Refusal("edge_softmax"), Refusal("edge_softmax of several edge types")


def above_autograd(original: Callable) -> Callable:
    """The function that ``dgl.ops.edge_softmax`` ends in, itself ``original``: ``(gidx, logits, eids, norm_by)``."""

    def edge_softmax_internal(gidx, logits, eids, norm_by):
        if not is_all(eids) or torch.is_autocast_enabled():
            return _BELOW
        if type(logits) is LazyTensor:
            weights = _lazy(gidx, logits, eids, norm_by, original)
            if weights is not None:
                return weights, None
            logits = computed(logits, "edge_softmax")
        edges = edges_of(gidx, logits)
        if edges is not None:
            found = operators.softmaxed(edges.reversed() if norm_by == "src" else edges, logits)
            if found is not None:
                return found, FORWARD
        graph = graph_of_operands(gidx, "softmax", ("edge",), logits)
        if type(graph) is Refusal:
            return _BELOW
        return softmax_edges(graph.transpose() if norm_by == "src" else graph, logits), FORWARD

    return edge_softmax_internal


def _lazy(gidx, logits: LazyTensor, eids, norm_by: str, original: Callable) -> LazyTensor | None:
    """The softmax as a lazy tensor; None if the scores have to be computed first."""
    graph = only_graph_of(gidx)
    if graph is None or not belongs(logits, graph):
        return None
    framework = functools.partial(original, gidx, eids=eids, norm_by=norm_by)
    return softmaxed(logits, GraphEnd(graph, int(norm_by == "src")), framework)


def hetero(gidx, eids, norm_by, *logits):
    """The function that ``dgl.ops.edge_softmax`` of several edge types ends in: lazy tensors are computed before it."""
    return _BELOW_HETERO


def forward(gidx, e, op):
    """``_edge_softmax_forward``: ``(gidx, e, op) -> (E, ...)`` without gradients."""
    graph = graph_of_operands(gidx, op, ("edge",), e) if op == "copy_rhs" else Refusal("unknown op")
    return graph if type(graph) is Refusal else (softmax.run_edge_softmax(graph, e), FORWARD)


def backward(gidx, out, sds):
    """``_edge_softmax_backward``: ``(gidx, out, sds) -> (E, ...)`` with sds = out * gradient."""
    if out.shape != sds.shape:
        return Refusal("shapes differ")
    graph = graph_of_operands(gidx, "mul", ("edge", "edge"), out, sds)
    return graph if type(graph) is Refusal else (softmax.run_edge_softmax_backward(graph, out, sds), BACKWARD)
