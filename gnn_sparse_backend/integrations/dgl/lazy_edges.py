"""Edge features that are computed when they are used: what ``apply_edges`` gives inside ``local_scope``.

Attention in DGL is written as ``apply_edges(u_add_v)``, arithmetic, ``edge_softmax`` and ``update_all(u_mul_e, sum)``,
each with a tensor of one row per edge between. Inside ``local_scope``, and on the result of ``local_var`` in a layer,
edge features are temporary by construction, so there these tensors are lazy (``integrations/lazy``), and the last step
runs one operator over all of it. Whatever else is done with one computes it. One that is still there when its scope
ends, because it is returned, becomes an ordinary tensor.

Between two steps of a user's own program anything may be written to; there what is lazy is made of copies.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from dgl import DGLGraph
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...ops.message.message_op import MessageOp
from ...ops.message.operators import edge_map
from ...ops.message.programs.message import parse
from ...ops.message.programs.operands import broadcast_features
from ...structures.graph import Graph
from ..core.handles import Handles
from ..core.refusal import Refusal
from ..lazy import LEAST, LazyTensor, arithmetic, lazy_tensor, materialise, reduced, watched
from ..lazy.handlers import given
from ..lazy.recipes import EDGE, Pointwise, Recipe, gathered
from ..lazy.stages import Score
from ..lazy.terms import term
from ..scopes import copied, current, has_hooks, is_forgotten, kind_of, transformed
from ..scopes.torch_state import saving_hooks
from .host import HOST, GraphEnd
from .structure import is_small

KEPT = Handles()
"""Frames of edge features that end with their scope."""


class OfThread(threading.local):
    """A graph that each thread has one of, or none."""

    graph = None


_now = OfThread()  # the graph whose edge features are temporary in this thread now, in a scope or not
WIDEST = 1024
"""Features of a node that are not exceeded by much: on fewer nodes than `LEAST` by it nothing is worth watching."""
_SIDES = {"row": 0, "column": 1}
_OURS = "dgl."
"""Prefix of the modules whose code does not write to what it is given."""


def is_temporary(g) -> bool:
    """Whether the edge features of a graph of one edge type are temporary, and may be lazy."""
    if current() is None or transformed() is not None:
        return False
    # what a checkpoint computes again may run outside of the scope, and has to be what was computed at first
    return _now.graph is g or (KEPT.get(g._edge_frames[0]) is not None and saving_hooks() is None)


def is_passing(g) -> bool:
    """Whether what is computed for the edges of a graph now is a message that is about to be reduced."""
    return _now.graph is g


@contextmanager
def temporary_features(g):
    """What is computed for the edges of ``g`` is temporary, and may be lazy."""
    before, _now.graph = _now.graph, g
    try:
        yield
    finally:
        _now.graph = before


def scoped(forward: Callable) -> Callable:
    """``forward`` of a layer of DGL as a scope in which tensors may be lazy."""

    @functools.wraps(forward)
    def run(self, *args, **kwargs):
        if not HOST.deferring or _is_small(args):
            return forward(self, *args, **kwargs)
        worth_it = any(map(_is_large, (*args, *kwargs.values()))) and not has_hooks(self)
        kind = kind_of(self, args, kwargs) if torch.is_grad_enabled() else None
        with watched(HOST.name, (args, kwargs), trusted=True, worth_it=worth_it, kind=kind) as scope:
            scope.result = forward(self, *args, **kwargs)
            return scope.result

    return run


def _is_small(args: tuple) -> bool:
    """Whether a layer is called on a graph on which nothing is worth following."""
    return bool(args) and isinstance(args[0], DGLGraph) and current() is None and is_small(args[0])


def _is_large(x) -> bool:
    if type(x) is tuple:
        return any(map(_is_large, x))
    return isinstance(x, Tensor) and x.numel() >= LEAST and x.dtype.is_floating_point


def region(g, function: Callable | None = None) -> AbstractContextManager:
    """The scope of a step of DGL on a graph in which a function of a user may run, or none."""
    if not HOST.deferring or (current() is None and is_small(g)):
        return nullcontext()
    if function is None or getattr(function, "__module__", None) is None or function.__module__.startswith(_OURS):
        return nullcontext() if current() is not None else watched(HOST.name, (), trusted=True, worth_it=False)
    return watched(HOST.name, (), trusted=False, worth_it=False)


class _LocalScope:
    """``DGLGraph.local_scope`` of a graph, in which edge features are temporary. scope: that of a user's program."""

    def __init__(self, g, original: Callable):
        self.g, self.inner, self.scope = g, original(g), None

    def __enter__(self):
        self.inner.__enter__()
        if HOST.deferring:
            if not _is_of_dgl(frame := sys._getframe(1)):
                worth_it = self.g.number_of_nodes() * WIDEST >= LEAST
                self.scope = watched(HOST.name, (), trusted=False, worth_it=worth_it)
                if not worth_it:
                    self.scope.mode = None  # what is lazy here is made of copies
                self.scope.site = frame.f_code, frame.f_lasti
                self.scope.__enter__()
            if current() is not None:
                _mark(self.g)
        return None

    def __exit__(self, kind, error, trace):
        leaving = self.inner.__exit__(kind, error, trace)
        if self.scope is not None:
            if kind is None:
                self._forget(sys._getframe(1))
            self.scope.__exit__(kind, error, trace)
        return leaving

    def _forget(self, frame) -> None:
        """Leave lazy what variables of the function that this was in hold and it does not read any more."""
        alive, self.scope.alive = self.scope.alive, []
        for each in alive:
            lazy = each()
            if type(lazy) is not LazyTensor or not is_forgotten(lazy, frame, 1):
                self.scope.alive.append(each)


def _is_of_dgl(frame) -> bool:
    """Whether it runs code of DGL's own."""
    return frame.f_globals.get("__name__", "").startswith(_OURS)


def marking_scope(original: Callable) -> Callable:
    """``DGLGraph.local_scope`` in which edge features are temporary."""

    @functools.wraps(original)
    def local_scope(self):
        if current() is None and (not HOST.deferring or _is_of_dgl(sys._getframe(1)) or is_small(self)):
            return original(self)
        return _LocalScope(self, original)

    return local_scope


def marking_copy(original: Callable) -> Callable:
    """``DGLGraph.local_var`` of whose result edge features are temporary, in a layer."""

    @functools.wraps(original)
    def local_var(self):
        result = original(self)
        scope = current()
        if scope is not None and scope.trusted:
            _mark(result)
        return result

    return local_var


def computed(tree, reason: str):
    """``tree``, a tensor or a container of them, with lazy tensors computed."""
    kind = type(tree)
    return tree if kind is Tensor or tree is None else materialise(tree, reason)


def lazy_values(graph: Graph, op: str, message: str, of: MessageOp, operands: tuple, ours: bool) -> LazyTensor:
    """The lazy result of ``gsddmm`` of operands that passed its checks. ours: whether it is a message that is about to
    be reduced."""
    features = tuple([tuple(x.shape[1:]) for x in operands])
    inner, sums, kept = _layout(op, features)
    shape = torch.Size((graph.num_edges, *inner))
    operands = operands if ours else lasting(*operands)
    ends = tuple([EDGE if place == "edge" else GraphEnd(graph, _SIDES[place]) for place in of.places])
    recipe = Pointwise(HOST, shape, operands[0].dtype, operands, _term(message), ends, features, inner)
    if sums:
        recipe = Score(recipe, sums, torch.Size((graph.num_edges, *kept)))
    return lazy_tensor(recipe)


def combined(graph: Graph, op: str, first, second, of: MessageOp, ours: bool) -> LazyTensor | None:
    """``op`` of a lazy edge feature and a source feature, destination feature or edge feature; None if it cannot be
    lazy.

    first, second: a tensor beside its place, or a lazy tensor beside ``edge``. of: the operator that ``op`` is. ours:
    as of ``lazy_values``.
    """
    (x, here), (y, there) = first, second
    if x.dim() != y.dim() or x.dtype is not y.dtype:
        return None
    sides = [
        given(each) if type(each) is LazyTensor else _plain(graph, *((each,) if ours else lasting(each)), place)
        for each, place in ((x, here), (y, there))
    ]
    if not any(isinstance(side, Recipe) for side in sides):
        return None
    found = arithmetic.binary("mul" if op == "dot" else op, *sides)
    sums = ()
    if op == "dot" and isinstance(found, Recipe) and len(found.shape) > 1:
        sums = (False,) * (len(found.shape) - 2) + (True,)
        found = arithmetic.summed(found, -1, True)
    if not isinstance(found, Recipe):
        return None
    return lazy_tensor(found, lambda *sides: edge_map(of, graph, sums, *computed(sides, "gsddmm of it")), x, y)


def lasting(*operands: Tensor) -> tuple[Tensor, ...]:
    """Operands as they are now, where a user's program goes on before they are read."""
    if current().trusted:
        return operands
    copies = {id(x): x for x in operands}
    for key, x in copies.items():
        copies[key] = copied(x)
    return tuple([copies[id(x)] for x in operands])


def reduce(graph: Graph, lazy: LazyTensor, reduce_op: str, ties: str) -> tuple[Tensor, str] | Refusal | None:
    """A lazy message of the edges of ``graph`` reduced into its rows, as ``reduced`` gives it; None as there."""
    return reduced(lazy, GraphEnd(graph, 0), reduce_op, ties) if belongs(lazy, graph) else None


def belongs(lazy: LazyTensor, graph: Graph) -> bool:
    """Whether all ends of a lazy tensor are those of this graph, whose order of edges it then has."""
    if type(lazy) is not LazyTensor:
        return False
    recipe = lazy._recipe
    return (
        recipe.host is HOST and recipe.shape[0] == graph.num_edges and all(end.graph is graph for end in recipe.ends())
    )


def _mark(g) -> None:
    for frame in g._edge_frames:
        KEPT.put(frame, True)


def _plain(graph: Graph, x: Tensor, place: str) -> Pointwise:
    if place != "edge":
        return gathered(HOST, GraphEnd(graph, _SIDES[place]), x)
    features = tuple(x.shape[1:])
    return Pointwise(HOST, x.shape, x.dtype, (x,), _term("x0"), (EDGE,), (features,), features)


@kept
def _term(message: str):
    return term(parse(message))


@kept
def _layout(op: str, features: tuple[tuple[int, ...], ...]) -> tuple:
    """(features of the message, which are summed over, features of the result)."""
    inner = broadcast_features(list(features))
    if op != "dot" or not inner:
        return inner, (), inner
    return inner, (False,) * (len(inner) - 1) + (True,), (*inner[:-1], 1)
