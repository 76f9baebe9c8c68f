"""Which operands of DGL's operators the kernels take, where they stand, and on which graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...ops.core.operands import is_plain
from ...ops.core.transforms import unwatched
from ...runtime import devices
from ...structures.checks import FLOATING
from ...structures.graph import Graph
from ..core.refusal import Refusal, refusal_of
from .structure import only_graph_of

PLACES = {"u": "column", "src": "column", "v": "row", "dst": "row", "e": "edge", "edge": "edge"}
"""DGL's targets as places of operands; rows are destinations."""

Shape = tuple[int, ...]


def is_index(x) -> bool:
    """Whether it is a vector of integers."""
    return type(x) is Tensor and x.dtype in (torch.int32, torch.int64) and x.dim() == 1


def refuse(x: Tensor | None, y: Tensor | None = None) -> Refusal | None:
    """Why these operands are not ours whatever the graph, or None. ``y`` may be missing."""
    if x is None:
        return Refusal("missing feature")
    if not isinstance(x, Tensor) or not is_plain(x, y):
        recorded = torch.jit.is_tracing()
        return Refusal("torch.jit is tracing") if recorded else Refusal("missing, subclass or traced tensor")
    if x.dtype not in FLOATING:
        return Refusal(f"dtype {str(x.dtype).removeprefix('torch.')}")
    if not x.is_cpu and (refusal := refusal_of(devices.why_not(x.device))) is not None:
        return refusal
    if x.layout is not torch.strided:
        return Refusal("sparse layout")
    if x.dim() == 0 or 0 in x.shape[1:]:
        return Refusal("no features")
    if y is None:
        return None
    if y.dtype is not x.dtype or y.device != x.device:
        return Refusal("operands of two types or devices")
    if y.layout is not torch.strided:
        return Refusal("sparse layout")
    return Refusal("no features") if y.dim() == 0 or 0 in y.shape[1:] else None


def graph_of_operands(
    gidx, op: str, places: tuple[str, ...], x: Tensor | None, y: Tensor | None = None, find: Callable = only_graph_of
) -> Graph | Refusal:
    """The graph that ``find`` gives of an index, if ``op`` of these operands, at these places, is ours on it."""
    with unwatched():
        if y is None and len(places) == 2:
            return Refusal("missing feature")
        if (refusal := refuse(x, y)) is not None:
            return refusal
        graph = find(gidx)
        if graph is None:
            return Refusal("several edge types")
        if graph.device != x.device:
            return Refusal("graph on another device")
        if x.shape[0] != rows_at(graph, places[0]) or (y is not None and y.shape[0] != rows_at(graph, places[1])):
            return Refusal("number of rows")
        if y is not None and not broadcast(op, x.shape[1:], y.shape[1:]):
            return Refusal("features do not broadcast")
        return graph


def rows_at(graph: Graph, place: str) -> int:
    """How many rows an operand at a place has."""
    return graph.num_edges if place == "edge" else graph.shape[place == "column"]


def broadcast_of(op: str, x: Tensor, y: Tensor) -> bool:
    """`broadcast` of two operands."""
    return broadcast(op, x.shape[1:], y.shape[1:])


@kept
def broadcast(op: str, first: Shape, second: Shape) -> bool:
    """Whether DGL applies ``op`` to features of these shapes: as NumPy, but of ``dot`` the last extents agree."""
    if op == "dot" and (first or (1,))[-1] != (second or (1,))[-1]:
        return False
    return all(a == b or a == 1 or b == 1 for a, b in zip(first[::-1], second[::-1]))
