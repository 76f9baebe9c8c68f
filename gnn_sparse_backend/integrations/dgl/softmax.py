"""``edge_softmax`` of DGL: softmax over the edges into each destination, or out of each source.

Taken over above DGL's autograd, and below it (``_edge_softmax_forward`` and ``_backward``) for what comes by there: a
part of the edges, autocast, and models recorded before the backend was enabled. On several edge types at once DGL
composes it of ``_gspmm_hetero`` and ``_gsddmm_hetero``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from dgl.base import is_all
from torch import Tensor

from ...ops.attention.operators import softmax_edges
from ...ops.attention.softmax import run_edge_softmax, run_edge_softmax_backward
from ...structures.graph import Graph
from ..core.refusal import Refusal
from ..lazy import LazyTensor, value
from .host import HOST
from .lazy_edges import asks_for_attention, computed, softmax
from .operands import refuse
from .structure import only_graph_of

FORWARD, BACKWARD = "edge_softmax_forward", "edge_softmax_backward"
_BELOW, _BELOW_HETERO = Refusal("edge_softmax"), Refusal("edge_softmax of several edge types")


def make(original: Callable) -> Callable:
    """The function that ``dgl.ops.edge_softmax`` ends in: ``(gidx, logits, eids, norm_by) -> (E, ...)``."""

    def edge_softmax_internal(gidx, logits, eids, norm_by):
        if not is_all(eids) or torch.is_autocast_enabled():
            return _BELOW
        if type(logits) is LazyTensor:
            weights = _lazy(gidx, logits, eids, norm_by, original)
            if weights is not None:
                # the caller is beyond this function and the one that asks it
                return value(weights, "it is returned") if asks_for_attention(sys._getframe(2)) else weights, None
            logits = computed(logits, "edge_softmax")
        graph = graph_for(gidx, logits)
        if type(graph) is Refusal:
            return _BELOW
        return softmax_edges(graph.transpose() if norm_by == "src" else graph, logits), FORWARD

    return HOST.admit(original, None, edge_softmax_internal)


def make_hetero(original: Callable) -> Callable:
    """The function that ``dgl.ops.edge_softmax`` of several edge types ends in."""
    return HOST.admit(original, None, lambda *_, **__: _BELOW_HETERO)


def _lazy(gidx, logits: LazyTensor, eids, norm_by: str, original: Callable) -> LazyTensor | None:
    """The softmax as a lazy tensor; None if the scores have to be computed first."""
    graph = only_graph_of(gidx)
    if graph is None:
        return None
    return softmax(
        graph, logits, int(norm_by == "src"), lambda scores: original(gidx, scores, eids=eids, norm_by=norm_by)
    )


def make_forward(original: Callable) -> Callable:
    """``_edge_softmax_forward``: ``(gidx, e, op) -> (E, ...)`` without gradients."""

    def _edge_softmax_forward(gidx, e, op):
        graph = graph_for(gidx, e) if op == "copy_rhs" else Refusal("unknown op")
        return graph if type(graph) is Refusal else (run_edge_softmax(graph, e), FORWARD)

    return HOST.admit(original, FORWARD, _edge_softmax_forward)


def make_backward(original: Callable) -> Callable:
    """``_edge_softmax_backward``: ``(gidx, out, sds) -> (E, ...)`` with sds = out * gradient."""

    def _edge_softmax_backward(gidx, out, sds):
        graph = graph_for(gidx, out, sds) if out.shape == sds.shape else Refusal("shapes differ")
        return graph if type(graph) is Refusal else (run_edge_softmax_backward(graph, out, sds), BACKWARD)

    return HOST.admit(original, BACKWARD, _edge_softmax_backward)


def graph_for(gidx, x: Tensor, y: Tensor | None = None) -> Graph | Refusal:
    """The graph of an index for these tensors of one row per edge."""
    if (refusal := refuse(x, y)) is not None:
        return refusal
    graph = only_graph_of(gidx)
    if graph is None:
        return Refusal("several edge types")
    if graph.device != x.device:
        return Refusal("graph on another device")
    return Refusal("number of rows") if x.shape[0] != graph.num_edges else graph
