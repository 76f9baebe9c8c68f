"""Operators of a framework on a list of a few edges, by kernels that read it (`ops.message.flat`).

A batch of molecules is a new graph, whose rows nobody has made. What is not here, for its types, sizes or operators,
goes on as on any graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Parameter

from ...compiler.cache.bounded import shared
from ...deferred import later
from ...ops.core.executable import OutOfRange
from ...ops.message.flat import FLOATS, Flat, FlatAggregate, FlatExtreme, FlatMap
from ...ops.message.message_op import MessageOp
from ...ops.message.thin import MANY
from ...planner.cpu.listed import FEW
from ...runtime.layout import is_ready
from ...structures.csr import EdgeList
from ..scopes import current
from ..scopes.modes import transformed

if TYPE_CHECKING:
    from ...ops.attention import flat as softmaxes
else:
    softmaxes = later(__name__, "...ops.attention.flat")

FLATS = shared("operators over lists of few edges", 1024)
_PLAIN = (Tensor, Parameter)


def aggregated(edges: EdgeList, of: MessageOp, operands: tuple[Tensor, ...]) -> Tensor | None:
    """The reduction of a message of operands whose features broadcast; None where it is not of few edges."""
    if not _fits(edges, of, operands):
        return None
    key = of, operands[0].dtype, *(x.shape[1:] for x in operands)
    flat = FLATS.get(key)
    if flat is None:
        likes = [x.detach()[:1] for x in operands]
        if of.ties is not None:
            flat = FlatExtreme.made(of, likes[0])
        else:
            flat = FlatAggregate.made(of, likes) if FlatAggregate.serves(of, likes) else False
        FLATS.keep(key, flat)
    return run(flat, edges, operands)


def mapped(edges: EdgeList, of: MessageOp, operands: tuple[Tensor, ...], reduced: tuple[bool, ...]) -> Tensor | None:
    """The message of every edge; None as above."""
    if not _fits(edges, of, operands):
        return None
    key = of, reduced, operands[0].dtype, *(x.shape[1:] for x in operands)
    flat = FLATS.get(key)
    if flat is None:
        flat = FLATS.keep(key, FlatMap.made(of, [x.detach()[:1] for x in operands], reduced))
    return run(flat, edges, operands)


def softmaxed(edges: EdgeList, scores: Tensor) -> Tensor | None:
    """The softmax of scores over the edges of each row; None as above."""
    if not is_plain(scores) or not _is_eager():
        return None
    if scores.shape[0] != edges.row.shape[0] or scores.numel() > FEW.features:
        return None
    key = "softmax", scores.dtype, scores.shape[1:]
    flat = FLATS.get(key)
    if flat is None:
        flat = FLATS.keep(key, softmaxes.FlatSoftmax.made(scores.detach()[:1]))
    return run(flat, edges, (scores,))


def _fits(edges: EdgeList, of: MessageOp, operands: tuple[Tensor, ...]) -> bool:
    if not all(map(is_plain, operands)) or not _is_eager():
        return False
    count, shape, dtype = edges.row.shape[0], edges.shape, operands[0].dtype
    for x, place in zip(operands, of.places):
        rows = count if place == "edge" else shape[place == "column"]
        if rows > MANY * count and not is_ready(x):
            return False
        if x.shape[0] != rows or x.dtype is not dtype or count * x.shape[1:].numel() > FEW.features:
            return False
    return True


def is_plain(x) -> bool:
    """Whether kernels read a tensor as it is, and it has numbers."""
    return (
        type(x) in _PLAIN
        and x.dtype in FLOATS
        and x.is_cpu
        and x.layout is torch.strided
        and x.dim() > 0
        and 0 not in x.shape
    )


def _is_eager() -> bool:
    return current() is None and transformed() is None and not torch.is_autocast_enabled("cpu")


def run(flat: Flat | bool, edges: EdgeList, operands: tuple[Tensor, ...]) -> Tensor | None:
    """The result; None where there is no operator, or an edge is out of range."""
    if flat is False:
        return None
    try:
        return flat(edges, operands)
    except OutOfRange:
        return None
