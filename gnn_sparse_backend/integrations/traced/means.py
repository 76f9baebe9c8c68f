"""Means as PyG writes them out in a program: sums, divided by the number of edges into each row, or by 1 where there is
none.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from ..lazy import End
from .matching import known_tensor, name_of

_DIVIDES = frozenset(("truediv", "div", "true_divide", "divide"))
_VIEWS = frozenset(("view", "reshape", "unsqueeze", "expand", "expand_as", "broadcast_to"))


def mean_of(node: Node, degrees: dict[Node, End]) -> tuple[Node, End] | None:
    """(the sums, the rows) of a node that divides what has a row for each of ``rows`` by the degrees of these.

    degrees: the nodes that are the numbers of edges into the rows.
    """
    if name_of(node) not in _DIVIDES or len(node.args) != 2 or node.kwargs:
        return None
    sums, divisor = node.args
    rows = degrees.get(_clamped(divisor))
    known, shape = known_tensor(sums), getattr(known_tensor(divisor), "shape", ())
    if rows is None or known is None or len(shape) != known.dim() or str(shape[0]) != str(known.shape[0]):
        return None
    return (sums, rows) if str(known.shape[0]) == str(rows.size) else None


def _clamped(node) -> Node | None:
    """What a node has of a vector, at least 1, for each row; None of anything else."""
    while isinstance(node, Node) and name_of(node) in _VIEWS:
        source, known = known_tensor(node.args[0]), known_tensor(node)
        # rows stay rows: what a view adds is behind them
        if source is None or source.dim() == 0 or str(source.shape[0]) != str(known.shape[0]):
            return None
        if source.dim() == 1 and any(stride != 0 and extent != 1 for stride, extent in _behind(known)):
            return None
        node = node.args[0]
    if not isinstance(node, Node) or getattr(known_tensor(node), "ndim", 0) != 1:
        return None
    if name_of(node) == "clamp" and dict(node.kwargs) in ({"min": 1}, {"min": 1.0}) and len(node.args) == 1:
        return node.args[0]
    if name_of(node) in ("clamp", "clamp_min") and node.args[1:] in ((1,), (1.0,)) and not node.kwargs:
        return node.args[0]
    return None


def _behind(known: torch.Tensor):
    return zip(known.stride()[1:], known.shape[1:])
