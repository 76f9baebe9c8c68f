"""``gspmm`` of DGL: a binary operator on source and edge features, reduced into destinations.

Sums are taken over at ``_gspmm``, below DGL's autograd. For means DGL divides the sum by degrees that it counts
again at every call, so they are taken over one level higher, where one kernel does both and gradients are ours.
"""
from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor

from ...ops.autograd import apply_spmm, spmm_forward
from ...ops.checks import FLOATING
from ...ops.operands import is_plain
from ..counters import fallback, ours
from . import shapes
from .structure import graph_of, incidence_of


def make_sum(original: Callable) -> Callable:
    """``_gspmm`` that runs sums of copied and weighted features here and gives everything else to ``original``.

    ``(gidx, op, reduce_op, u, e) -> (v, (arg_u, arg_e))`` with u (n_src, ...), e (E, ...) and v (n_dst, ...); the
    args are None for sums. What DGL refuses is left to it, so that its users see its errors.
    """

    def _gspmm(gidx, op, reduce_op, u, e):
        result = _route(_sum, gidx, op, u, e) if reduce_op == "sum" else f"reduce {reduce_op}"
        if type(result) is str:
            fallback("dgl", "gspmm", result)
            return original(gidx, op, reduce_op, u, e)
        ours("dgl", "gspmm")
        return result, (None, None)

    return _gspmm


def make_mean(original: Callable) -> Callable:
    """``dgl.ops.gspmm`` that runs means here and gives the rest to ``original``, which may come back for a sum."""

    def gspmm(g, op, reduce_op, lhs_data, rhs_data):
        if reduce_op != "mean":
            return original(g, op, reduce_op, lhs_data, rhs_data)
        result = _route(_mean, g._graph, op, lhs_data, rhs_data)
        if type(result) is str:
            fallback("dgl", "gspmm_mean", result)
            return original(g, op, reduce_op, lhs_data, rhs_data)
        ours("dgl", "gspmm_mean")
        return result

    gspmm.__doc__ = original.__doc__
    return gspmm


def _sum(graph, x: Tensor, weight: Tensor | None) -> Tensor:
    return spmm_forward(graph, x, weight, False, False)


def _mean(graph, x: Tensor, weight: Tensor | None) -> Tensor:
    return apply_spmm(graph, x, weight, True, False)


def _route(product: Callable, gidx, op: str, u: Tensor | None, e: Tensor | None) -> Tensor | str:
    """The result of ``product(graph, x, weight)`` in DGL's shape, or why it is not ours."""
    if op == "copy_lhs":
        return _copied(product, graph_of, gidx, u)
    if op == "mul":
        return _weighted(product, gidx, u, e)
    if op == "copy_rhs":
        return _copied(product, incidence_of, gidx, e)
    return f"op {op}"


def _copied(product: Callable, structure_of: Callable, gidx, x: Tensor) -> Tensor | str:
    refusal = refuse(x, None)
    if refusal:
        return refusal
    graph = structure_of(gidx)
    if graph is None:
        return "several edge types"
    if not graph.indices.is_cpu:
        return "graph on another device"
    if x.shape[0] != graph.shape[1]:
        return "number of rows"
    if x.dim() == 2:
        return product(graph, x, None)
    out = product(graph, x.reshape(x.shape[0], prod(x.shape[1:])), None)
    return out.view(graph.shape[0], *x.shape[1:])


def _weighted(product: Callable, gidx, x: Tensor, weight: Tensor) -> Tensor | str:
    refusal = "missing feature" if weight is None else refuse(x, weight)
    if refusal:
        return refusal
    graph = graph_of(gidx)
    if graph is None:
        return "several edge types"
    if not graph.indices.is_cpu:
        return "graph on another device"
    n_src = graph.shape[1]
    if x.shape[0] != n_src or weight.shape[0] != graph.num_edges:
        return "number of rows"
    split = shapes.weighted(x.shape[1:], weight.shape[1:])
    if split is None:
        return "broadcast of the source feature"
    heads, width, out_shape = split
    if heads == 1:
        if x.dim() != 2:
            x = x.reshape(n_src, width)
        out = product(graph, x, weight.reshape(-1))
    else:
        out = product(graph, x.reshape(n_src, heads, width), weight.reshape(-1, heads))
    return out if out.shape[1:] == out_shape else out.view(graph.shape[0], *out_shape)


def refuse(x: Tensor, weight: Tensor | None) -> str | None:
    """Why these operands are not ours, whatever the graph."""
    if not is_plain(x, weight):
        return "missing, subclass or traced tensor"
    if not x.is_cpu:
        return f"device {x.device.type}"
    if x.dtype not in FLOATING:
        return f"dtype {str(x.dtype).removeprefix('torch.')}"
    if x.layout is not torch.strided:
        return "sparse layout"
    if x.dim() == 0 or 0 in x.shape[1:]:
        return "no features"
    if weight is None:
        return None
    if weight.dtype is not x.dtype or weight.device != x.device:
        return "operands of two types or devices"
    if weight.layout is not torch.strided:
        return "sparse layout"
    return "no features" if weight.dim() == 0 else None
