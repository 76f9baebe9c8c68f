"""The two operators as autograd functions: what eager mode calls.

With A the weighted adjacency matrix, S its sampling pattern and D the diagonal of in-degrees, both operators carry a
``mean`` flag (scale by 1/D on the destination side) and ``spmm`` a ``transposed`` flag, which close the set under
differentiation, so gradients of any order are the same two operators again::

    spmm(x, w)               y = D^-1 A_w x           grad_x = spmm(g, w, transposed)    grad_w = sddmm(g, x, mean)
    spmm(x, w, transposed)   y = A_w^T D^-1 x         grad_x = spmm(g, w)                grad_w = sddmm(x, g, mean)
    sddmm(u, v)              o = D^-1 S . (u v^T)     grad_u = spmm(v, g)                grad_v = spmm(u, g, transposed)
"""
from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import Function

from . import kernels
from .layout import kernel_ready
from .structure import inverse_in_degrees


def spmm_forward(graph, x: Tensor, weight: Tensor | None, mean: bool, transposed: bool) -> Tensor:
    """The product without autograd, of operands that passed the checks."""
    x = kernel_ready(x)
    if weight is not None:
        weight = kernel_ready(weight)
        if not weight.is_contiguous():
            weight = weight.contiguous()
    if not transposed:
        return kernels.run_spmm(graph, x, weight, mean, None)
    return kernels.run_spmm(graph.transpose(), x, weight, False, _scale(graph, x) if mean else None)


def sddmm_forward(graph, u: Tensor, v: Tensor, mean: bool) -> Tensor:
    """The sampled product without autograd, of operands that passed the checks."""
    return kernels.run_sddmm(graph, kernel_ready(u), kernel_ready(v), _scale(graph, u) if mean else None)


def apply_spmm(graph, x: Tensor, weight: Tensor | None, mean: bool, transposed: bool) -> Tensor:
    """``spmm_forward``, recorded if a gradient may be asked for."""
    if torch.is_grad_enabled() and (x.requires_grad or weight is not None and weight.requires_grad):
        return Spmm.apply(graph, x, weight, mean, transposed)
    return spmm_forward(graph, x, weight, mean, transposed)


def apply_sddmm(graph, u: Tensor, v: Tensor, mean: bool) -> Tensor:
    """``sddmm_forward``, recorded if a gradient may be asked for."""
    if torch.is_grad_enabled() and (u.requires_grad or v.requires_grad):
        return Sddmm.apply(graph, u, v, mean)
    return sddmm_forward(graph, u, v, mean)


class Spmm(Function):
    @staticmethod
    def forward(ctx, graph, x, weight, mean, transposed):
        ctx.graph, ctx.mean, ctx.transposed = graph, mean, transposed
        _, x_needs, weight_needs, _, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if weight_needs else None, weight if x_needs else None)
        return spmm_forward(graph, x, weight, mean, transposed)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        _, x_needs, weight_needs, _, _ = ctx.needs_input_grad
        grad_x = grad_weight = None
        if x_needs:
            grad_x = apply_spmm(ctx.graph, grad, weight, ctx.mean, not ctx.transposed)
        if weight_needs:
            u, v = (x, grad) if ctx.transposed else (grad, x)
            grad_weight = apply_sddmm(ctx.graph, u, v, ctx.mean)
        return None, grad_x, grad_weight, None, None


class Sddmm(Function):
    @staticmethod
    def forward(ctx, graph, u, v, mean):
        ctx.graph, ctx.mean = graph, mean
        _, u_needs, v_needs, _ = ctx.needs_input_grad
        ctx.save_for_backward(u if v_needs else None, v if u_needs else None)
        return sddmm_forward(graph, u, v, mean)

    @staticmethod
    def backward(ctx, grad):
        u, v = ctx.saved_tensors
        _, u_needs, v_needs, _ = ctx.needs_input_grad
        grad_u = apply_spmm(ctx.graph, v, grad, ctx.mean, False) if u_needs else None
        grad_v = apply_spmm(ctx.graph, u, grad, ctx.mean, True) if v_needs else None
        return None, grad_u, grad_v, None


def _scale(graph, x: Tensor) -> Tensor:
    return inverse_in_degrees(graph._csr, torch.float64 if x.dtype == torch.float64 else torch.float32)
