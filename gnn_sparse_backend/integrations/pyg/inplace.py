"""``scatter_add_`` and ``index_add_`` of lazy messages, which users' own aggregations call."""

from __future__ import annotations

import torch
from torch import Tensor

from ..lazy import LazyTensor, NoGraph, keep, reduced
from .gather import plain_index
from .host import IndexEnd


def _scatter_add(inplace: bool):
    def scatter_add(out, dim, index, src):
        if (
            not _may_add(out, dim, src)
            or type(index) is not Tensor
            or index.shape != src.shape
            or (any(index.stride()[1:]) and index.shape[1:].numel() != 1)
        ):
            return NotImplemented
        return _add(out, index[(slice(None), *(0,) * (index.dim() - 1))], src, inplace)

    return scatter_add


def _index_add(inplace: bool):
    def index_add(out, dim, index, source):
        return _add(out, index, source, inplace) if _may_add(out, dim, source) else NotImplemented

    return index_add


def _may_add(out, dim, src) -> bool:
    return (
        type(src) is LazyTensor
        and type(out) is Tensor
        and dim in (0, -out.dim())
        and out.shape[1:] == src.shape[1:]
        and out.dtype is src.dtype
        and out.device == src.device
    )


def _add(out: Tensor, index: Tensor, src: LazyTensor, inplace: bool):
    index = plain_index(index)
    try:
        sums = (
            None if index is None or index.device != out.device else reduced(src, IndexEnd(index, out.shape[0]), "sum")
        )
    except NoGraph:
        return NotImplemented
    if sums is None:
        return NotImplemented
    return out.add_(sums) if inplace else out + sums


keep(Tensor.scatter_add_, _scatter_add(inplace=True))
keep(Tensor.index_add_, _index_add(inplace=True))
for _function in (Tensor.scatter_add, torch.scatter_add):
    keep(_function, _scatter_add(inplace=False))
for _function in (Tensor.index_add, torch.index_add):
    keep(_function, _index_add(inplace=False))
