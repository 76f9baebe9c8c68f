"""Reductions along one dimension by our kernels. Each function is None where PyTorch's operators are to do it: other
types, an index for each number, a few numbers, or a program that is traced or transformed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...deferred import later
from ...ops.core.executable import OutOfRange
from ...ops.message.calls import run_aggregate
from ...ops.message.message_op import message_op
from ...ops.message.operators import AGGREGATE, EDGE_MAP
from ...planner.cpu.listed import FEW
from ...structures.graph import Graph
from ..core.graphs import GRAPHS
from ..few import reductions as few
from ..few.listed import graph_into
from ..lazy import refuse

if TYPE_CHECKING:
    from ...ops.attention import operators as softmaxes
else:
    softmaxes = later(__name__, "...ops.attention.operators")

_REDUCED = {kind: message_op("x0", ("edge",), kind) for kind in ("sum", "mean", "prod")}
_FIRST = {kind: message_op("x0", ("edge",), kind, "first") for kind in ("max", "min")}
_NOTHING = {"max": -torch.inf, "min": torch.inf}
_COPIED = message_op("x0", ("row",))


def reduced(kind: str, src: Tensor, index: Tensor | None, dim: int, size: int) -> Tensor | None:
    """The sum, mean or product of ``src`` into ``size`` rows of dimension ``dim``. index: a vector of its rows."""
    if index is None or not _serves(kind, src, index, dim):
        return None
    x = src if dim == 0 else src.movedim(dim, 0)
    found = few.reduced(x, index, size, kind) if kind != "prod" else None
    if found is None:
        try:
            found = AGGREGATE(graph_into(index, size, x.numel()), (x,), (_REDUCED[kind],))
        except (OutOfRange, ValueError):
            return None  # PyTorch says what is wrong
    return found if dim == 0 else found.movedim(0, dim)


def extreme(kind: str, src: Tensor, index: Tensor | None, dim: int, size: int) -> tuple[Tensor, Tensor] | None:
    """(the maxima or minima; where along ``dim`` the first of each is, -1 where there is none), without gradients. NaN
    and what is infinitely far the other way are never chosen, and stand for nothing.
    """
    if index is None or not _serves("", src.detach(), index, dim, few=True):
        return None
    x = src.detach() if dim == 0 else src.detach().movedim(dim, 0)
    try:
        found = _first(kind, graph_into(index, size, x.numel()), x)
    except (OutOfRange, ValueError):
        return None
    return found if dim == 0 else (found[0].movedim(0, dim), found[1].movedim(0, dim))


def attained(kind: str, src: Tensor, index: Tensor | None, dim: int, size: int) -> Tensor | None:
    """The maxima or minima that `extreme` has, without their places and with gradients."""
    if index is None or not size or not _serves("", src, index, dim, few=True):
        return None
    x = src if dim == 0 else src.movedim(dim, 0)
    try:
        found = _attained(kind, graph_into(index, size, x.numel()), x)
    except (OutOfRange, ValueError):
        return None
    return found if dim == 0 else found.movedim(0, dim)


def softmaxed(src: Tensor, index: Tensor | None, dim: int, size: int) -> Tensor | None:
    """The softmax of ``src`` over the numbers of each row."""
    if index is None or not _serves("", src, index, dim):
        return None
    x = src if dim == 0 else src.movedim(dim, 0)
    found = few.softmaxed(x, index, size)
    if found is None:
        try:
            found = softmaxes.softmax_edges(graph_into(index, size, x.numel()), x)
        except (OutOfRange, ValueError):
            return None
    # somebody may write to it, and the operator reads what it gave again
    found = found.clone() if found.requires_grad else found
    return found if dim == 0 else found.movedim(0, dim)


def by_segments(kind: str, x: Tensor, pointers: Tensor) -> Tensor | None:
    """The sum or mean of the rows of each segment. pointers: from 0 to the number of rows.

    Raises ValueError where they are not.
    """
    if not _serves(kind, x, pointers, 0):
        return None
    return AGGREGATE(_segments(pointers, x.shape[0]), (x,), (_REDUCED[kind],))


def extreme_of_segments(kind: str, x: Tensor, pointers: Tensor) -> tuple[Tensor, Tensor] | None:
    """What `extreme` is, of the rows of each segment."""
    x = x.detach()
    return _first(kind, _segments(pointers, x.shape[0]), x) if _serves("", x, pointers, 0, few=True) else None


def attained_in_segments(kind: str, x: Tensor, pointers: Tensor) -> Tensor | None:
    """What `attained` is, of the rows of each segment; None where places serve the gradient better: those of one number
    in a row are found in less time than a pass over all numbers takes.
    """
    if _recorded(x) and x.numel() == x.shape[0]:
        return None
    return _attained(kind, _segments(pointers, x.shape[0]), x) if _serves("", x, pointers, 0, few=True) else None


def copied(x: Tensor, pointers: Tensor) -> Tensor | None:
    """The row of each segment for all that it consists of, the last pointer's number of rows."""
    if not _serves("", x, pointers, 0):
        return None
    return EDGE_MAP(_segments(pointers, int(pointers[-1])), (x,), (_COPIED, ()))


def _first(kind: str, graph: Graph, x: Tensor) -> tuple[Tensor, Tensor]:
    out, at = run_aggregate(_FIRST[kind], graph, [x], ("number",), -1)
    return _without_nothing(kind, out), at.long()


def _attained(kind: str, graph: Graph, x: Tensor) -> Tensor:
    found = AGGREGATE(graph, (x,), (_FIRST[kind],))
    if found.requires_grad:
        return torch.where(found == _NOTHING[kind], 0, found)
    return _without_nothing(kind, found)


def _without_nothing(kind: str, out: Tensor) -> Tensor:
    """Maxima or minima of numbers, in place, with 0 where none was chosen; to fill by a mask takes 5 times as long."""
    if kind == "max":
        return out.nan_to_num_(0, posinf=torch.inf, neginf=0)
    return out.nan_to_num_(0, posinf=0, neginf=-torch.inf)


def _segments(pointers: Tensor, rows: int) -> Graph:
    return GRAPHS.find("segments", pointers, pointers, (pointers.shape[0] - 1, rows))


def _serves(kind: str, src: Tensor, index: Tensor, dim: int, few: bool = False) -> bool:
    """Whether kernels take what PyTorch's operators would take longer for. few: whether that holds of a few numbers, of
    which an extreme with its place is a dozen operators.
    """
    leaves = not src.numel() if few else FEW.leaves(kind, src.shape[dim], max(src.numel(), 1), _recorded(src))
    return (
        type(index) is Tensor
        and index.dtype is torch.int64
        and index.device == src.device
        and not leaves
        and not (kind == "sum" and src.dim() == 1)  # a sum that gathers nothing has nothing to save
        and refuse(src if dim == 0 else src.transpose(0, dim)) is None
    )


def _recorded(src: Tensor) -> bool:
    return src.requires_grad and torch.is_grad_enabled()
