"""Means as PyG writes them out in a program: sums, divided by the number of edges into each row, or by 1 where there is
none.
"""

from __future__ import annotations

from torch.fx import Node

from ..lazy import End
from .matching import DIVISIONS, arguments, known_tensor, name_of, vector_of


def mean_of(node: Node, degrees: dict[Node, End]) -> tuple[Node, End] | None:
    """(the sums, the rows) of a node that divides what has a row for each of ``rows`` by the degrees of these.

    degrees: the nodes that are the numbers of edges into the rows.
    """
    if name_of(node) not in DIVISIONS or len(node.args) != 2 or node.kwargs:
        return None
    sums, divisor = node.args
    rows = degrees.get(_at_least_one(vector_of(divisor)))
    known, shape = known_tensor(sums), getattr(known_tensor(divisor), "shape", ())
    if rows is None or known is None or len(shape) != known.dim():
        return None
    return (sums, rows) if str(shape[0]) == str(known.shape[0]) == str(rows.size) else None


def _at_least_one(node: Node | None) -> Node | None:
    """What a node is of, with 1 in the place of what is less; None of anything else."""
    if node is None or name_of(node) not in ("clamp", "clamp_min"):
        return None
    x, least, most = arguments(node, "input", "min", "max")
    return x if least == 1 and most is None else None
