"""Softmax over edges in ``torch.library``, for ``torch.compile``, fake tensors and tensor subclasses.

As in ``library``, a structure enters an operator as its tensors, and the live graph that owns them is found again at run
time.

    gsb::edge_softmax            transposed: over the edges out of each source
    gsb::edge_softmax_backward   the gradient, from the softmax and its cotangent
"""
from __future__ import annotations

import torch
from torch import Tensor

from .checks import plain_tensor
from .edge_softmax import check_edges, run
from .graph import Graph
from .operands import check_kernels_for

torch.library.define(
    "gsb::edge_softmax", "(Tensor indptr, Tensor indices, Tensor? edge_ids, SymInt num_sources, Tensor scores, "
    "bool transposed) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
torch.library.define(
    "gsb::edge_softmax_backward", "(Tensor indptr, Tensor indices, Tensor? edge_ids, SymInt num_sources, Tensor out, "
    "Tensor grad, bool transposed) -> Tensor", tags=torch.Tag.pt2_compliant_tag)


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
            raise ValueError(f"edge_softmax: {tuple(x.shape)} of {x.dtype} does not go with "
                             f"{tuple(operands[0].shape)} of {operands[0].dtype}")
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
        s, t = (torch.ops.gsb.aggregate(*arrays, [out, x], "mul(x0, x1)", "edge,edge", "sum", "", ctx.transposed)[0]
                for x in (grad, cotangent))
        to_out = torch.ops.gsb.edge_map(*arrays, [cotangent, grad, s, t], "sub(mul(x0, sub(x1, x2)), mul(x1, x3))",
                                        f"edge,edge,{row},{row}", [])
    if ctx.needs_input_grad[5]:
        to_grad = torch.ops.gsb.edge_softmax_backward(*arrays, out, cotangent, ctx.transposed)
    return None, None, None, None, to_out, to_grad, None


torch.library.register_autograd("gsb::edge_softmax", _softmax_gradient, setup_context=_save_softmax)
torch.library.register_autograd("gsb::edge_softmax_backward", _softmax_second_gradient,
                                setup_context=_save_softmax_backward)
