"""The softmax over edges, or over segments, as PyG writes it out in a program."""

from __future__ import annotations

from typing import NamedTuple

from torch.fx import Node

from .matching import DIVISIONS, Gather, Index, arguments, filled_with, gather_of, known_tensor, name_of, scatter_of
from .pointers import Pointers, differences_of, segments_of


class Softmax(NamedTuple):
    """``scores`` over the edges into each of the ``size`` rows that ``index`` gives. inner: the nodes between."""

    scores: Node
    index: Index | Pointers
    size: object
    inner: tuple[Node, ...]


def softmax_of(node: Node) -> Softmax | None:
    """The softmax over edges, written out, whose last division a node is: ``exp(s - max[index]) / (sum + eps)[index]``
    with the maximum and the sum over the rows that ``index`` gives.
    """
    if name_of(node) not in DIVISIONS or len(node.args) != 2:
        return None
    top, below = node.args
    if not isinstance(below, Node) or (gather := _spread_of(below)) is None or name_of(top) != "exp":
        return None
    inner, total = [top, below], gather.x
    if name_of(total) == "add" and len(total.args) == 2 and isinstance(total.args[1], float):
        inner.append(total)
        total = total.args[0]
    shifted = top.args[0]
    if _summed(total) != (top, gather.index) or name_of(shifted) != "sub" or len(shifted.args) != 2:
        return None
    scores, maximum = shifted.args
    if not isinstance(maximum, Node) or (spread := _spread_of(maximum)) is None or spread.index != gather.index:
        return None
    highest = _highest(spread.x)
    if highest is None or highest[1] != gather.index:
        return None
    inner += [total, shifted, maximum, spread.x, *highest[2]]
    if highest[0] is not scores:
        if name_of(highest[0]) != "detach" or highest[0].args[0] is not scores:
            return None
        inner.append(highest[0])
    return Softmax(scores, gather.index, known_tensor(total).shape[0], tuple(inner))


def _spread_of(node: Node) -> Gather | None:
    """The gather that a node is, or the rows of segments, each as often as its segment is long."""
    if name_of(node) != "repeat_interleave":
        gather = gather_of(node)
        return None if gather is None or gather.dim else gather
    x, repeats, dim, _ = arguments(node, "input", "repeats", "dim", "output_size")
    pointers = differences_of(repeats) if dim == 0 else None
    return None if pointers is None else Gather(x, pointers, False, 0)


def _summed(node: Node) -> tuple[Node, Index | Pointers] | None:
    """(what, by what) of a sum over edges or segments that a node is, and nothing else."""
    if (segments := segments_of(node)) is not None:
        return (segments.src, segments.pointers) if segments.reduce == "sum" else None
    scatter = scatter_of(node)
    if scatter is None or scatter.dim or scatter.reduce != "sum":
        return None
    if filled_with(scatter.out) != 0 or len(scatter.out.users) > 1:
        return None
    return scatter.src, scatter.index


def _highest(node: Node) -> tuple[Node, Index | Pointers, list[Node]] | None:
    """(of what, by what, the nodes before it) of the maxima over edges or segments that a node is."""
    if name_of(node) == "where" and len(node.args) == 3 and node.args[1] == 0:  # PyG's, of empty segments
        infinite, _, found = node.args
        segments = segments_of(found) if name_of(infinite) == "isinf" and infinite.args == (found,) else None
        if segments is None or segments.reduce != "max":
            return None
        return segments.src, segments.pointers, [infinite, found]
    scatter = scatter_of(node)
    if scatter is None or scatter.dim or scatter.reduce != "max" or not scatter.replaces:
        return None
    return scatter.src, scatter.index, []
