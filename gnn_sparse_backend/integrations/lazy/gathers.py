"""Gathers of a framework as autograd knows them: their gradients are sums on our kernels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import Function

from ...ops.message.message_op import message_op
from ...ops.message.operators import aggregate
from ...structures.graph import Graph
from ..core.refusal import Refusal
from .ends import End, Host

_SUM_OF_EDGES = message_op("x0", ("edge",), "sum")


def gather(host: Host, end: End, x: Tensor, dim: int = 0) -> Tensor:
    """The framework's gather, of nodes that are dimension ``dim``, whose gradient is a sum on our kernel."""
    if torch.is_grad_enabled() and x.requires_grad:
        return _Gather.apply(x, host, end, dim)
    return end.gather(x)


class _Gather(Function):
    @staticmethod
    def forward(ctx, x, host, end, dim):
        ctx.host, ctx.end, ctx.dim = host, end, dim
        return end.gather(x)

    @staticmethod
    def backward(ctx, grad):
        dim = ctx.dim
        if dim == 0:
            return gradient_of_gather(ctx.host, ctx.end, grad), None, None, None
        return gradient_of_gather(ctx.host, ctx.end, grad.movedim(dim, 0)).movedim(0, dim), None, None, None


def gradient_of_gather(host: Host, end: End, grad: Tensor) -> Tensor:
    """The gradient (end.size, ...) of what was gathered at an end of the edges, from that of each edge."""
    if grad.is_complex():
        return torch.view_as_complex(gradient_of_gather(host, end, as_real(grad)))
    return aggregate(_SUM_OF_EDGES, graph_of(host, end), grad)


def as_real(x: Tensor) -> Tensor:
    """Complex numbers (...) as real ones (..., 2), of which sums are what those of complex numbers are."""
    return torch.view_as_real(x.resolve_conj())


def graph_of(host: Host, end: End) -> Graph:
    """A graph with the edges into an end, for a gradient."""
    with torch._C._DisableFuncTorch():  # an index is what it is, whatever becomes of features
        graph = host.graph(end, None)
    if type(graph) is Refusal or end.modified():
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: the edge "
            "index that node features were gathered by"
        )
    return graph


class _Alias(Function):
    @staticmethod
    def forward(ctx, x):
        return x.detach()

    @staticmethod
    def backward(ctx, grad):
        return grad


def alias(x: Tensor) -> Tensor:
    """A tensor with a place of its own in the graph of gradients, behind another: what that was made of is not behind
    it. It is no view, whose place changes as its base is written to."""
    return _Alias.apply(x) if x.requires_grad else x
