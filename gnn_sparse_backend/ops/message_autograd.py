"""Aggregations and edge maps as autograd functions.

The gradient of either is an aggregation or an edge map again (``form.Gradient``), so gradients of any order are the
same two functions.
"""
from __future__ import annotations


from math import prod

import torch
from torch import Tensor
from torch.autograd import Function

from .form import Form, Gradient, ties_count
from .message_kernels import broadcast_features, feature_shapes, run_aggregate, run_edge_map
from .structure import inverse_in_degrees


def aggregate(form: Form, graph, *operands: Tensor) -> Tensor:
    """``run_aggregate``, recorded if a gradient may be asked for."""
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in operands):
        return Aggregate.apply(form, graph, *operands)
    return run_aggregate(form, graph, operands)


def edge_map(form: Form, graph, reduced: tuple[bool, ...], *operands: Tensor) -> Tensor:
    """``run_edge_map``, recorded if a gradient may be asked for."""
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in operands):
        return EdgeMap.apply(form, graph, reduced, *operands)
    return run_edge_map(form, graph, operands, reduced)


class Aggregate(Function):
    @staticmethod
    def forward(ctx, form, graph, *operands):
        ctx.form, ctx.graph = form, graph
        kept = out = None
        if form.ties == "last":
            out, kept = run_aggregate(form, graph, operands, ("number",))
        else:
            out = run_aggregate(form, graph, operands)
        ctx.save_for_backward(kept, out if form.ties == "even" else None, *operands)
        return out

    @staticmethod
    def backward(ctx, grad):
        form, graph = ctx.form, ctx.graph
        kept, out, *operands = ctx.saved_tensors
        if form.ties == "even":
            counted, sources = ties_count(form)
            count = run_aggregate(counted, graph, [out if s == "result" else operands[s] for s in sources])
            grad = grad / count
        extra = {"cotangent": grad, "chosen": kept, "result": out, "number": None}
        return None, None, *_gradients(form, graph, operands, extra, ctx.needs_input_grad[2:])


class EdgeMap(Function):
    @staticmethod
    def forward(ctx, form, graph, reduced, *operands):
        ctx.form, ctx.graph = form, graph
        ctx.save_for_backward(*operands)
        return run_edge_map(form, graph, operands, reduced)

    @staticmethod
    def backward(ctx, grad):
        operands = ctx.saved_tensors
        gradients = _gradients(ctx.form, ctx.graph, operands, {"cotangent": grad}, ctx.needs_input_grad[3:])
        return None, None, None, *gradients


def _gradients(form: Form, graph, operands, extra: dict, needed) -> list[Tensor | None]:
    found: list[Tensor | None] = []
    dims = broadcast_features(feature_shapes(form, operands))
    for number, (x, wanted) in enumerate(zip(operands, needed)):
        gradient = form.gradient(number) if wanted else None
        if gradient is None:
            found.append(torch.zeros_like(x) if wanted else None)
            continue
        if "scale" in gradient.sources:
            wide = torch.float64 if x.dtype is torch.float64 else torch.float32
            extra["scale"] = inverse_in_degrees(graph._csr, wide).unsqueeze(1)
        parts = [operands[s] if isinstance(s, int) else extra[s] for s in gradient.sources]
        found.append(_gradient(gradient, graph, x, form.places[number], parts, dims))
    return found


def _gradient(gradient: Gradient, graph, x: Tensor, place: str, parts: list, dims: tuple[int, ...]) -> Tensor:
    """One gradient, summed over the feature dimensions that ``x`` was broadcast along."""
    own = tuple(x.shape if place == "all" else x.shape[1:])
    padded = (1,) * (len(dims) - len(own)) + own
    have = broadcast_features(feature_shapes(gradient.form, parts))
    have = (1,) * (len(dims) - len(have)) + have
    summed = tuple(mine == 1 and found != 1 for mine, found in zip(padded, have))
    if place == "edge":
        out = edge_map(gradient.form, graph, summed[-len(have):] if any(summed) else (), *parts)
    else:
        out = aggregate(gradient.form, graph.transpose() if gradient.transposed else graph, *parts)
        if place == "all":
            out = out.sum(0, keepdim=True)
    out = out.reshape(out.shape[0], *(1,) * (len(dims) + 1 - out.dim()), *out.shape[1:])
    over = [at for at, gone in enumerate(summed, 1) if gone and out.shape[at] != 1]
    if over:
        out = out.sum(over, keepdim=True)
    # terms that are alike along a dimension of the message that none of these operands has
    alike = prod(e for e, mine, found in zip(dims, padded, have) if mine == 1 and found == 1)
    if alike != 1:
        out = out * alike
    out = out.expand(out.shape[0], *padded)
    return out.reshape(x.shape)
