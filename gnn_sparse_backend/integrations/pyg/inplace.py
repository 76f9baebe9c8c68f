"""``scatter_add_`` and ``index_add_`` of lazy messages, which users' own aggregations call."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.refusal import Refusal
from ..lazy import LazyTensor, keep, name_of, reduced
from .gather import plain_index
from .host import HOST, IndexEnd


def _scatter_add(out, dim, index, src):
    if (
        not _may_add(out, dim, src)
        or type(index) is not Tensor
        or index.shape != src.shape
        or (any(index.stride()[1:]) and index.shape[1:].numel() != 1)
    ):
        return None
    return _sums(out, index[(slice(None), *(0,) * (index.dim() - 1))], src)


def _index_add(out, dim, index, source):
    return _sums(out, index, source) if _may_add(out, dim, source) else None


def _may_add(out, dim, src) -> bool:
    return (
        type(src) is LazyTensor
        and type(out) is Tensor
        and dim in (0, -out.dim())
        and out.shape[1:] == src.shape[1:]
        and out.dtype is src.dtype
        and out.device == src.device
    )


def _sums(out: Tensor, index: Tensor, src: LazyTensor):
    index = plain_index(index)
    return None if index is None or index.device != out.device else reduced(src, IndexEnd(index, out.shape[0]), "sum")


def _keep(function, sums_of, add) -> None:
    """Let ``function`` of a lazy message be ``add`` of what it is added to and the sums that ``sums_of`` gives."""

    def run(out, *arguments):
        found = sums_of(out, *arguments)
        if type(found) is not tuple:
            return found or Refusal(f"the message is used by {name_of(function)}")
        sums, operator = found
        return add(out, sums), operator

    keep(function, HOST.admit(function, None, run))


for _function in (Tensor.scatter_add, torch.scatter_add):
    _keep(_function, _scatter_add, torch.add)
for _function in (Tensor.index_add, torch.index_add):
    _keep(_function, _index_add, torch.add)
_keep(Tensor.scatter_add_, _scatter_add, Tensor.add_)
_keep(Tensor.index_add_, _index_add, Tensor.add_)
