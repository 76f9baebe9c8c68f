"""``update_all`` and ``apply_edges`` with functions of DGL, on the features of one type of edges.

What is not here, and what is wrong, goes DGL's way, which ends at the operators that are called here, or in its error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from dgl import backend
from dgl.base import ALL, is_all
from dgl.frame import Column, Frame
from dgl.function.message import BinaryMessageFunction, CopyMessageFunction
from dgl.function.reducer import SimpleReduceFunction
from torch import Tensor

from ...core.counters import ours
from ...core.refusal import Refusal, attempt, left
from .. import sddmm, spmm
from ..host import HOST
from .columns import put

_TARGETS = "uve"
"""DGL's letters of sources, destinations and edges, by their codes."""
_SOURCE_AND_EDGE = 0, 2
_COPIES = {"u": "copy_lhs", "e": "copy_rhs"}


def make_update(original: Callable) -> Callable:
    """``DGLGraph.update_all``."""

    @functools.wraps(original)
    def update_all(self, message_func, reduce_func, apply_node_func=None, etype=None):
        if etype is None and apply_node_func is None and type(reduce_func) is SimpleReduceFunction:
            frames = _frames(self)
            found = None if frames is None else _attempt_reduced(self, message_func, reduce_func, frames)
            if type(found) is Refusal:
                with left(HOST.name, "gspmm", found):
                    return original(self, message_func, reduce_func, apply_node_func, etype)
            if found is not None:
                put(frames[1], reduce_func.out_field, found)
                return
        original(self, message_func, reduce_func, apply_node_func, etype)

    return update_all


def make_apply(original: Callable) -> Callable:
    """``DGLGraph.apply_edges``."""

    @functools.wraps(original)
    def apply_edges(self, func, edges=ALL, etype=None):
        if etype is None and type(func) is BinaryMessageFunction and is_all(edges):
            frames = _frames(self)
            found = None if frames is None else _attempt_mapped(self, func, frames)
            if type(found) is Refusal:
                with left(HOST.name, "gsddmm", found):
                    return original(self, func, edges, etype)
            if found is not None:
                put(frames[2], func.out_field, found)
                return
        original(self, func, edges, etype)

    return apply_edges


def _frames(g) -> tuple[Frame, Frame, Frame] | None:
    """The features of sources, destinations and edges, of which there is one type each; None otherwise."""
    sources, destinations = g._srctypes_invmap, g._dsttypes_invmap
    if len(g._edge_frames) != 1 or len(sources) != 1 or len(destinations) != 1 or torch.is_autocast_enabled():
        return None
    (source,), (destination,) = sources.values(), destinations.values()
    return g._node_frames[source], g._node_frames[destination], g._edge_frames[0]


def _reduced(g, message, reduce: SimpleReduceFunction, frames: tuple[Frame, ...]) -> Tensor | None:
    named, name = _read(message, frames), reduce.name
    if named is None or message.out_field != reduce.msg_field:
        return None
    found = _count(spmm.of_few(g, named[0], name, *named[1:]))
    return found if found is None or name in ("sum", "mean") else backend.replace_inf_with_zero(found)


def _read(message, frames: tuple[Frame, ...]) -> tuple[str, Tensor | None, Tensor | None] | None:
    """(operator, features of sources, features of edges) of what DGL reduces in one step; None of all else."""
    kind = type(message)
    if kind is CopyMessageFunction and (target := _TARGETS[message.target]) in _COPIES:
        x = _feature(frames[message.target], message.in_field)
        return None if x is None else (_COPIES[target], *((x, None) if target == "u" else (None, x)))
    if kind is BinaryMessageFunction and (message.lhs, message.rhs) == _SOURCE_AND_EDGE:
        u, e = _feature(frames[0], message.lhs_field), _feature(frames[2], message.rhs_field)
        return None if u is None or e is None else (message.binary_op, u, e)
    return None


def _mapped(g, func: BinaryMessageFunction, frames: tuple[Frame, ...]) -> Tensor | None:
    x, y = _feature(frames[func.lhs], func.lhs_field), _feature(frames[func.rhs], func.rhs_field)
    if x is None or y is None:
        return None
    return _count(sddmm.of_few(g, func.binary_op, x, y, _TARGETS[func.lhs], _TARGETS[func.rhs]))


_attempt_reduced, _attempt_mapped = attempt(_reduced), attempt(_mapped)


def _count(found: tuple[Tensor, str] | None) -> Tensor | None:
    """The result of an operator, which is counted; None where there is none."""
    if found is None:
        return None
    out, name = found
    ours(HOST.name, name)
    return out


def _feature(frame: Frame, name: str) -> Tensor | None:
    """A feature that is there; None otherwise, which DGL says in its own words."""
    column = frame._columns.get(name)
    return column.data if type(column) is Column else None
