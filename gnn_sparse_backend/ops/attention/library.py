"""Attention and the softmax over edges in ``torch.library``, for ``torch.compile``, fake tensors and tensor subclasses.

As in ``message_library``, a structure enters an operator as its tensors, and the live graph that owns them is found
again at run time.

    gsb::edge_softmax            transposed: over the edges out of each source
    gsb::edge_softmax_backward   the gradient, from the softmax and its cotangent
    gsb::attend                  the operands of the score, then those of the value; beside the result the two numbers
                                 of each row and score from which the weights of edges can be had again
    gsb::attend_backward         the gradients of the operands that are ``needed``

The gradient of ``attend`` is not differentiable again under ``torch.compile``, as no compiled function's is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...structures.checks import plain_tensor
from ...structures.graph import Graph
from ..core.operands import check_dense, check_kernels_for
from ..message import library as message_library  # noqa: F401  (its operators are in the formulas here)
from ..message.checks import check_message_rows, checked_form
from .calls import AttentionForm, attention_form, result_shapes, run_attention
from .edge_softmax import check_edges, run
from .gradients import attention_gradients

torch.library.define(
    "gsb::edge_softmax",
    "(Tensor indptr, Tensor indices, Tensor? edge_ids, SymInt num_sources, Tensor scores, bool transposed) -> Tensor",
    tags=torch.Tag.pt2_compliant_tag,
)
torch.library.define(
    "gsb::edge_softmax_backward",
    "(Tensor indptr, Tensor indices, Tensor? edge_ids, SymInt num_sources, Tensor out, "
    "Tensor grad, bool transposed) -> Tensor",
    tags=torch.Tag.pt2_compliant_tag,
)


def edge_softmax_operator(graph: Graph, scores: Tensor, transposed: bool) -> Tensor:
    """``gsb::edge_softmax`` on the arrays of ``graph``."""
    return torch.ops.gsb.edge_softmax(graph.indptr, graph.indices, graph.edge_ids, graph.shape[1], scores, transposed)


@torch.library.impl("gsb::edge_softmax", "default")
def _edge_softmax(indptr, indices, edge_ids, num_sources, scores, transposed):
    return run(*_live(indptr, indices, edge_ids, num_sources, transposed, scores), False, False)


@torch.library.impl("gsb::edge_softmax_backward", "default")
def _edge_softmax_backward(indptr, indices, edge_ids, num_sources, out, grad, transposed):
    return run(*_live(indptr, indices, edge_ids, num_sources, transposed, out, grad), True, False)


def _live(indptr, indices, edge_ids, num_sources, transposed: bool, *operands: Tensor):
    """The graph of these arrays and the operands as plain tensors, checked."""
    graph = Graph._of_arrays(indptr, indices, edge_ids, num_sources)
    for x in operands:
        check_edges(graph, "scores", x)
        if x.shape != operands[0].shape or x.dtype != operands[0].dtype:
            raise ValueError(
                f"edge_softmax: {tuple(x.shape)} of {x.dtype} does not go with "
                f"{tuple(operands[0].shape)} of {operands[0].dtype}"
            )
    check_kernels_for("edge_softmax", graph)
    return graph.transpose() if transposed else graph, tuple(plain_tensor(x) for x in operands)


@torch.library.register_fake("gsb::edge_softmax")
def _edge_softmax_fake(indptr, indices, edge_ids, num_sources, scores, transposed):
    return scores.new_empty(scores.shape)


@torch.library.register_fake("gsb::edge_softmax_backward")
def _edge_softmax_backward_fake(indptr, indices, edge_ids, num_sources, out, grad, transposed):
    return out.new_empty(out.shape)


def _save_softmax(ctx, inputs, output):
    *arrays, _, ctx.transposed = inputs
    ctx.num_sources = arrays.pop()
    ctx.save_for_backward(*arrays, output)


def _softmax_gradient(ctx, grad):
    indptr, indices, edge_ids, out = ctx.saved_tensors
    arrays = (indptr, indices, edge_ids, ctx.num_sources)
    return None, None, None, None, torch.ops.gsb.edge_softmax_backward(*arrays, out, grad, ctx.transposed), None


def _save_softmax_backward(ctx, inputs, output):
    indptr, indices, edge_ids, ctx.num_sources, out, grad, ctx.transposed = inputs
    ctx.save_for_backward(indptr, indices, edge_ids, out, grad)


def _softmax_second_gradient(ctx, cotangent):
    """Of p * (g - s) with s the sum of p * g over a row: c * (g - s) - g * t to p, with t the sum of p * c."""
    indptr, indices, edge_ids, out, grad = ctx.saved_tensors
    arrays = (indptr, indices, edge_ids, ctx.num_sources)
    to_out = to_grad = None
    row = "column" if ctx.transposed else "row"
    if ctx.needs_input_grad[4]:
        s, t = (
            torch.ops.gsb.aggregate(*arrays, [out, x], "mul(x0, x1)", "edge,edge", "sum", "", ctx.transposed)[0]
            for x in (grad, cotangent)
        )
        to_out = torch.ops.gsb.edge_map(
            *arrays, [cotangent, grad, s, t], "sub(mul(x0, sub(x1, x2)), mul(x1, x3))", f"edge,edge,{row},{row}", []
        )
    if ctx.needs_input_grad[5]:
        to_grad = torch.ops.gsb.edge_softmax_backward(*arrays, out, cotangent, ctx.transposed)
    return None, None, None, None, to_out, to_grad, None


torch.library.register_autograd("gsb::edge_softmax", _softmax_gradient, setup_context=_save_softmax)
torch.library.register_autograd(
    "gsb::edge_softmax_backward", _softmax_second_gradient, setup_context=_save_softmax_backward
)


_ATTENTION = (
    "Tensor indptr, Tensor indices, Tensor? edge_ids, SymInt num_sources, Tensor[] operands, str score, "
    "str score_places, str value, str value_places, bool reduced"
)
torch.library.define("gsb::attend", f"({_ATTENTION}) -> (Tensor, Tensor, Tensor)", tags=torch.Tag.pt2_compliant_tag)
torch.library.define(
    "gsb::attend_backward",
    f"({_ATTENTION}, Tensor[] results, Tensor grad, bool[] needed) -> Tensor[]",
    tags=torch.Tag.pt2_compliant_tag,
)


def attend_operator(
    graph: Graph, score: tuple[str, tuple], score_operands, value: tuple[str, tuple], values, reduced: bool
) -> Tensor:
    """``gsb::attend`` on the arrays of ``graph``; the forms are given as text and places."""
    return torch.ops.gsb.attend(
        graph.indptr,
        graph.indices,
        graph.edge_ids,
        graph.shape[1],
        [*score_operands, *values],
        score[0],
        ",".join(score[1]),
        value[0],
        ",".join(value[1]),
        reduced,
    )[0]


def _attention(score: str, score_places: str, value: str, value_places: str, reduced: bool) -> AttentionForm:
    return attention_form(
        checked_form("attend", score, tuple(score_places.split(",")), None, None),
        checked_form("attend", value, tuple(value_places.split(",")), None, None),
        reduced,
    )


def _live_attention(indptr, indices, edge_ids, num_sources, operands, *forms):
    """The form, the graph of these arrays, and the operands as plain tensors, checked."""
    of = _attention(*forms)
    graph = Graph._of_arrays(indptr, indices, edge_ids, num_sources)
    if len(operands) != len(of.places):
        raise ValueError(f"attend: the places {of.places} want {len(of.places)} operands, got {len(operands)}")
    operands = [plain_tensor(x) for x in operands]
    names = [f"x{number}" for number in range(len(operands))]
    for label, x in zip(names, operands):
        check_dense("attend", label, x)
    check_message_rows("attend", graph, names, of.places, operands)
    return of, graph, operands


@torch.library.impl("gsb::attend", "default")
def _attend(*inputs):
    return run_attention(*_live_attention(*inputs))


@torch.library.impl("gsb::attend_backward", "default")
def _attend_backward(*inputs):
    *inputs, results, grad, needed = inputs
    of, graph, operands = _live_attention(*inputs)
    results = [plain_tensor(x) for x in results]
    found = attention_gradients(of, graph, operands, results, plain_tensor(grad), tuple(needed))
    return [x for x in found if x is not None]


@torch.library.register_fake("gsb::attend")
def _attend_fake(indptr, indices, edge_ids, num_sources, operands, *forms):
    of = _attention(*forms)
    first = operands[len(of.score.places)]
    dims, scores = result_shapes(of, operands)
    rows = indptr.shape[0] - 1
    wide = torch.float64 if first.dtype is torch.float64 else torch.float32
    return first.new_empty((rows, *dims)), *(first.new_empty((rows, scores), dtype=wide) for _ in range(2))


@torch.library.register_fake("gsb::attend_backward")
def _attend_backward_fake(indptr, indices, edge_ids, num_sources, operands, *rest):
    return [x.new_empty(x.shape) for x, wanted in zip(operands, rest[-1]) if wanted]


def _save_attend(ctx, inputs, output):
    indptr, indices, edge_ids, ctx.num_sources, operands, *ctx.forms = inputs
    ctx.save_for_backward(indptr, indices, edge_ids, *output, *operands)


def _attend_gradient(ctx, grad, *_):
    indptr, indices, edge_ids, *rest = ctx.saved_tensors
    results, operands = rest[:3], rest[3:]
    needed = list(ctx.needs_input_grad[4])
    found = iter(
        torch.ops.gsb.attend_backward(
            indptr, indices, edge_ids, ctx.num_sources, operands, *ctx.forms, results, grad, needed
        )
    )
    gradients = [next(found) if wanted else None for wanted in needed]
    return None, None, None, None, gradients, *(None,) * len(ctx.forms)


torch.library.register_autograd("gsb::attend", _attend_gradient, setup_context=_save_attend)
