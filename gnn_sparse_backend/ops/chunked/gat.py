"""The attention of GAT with the linear map before it, by chunks of rows, each node attending to itself as well or not.

    v = x W^T in heads,   s[e] = leaky_relu(<v[src], a> + <v[dst], c>),   y[i] = sum of softmax(s)[e] v[src] + b

Nothing of an edge is kept, and in the backward pass nothing is computed again but v. That takes two passes. With g the
gradient of y, p the weight of an edge and t its p <g[dst], v[src]>, the pass over rows sums up t, which is what weights
of a row are measured against (delta), and what of t and p the gradients of <v[dst], c> need. The pass over columns then
has gradients of v, a chunk at a time, of which the gradients of x and W are products. Beside x, y, their gradients and
v, nothing is as large as features.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import leaky_relu

from ...compiler.cache.bounded import kept
from ...runtime.type_names import type_name
from ...structures.graph import Graph
from ..attention.attention import COLUMN_VALUE
from ..attention.calls import AttentionForm, attention_form, gradient_pass, prepared, run_attention
from ..attention.programs.attention_gradient import COTANGENT, GRADIENT, WEIGHTS
from ..attention.programs.sums import Output
from ..message.message_op import message_op
from ..message.programs.message import arg, parse
from ..message.programs.operands import collapse
from .slices import Slice, mapped, read_ahead, slices_of


class Heads(NamedTuple):
    """graph: square, on the CPU. heads: how many. slope: of the leaky unit. loops: whether each node attends to itself,
    beside its neighbours, of which it is none then.
    """

    graph: Graph
    heads: int
    slope: float
    loops: bool


def gat(
    of: Heads,
    x: Tensor,
    weight: Tensor,
    source: Tensor,
    destination: Tensor,
    bias: Tensor | None = None,
    stored: torch.dtype | None = None,
) -> Tensor:
    """The y of this file, with first gradients: (n, heads * D).

    Args:
        of: where it goes.
        x: (n, F), float32 or float64.
        weight: (heads * D, F), W.
        source, destination: (heads, D), a and c.
        bias: (heads * D,) or None.
        stored: the type that x is rounded to, and kept in, where it has a gradient.
    """
    out: Tensor = _Gat.apply(of, stored, x, weight, source, destination, bias)
    return out


class _Gat(Function):
    @staticmethod
    def forward(ctx, of: Heads, dtype: torch.dtype | None, x, weight, source, destination, bias):
        stored = x if dtype is None or not ctx.needs_input_grad[2] else x.to(dtype)
        chunks = slices_of(of.graph, max(weight.shape), x.dtype)
        values = _values(stored, weight, chunks)
        ends = _ends(values, source, destination)
        y = torch.empty_like(values)
        most, inverse = (x.new_empty(x.shape[0], of.heads) for _ in range(2))
        by_head = values.view(-1, *source.shape)
        given = [each.unsqueeze(-1) for each in ends]
        for rows in chunks:
            operands = given[0], rows.of(given[1]), by_head
            found, m, r = run_attention(_form(of.slope), rows.graph, operands)
            if of.loops:
                m, r = _with_itself(found, m, r, rows.of(by_head), _itself(map(rows.of, ends), of.slope))
            rows.of(most).copy_(m)
            rows.of(inverse).copy_(r)
            out = found.view(-1, weight.shape[0])
            torch.add(out, bias, out=rows.of(y)) if bias is not None else rows.of(y).copy_(out)
        ctx.of = of
        ctx.save_for_backward(stored, weight, source, destination, most, inverse)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        of, (x, weight, source, destination, most, inverse) = ctx.of, ctx.saved_tensors
        of_x, of_weight, of_source, of_destination, of_bias = ctx.needs_input_grad[2:]
        grad, dtype = grad.contiguous(), grad.dtype
        chunks = slices_of(of.graph.transpose(), max(weight.shape), dtype)
        values = _values(x, weight, chunks)
        ends = _ends(values, source, destination)
        form, outputs = _form(of.slope), _outputs(of.slope, tuple(source.shape), type_name(dtype))
        by_head, back = (each.view(-1, *source.shape) for each in (values, grad))
        given = [each.unsqueeze(-1) for each in ends]
        delta, to_sources, to_destinations = (torch.empty_like(most) for _ in range(3))
        loops = torch.empty_like(most) if of.loops else None
        for rows in slices_of(of.graph, max(weight.shape), dtype):
            operands = given[0], rows.of(given[1]), by_head
            m, r, g, own = (rows.of(each) for each in (most, inverse, back, by_head))
            nothing = grad.new_zeros(1).expand(g.shape[0], weight.shape[0])  # in the place of y: no delta yet
            call = prepared(form, rows.graph, operands)
            results = nothing.contiguous(), m, r, g
            _, (t, bent, weights) = gradient_pass(rows.graph, call, (*operands, *results), m, outputs.of_rows, False)
            if loops is not None:
                s = _itself(map(rows.of, ends), of.slope)
                p, t_own = rows.of(loops), torch.einsum("nhd,nhd->nh", g, own)
                torch.exp(s - m, out=p).mul_(r)
                t += p * t_own
                # the gradient of a score, which is that of either end
                slope = torch.where(s > 0, torch.ones_like(s), of.slope)
                rows.of(to_sources).copy_(slope * p * (t_own - t))
            rows.of(delta).copy_(t)
            rows.of(to_destinations).copy_(bent - t * weights)
        if loops is not None:
            to_destinations += to_sources
        to_x = grad.new_empty(x.shape) if of_x else None
        to_weight = torch.zeros_like(weight) if of_weight else None
        to_source, to_destination = (torch.zeros_like(each) for each in (source, destination))
        by_end = [_by_head(each).t().contiguous() for each in (source, destination)]
        file = mapped(x)
        for rows in chunks:
            read_ahead(file, rows)
            operands = rows.of(given[0]), given[1], rows.of(by_head)
            call = prepared(form, rows.graph, operands)
            results = most, inverse, delta, back
            _, (to_v, to_s) = gradient_pass(rows.graph, call, (*operands, *results), most, outputs.of_columns, True)
            at_source, at_destination = rows.of(to_sources), rows.of(to_destinations)
            if loops is None:
                at_source.copy_(to_s)
            else:
                at_source += to_s
                to_v.view(-1, *source.shape).addcmul_(rows.of(back), rows.of(loops).unsqueeze(-1))
            for at, each in zip((at_source, at_destination), by_end):
                to_v.addmm_(at, each)
            own = rows.of(by_head)
            to_source += torch.einsum("nh,nhd->hd", at_source, own)
            to_destination += torch.einsum("nh,nhd->hd", at_destination, own)
            if of_weight:
                to_weight.addmm_(to_v.t(), rows.of(x).to(dtype))
            if of_x:
                torch.mm(to_v, weight, out=rows.of(to_x))
        return (
            *(None, None, to_x, to_weight),
            *(each if wanted else None for each, wanted in ((to_source, of_source), (to_destination, of_destination))),
            grad.sum(0) if of_bias else None,
        )


def _values(x: Tensor, weight: Tensor, chunks: Iterable[Slice]) -> Tensor:
    """x W^T, in the type of W."""
    values, file = weight.new_empty(x.shape[0], weight.shape[0]), mapped(x)
    for rows in chunks:
        read_ahead(file, rows)
        torch.mm(rows.of(x).to(weight.dtype), weight.t(), out=rows.of(values))
    return values


def _by_head(vector: Tensor) -> Tensor:
    """(heads * D, heads): the matrix that gives of values their products with a vector, head by head."""
    return torch.block_diag(*vector.unsqueeze(-1))


def _ends(values: Tensor, source: Tensor, destination: Tensor) -> tuple[Tensor, Tensor]:
    """What nodes add to scores as sources, and as destinations: (n, heads) each."""
    return values @ _by_head(source), values @ _by_head(destination)


def _itself(ends: Iterable[Tensor], slope: float) -> Tensor:
    """The score that a node has for itself."""
    return leaky_relu(torch.add(*ends), slope)


def _with_itself(found: Tensor, m: Tensor, r: Tensor, own: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
    """Take each row's own value into an attention, in place. Returns its new maximum and inverse sum."""
    top = torch.maximum(m, score)
    before = torch.where(r > 0, (m - top).exp_() / r, 0.0)  # without neighbours 0 times infinity
    before = torch.where(r.isnan(), r, before)
    itself = (score - top).exp_()
    inverse = (before + itself).reciprocal_()
    found *= (before * inverse).unsqueeze(-1)
    found.addcmul_(own, (itself * inverse).unsqueeze(-1))
    return top, inverse


@kept
def _form(slope: float) -> AttentionForm:
    score = message_op(f"leaky_relu(add(x0, x1), {slope!r})", ("column", "row"))
    return attention_form(score, COLUMN_VALUE, False)


class _Outputs(NamedTuple):
    """Sums of the pass over rows: of t, and of t and p by the slope of the leaky unit. Of that over columns: the
    gradients of values, and of their products with a.
    """

    of_rows: tuple[Output, ...]
    of_columns: tuple[Output, ...]


@kept
def _outputs(slope: float, shape: tuple[int, int], dtype: str) -> _Outputs:
    heads, width = shape
    bent = parse(f"leaky_relu_grad(x0, add(x1, x2), {slope!r})")
    flat = (heads,)

    def bent_of(what: int) -> Output:
        return Output(bent, (what, 0, 1), (flat,) * 3, flat, dtype)

    dims, narrow, wide = collapse(((heads, width), (heads, 1), (heads, width)))
    value = Output(arg(0) * arg(1), (WEIGHTS, GRADIENT), (narrow, wide), dims, dtype)
    total = Output(arg(0), (COTANGENT,), (flat,), flat, dtype)
    return _Outputs((total, bent_of(COTANGENT), bent_of(WEIGHTS)), (value, bent_of(COTANGENT)))
