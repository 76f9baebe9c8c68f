"""What follows a message on its way to attention: a sum over features, a softmax over edges, a product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...deferred import later
from ...ops.attention.operators import softmax_edges
from ...ops.message.programs.operands import broadcast_features
from ...structures.graph import Graph
from ..core.refusal import Refusal
from ..scopes import scope as scopes
from .ends import End
from .recipes import EDGE, Pointwise, Recipe
from .shapes import reshaped
from .terms import BARE

if TYPE_CHECKING:
    from ...ops.attention import attention
else:
    attention = later(__name__, "...ops.attention.attention")


class Score(Recipe):
    """A message summed over some of its features.

    message: what is summed, ``plain``. reduced: for each feature of it, whether it is summed over. kept: ``shape`` with
    extent 1 for those.
    """

    __slots__ = ("message", "reduced")

    def __init__(self, message: Pointwise, reduced: tuple[bool, ...], shape: torch.Size):
        super().__init__(message.host, shape, message.dtype, message.operands)
        self.message, self.reduced = message, reduced

    def ends(self):
        return self.message.ends()

    def on(self, operands):
        return Score(self.message.on(operands), self.reduced, self.shape)

    def viewed(self, shape: torch.Size) -> Score:
        """Return the score with its features in other dimensions."""
        return Score(self.message, self.reduced, shape)

    def pointwise(self) -> Pointwise | None:
        """Return the score as a message with a sum; None of node features, and of a sum over other features than the
        last.
        """
        if not self.of_edges or not self.last:
            return None
        message = self.message
        term = message.term.unary("sum")
        return Pointwise(
            self.host, self.shape, self.dtype, self.operands, term, message.places, message.dims, self.kept
        )

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(1 if gone else extent for extent, gone in zip(self.message.inner, self.reduced))

    @property
    def last(self) -> bool:
        """Whether the sum is over the last feature alone."""
        return self.reduced[-1] and not any(self.reduced[:-1])

    def run(self):
        return self.message.mapped(self.reduced, self.shape)

    def reference(self):
        gone = [at for at, one in enumerate(self.reduced, 1) if one]
        return self.message.reference().sum(gone).view(self.shape)


class Softmax(Recipe):
    """A softmax of scores over the edges into each row.

    scores: a ``Pointwise`` or ``Score``. graph: of the scores, its rows those that are normalised; None while a step is
    learnt. rows: their end.
    framework: ``(scores) -> tensor``, the framework's own softmax. ``shape`` may have the features of the scores in
    other dimensions.
    """

    __slots__ = ("framework", "graph", "rows", "scores")

    def __init__(self, scores: Pointwise | Score, graph: Graph | None, rows: End, framework, shape: torch.Size):
        super().__init__(scores.host, shape, scores.dtype, scores.operands)
        self.scores, self.graph, self.rows, self.framework = scores, graph, rows, framework

    def ends(self):
        return (*self.scores.ends(), self.rows)

    def on(self, operands):
        return Softmax(self.scores.on(operands), self.graph, self.rows, self.framework, self.shape)

    def viewed(self, shape: torch.Size) -> Softmax:
        """Return the softmax with its features in other dimensions."""
        return Softmax(self.scores, self.graph, self.rows, self.framework, shape)

    def run(self):
        if self.graph is None:
            return self.reference(), self.host.counted("softmax")
        scores = self.scores.value("the scores of an attention")
        weights = softmax_edges(self.graph, scores).view(self.shape)
        # somebody may write to them, and the operator reads what it gave again
        return weights.clone() if weights.requires_grad else weights, self.host.counted("softmax")

    def reference(self):
        return self.framework(self.scores.value("the scores of an attention")).view(self.shape)


class Weighted(Recipe):
    """The product of a softmax and a message, in the order of the user's."""

    __slots__ = ("values", "weights", "weights_first")

    def __init__(self, weights: Softmax, values: Pointwise, weights_first: bool, shape: torch.Size):
        super().__init__(values.host, shape, values.dtype, weights.operands + values.operands)
        self.weights, self.values, self.weights_first = weights, values, weights_first

    def ends(self):
        return (*self.weights.ends(), *self.values.ends())

    def on(self, operands):
        count = len(self.weights.operands)
        return Weighted(
            self.weights.on(operands[:count]), self.values.on(operands[count:]), self.weights_first, self.shape
        )

    def viewed(self, shape: torch.Size) -> Weighted:
        return Weighted(self.weights, self.values, self.weights_first, shape)

    def pointwise(self) -> Pointwise:
        """Return the product as one message, with the softmax computed."""
        values, weights = self.values, self.weights.value("the weights of an attention")
        operands = (*values.operands, weights)
        term = values.term.binary("mul", BARE, (len(values.operands),), self.weights_first)
        places, dims = (*values.places, EDGE), (*values.dims, weights.shape[1:])
        inner = broadcast_features([values.inner, weights.shape[1:]])
        return Pointwise(self.host, self.shape, self.dtype, operands, term, places, dims, inner)

    def run(self):
        return self.pointwise().run()

    def reference(self):
        weights = self.weights.value("the weights of an attention")
        values = self.values.reference()
        return (weights * values if self.weights_first else values * weights).view(self.shape)

    def _lasting(self, arguments: list[Tensor]) -> list[Tensor]:
        """What the gradient of an attention reads again, copied where somebody may write to it until then."""
        return list(map(scopes.lasting, arguments)) if torch.is_grad_enabled() else arguments

    def attended(self, rows: End) -> tuple[Tensor, str] | Refusal | None:
        """The sum over the edges into each row in one operator, and what it is counted as; None of other sums."""
        weights, values = self.weights, self.values
        if rows.key != weights.rows.key or rows.size != weights.rows.size:
            return None
        scores = _as_scores(weights)
        if scores is None:
            return None
        score, reduced = scores
        score_places, columns = score.at(rows)
        found = values.at(rows)
        if found is None or (columns is not None and found[1] is not None and found[1].key != columns.key):
            return None
        value_places, value_columns = found
        graph = weights.graph if columns is not None or value_columns is None else self.host.graph(rows, value_columns)
        if type(graph) is Refusal:
            return graph
        out = attention.attend(
            graph,
            score.term.message_op(score_places, None, None),
            self._lasting(score.arguments()),
            self._lasting(values.arguments()),
            reduced,
            values.term.message_op(value_places, None, None),
        )
        return out.view(rows.size, *self.shape[1:]), self.host.counted("attention")


def _as_scores(weights: Softmax) -> tuple[Pointwise, bool] | None:
    """The scores of a softmax in the dimensions of its ``shape``, and whether they are summed over the last one."""
    features, scores = tuple(weights.shape[1:]), weights.scores
    if type(scores) is Score:
        return (scores.message, True) if scores.last and scores.kept == features else None
    if scores.inner != features:
        scores = reshaped(scores, weights.shape)
    return None if scores is None or scores.inner != features else (scores, False)
