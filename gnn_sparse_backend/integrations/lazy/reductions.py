"""From a lazy tensor to what a layer wants of it: a reduction over the edges into each node, or a softmax over them."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.nn import Parameter

from ...compiler.language.reduction import REDUCTIONS
from ...ops.attention.operators import softmax_edges
from ...ops.message.message_op import MessageOp, message_op
from ...ops.message.operators import aggregate
from ...runtime import devices
from ...structures.checks import FLOATING
from ..core.refusal import PASS, Refusal, refusal_of
from ..scopes.modes import transformed
from . import learnt
from .ends import End
from .gathers import graph_of
from .history import is_recorded, joined
from .products import mapped_last
from .recipes import Pointwise, Recipe
from .stages import Score, Softmax, Weighted
from .tensor import LazyTensor, lazy_tensor, value

INTO_ZEROS = "even_with_zero"
"""What becomes of equal messages' gradient where a framework scatters maxima into zeros, by PyTorch."""

OF_SEGMENTS = "even_if_positive"
"""What becomes of equal messages' gradient where a framework asks PyTorch for maxima of segments."""


def of_edges(reduce: str, ties: str = INTO_ZEROS) -> MessageOp:
    """The reduction of what there is for every edge."""
    return message_op("x0", ("edge",), reduce, ties if REDUCTIONS[reduce].chooses else None)


def reduced(lazy: LazyTensor, rows: End, reduce: str, ties: str = INTO_ZEROS) -> tuple[Tensor, str] | Refusal | None:
    """The reduction of a lazy message over the edges of each row.

    Args:
        lazy: (E, ...).
        rows: the end to reduce into.
        reduce: the name of a `Reduction`.
        ties: for max and min, as in ``ops.message.message_op``.

    Returns:
        (rows.size, ...) and what it is counted as, a Refusal where an index is out of range, or None where the message
        has to be computed first: ask ``value``.
    """
    recipe = lazy._recipe
    if rows.count != recipe.shape[0] or not recipe.pending():
        return None
    if learnt.learning():
        return learnt.noted(recipe, rows, reduce, ties if REDUCTIONS[reduce].chooses else None)
    found = _reduced(recipe, rows, reduce, ties)
    if type(found) is not tuple:
        return found
    out, counted = found
    if not is_recorded(out):
        return found

    shape = out.shape

    def step(message: Tensor) -> Tensor:
        if type(message) is LazyTensor:
            found = _reduced(message._recipe, rows, reduce, ties)
            if type(found) is tuple:
                return found[0]
            message = value(message, "its reduction")
        whole = aggregate(of_edges(reduce, ties), graph_of(recipe.host, rows), message)
        return whole if whole.shape == shape else whole.view(shape)

    return joined(out, step, lazy), counted


def _reduced(recipe: Recipe, rows: End, reduce: str, ties: str) -> tuple[Tensor, str] | Refusal | None:
    if type(recipe) is Weighted:
        if reduce == "sum" and recipe.weights.settled() is None:
            found = recipe.attended(rows)
            if found is not None:
                return found
        recipe = recipe.pointwise()
    return total(recipe, rows, reduce, ties) if type(recipe) is Pointwise else None


def total(recipe: Pointwise, rows: End, reduce: str, ties: str = INTO_ZEROS) -> tuple[Tensor, str] | Refusal | None:
    """``reduced`` of a message, whoever else has computed it."""
    found = recipe.at(rows)
    if found is None:
        return None
    places, columns = found
    graph = recipe.host.graph(rows, columns)
    if type(graph) is Refusal:
        return graph
    last = mapped_last(recipe, rows) if reduce in ("sum", "mean") else None
    message = recipe if last is None else last[0]
    op = message.term.message_op(places, reduce, ties if REDUCTIONS[reduce].chooses else None)
    out = aggregate(op, graph, *message.arguments(op))
    if last is not None:
        out = last[1].of(out).to(recipe.dtype)
    shape = (rows.size, *recipe.shape[1:])
    return out if out.shape == shape else out.view(shape), recipe.host.counted(recipe.term.names[reduce])


def softmaxed(lazy: LazyTensor, rows: End, framework: Callable[[Tensor], Tensor]) -> LazyTensor | Refusal | None:
    """The softmax of lazy scores over the edges of each row, lazy itself; None where the scores have to be computed
    first.

    framework: ``(scores) -> tensor``, the framework's own softmax.
    """
    recipe = lazy._recipe
    if rows.count != recipe.shape[0] or not recipe.pending() or type(recipe) not in (Pointwise, Score):
        return None
    if type(recipe) is Pointwise and recipe.term.sums:
        return None  # nor does an attention have a value of its own for an edge
    found = (recipe.message if type(recipe) is Score else recipe).at(rows)
    if found is None:
        return None
    graph = None if learnt.learning() else recipe.host.graph(rows, found[1])
    if type(graph) is Refusal:
        return graph
    softmax = Softmax(recipe, graph, rows, framework, recipe.shape)
    return lazy_tensor(softmax, lambda scores: softmax_edges(graph, value(scores, "its softmax")), lazy)


def refuse(x, types: Collection[torch.dtype] = FLOATING) -> Refusal | None:
    """Why features (n, ...) cannot be operands of a kernel for ``types`` now, or None."""
    if type(x) is not Tensor and type(x) is not Parameter:
        if isinstance(x, FakeTensor):  # of a program that is being compiled: nothing is computed
            return PASS
        return Refusal(f"the features are a {type(x).__name__}")
    return transformed() or refuse_features(x, types)


def refuse_features(x, types: Collection[torch.dtype] = FLOATING) -> Refusal | None:
    """Why kernels for ``types`` cannot take features (n, ...) of this shape and type, or None."""
    if x.dtype not in types:
        return Refusal(f"the features are {x.dtype}")
    if not x.is_cpu and (refusal := refusal_of(devices.why_not(x.device))) is not None:
        return refusal
    if x.layout is not torch.strided:
        return Refusal(f"the features have layout {x.layout}")
    return Refusal("the features have width 0") if x.dim() == 0 or 0 in x.shape[1:] else None
