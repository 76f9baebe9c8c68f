"""The boundary to compiled kernels: forward only, no autograd, operands already validated.

What a caller guarantees: all tensors on ``graph.device`` and of one floating type; dense operands are row-strided
(``stride(-1) == 1`` and rows that do not overlap) and aligned to their element; weights are contiguous and in the
user's edge order, as are the results of ``run_sddmm``. Scales have the accumulation type: float64 for float64
operands, float32 for all others.
"""
from __future__ import annotations

import torch
from torch import Tensor


def run_spmm(graph, x: Tensor, weight: Tensor | None, mean: bool, source_scale: Tensor | None) -> Tensor:
    """``out[i] = sum over edges e into i of weight[e] * source_scale[src(e)] * x[src(e)]``, divided by the in-degree if ``mean``.

    ``x`` is (n_src, F) with weight None or (E,), or (n_src, H, D) with weight (E, H). Rows without edges are zero.
    """
    accumulate = _accumulation_type(x.dtype)
    messages = x.to(accumulate)
    if source_scale is not None:
        messages = messages * source_scale.view((-1,) + (1,) * (x.dim() - 1))
    messages = messages[graph.indices.long()]
    if weight is not None:
        ordered = weight if graph.edge_ids is None else weight[graph.edge_ids.long()]
        messages = messages * ordered.to(accumulate).unsqueeze(-1)
    out = torch.zeros((graph.shape[0], *x.shape[1:]), dtype=accumulate, device=x.device)
    out.index_add_(0, _rows(graph), messages)
    if mean:
        out /= graph.in_degrees.clamp(min=1).to(accumulate).view((-1,) + (1,) * (x.dim() - 1))
    return out.to(x.dtype)


def run_sddmm(graph, u: Tensor, v: Tensor, row_scale: Tensor | None) -> Tensor:
    """``out[e] = row_scale[dst(e)] * dot(u[dst(e)], v[src(e)])``: (E,) for 2-D operands, (E, H) for (n, H, D)."""
    accumulate = _accumulation_type(u.dtype)
    rows = _rows(graph)
    dots = (u.to(accumulate)[rows] * v.to(accumulate)[graph.indices.long()]).sum(-1)
    if row_scale is not None:
        dots *= row_scale[rows].view((-1,) + (1,) * (dots.dim() - 1))
    if graph.edge_ids is None:
        return dots.to(u.dtype)
    out = torch.empty_like(dots, dtype=u.dtype)
    out[graph.edge_ids.long()] = dots.to(u.dtype)
    return out


def _accumulation_type(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _rows(graph) -> Tensor:
    return torch.repeat_interleave(torch.arange(graph.shape[0], device=graph.device), graph.in_degrees.long())
