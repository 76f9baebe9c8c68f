"""``gsb.gsddmm``: generalised SDDMM, a binary operation of two ends of every edge, or of an end and the edge."""

from __future__ import annotations

from torch import Tensor

from ....structures.graph import Graph
from ..checks import check_choice
from .aggregate import PLACES, every, map_edges, only

_COPY = ("copy_lhs", "copy_rhs")
_BINARY = ("add", "sub", "mul", "div", "dot")
_TARGETS = ("u", "v", "e")


def gsddmm(
    graph: Graph, op: str, lhs: Tensor | None, rhs: Tensor | None = None, lhs_target: str = "u", rhs_target: str = "v"
) -> Tensor:
    """``out[edge] = op(lhs[target], rhs[target])`` for every edge, in the user's edge order.

    Args:
        graph: structure of shape (n_dst, n_src).
        op: ``"add"``, ``"sub"``, ``"mul"``, ``"div"``, ``"dot"`` (the product summed over the last feature dimension,
            which stays with extent 1), or ``"copy_lhs"`` or ``"copy_rhs"``, which take that operand alone.
        lhs, rhs: features in float32, float64, bfloat16 or float16, of any strides, both of one type, with a row per
            source, destination or edge as the target says. Features broadcast as in NumPy.
        lhs_target, rhs_target: ``"u"`` (source), ``"v"`` (destination) or ``"e"`` (edge, in the user's edge order).

    Returns:
        (E, ...), as ``edge_map``.

    Raises:
        TypeError, ValueError: as ``edge_map``; also where ``op`` or a target is unknown, or an operand is missing or
            not read.
    """
    check_choice("gsddmm", "op", op, _COPY + _BINARY)
    check_choice("gsddmm", "lhs_target", lhs_target, _TARGETS)
    check_choice("gsddmm", "rhs_target", rhs_target, _TARGETS)
    operands = (("lhs", PLACES[lhs_target], lhs), ("rhs", PLACES[rhs_target], rhs))
    if op in _COPY:
        return map_edges("gsddmm", graph, "x0", *only("gsddmm", op, operands, _COPY.index(op)), False)
    message = "mul(x0, x1)" if op == "dot" else f"{op}(x0, x1)"
    return map_edges("gsddmm", graph, message, *every("gsddmm", op, operands), op == "dot")
