"""Sums, means, products and extremes along one dimension, whatever the index is: what all functions of the library
stand on. Nothing in here is counted.

Arguments are those of the library. An index is a vector along ``dim``, or has the first dimensions of ``src``, and says
of each number which row it is of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...deferred import later
from ...formats.counts import extent_of
from .utils import broadcast, vector_along

if TYPE_CHECKING:
    from .. import lazy
    from . import kernels
else:
    lazy, kernels = later(__name__, "..lazy"), later(__name__, ".kernels")


def reduced(
    reduce: str, src: Tensor, index: Tensor, dim: int, out: Tensor | None, size: int | None, rounding: str = "floor"
) -> Tensor:
    """The reduction of a name, of an extreme without its places. Raises KeyError for another name."""
    if reduce in ("min", "max"):
        return attained(reduce, src, index, dim, out, size)
    if reduce == "mean":
        return averaged(src, index, dim, out, size, rounding)
    how = {"sum": summed, "add": summed, "mul": multiplied}[reduce]
    return how(src, index, dim, out, size)


def summed(src: Tensor, index: Tensor, dim: int, out: Tensor | None, size: int | None) -> Tensor:
    """The sum, on top of ``out`` where that is given."""
    if type(src) is lazy.LazyTensor and out is None:
        return _of_message(src, index, dim, size, "sum")
    dim, rows, size = _place(src, index, dim, out, size)
    found = kernels.reduced("sum", src, vector_along(index, dim), dim, rows)
    if found is None:
        into = src.new_zeros(size) if out is None else out
        return into.scatter_add_(dim, broadcast(index, src, dim), src)
    return found if out is None else out.add_(found)


def multiplied(src: Tensor, index: Tensor, dim: int, out: Tensor | None, size: int | None) -> Tensor:
    """The product, times ``out`` where that is given."""
    dim, rows, size = _place(src, index, dim, out, size)
    found = kernels.reduced("prod", src, vector_along(index, dim), dim, rows)
    if found is None:
        into = src.new_ones(size) if out is None else out
        return into.scatter_reduce_(dim, broadcast(index, src, dim), src, "prod")
    return found if out is None else out.mul_(found)


def averaged(
    src: Tensor, index: Tensor, dim: int, out: Tensor | None, size: int | None, rounding: str = "floor"
) -> Tensor:
    """The sum by how many there are, 0 of none; of integers rounded."""
    if type(src) is lazy.LazyTensor and out is None:
        return _of_message(src, index, dim, size, "mean")
    dim, rows, _ = _place(src, index, dim, out, size)
    if out is None and (found := kernels.reduced("mean", src, vector_along(index, dim), dim, rows)) is not None:
        return found
    total = summed(src, index, dim, out, rows)
    along = min(dim, index.dim() - 1)
    shape = list(index.shape)
    shape[along] = rows
    count = index.new_zeros(shape).scatter_add_(along, index, torch.ones_like(index)).clamp_(min=1)
    count = broadcast(count, total, dim)
    return total.true_divide_(count) if total.is_floating_point() else total.div_(count, rounding_mode=rounding)


def extreme(
    kind: str, src: Tensor, index: Tensor, dim: int, out: Tensor | None, size: int | None
) -> tuple[Tensor, Tensor]:
    """(the maximum or minimum; where along ``dim`` the first that is it stands, the extent of ``src`` where none is).

    Rows of nothing are 0, those that nothing exceeds are as in ``out`` where that is given. NaN is never chosen. The
    gradient goes to what was chosen.
    """
    dim, rows, shape = _place(src, index, dim, out, size)
    found = None if out is not None else kernels.extreme(kind, src, vector_along(index, dim), dim, rows)
    with torch.no_grad():
        if found is None:
            values, at = _extreme(kind, src, broadcast(index, src, dim), dim, shape, out)
        else:
            values, at = found
            at = torch.where(at < 0, src.shape[dim], at)
    return chosen(src, dim, values, at, out), at


def attained(kind: str, src: Tensor, index: Tensor, dim: int, out: Tensor | None, size: int | None) -> Tensor:
    """What `extreme` is, without its places."""
    if out is None:
        dim, rows, _ = _place(src, index, dim, out, size)
        if (found := kernels.attained(kind, src, vector_along(index, dim), dim, rows)) is not None:
            return found
    return extreme(kind, src, index, dim, out, size)[0]


def chosen(src: Tensor, dim: int, values: Tensor, at: Tensor, out: Tensor | None) -> Tensor:
    """``values``, which are those of ``src`` at these places, with their gradient, and written to ``out``."""
    if torch.is_grad_enabled() and src.requires_grad:
        extent = src.shape[dim]
        if extent:
            values = src.gather(dim, at.clamp(max=extent - 1)).masked_fill(at == extent, 0)
        else:
            values = torch.cat([src, torch.zeros_like(values).narrow(dim, 0, min(1, values.shape[dim]))], dim)
            values = values.gather(dim, at)
    return values if out is None else out.copy_(torch.where(at == src.shape[dim], out, values))


def _extreme(
    kind: str, src: Tensor, index: Tensor, dim: int, shape: list[int], out: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute `extreme` by PyTorch's operators, without gradients."""
    extent, largest = src.shape[dim], kind == "max"
    limits = torch.finfo(src.dtype) if src.is_floating_point() else torch.iinfo(src.dtype)
    least = (
        (-torch.inf if src.is_floating_point() else limits.min)
        if largest
        else (torch.inf if src.is_floating_point() else limits.max)
    )
    before = src.new_full(shape, least) if out is None else out
    values = torch.where(src.isnan(), least, src) if src.is_floating_point() else src
    after = before.scatter_reduce(dim, index, values, "amax" if largest else "amin")
    beyond = torch.gt if largest else torch.lt
    attained = (src == after.gather(dim, index)) & beyond(src, before.gather(dim, index))
    places = torch.arange(extent, device=src.device).view(-1, *(1,) * (src.dim() - dim - 1))
    at = torch.full(shape, extent, device=src.device)
    at.scatter_reduce_(dim, index, torch.where(attained, places, extent), "amin")
    return after if out is not None else after.masked_fill_(at == extent, 0), at


def _place(src: Tensor, index: Tensor, dim: int, out: Tensor | None, size: int | None) -> tuple[int, int, list[int]]:
    """(the dimension, from 0 on; how many rows there are; the shape of the result)."""
    if not -src.dim() <= dim < src.dim():
        raise IndexError(
            f"dim must be in [{-src.dim()}, {src.dim()}) for a tensor of shape {tuple(src.shape)}, got {dim}"
        )
    dim, shape = dim % src.dim(), list(src.shape)
    if out is not None:
        size = out.shape[dim]
    elif size is None:
        size = extent_of(index)
    shape[dim] = size
    return dim, size, shape


def _of_message(src: lazy.LazyTensor, index: Tensor, dim: int, size: int | None, kind: str) -> Tensor:
    """The reduction of a message of a PyG layer that waits to be told what for: now it is."""
    import torch_geometric.utils

    found: Tensor = torch_geometric.utils.scatter(src, index, dim, size, kind)
    return found
