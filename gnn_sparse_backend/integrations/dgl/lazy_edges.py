"""Edge features that are computed when they are used: what ``apply_edges`` gives inside ``local_scope``.

Attention in DGL is written as ``apply_edges(u_add_v)``, arithmetic, ``edge_softmax`` and ``update_all(u_mul_e, sum)``,
each with a tensor of one row per edge between. Inside ``local_scope``, and on the result of ``local_var``, edge
features are temporary by construction, so there these tensors are lazy (``integrations/lazy``), and the last step runs
one operator over all of it. Whatever else is done with one computes it. One that is still there when its scope ends,
because it is returned, becomes an ordinary tensor.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...ops.message.programs.message import parse
from ...structures.graph import Graph
from ..core.handles import Handles
from ..core.refusal import Refusal
from ..lazy import LEAST, LazyTensor, arithmetic, lazy_tensor, materialise, reduced, transformed, value, watched
from ..lazy.recipes import EDGE, Pointwise, Recipe, gathered, version
from ..lazy.stages import Score, Softmax
from ..lazy.terms import term
from ..traced.apart import apart
from .host import HOST, GraphEnd

KEPT = Handles()
"""Frames of edge features that end with their scope."""


class OfThread(threading.local):
    """A graph that each thread has one of, or none."""

    graph = None


_now = OfThread()  # the graph whose edge features are temporary in this thread now, in a scope or not
WIDEST = 1024
"""Features of a node that are not exceeded by much: on fewer nodes than `LEAST` by it nothing is worth watching."""
_SIDES = {"row": 0, "column": 1}


def is_temporary(g) -> bool:
    """Whether the edge features of a graph of one edge type are temporary, and may be lazy."""
    return (_now.graph is g or KEPT.get(g._edge_frames[0]) is not None) and transformed() is None


@contextmanager
def temporary_features(g):
    """What is computed for the edges of ``g`` is temporary, and may be lazy."""
    before, _now.graph = _now.graph, g
    try:
        yield
    finally:
        _now.graph = before


def marking_scope(original: Callable) -> Callable:
    """``DGLGraph.local_scope`` in which edge features are temporary."""

    @functools.wraps(original)
    @contextmanager
    def local_scope(self):
        large = self.number_of_nodes() * WIDEST >= LEAST
        with original(self), watched(HOST.name, within=True) if large else nullcontext():
            _mark(self)
            yield
            leaving = [
                column.storage
                for frame in self._edge_frames
                for column in frame._columns.values()
                if type(getattr(column, "storage", None)) is LazyTensor
            ]
        while leaving:
            lazy = leaving.pop()
            # somebody holds it beside this name and the argument of the call
            if type(lazy) is LazyTensor and sys.getrefcount(lazy) > 2 and _is_a_result(lazy._recipe):
                _settle(lazy)

    return local_scope


def marking_copy(original: Callable) -> Callable:
    """``DGLGraph.local_var`` of whose result edge features are temporary."""

    @functools.wraps(original)
    def local_var(self):
        result = original(self)
        _mark(result)
        return result

    return local_var


def computed(tree, reason: str):
    """``tree``, a tensor or a container of them, with lazy tensors computed."""
    kind = type(tree)
    return tree if kind is Tensor or tree is None else materialise(tree, reason)


def lazy_values(graph: Graph, op: str, message: str, places: tuple[str, ...], operands: tuple) -> LazyTensor:
    """The lazy result of ``gsddmm`` of operands that passed its checks."""
    features = tuple([tuple(x.shape[1:]) for x in operands])
    inner, sums, kept = _layout(op, features)
    shape, versions = torch.Size((graph.num_edges, *inner)), tuple([version(x) for x in operands])
    ends = tuple([EDGE if place == "edge" else GraphEnd(graph, _SIDES[place]) for place in places])
    recipe = Pointwise(HOST, shape, operands[0].dtype, operands, versions, _term(message), ends, features, inner)
    if sums:
        recipe = Score(recipe, sums, torch.Size((graph.num_edges, *kept)))
    return lazy_tensor(recipe)


def combined(graph: Graph, op: str, first, second) -> LazyTensor | None:
    """``op`` of a lazy edge feature and a source feature, destination feature or edge feature; None if it cannot be
    lazy.

    first, second: a tensor beside its place, or a lazy tensor beside ``edge``.
    """
    (x, here), (y, there) = first, second
    if x.dim() != y.dim() or x.dtype is not y.dtype:
        return None
    sides = [
        each._recipe if type(each) is LazyTensor else _plain(graph, each, place)
        for each, place in ((x, here), (y, there))
    ]
    found = arithmetic.binary("mul" if op == "dot" else op, *sides)
    if op == "dot" and isinstance(found, Recipe) and len(found.shape) > 1:
        found = arithmetic.summed(found, -1, True)
    return lazy_tensor(found) if isinstance(found, Recipe) else None


def reduce(graph: Graph, lazy: LazyTensor, reduce_op: str, ties: str) -> tuple[Tensor, str] | Refusal | None:
    """A lazy message of the edges of ``graph`` reduced into its rows, as ``reduced`` gives it; None as there."""
    return reduced(lazy, GraphEnd(graph, 0), reduce_op, ties) if belongs(lazy, graph) else None


def belongs(lazy: LazyTensor, graph: Graph) -> bool:
    """Whether all ends of a lazy tensor are those of this graph, whose order of edges it then has."""
    recipe = lazy._recipe
    return (
        recipe.host is HOST and recipe.shape[0] == graph.num_edges and all(end.graph is graph for end in recipe.ends())
    )


def asks_for_attention(frame) -> bool:
    """Whether a layer that was asked for its attention weights is on its way: then they must be a tensor of their own.

    A gradient to the weights themselves exists only if they were computed. Layers of DGL call the argument
    ``get_attention``, and ask for a softmax directly.
    """
    for _ in range(3):
        if frame is None:
            return False
        if "get_attention" in frame.f_code.co_varnames:
            return bool(frame.f_locals.get("get_attention"))
        frame = frame.f_back
    return False


def _mark(g) -> None:
    for frame in g._edge_frames:
        KEPT.put(frame, True)


def _is_a_result(recipe: Recipe) -> bool:
    """Whether a tensor that outlives its scope was probably returned: weights of an attention, or what nothing was made
    of. Other steps of an attention are held by a variable of a function that is about to end; they stay lazy."""
    return type(recipe) is Softmax or not recipe.used


@apart
def _settle(lazy: LazyTensor) -> None:
    """Make a lazy tensor that leaves its scope an ordinary one, whoever holds it."""
    tensor = value(lazy, "it leaves its local scope")
    torch.utils.swap_tensors(lazy, tensor.view_as(tensor))


def _plain(graph: Graph, x: Tensor, place: str) -> Pointwise:
    if place != "edge":
        return gathered(HOST, GraphEnd(graph, _SIDES[place]), x)
    features = tuple(x.shape[1:])
    return Pointwise(HOST, x.shape, x.dtype, (x,), (version(x),), _term("x0"), (EDGE,), (features,), features)


@kept
def _term(message: str):
    return term(parse(message))


@kept
def _layout(op: str, features: tuple[tuple[int, ...], ...]) -> tuple:
    """(features of the message, which are summed over, features of the result)."""
    inner = tuple(torch.broadcast_shapes(*features))
    if op != "dot" or not inner:
        return inner, (), inner
    return inner, (False,) * (len(inner) - 1) + (True,), (*inner[:-1], 1)
