"""What is put together of reductions: softmax and its logarithm, the logarithm of sums of exponentials, deviations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...deferred import later
from ...formats.counts import extent_of
from ..core.substitutes.scripted import public
from . import reductions
from .utils import broadcast, vector_along

if TYPE_CHECKING:
    from . import kernels
else:
    kernels = later(__name__, ".kernels")

_public = public("torch_scatter")


@_public
def scatter_softmax(src: Tensor, index: Tensor, dim: int = -1, dim_size: int | None = None) -> Tensor:
    """Return the softmax over the numbers of each row, in the shape of ``src``. Raises ValueError for integers."""
    _check("scatter_softmax", src)
    dim, rows = _rows(src, index, dim, dim_size)
    found = kernels.softmaxed(src, vector_along(index, dim), dim, rows)
    if found is not None:
        return found
    index = broadcast(index, src, dim)
    shares = _recentred(src, index, dim, rows).exp()
    return shares / reductions.summed(shares, index, dim, None, rows).gather(dim, index)


@_public
def scatter_log_softmax(
    src: Tensor, index: Tensor, dim: int = -1, eps: float = 1e-12, dim_size: int | None = None
) -> Tensor:
    """Return the logarithm of the softmax over the numbers of each row. eps: is added to the sums. Raises ValueError
    for integers.
    """
    _check("scatter_log_softmax", src)
    dim, rows = _rows(src, index, dim, dim_size)
    index = broadcast(index, src, dim)
    scores = _recentred(src, index, dim, rows)
    sums = reductions.summed(scores.exp(), index, dim, None, rows)
    return scores - (sums + eps).log().gather(dim, index)


@_public
def scatter_logsumexp(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: Tensor | None = None,
    dim_size: int | None = None,
    eps: float = 1e-12,
) -> Tensor:
    """Return the logarithm of the sum of exponentials of each row; of rows of nothing 0, or what was in ``out``, where
    that is given, whose exponentials are added and which is written to. Raises ValueError for integers.
    """
    _check("scatter_logsumexp", src)
    dim, rows = _rows(src, index, dim, dim_size if out is None else out.shape[dim])
    index = broadcast(index, src, dim)
    shape = list(src.shape)
    shape[dim] = rows
    most = src.new_full(shape, -torch.inf).scatter_reduce_(dim, index, src.detach(), "amax")
    scores = src - most.gather(dim, index)
    scores = scores.masked_fill(scores.isnan(), -torch.inf)
    sums = reductions.summed(scores.exp(), index, dim, None, rows)
    if out is None:
        return ((sums + eps).log() + most).nan_to_num(neginf=0.0)
    before = out.clone()
    found = (sums + (out - most).exp() + eps).log() + most
    return out.copy_(torch.where(found.isfinite(), found, before))


@_public
def scatter_std(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: Tensor | None = None,
    dim_size: int | None = None,
    unbiased: bool = True,
) -> Tensor:
    """Return the standard deviation of the numbers of each row, 0 of one or none. unbiased: divide by one less than
    there are.
    """
    dim, rows = _rows(src, index, dim, dim_size if out is None else out.shape[dim])
    along = min(dim, index.dim() - 1)
    count = reductions.summed(torch.ones_like(index, dtype=src.dtype), index, along, None, rows)
    mean = reductions.averaged(src, index, dim, None, rows)
    index = broadcast(index, src, dim)
    away = (src - mean.gather(dim, index)).square()
    found = reductions.summed(away, index, dim, out, rows)
    count = broadcast(count, found, dim)
    return (found / ((count - 1 if unbiased else count).clamp(min=1) + 1e-6)).sqrt()


def _recentred(src: Tensor, index: Tensor, dim: int, rows: int) -> Tensor:
    """The numbers less the largest of their row, which has no gradient: it changes nothing."""
    most = reductions.extreme("max", src.detach(), index, dim, None, rows)[0]
    return src - most.gather(dim, index)


def _rows(src: Tensor, index: Tensor, dim: int, size: int | None) -> tuple[int, int]:
    """(the dimension, from 0 on; how many rows there are)."""
    if size is None:
        size = extent_of(index)
    return dim % src.dim(), size


def _check(name: str, src: Tensor) -> None:
    if not src.is_floating_point():
        raise ValueError(f"`{name}` can only be computed over tensors with floating point data types, got {src.dtype}")
