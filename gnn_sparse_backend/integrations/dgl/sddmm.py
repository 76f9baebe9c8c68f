"""``_gsddmm`` of DGL: a binary operator on the features at the two ends of every edge."""
from __future__ import annotations

from collections.abc import Callable
from math import prod

from torch import Tensor

from ...ops.autograd import sddmm_forward
from ..counters import fallback, ours
from .spmm import refuse
from .structure import graph_of

_SOURCE, _DESTINATION = ("u", "src"), ("v", "dst")


def make(original: Callable) -> Callable:
    """``_gsddmm`` that runs dot products of source and destination here and gives everything else to ``original``.

    ``(gidx, op, lhs, rhs, lhs_target, rhs_target) -> (E, ..., 1)``, or (E,) if both operands are 1-D. ``mul`` of
    features of one number is a dot product too: the gradient of a scalar weight on scalar features.
    """

    def _gsddmm(gidx, op, lhs, rhs, lhs_target="u", rhs_target="v"):
        result = _run(gidx, op, lhs, rhs, lhs_target, rhs_target)
        if type(result) is str:
            fallback("dgl", "gsddmm", result)
            return original(gidx, op, lhs, rhs, lhs_target, rhs_target)
        ours("dgl", "gsddmm")
        return result

    return _gsddmm


def _run(gidx, op: str, lhs: Tensor, rhs: Tensor, lhs_target: str, rhs_target: str) -> Tensor | str:
    """The dot products, or why they are not ours."""
    if op != "dot" and op != "mul":
        return f"op {op}"
    if lhs_target in _SOURCE and rhs_target in _DESTINATION:
        source, destination = lhs, rhs
    elif lhs_target in _DESTINATION and rhs_target in _SOURCE:
        source, destination = rhs, lhs
    else:
        return f"op {op} of {lhs_target} and {rhs_target}"
    refusal = "missing feature" if destination is None else refuse(source, destination)
    if refusal:
        return refusal
    feature = source.shape[1:]
    if destination.shape[1:] != feature:
        return "broadcast"
    width = feature[-1] if feature else 1
    heads = prod(feature[:-1])
    if op == "mul" and heads * width != 1:
        return "op mul"
    graph = graph_of(gidx)
    if graph is None:
        return "several edge types"
    if not graph.indices.is_cpu:
        return "graph on another device"
    n_dst, n_src = graph.shape
    if source.shape[0] != n_src or destination.shape[0] != n_dst:
        return "number of rows"
    inner = (width,) if heads == 1 else (heads, width)
    if feature != inner:
        source, destination = source.reshape(n_src, *inner), destination.reshape(n_dst, *inner)
    out = sddmm_forward(graph, destination, source, False)
    return out.view(graph.num_edges, *feature[:-1], 1) if feature else out
