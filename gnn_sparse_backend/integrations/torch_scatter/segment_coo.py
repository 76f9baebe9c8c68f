"""``segment_*_coo``: reductions by an index that ascends along its last dimension."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.substitutes.scripted import public
from . import reductions

_public = public("torch_scatter")


@_public
def segment_sum_coo(src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None) -> Tensor:
    """Sum along the last dimension of ``index``, whose others are those of ``src``, or 1.

    The rest is as in `scatter_sum`. Raises ValueError where ``index`` has more dimensions than ``src``.
    """
    return reductions.summed(src, _index(src, index), index.dim() - 1, out, dim_size)


@_public
def segment_add_coo(src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None) -> Tensor:
    """Call `segment_sum_coo` by its other name."""
    return reductions.summed(src, _index(src, index), index.dim() - 1, out, dim_size)


@_public
def segment_mean_coo(src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None) -> Tensor:
    """Divide the sums by how many numbers there are, integers rounded towards 0."""
    return reductions.averaged(src, _index(src, index), index.dim() - 1, out, dim_size, "trunc")


@_public
def segment_min_coo(
    src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the minima and their places, as `scatter_min` does."""
    return reductions.extreme("min", src, _index(src, index), index.dim() - 1, out, dim_size)


@_public
def segment_max_coo(
    src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the maxima and their places, as `scatter_min` does."""
    return reductions.extreme("max", src, _index(src, index), index.dim() - 1, out, dim_size)


@_public
def segment_coo(
    src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None, reduce: str = "sum"
) -> Tensor:
    """Reduce by ``"sum"`` or ``"add"``, ``"mean"``, ``"min"`` or ``"max"``. Raises ValueError for another reduction."""
    index, dim = _index(src, index), index.dim() - 1
    if reduce in ("sum", "add", "mean", "min", "max"):
        return reductions.reduced(reduce, src, index, dim, out, dim_size, "trunc")
    raise ValueError(f"segment_coo: reduce must be 'sum', 'add', 'mean', 'min' or 'max', got {reduce!r}")


@_public
def gather_coo(src: Tensor, index: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the number of ``src`` in each row that ``index`` says, along the last dimension of that. Gradients are
    sums.
    """
    index, dim = _index(src, index, index.shape[-1] if index.dim() else 0), index.dim() - 1
    if index.dim() == 1:
        found = src.index_select(0, index) if src.numel() else src.new_zeros(index.shape[0], *src.shape[1:]) + src.sum()
    else:
        shape = list(src.shape)
        shape[dim] = index.shape[dim]
        found = src.gather(dim, index[(...,) + (None,) * (src.dim() - index.dim())].expand(shape))
    return found if out is None else out.copy_(found)


def _index(src: Tensor, index: Tensor, last: int | None = None) -> Tensor:
    """The index with the first dimensions of ``src``. last: its extent, where that is not the one of ``src``."""
    if not 1 <= index.dim() <= src.dim():
        raise ValueError(
            f"the index must have from 1 to {src.dim()} dimensions, those of src {tuple(src.shape)}, "
            f"got {tuple(index.shape)}"
        )
    shape = list(src.shape[: index.dim()])
    if last is not None:
        shape[-1] = last
    return index if index.shape == torch.Size(shape) else index.expand(shape)
