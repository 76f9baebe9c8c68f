"""Attention and products on the blocks of a mask on a GPU: no autograd, operands already validated.

A call on a mask that was used before waits for nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...runtime.layout import compact
from ...runtime.type_names import accumulator_of, type_name
from ...structures.masks import Mask
from .arrays import padding_of, some_feature, team_structure, without_padding
from .dropout import Dropout, scalars
from .schedules_cuda import spec_of, team_kernel

OF_KEYS = ("backward_keys", "sums_transposed")
"""Programs on the transposed mask."""


def attend(
    mask: Mask, q: Tensor, k: Tensor, v: Tensor, scale: float, dropout: Dropout | None, arch: str
) -> tuple[Tensor, Tensor]:
    """Compute `executables_cpu.attend` on a GPU."""
    shape = q.shape[:3]
    out, lse = q.new_empty(*shape, v.shape[3]), q.new_empty(shape, dtype=accumulator_of(q.dtype))
    if not lse.numel() or not v.shape[3] or not k.shape[2]:
        return out.zero_(), lse.fill_(torch.inf)
    q, k, v = _rows(some_feature(q)), _rows(some_feature(k)), _rows(v)
    given = {"Q": q, "KX": k, "V": v, "Out": out.view(-1, out.shape[3]), "Lse": lse.view(-1)}
    widths = q.shape[1], v.shape[1]
    _run("forward", mask, shape[:2], widths, given | scalars(q, scale, dropout), arch, dropout is not None)
    return out, lse


def attend_backward(
    mask: Mask,
    operands: tuple[Tensor, Tensor, Tensor],
    out: Tensor,
    lse: Tensor,
    g: Tensor,
    scale: float,
    dropout: Dropout | None,
    arch: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `executables_cpu.attend_backward` on a GPU."""
    dq, dk, dv = (x.new_empty(x.shape) for x in operands)
    if not out.numel() or not dk.shape[2]:
        return dq.zero_(), dk.zero_(), dv.zero_()
    q, k, v = _rows(some_feature(operands[0])), _rows(some_feature(operands[1])), _rows(operands[2])
    acc, planes, widths = accumulator_of(q.dtype), out.shape[:2], (q.shape[1], v.shape[1])
    delta = torch.einsum("bhnd,bhnd->bhn", g.to(acc), out.to(acc)).reshape(-1)
    given = {"Q": q, "KX": k, "V": v, "GX": _rows(g), "Lse": lse.reshape(-1), "Delta": delta}
    given |= scalars(q, scale, dropout)
    to_q, to_k = (x if x.shape[3] else x.new_empty(*x.shape[:3], 1) for x in (dq, dk))
    results = {"DQ": to_q.view(q.shape), "DK": to_k.view(k.shape), "DV": dv.view(v.shape)}
    _run("backward_queries", mask, planes, widths, given | results, arch, dropout is not None)
    _run("backward_keys", mask, planes, widths, given | results, arch, dropout is not None)
    return dq, dk, dv


def dots(mask: Mask, a: Tensor, b: Tensor, arch: str) -> Tensor:
    """Compute `executables_cpu.dots` on a GPU."""
    batch, heads, _, width = a.shape
    out = a.new_zeros(batch, heads // mask.heads, mask.num_blocks, mask.block, mask.block)
    if out.numel() and width:
        given = {"A": _rows(a), "B": _rows(b)} | _values(out, mask)
        _run("dots", without_padding(mask), (batch, heads), (width, 1), given, arch)
    return out


def sums(mask: Mask, values: Tensor, b: Tensor, transposed: bool, arch: str) -> Tensor:
    """Compute `executables_cpu.sums` on a GPU."""
    batch, heads, _, width = b.shape
    out = b.new_empty(batch, heads, mask.shape[1 if transposed else 0], width)
    if not out.numel() or not values.numel():
        return out.zero_()
    given: dict[str, Any] = {"B": _rows(b), "Out": out.view(-1, width)} | _values(compact(values), mask)
    if transposed:
        given["Order"] = mask.transposed_order
    make = "sums_transposed" if transposed else "sums"
    _run(make, without_padding(mask), (batch, heads), (1, width), given, arch)
    return out


def _run(
    make: str,
    mask: Mask,
    planes: tuple[int, ...],
    widths: tuple[int, int],
    given: dict[str, Any],
    arch: str,
    dropout: bool = False,
) -> None:
    own = mask.transposed() if make in OF_KEYS else mask
    dtype = next(x for x in given.values() if isinstance(x, Tensor)).dtype
    spec = spec_of(mask.block, widths, type_name(dtype), mask.padding is not None, dropout)
    structure = team_structure(own, *planes)
    cols = {"num_cols": planes[0] * planes[1] * own.shape[1]}
    team_kernel(make, spec, arch).run(structure, cols, padding_of(mask.padding, planes[0]), given)


def _values(values: Tensor, mask: Mask) -> dict[str, Any]:
    flat = values.view(-1, mask.block, mask.block)
    return {"value_rows": flat.shape[0], "Values": flat}


def _rows(x: Tensor) -> Tensor:
    """(batch * heads * length, width)."""
    return compact(x).view(-1, x.shape[3])
