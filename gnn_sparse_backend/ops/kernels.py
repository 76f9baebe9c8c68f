"""The boundary to compiled kernels: forward only, no autograd, operands already validated.

What a caller guarantees: all tensors on ``graph.device`` and of one floating type; dense operands are row-strided
(``stride(-1) == 1`` and rows that do not overlap) and aligned to their element; weights are contiguous and in the
user's edge order, as are the results of ``run_sddmm``. Scales have the accumulation type: float64 for float64
operands, float32 for all others.
"""
from __future__ import annotations

import torch
from torch import Tensor

from ..compiler.programs.sddmm import SddmmSpec
from ..compiler.programs.spmm import SpmmSpec
from ..formats.row_groups import balanced_row_groups
from ..planner.kernels import sddmm_kernel, spmm_kernel
from ..planner.spmm import SpmmPlan, group_count, plan_spmm
from .memory import empty

# A row costs its output and the loop around it beside its edges.
ROW_COST = 2.0

_name = {dtype: str(dtype).removeprefix("torch.") for dtype in
         (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64)}.__getitem__
_spmm_entries: dict = {}
_sddmm_entries: dict = {}


def run_spmm(graph, x: Tensor, weight: Tensor | None, mean: bool, source_scale: Tensor | None) -> Tensor:
    """``out[i] = sum over edges e into i of weight[e] * source_scale[src(e)] * x[src(e)]``, divided by the in-degree if ``mean``.

    ``x`` is (n_src, F) with weight None or (E,), or (n_src, H, D) with weight (E, H). Rows without edges are zero.
    """
    rows = graph.shape[0]
    shape = x.shape
    heads = 1
    if len(shape) == 3:
        heads = shape[1]
        x = x.flatten(1)
    features = x.shape[1]
    if graph.num_edges == 0 or features == 0:
        return x.new_zeros((rows, *shape[1:]))
    plan = _spmm_plan(graph, features, x.itemsize)
    # an edge order matters only where there are weights to find
    edge_ids = graph.edge_ids if weight is not None else None
    if weight is not None and heads == 1:
        weight = weight.view(-1)
    sizes, arrays = _structure(graph, plan.groups)
    arguments = [*sizes]
    if edge_ids is not None:
        arguments.append(weight.shape[0])
    arguments += arrays
    if edge_ids is not None:
        arguments.append(edge_ids)
    if weight is not None:
        arguments.append(weight)
    if source_scale is not None:
        arguments.append(source_scale)
    if mean:
        arguments.append(graph.in_degrees)
    key = (features, heads, x.dtype, graph.indices.dtype, weight is not None, edge_ids is not None, mean,
           source_scale is not None, plan.groups > 1, plan.prefetch)
    entry = _spmm_entries.get(key)
    if entry is None:
        spec = SpmmSpec(features, heads, _name(x.dtype), _name(graph.indices.dtype), *key[4:8])
        entry = _spmm_entries[key] = spmm_kernel(spec, plan.groups > 1, plan.prefetch).entry
    out = empty(x, rows, features)
    entry(*arguments, x, out)
    return out if len(shape) == 2 else out.view(rows, *shape[1:])


def _spmm_plan(graph, features: int, itemsize: int) -> SpmmPlan:
    threads = torch.get_num_threads()
    key = (features, itemsize, threads)
    plan = graph.plans.get(key)
    if plan is None:
        plan = graph.plans[key] = plan_spmm(*graph.shape, graph.num_edges, features, itemsize, threads)
    return plan


def run_sddmm(graph, u: Tensor, v: Tensor, row_scale: Tensor | None) -> Tensor:
    """``out[e] = row_scale[dst(e)] * dot(u[dst(e)], v[src(e)])``: (E,) for 2-D operands, (E, H) for (n, H, D)."""
    heads = None
    if u.dim() == 3:
        heads = u.shape[1]
        u, v = u.flatten(1), v.flatten(1)
    features = u.shape[1]
    edges = graph.num_edges
    shape = (edges,) if heads is None else (edges, heads)
    if edges == 0 or features == 0:
        return u.new_zeros(shape)
    out = empty(u, edges, heads or 1)
    groups = group_count(edges, graph.shape[0], features, torch.get_num_threads())
    sizes, arrays = _structure(graph, groups)
    edge_ids = graph.edge_ids
    key = (features, heads or 1, u.dtype, graph.indices.dtype, edge_ids is not None, row_scale is not None, groups > 1)
    entry = _sddmm_entries.get(key)
    if entry is None:
        spec = SddmmSpec(features, heads or 1, _name(u.dtype), _name(graph.indices.dtype), *key[4:6])
        entry = _sddmm_entries[key] = sddmm_kernel(spec, groups > 1).entry
    arguments = [*sizes]
    if edge_ids is not None:
        arguments.append(edges)
    arguments += arrays
    if edge_ids is not None:
        arguments.append(edge_ids)
    if row_scale is not None:
        arguments.append(row_scale)
    entry(*arguments, u, v, out)
    return out.view(shape)


def _structure(graph, groups: int):
    """(sizes, index arrays): the leading arguments of every kernel on this graph in so many row groups."""
    found = graph.plans.get(groups)
    if found is None:
        rows, cols = graph.shape
        group_ptr = balanced_row_groups(graph.indptr, groups, cost_per_row=ROW_COST)
        found = ((groups, rows, cols, graph.num_edges), (group_ptr, graph.indptr, graph.indices))
        found = graph.plans.setdefault(groups, found)
    return found
