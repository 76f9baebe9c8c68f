"""Attention over the edges into each row: scores from a message, their softmax, and the weighted sum of values.

    score[e] = pre(operands)[e], summed over its last feature dimension where ``reduced``
    p[e]     = softmax of score over the edges e of a row
    out[i]   = sum over the edges e of row i of p[e] * value(operands)[e]

One kernel computes all of it in a single pass over the edges. Its backward pass stores p and the cotangents of the
scores, one number per edge and head each; the gradients of the operands are aggregations and edge maps of these.
"""
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import Function

from .attention_kernels import AttentionForm, attention_form, has_no_terms, run_attention, run_attention_gradient
from .edge_softmax import softmax_edges
from .form import Form, form
from .message_autograd import NO_GRADIENT, aggregate, edge_map, fit_gradient, gradient_plan
from .message_kernels import broadcast_features, feature_shapes, run_aggregate, run_edge_map

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
    of = attention_form(score_form, value_form, reduced)
    operands = (*score_operands, *values)
    if has_no_terms(of, operands):
        return _composed(of, graph, operands)
    if torch.is_grad_enabled() and any(x.requires_grad for x in operands):
        return Attend.apply(of, graph, *operands)
    return run_attention(of, graph, operands)[0]


def attention_weights(graph, score_form: Form, score_operands: Sequence[Tensor], reduced: bool = False) -> Tensor:
    """p as a tensor: (E, *S) in the user's edge order, with gradients of any order."""
    last = ()
    if reduced:
        rank = len(broadcast_features(feature_shapes(score_form, score_operands)))
        last = (False,) * (rank - 1) + (True,)
    return softmax_edges(graph, edge_map(score_form, graph, last, *score_operands))


class Attend(Function):
    @staticmethod
    def forward(ctx, of, graph, *operands):
        ctx.of, ctx.graph = of, graph
        results = run_attention(of, graph, operands)
        ctx.save_for_backward(*results, *operands)
        return results[0]

    @staticmethod
    def backward(ctx, grad):
        saved = ctx.saved_tensors  # once: a checkpointed region unpacks each tensor a single time
        results, operands = saved[:3], saved[3:]
        of, graph, needed = ctx.of, ctx.graph, ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():  # to be differentiated again
            return None, None, *_differentiable_gradients(of, graph, operands, grad, needed)
        return None, None, *attention_gradients(of, graph, operands, results, grad, needed)


def attention_gradients(of: AttentionForm, graph, operands, results, grad: Tensor, needed) -> list[Tensor | None]:
    """The gradients of the operands marked in ``needed``. results: what ``run_attention`` gave; grad: of the first."""
    weights, scores = run_attention_gradient(of, graph, operands, results, grad)
    score, value = of.take_apart(operands)
    of_score = _gradients(of.score, graph, score, scores, needed)
    of_value = _gradients(of.weighted, graph, (weights, *value), grad, (False, *needed[len(score):]))
    return [*of_score, *of_value[1:]]


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


def _gradients(of: Form, graph, operands, cotangent: Tensor, needed) -> list[Tensor | None]:
    """Gradients of a sum of messages, or of an edge map summed over features, from its cotangent."""
    shapes, features = tuple(feature_shapes(of, operands)), tuple(cotangent.shape[1:])
    found: list[Tensor | None] = []
    for number, (x, place, wanted) in enumerate(zip(operands, of.places, needed)):
        if not wanted:
            found.append(None)
            continue
        key = ("gradient", number, shapes, features)
        plan = of.calls.get(key)
        if plan is None:
            plan = of.calls[key] = gradient_plan(of, number, shapes, features)
        if plan is NO_GRADIENT:
            found.append(torch.zeros_like(x))
            continue
        parts = [operands[s] if type(s) is int else cotangent for s in plan.sources]
        if place == "edge":
            out = run_edge_map(plan.form, graph, parts, plan.reduced)
        else:
            out = run_aggregate(plan.form, graph.transpose() if plan.transposed else graph, parts)
        found.append(fit_gradient(plan, out, place, x.shape).to(x.dtype))
    return found
