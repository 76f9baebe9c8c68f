"""Aggregations and edge maps as autograd functions.

The gradient of either is an aggregation or an edge map again (``form.Gradient``), so gradients of any order are the
same two functions.
"""
from __future__ import annotations


from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor
from torch.autograd import Function

from .form import Form, ties_count
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
        if form.ties in ("last", "first"):
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


@dataclass(slots=True)
class _Plan:
    """How one gradient is computed, from the shapes of the operands alone.

    reduced: feature dimensions that an edge map sums itself. over: dimensions to sum afterwards, along which the
    operand was broadcast. alike: number of like terms along dimensions that none of the operands has. padded: the
    operand's feature shape with leading ones. plain: none of this is needed.
    """

    form: Form
    transposed: bool
    sources: tuple
    reduced: tuple[bool, ...]
    over: tuple[int, ...]
    alike: int
    padded: tuple[int, ...]
    plain: bool


def _gradients(form: Form, graph, operands, extra: dict, needed) -> list[Tensor | None]:
    found: list[Tensor | None] = []
    shapes = tuple(feature_shapes(form, operands))
    for number, (x, wanted) in enumerate(zip(operands, needed)):
        if not wanted:
            found.append(None)
            continue
        key = ("gradient", number, shapes)
        plan = form.calls.get(key)
        if plan is None:
            plan = form.calls[key] = _plan(form, number, shapes, extra)
        if plan is _NONE:
            found.append(torch.zeros_like(x))
            continue
        if "scale" in plan.sources and "scale" not in extra:
            wide = torch.float64 if x.dtype is torch.float64 else torch.float32
            extra["scale"] = inverse_in_degrees(graph._csr, wide).unsqueeze(1)
        parts = [operands[s] if type(s) is int else extra[s] for s in plan.sources]
        found.append(_gradient(plan, graph, x, form.places[number], parts))
    return found


_NONE = _Plan(None, False, (), (), (), 1, (), True)


def _plan(form: Form, number: int, shapes: tuple[tuple[int, ...], ...], extra: dict) -> _Plan:
    gradient = form.gradient(number)
    if gradient is None:
        return _NONE
    dims = broadcast_features(shapes)
    place, own = form.places[number], shapes[number]
    padded = (1,) * (len(dims) - len(own)) + own
    cotangent = dims if form.reduce is not None else tuple(extra["cotangent"].shape[1:])
    others = {"cotangent": cotangent, "chosen": dims, "result": dims, "scale": (1,), "number": ()}
    have = broadcast_features([shapes[s] if type(s) is int else others[s] for s in gradient.sources])
    aligned = (1,) * (len(dims) - len(have)) + have
    summed = tuple(mine == 1 and found != 1 for mine, found in zip(padded, aligned))
    alike = prod(e for e, mine, found in zip(dims, padded, aligned) if mine == 1 and found == 1)
    over, reduced = tuple(at for at, gone in enumerate(summed, 1) if gone), ()
    if place == "edge" and over:
        over, reduced = (), summed[len(dims) - len(have):]
    plain = not over and not reduced and alike == 1 and have == own and place != "all"
    return _Plan(gradient.form, gradient.transposed, gradient.sources, reduced, over, alike, padded, plain)


def _gradient(plan: _Plan, graph, x: Tensor, place: str, parts: list) -> Tensor:
    """One gradient, summed over the feature dimensions that ``x`` was broadcast along."""
    if place == "edge":
        out = edge_map(plan.form, graph, plan.reduced, *parts)
    else:
        out = aggregate(plan.form, graph.transpose() if plan.transposed else graph, *parts)
    if plan.plain:
        return out
    if place == "all":
        out = out.sum(0, keepdim=True)
    if not plan.over and plan.alike == 1 and out.numel() == x.numel():
        return out.view(x.shape)
    padded = plan.padded
    out = out.reshape(out.shape[0], *(1,) * (len(padded) + 1 - out.dim()), *out.shape[1:])
    if plan.over:
        out = out.sum(plan.over, keepdim=True)
    if plan.alike != 1:
        out = out * plan.alike
    return out.expand(out.shape[0], *padded).reshape(x.shape)
