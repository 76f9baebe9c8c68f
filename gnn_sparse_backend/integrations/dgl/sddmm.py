"""``gsddmm`` of DGL: a binary operator on features of the two ends of every edge, or of an end and the edge.

As ``gspmm``, it is taken over above DGL's autograd, and below it (``_gsddmm``) for whatever comes by there.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ...ops.message.calls import run_edge_map
from ...ops.message.message_op import MessageOp, message_op
from ...ops.message.operators import edge_map
from ..core.refusal import Refusal
from ..few import operators
from ..lazy import LazyTensor
from .lazy_edges import belongs, combined, computed, is_passing, is_temporary, lazy_values
from .operands import PLACES, broadcast, broadcast_of, graph_of_operands, refuse, rows_at
from .structure import edges_of, only_graph_of

_MESSAGES = {op: f"{op}(x0, x1)" for op in ("add", "sub", "mul", "div")} | {"dot": "mul(x0, x1)"}
_COPIES = ("copy_lhs", "copy_rhs")


def below_autograd(gidx, op, lhs, rhs, lhs_target="u", rhs_target="v"):
    """``_gsddmm``: ``(gidx, op, lhs, rhs, lhs_target, rhs_target) -> (E, ...)`` without gradients.

    What DGL refuses is left to it, so that its users see its errors.
    """
    checked = _checked(gidx, op, lhs, rhs, lhs_target, rhs_target)
    if type(checked) is Refusal:
        return checked
    of, graph, reduced, operands = checked
    return run_edge_map(of, graph, operands, reduced), "gsddmm"


def above_autograd(g, op, lhs_data, rhs_data, lhs_target="u", rhs_target="v"):
    """``dgl.ops.gsddmm``: with gradients; what is not ours comes by at ``_gsddmm``.

    Where edge features are temporary, the result is lazy.
    """
    if not torch.is_autocast_enabled():  # under autocast DGL converts operands first
        if type(lhs_data) is LazyTensor or type(rhs_data) is LazyTensor:
            result = _combined(g, op, lhs_data, rhs_data, lhs_target, rhs_target)
            if result is not None:
                return result, None
            lhs_data, rhs_data = computed(lhs_data, f"gsddmm {op}"), computed(rhs_data, f"gsddmm {op}")
        found = of_few(g, op, lhs_data, rhs_data, lhs_target, rhs_target)
        if found is not None:
            return found
        checked = _checked(g._graph, op, lhs_data, rhs_data, lhs_target, rhs_target)
        if type(checked) is not Refusal:
            of, graph, reduced, operands = checked
            if graph.num_edges and of.places != ("edge",) and is_temporary(g):
                return lazy_values(graph, op, _MESSAGES.get(op, "x0"), of, operands, is_passing(g)), None
            return edge_map(of, graph, reduced, *operands), "gsddmm"
    return Refusal(f"gsddmm {op}")


def of_few(g, op: str, lhs, rhs, lhs_target: str, rhs_target: str) -> tuple[Tensor, str] | None:
    """Return (result, name to count it by) on a graph of a few edges; None on others, and of what is not ours there."""
    if op not in _MESSAGES or lhs_target not in PLACES or rhs_target not in PLACES:
        return None
    if not isinstance(lhs, Tensor) or not isinstance(rhs, Tensor):
        return None
    operands = lhs, rhs
    edges = edges_of(g._graph, lhs)
    if edges is None or not broadcast_of(op, *operands):
        return None
    of = form_of(op, lhs_target, rhs_target)
    found = operators.mapped(edges, of, operands, reduced_dimensions(op, operands))
    return None if found is None else (found, "gsddmm")


@cache
def form_of(op: str, lhs_target: str, rhs_target: str) -> MessageOp:
    """The form of an operator that DGL has."""
    if op in _COPIES:
        return message_op("x0", (PLACES[rhs_target if op == "copy_rhs" else lhs_target],))
    return message_op(_MESSAGES[op], (PLACES[lhs_target], PLACES[rhs_target]))


def reduced_dimensions(op: str, operands: tuple[Tensor, ...]) -> tuple[bool, ...]:
    """Which feature dimensions the operator sums over: the last one, if it is a dot product."""
    if op != "dot":
        return ()
    rank = max(x.dim() for x in operands) - 1
    return (False,) * (rank - 1) + (True,) if rank else ()


def _combined(g, op: str, lhs, rhs, lhs_target: str, rhs_target: str) -> LazyTensor | None:
    """The lazy result for operands of which one at least is lazy; None if it cannot be."""
    if op not in _MESSAGES or lhs_target not in PLACES or rhs_target not in PLACES or not is_temporary(g):
        return None
    graph = only_graph_of(g._graph)
    operands = ((lhs, PLACES[lhs_target]), (rhs, PLACES[rhs_target]))
    for x, place in operands:
        if type(x) is LazyTensor:
            if place != "edge" or not belongs(x, graph):
                return None
        elif refuse(x) is not None or x.shape[0] != rows_at(graph, place):
            return None
    if not broadcast(op, lhs.shape[1:], rhs.shape[1:]):
        return None
    return combined(graph, op, *operands, form_of(op, lhs_target, rhs_target), is_passing(g))


def _checked(gidx, op: str, lhs, rhs, lhs_target: str, rhs_target: str) -> tuple | Refusal:
    """(form, graph, reduced dimensions, operands)."""
    if lhs_target not in PLACES or rhs_target not in PLACES:
        return Refusal("unknown target")
    if op not in _MESSAGES and op not in _COPIES:
        return Refusal("unknown op")
    x, y = (lhs, None) if op == "copy_lhs" else (rhs, None) if op == "copy_rhs" else (lhs, rhs)
    of = form_of(op, lhs_target, rhs_target)
    graph = graph_of_operands(gidx, op, of.places, x, y)
    if type(graph) is Refusal:
        return graph
    operands = (x,) if y is None else (x, y)
    return of, graph, reduced_dimensions(op, operands), operands
