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

from .argmax_scatter import copied_gradient, even_gradient, kept_choice
from .calls import broadcast_features, feature_shapes, run_aggregate, run_edge_map
from .means import divided_first, inverse_degrees
from .message_op import MessageOp, as_sum, ties_count


def aggregate(form: MessageOp, graph, *operands: Tensor) -> Tensor:
    """``run_aggregate``, recorded if a gradient may be asked for."""
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in operands):
        return Aggregate.apply(form, graph, *operands)
    return run_aggregate(form, graph, operands)


def edge_map(form: MessageOp, graph, reduced: tuple[bool, ...], *operands: Tensor) -> Tensor:
    """``run_edge_map``, recorded if a gradient may be asked for."""
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in operands):
        return EdgeMap.apply(form, graph, reduced, *operands)
    return run_edge_map(form, graph, operands, reduced)


class Aggregate(Function):
    @staticmethod
    def forward(ctx, form, graph, *operands):
        _describe(ctx, form, graph, operands)
        ctx.choice = kept_choice(form, graph, operands)
        kept = None
        if ctx.choice is None:
            out = run_aggregate(form, graph, operands)
        else:
            out, kept = run_aggregate(form, graph, operands, (ctx.choice,), -1)
        _save(ctx, form, operands, ctx.needs_input_grad[2:], kept, out if form.ties == "even" else None)
        return out

    @staticmethod
    def backward(ctx, grad):
        form, graph = ctx.form, ctx.graph
        kept, result, *operands = ctx.saved_tensors
        if ctx.choice == "column":
            return None, None, copied_gradient(kept, grad, graph.shape[1])
        if ctx.choice == "unique" and (found := even_gradient(graph, kept, *operands, result, grad)) is not None:
            return None, None, found
        if result is not None:
            counted, sources = ties_count(form)
            count = run_aggregate(counted, graph, [result if s == "result" else operands[s] for s in sources])
            # rows without edges: nobody reads their share, but its derivative would be NaN
            grad = grad / count.masked_fill_((graph.in_degrees == 0).view(-1, *(1,) * (count.dim() - 1)), 1)
        if form.reduce == "mean" and (divided := divided_first(graph, grad)) is not None:
            form, grad = as_sum(form), divided
        extra = {"cotangent": grad, "chosen": kept, "result": result, "number": None}
        return None, None, *_gradients(ctx, form, operands, extra, ctx.needs_input_grad[2:])


class EdgeMap(Function):
    @staticmethod
    def forward(ctx, form, graph, reduced, *operands):
        _describe(ctx, form, graph, operands)
        _save(ctx, form, operands, ctx.needs_input_grad[3:])
        return run_edge_map(form, graph, operands, reduced)

    @staticmethod
    def backward(ctx, grad):
        gradients = _gradients(ctx, ctx.form, ctx.saved_tensors, {"cotangent": grad}, ctx.needs_input_grad[3:])
        return None, None, None, *gradients


def _describe(ctx, form: MessageOp, graph, operands) -> None:
    ctx.form, ctx.graph = form, graph
    ctx.shapes = tuple(feature_shapes(form, operands))
    ctx.likes = [None if x is None else (x.shape, x.dtype) for x in operands]


def _save(ctx, form: MessageOp, operands, needed: tuple[bool, ...], *extra) -> None:
    """Keep for the backward pass what its forms will read, and nothing else: the rest may be written to, and freed."""
    used = form.saved(needed)
    ctx.save_for_backward(*extra, *[x if at in used else None for at, x in enumerate(operands)])


@dataclass(slots=True)
class GradientPlan:
    """How one gradient is computed, from the shapes of the operands alone.

    reduced: feature dimensions that an edge map sums itself. over: dimensions to sum afterwards, along which the
    operand was broadcast. alike: number of like terms along dimensions that none of the operands has. padded: the
    operand's feature shape with leading ones. plain: none of this is needed.
    """

    form: MessageOp
    transposed: bool
    sources: tuple
    reduced: tuple[bool, ...]
    over: tuple[int, ...]
    alike: int
    padded: tuple[int, ...]
    plain: bool


def _gradients(ctx, form: MessageOp, operands, extra: dict, needed) -> list[Tensor | None]:
    """The gradient of each operand that needs one; ``operands`` holds what was saved of them."""
    graph, shapes = ctx.graph, ctx.shapes
    found: list[Tensor | None] = []
    for number, wanted in enumerate(needed):
        if not wanted:
            found.append(None)
            continue
        shape, dtype = ctx.likes[number]
        # the cotangent's features too: an edge map may have summed over some
        cotangent = tuple(extra["cotangent"].shape[1:])
        key = ("gradient", number, shapes, cotangent)
        plan = form.calls.get(key)
        if plan is None:
            plan = form.calls[key] = gradient_plan(form, number, shapes, cotangent)
        if plan is NO_GRADIENT:
            found.append(extra["cotangent"].new_zeros(shape, dtype=dtype))
            continue
        if "scale" in plan.sources and "scale" not in extra:
            extra["scale"] = inverse_degrees(graph, dtype)
        parts = [operands[s] if type(s) is int else extra[s] for s in plan.sources]
        found.append(_gradient(plan, graph, shape, form.places[number], parts))
    return found


NO_GRADIENT = GradientPlan(None, False, (), (), (), 1, (), True)


def gradient_plan(
    form: MessageOp, number: int, shapes: tuple[tuple[int, ...], ...], cotangent: tuple[int, ...]
) -> GradientPlan:
    """The plan of operand ``number``'s gradient, from the feature shapes of all operands and of the cotangent."""
    gradient = form.gradient(number)
    if gradient is None:
        return NO_GRADIENT
    dims = broadcast_features(shapes)
    place, own = form.places[number], shapes[number]
    padded = (1,) * (len(dims) - len(own)) + own
    others = {"cotangent": cotangent, "chosen": dims, "result": dims, "scale": (1,), "number": ()}
    have = broadcast_features([shapes[s] if type(s) is int else others[s] for s in gradient.sources])
    aligned = (1,) * (len(dims) - len(have)) + have
    summed = tuple(mine == 1 and found != 1 for mine, found in zip(padded, aligned))
    alike = prod(e for e, mine, found in zip(dims, padded, aligned) if mine == 1 and found == 1)
    over, reduced = tuple(at for at, gone in enumerate(summed, 1) if gone), ()
    if place == "edge" and over:
        over, reduced = (), summed[len(dims) - len(have) :]
    plain = not over and not reduced and alike == 1 and have == own and place != "all"
    return GradientPlan(gradient.form, gradient.transposed, gradient.sources, reduced, over, alike, padded, plain)


def _gradient(plan: GradientPlan, graph, shape, place: str, parts: list) -> Tensor:
    """One gradient, in the shape of its operand."""
    if place == "edge":
        out = edge_map(plan.form, graph, plan.reduced, *parts)
    else:
        out = aggregate(plan.form, graph.transpose() if plan.transposed else graph, *parts)
    return fit_gradient(plan, out, place, shape)


def fit_gradient(plan: GradientPlan, out: Tensor, place: str, shape) -> Tensor:
    """What the plan's form gave, summed over the feature dimensions that the operand of this shape was broadcast
    along.
    """
    if plan.plain:
        return out
    if place == "all":
        out = out.sum(0, keepdim=True)
    if not plan.over and plan.alike == 1 and out.numel() == shape.numel():
        return out.view(shape)
    padded = plan.padded
    out = out.reshape(out.shape[0], *(1,) * (len(padded) + 1 - out.dim()), *out.shape[1:])
    if plan.over:
        out = out.sum(plan.over, keepdim=True)
    if plan.alike != 1:
        out = out * plan.alike
    return out.expand(out.shape[0], *padded).reshape(shape)
