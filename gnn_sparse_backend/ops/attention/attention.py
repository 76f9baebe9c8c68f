"""Attention over the edges into each row: scores from a message, their softmax, and the weighted sum of values.

    score[e] = pre(operands)[e], summed over its last feature dimension where ``reduced``
    p[e]     = softmax of score over the edges e of a row
    out[i]   = sum over the edges e of row i of p[e] * value(operands)[e]

One kernel computes all of it in a single pass over the edges. Its backward pass (``attention_gradients``) stores one
number per edge and score twice, and nothing larger.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import Function

from ...compiler.cache.bounded import kept
from ..message.calls import broadcast_features, feature_shapes
from ..message.gradients import aggregate, edge_map
from ..message.message_op import MessageOp, in_order, message_op
from .calls import AttentionForm, attention_form, has_no_terms, prepared, run_attention
from .edge_softmax import softmax_edges
from .gradients import attention_gradients

COLUMN_VALUE = message_op("x0", ("column",))
"""The value of an edge is that of its column."""


def attend(
    graph,
    score_form: MessageOp,
    score_operands: Sequence[Tensor],
    value: Tensor | Sequence[Tensor],
    reduced: bool = False,
    value_form: MessageOp | None = None,
) -> Tensor:
    """Attention, with gradients of any order to all operands. For callers that have checked their operands.

    Args:
        graph: structure (n_dst, n_src).
        score_form: an edge map, ``message_op(message, places)``, of the score before the softmax.
        score_operands: its operands, with a row per row (``row``: destination), column or edge (in the user's edge
            order) of the graph, or none (``all``), then features that broadcast as in NumPy to S.
        value: (n_src, *V); or with ``value_form`` the sequence of that form's operands, whose features broadcast to V.
        reduced: sum the scores over the last feature dimension, which then has extent 1 in S.
        value_form: an edge map; None for the feature of the column itself. Dropout of attention weights is
            ``message_op("mul(x0, x1)", ("column", "edge"))`` with x1 (E, *S) of 0 and 1 / keep.

    All tensors are of one floating type on ``graph.device``.

    Returns:
        (n_dst, *F), contiguous, in the type of the operands; F is S broadcast with V. So with H heads of width D scores
        are (H, 1), summed from (H, D) or not, and values (H, D). Rows without edges are 0. Rows whose scores are all
        -inf, or hold NaN or +inf, are NaN; a score of -inf among finite ones has weight 0.
    """
    value_form, values = (COLUMN_VALUE, (value,)) if value_form is None else (value_form, tuple(value))
    operands = (*score_operands, *values)
    return Attention(score_form, value_form, reduced, graph, operands)(graph, operands)


@kept
def _ordered(score_form: MessageOp, value_form: MessageOp, reduced: bool) -> tuple[AttentionForm, tuple[int, ...]]:
    """The attention of both forms with their operands in order, and the number that each of these had."""
    (score, scores), (value, valued) = in_order(score_form), in_order(value_form)
    return attention_form(score, value, reduced), (*scores, *(len(scores) + i for i in valued))


class Attention:
    """``attend`` of these operands on a graph, and of others like them: what depends on their shapes and types alone is
    looked up once.

    lifted: numbers of the operands which lack a last dimension of extent 1.
    """

    __slots__ = ("call", "lifted", "of", "order")

    def __init__(
        self,
        score_form: MessageOp,
        value_form: MessageOp,
        reduced: bool,
        graph,
        operands: Sequence[Tensor],
        lifted: Sequence[int] = (),
    ):
        self.of, self.order = _ordered(score_form, value_form, reduced)
        self.lifted = lifted
        given = self._given(operands)
        self.call = None if has_no_terms(self.of, given) else prepared(self.of, graph, given)

    def __call__(self, graph, operands: Sequence[Tensor]) -> Tensor:
        if self.call is None:
            return _composed(self.of, graph, self._given(operands))
        if torch.is_grad_enabled() and any(x.requires_grad for x in operands):
            return Attend.apply(self.of, graph, self.call, *self._given(operands))
        return run_attention(self.of, graph, [operands[i] for i in self.order], self.call)[0]

    def _given(self, operands: Sequence[Tensor]) -> list[Tensor]:
        return [operands[i].unsqueeze(-1) if i in self.lifted else operands[i] for i in self.order]


def attention_weights(graph, score_form: MessageOp, score_operands: Sequence[Tensor], reduced: bool = False) -> Tensor:
    """p as a tensor: (E, *S) in the user's edge order, with gradients of any order."""
    last = ()
    if reduced:
        rank = len(broadcast_features(feature_shapes(score_form, score_operands)))
        last = (False,) * (rank - 1) + (True,)
    return softmax_edges(graph, edge_map(score_form, graph, last, *score_operands))


class Attend(Function):
    @staticmethod
    def forward(ctx, of, graph, call, *operands):
        ctx.of, ctx.graph = of, graph
        results = run_attention(of, graph, operands, call)
        ctx.save_for_backward(*results[1:], *operands)
        # not saved: users may write to what a layer returns, and the framework's own layers would not mind
        ctx.result = results[0].detach()
        ctx.version = ctx.result._version
        return results[0]

    @staticmethod
    def backward(ctx, grad):
        saved = ctx.saved_tensors  # once: a checkpointed region unpacks each tensor a single time
        normaliser, operands = saved[:2], saved[2:]
        of, graph, needed = ctx.of, ctx.graph, ctx.needs_input_grad[3:]
        # freed after its use, as saved tensors are
        result, ctx.result = ctx.result, None
        if torch.is_grad_enabled():  # to be differentiated again
            return None, None, None, *_differentiable_gradients(of, graph, operands, grad, needed)
        if result is None or result._version != ctx.version:
            result = run_attention(of, graph, operands)[0]
        return None, None, None, *attention_gradients(of, graph, operands, (result, *normaliser), grad, needed)


def _composed(of: AttentionForm, graph, operands) -> Tensor:
    """The same from operators whose gradients are operators again."""
    score, value = of.take_apart(operands)
    return aggregate(of.weighted, graph, attention_weights(graph, of.score, score, of.reduced), *value)


def _differentiable_gradients(of: AttentionForm, graph, operands, grad: Tensor, needed) -> list[Tensor | None]:
    # one tensor may stand for several operands: each of them a view of its own
    operands = [x.view_as(x) if wanted else x for x, wanted in zip(operands, needed)]
    wanted = [x for x, want in zip(operands, needed) if want]
    found = iter(torch.autograd.grad(_composed(of, graph, operands), wanted, grad, create_graph=True))
    return [next(found) if want else None for want in needed]
