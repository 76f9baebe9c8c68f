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

from ...compiler.cache.bounded import kept
from ..core.traced import Traced
from ..message.message_op import MessageOp, in_order, message_op
from .calls import AttentionForm, attention_form, has_no_terms, prepared
from .operators import ATTEND, composed

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
    if isinstance(graph, Traced):
        of, order = _ordered(score_form, value_form, reduced)
        return ATTEND(graph, [operands[i] for i in order], (of, None))
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
            return composed(self.of, graph, self._given(operands))
        # kernels do without the last dimension, gradients do not
        lifts = self.lifted and torch.is_grad_enabled() and any(x.requires_grad for x in operands)
        given = self._given(operands) if lifts else [operands[i] for i in self.order]
        return ATTEND(graph, given, (self.of, self.call))

    def _given(self, operands: Sequence[Tensor]) -> list[Tensor]:
        return [operands[i].unsqueeze(-1) if i in self.lifted else operands[i] for i in self.order]
