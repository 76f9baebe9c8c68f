"""The two operators in ``torch.library``, for ``torch.compile``, fake tensors and tensor subclasses.

A structure enters an operator as its tensors, which a compiled program can save, keep alive and give back in the
backward pass even after the user's ``Graph`` is gone. At run time the live graph that owns these arrays is found
again, with its cached transpose; if there is none, one is built from the arrays after the same checks as a user's.
The transpose is thus computed inside the operator and never traced.

    gsb::spmm   mean: scale by 1 / in-degree; transposed: multiply by the transpose, x has a row per destination
    gsb::sddmm  mean: scale each result by 1 / in-degree of its destination
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...structures.checks import plain_tensor
from ...structures.graph import Graph
from ..core.operands import check_dense, check_features, check_kernels_for, check_rows
from .products import sddmm_forward, spmm_forward

torch.library.define(
    "gsb::spmm",
    "(Tensor indptr, Tensor indices, Tensor? edge_ids, SymInt num_sources, Tensor x, Tensor? weight, "
    "bool mean, bool transposed) -> Tensor",
    tags=torch.Tag.pt2_compliant_tag,
)
torch.library.define(
    "gsb::sddmm",
    "(Tensor indptr, Tensor indices, Tensor? edge_ids, Tensor u, Tensor v, bool mean) -> Tensor",
    tags=torch.Tag.pt2_compliant_tag,
)


def spmm_operator(graph: Graph, x: Tensor, weight: Tensor | None, mean: bool) -> Tensor:
    """``gsb::spmm`` on the arrays of ``graph``."""
    return torch.ops.gsb.spmm(graph.indptr, graph.indices, graph.edge_ids, graph.shape[1], x, weight, mean, False)


def sddmm_operator(graph: Graph, u: Tensor, v: Tensor) -> Tensor:
    """``gsb::sddmm`` on the arrays of ``graph``."""
    return torch.ops.gsb.sddmm(graph.indptr, graph.indices, graph.edge_ids, u, v, False)


@torch.library.impl("gsb::spmm", "default")
def _spmm(indptr, indices, edge_ids, num_sources, x, weight, mean, transposed):
    graph = Graph._of_arrays(indptr, indices, edge_ids, num_sources)
    check_features("spmm", "x", x)
    count, of_what = (graph.shape[0], "destination") if transposed else (graph.shape[1], "source")
    check_rows("spmm", "x", x, count, of_what, graph)
    if weight is not None:
        check_dense("spmm", "weight", weight)
        check_rows("spmm", "weight", weight, graph.num_edges, "edge", graph)
        if weight.shape[1:] != x.shape[1:-1] or weight.dtype != x.dtype:
            raise ValueError(
                f"spmm: weight {tuple(weight.shape)} of {weight.dtype} does not go with x {tuple(x.shape)} of {x.dtype}"
            )
    check_kernels_for("spmm", graph)
    weight = None if weight is None else plain_tensor(weight)
    return spmm_forward(graph, plain_tensor(x), weight, mean, transposed)


@torch.library.impl("gsb::sddmm", "default")
def _sddmm(indptr, indices, edge_ids, u, v, mean):
    graph = Graph._of_arrays(indptr, indices, edge_ids, v.shape[0])
    check_features("sddmm", "u", u)
    check_features("sddmm", "v", v)
    check_rows("sddmm", "u", u, graph.shape[0], "destination", graph)
    check_rows("sddmm", "v", v, graph.shape[1], "source", graph)
    if u.shape[1:] != v.shape[1:] or u.dtype != v.dtype:
        raise ValueError(f"sddmm: u {tuple(u.shape)} of {u.dtype} does not go with v {tuple(v.shape)} of {v.dtype}")
    check_kernels_for("sddmm", graph)
    return sddmm_forward(graph, plain_tensor(u), plain_tensor(v), mean)


@torch.library.register_fake("gsb::spmm")
def _spmm_fake(indptr, indices, edge_ids, num_sources, x, weight, mean, transposed):
    rows = num_sources if transposed else indptr.shape[0] - 1
    return x.new_empty((rows, *x.shape[1:]))


@torch.library.register_fake("gsb::sddmm")
def _sddmm_fake(indptr, indices, edge_ids, u, v, mean):
    return u.new_empty((indices.shape[0], *u.shape[1:-1]))


def _save_spmm(ctx, inputs, output):
    indptr, indices, edge_ids, ctx.num_sources, x, weight, ctx.mean, ctx.transposed = inputs
    ctx.save_for_backward(indptr, indices, edge_ids, x, weight)


def _spmm_backward(ctx, grad):
    indptr, indices, edge_ids, x, weight = ctx.saved_tensors
    grad_x = grad_weight = None
    if ctx.needs_input_grad[4]:
        grad_x = torch.ops.gsb.spmm(
            indptr, indices, edge_ids, ctx.num_sources, grad, weight, ctx.mean, not ctx.transposed
        )
    if ctx.needs_input_grad[5]:
        u, v = (x, grad) if ctx.transposed else (grad, x)
        grad_weight = torch.ops.gsb.sddmm(indptr, indices, edge_ids, u, v, ctx.mean)
    return None, None, None, None, grad_x, grad_weight, None, None


def _save_sddmm(ctx, inputs, output):
    indptr, indices, edge_ids, u, v, ctx.mean = inputs
    ctx.save_for_backward(indptr, indices, edge_ids, u, v)


def _sddmm_backward(ctx, grad):
    indptr, indices, edge_ids, u, v = ctx.saved_tensors
    grad_u = grad_v = None
    if ctx.needs_input_grad[3]:
        grad_u = torch.ops.gsb.spmm(indptr, indices, edge_ids, v.shape[0], v, grad, ctx.mean, False)
    if ctx.needs_input_grad[4]:
        grad_v = torch.ops.gsb.spmm(indptr, indices, edge_ids, v.shape[0], u, grad, ctx.mean, True)
    return None, None, None, grad_u, grad_v, None


torch.library.register_autograd("gsb::spmm", _spmm_backward, setup_context=_save_spmm)
torch.library.register_autograd("gsb::sddmm", _sddmm_backward, setup_context=_save_sddmm)
