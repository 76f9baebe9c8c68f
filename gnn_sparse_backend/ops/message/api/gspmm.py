"""``gsb.gspmm``: generalised SpMM, the messages of DGL's built-in functions reduced into the destinations."""

from __future__ import annotations

from torch import Tensor

from ....structures.graph import Graph
from ..checks import check_choice
from .aggregate import every, only, reduce_messages

_COPY = ("copy_u", "copy_e")
_BINARY = ("add", "sub", "mul", "div")


def gspmm(
    graph: Graph, op: str, reduce: str, u: Tensor | None = None, e: Tensor | None = None, *, ties: str = "even"
) -> Tensor:
    """``out[i] = reduce over the edges into i of op(u[source], e[edge])``.

    Args:
        graph: structure of shape (n_dst, n_src).
        op: ``"copy_u"`` or ``"copy_e"``, which take that operand alone, or ``"add"``, ``"sub"``, ``"mul"`` or
            ``"div"`` of u and e, in this order.
        reduce: ``"sum"``, ``"mean"``, ``"prod"``, ``"max"`` or ``"min"``, as in ``aggregate``.
        u: (n_src, ...) features of the sources, in float32, float64, bfloat16 or float16, of any strides.
        e: (E, ...) features of the edges in the user's edge order, of the same type. Features broadcast as in NumPy.
        ties: who gets the gradient of equal messages under max and min, as in ``aggregate``.

    Returns:
        (n_dst, ...), as ``aggregate``.

    Raises:
        TypeError, ValueError: as ``aggregate``; also where ``op`` is unknown, or an operand is missing or not read.
    """
    check_choice("gspmm", "op", op, _COPY + _BINARY)
    operands = (("u", "column", u), ("e", "edge", e))
    if op in _COPY:
        return reduce_messages("gspmm", graph, "x0", *only("gspmm", op, operands, _COPY.index(op)), reduce, ties)
    return reduce_messages("gspmm", graph, f"{op}(x0, x1)", *every("gspmm", op, operands), reduce, ties)
