"""Attention over the edges into each row: scores from a message, their softmax, and the weighted sum of values.

    score[e] = pre(operands)[e], summed over its last feature dimension where ``reduced``
    p[e]     = softmax of score over the edges e of a row
    out[i]   = sum over the edges e of row i of p[e] * value(operands)[e]
"""
from __future__ import annotations

import functools
from collections.abc import Sequence

from torch import Tensor

from ..compiler.programs.message import arg, renumber
from .edge_softmax import softmax_edges
from .form import Form, form
from .message_autograd import aggregate, edge_map
from .message_kernels import broadcast_features, feature_shapes

COLUMN_VALUE = form("x0", ("column",))
"""The value of an edge is that of its column."""


def attend(graph, score_form: Form, score_operands: Sequence[Tensor], value: Tensor | Sequence[Tensor],
           reduced: bool = False, value_form: Form | None = None) -> Tensor:
    """Attention, with gradients of any order to all operands. For callers that have checked their operands.

    Args:
        graph: structure (n_dst, n_src).
        score_form: an edge map, ``form(message, places)``, of the score before the softmax.
        score_operands: its operands, with a row per row (``row``: destination), column or edge (in the user's edge
            order) of the graph, or none (``all``), then features that broadcast as in NumPy to S.
        value: (n_src, *V); or with ``value_form`` the sequence of that form's operands, whose features broadcast to V.
        reduced: sum the scores over the last feature dimension, which then has extent 1 in S.
        value_form: an edge map; None for the feature of the column itself. Dropout of attention weights is
            ``form("mul(x0, x1)", ("column", "edge"))`` with x1 (E, *S) of 0 and 1 / keep.

    All tensors are of one floating type on ``graph.device``.

    Returns:
        (n_dst, *F), contiguous, in the type of the operands; F is S broadcast with V. So with H heads of width D scores
        are (H, 1), summed from (H, D) or not, and values (H, D). Rows without edges are 0. Rows whose scores are all
        -inf, or hold NaN or +inf, are NaN; a score of -inf among finite ones has weight 0.
    """
    value_form, values = (COLUMN_VALUE, (value,)) if value_form is None else (value_form, tuple(value))
    weights = attention_weights(graph, score_form, score_operands, reduced)
    return aggregate(_weighted(value_form), graph, weights, *values)


def attention_weights(graph, score_form: Form, score_operands: Sequence[Tensor], reduced: bool = False) -> Tensor:
    """p as a tensor: (E, *S) in the user's edge order, with gradients of any order."""
    last = ()
    if reduced:
        rank = len(broadcast_features(feature_shapes(score_form, score_operands)))
        last = (False,) * (rank - 1) + (True,)
    return softmax_edges(graph, edge_map(score_form, graph, last, *score_operands))


@functools.lru_cache(maxsize=None)
def _weighted(value_form: Form) -> Form:
    """The weighted sum of values: the form whose operand 0 is the weight, and the others those of the value."""
    count = len(value_form.places)
    value = renumber(value_form.message, {number: number + 1 for number in range(count)})
    return form(arg(0) * value, ("edge", *value_form.places), "sum")
