"""``segment_*_csr``: reductions of what stands between pointers.

Pointers of several dimensions say of each index of those before the last one its own segments. All are segments of one
matrix then, whose rows are what is reduced, one batch behind the other; what is before a batch's first pointer and
behind its last one are segments that nobody asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ...deferred import later
from ..core.substitutes.scripted import public
from . import reductions

if TYPE_CHECKING:
    from . import kernels
else:
    kernels = later(__name__, ".kernels")

_public = public("torch_scatter")


class _Rows(NamedTuple):
    """x: (rows, ...). pointers: from 0 to the number of rows. batch, extent: how ``src`` begins. inner: whether the
    first segment and the last two of each batch are none of the user's.
    """

    x: Tensor
    pointers: Tensor
    batch: tuple[int, ...]
    extent: int
    inner: bool

    @classmethod
    def of(cls, src: Tensor, indptr: Tensor) -> _Rows:
        if not 1 <= indptr.dim() <= src.dim():
            raise ValueError(
                f"indptr must have from 1 to {src.dim()} dimensions, those of src {tuple(src.shape)}, "
                f"got {tuple(indptr.shape)}"
            )
        dim = indptr.dim() - 1
        batch, extent = tuple(src.shape[:dim]), src.shape[dim]
        if not dim and (not indptr.numel() or (int(indptr[0]) == 0 and int(indptr[-1]) == extent)):
            return cls(src, indptr, batch, extent, False)
        indptr = indptr.expand(*batch, -1)
        _check(indptr, extent)
        ends = indptr.new_zeros(*batch, 1)
        padded = torch.cat([ends, indptr, ends + extent], -1).view(-1, indptr.shape[-1] + 2)
        padded = padded + extent * torch.arange(padded.shape[0], device=padded.device)[:, None]
        last = padded.new_full((1,), extent * padded.shape[0])
        return cls(src.reshape(-1, *src.shape[dim + 1 :]), torch.cat([padded.flatten(), last]), batch, extent, True)

    def index(self) -> Tensor:
        """(rows,) the segment of each."""
        return _of_pointers(self.pointers)

    def given(self, reduced: Tensor) -> Tensor:
        """What there is for each segment, as the user asked for it."""
        if not self.inner:
            return reduced
        batches = 1
        for each in self.batch:
            batches *= each
        by_batch = reduced.view(batches, -1, *reduced.shape[1:])
        return by_batch[:, 1:-2].reshape(*self.batch, -1, *reduced.shape[1:])


def reduced_segments(src: Tensor, indptr: Tensor, reduce: str, out: Tensor | None = None) -> Tensor:
    """What `segment_csr` returns."""
    if reduce in ("sum", "add"):
        return _summed(src, indptr, out)
    if reduce == "mean":
        return _averaged(src, indptr, out)
    if reduce in ("min", "max"):
        return _attained(reduce, src, indptr, out)
    raise ValueError(f"segment_csr: reduce must be 'sum', 'add', 'mean', 'min' or 'max', got {reduce!r}")


def _summed(src: Tensor, indptr: Tensor, out: Tensor | None) -> Tensor:
    rows = _Rows.of(src, indptr)
    return _written(out, rows.given(_added("sum", rows)))


def _averaged(src: Tensor, indptr: Tensor, out: Tensor | None) -> Tensor:
    rows = _Rows.of(src, indptr)
    return _written(out, rows.given(_added("mean", rows)))


def _added(kind: str, rows: _Rows) -> Tensor:
    size = max(rows.pointers.shape[0] - 1, 0)
    found = kernels.by_segments(kind, rows.x, rows.pointers) if size else None
    if found is None:
        index = rows.index()
        if kind == "mean":
            return reductions.averaged(rows.x, index, 0, None, size, "trunc")
        return reductions.summed(rows.x, index, 0, None, size)
    return found


def _attained(kind: str, src: Tensor, indptr: Tensor, out: Tensor | None) -> Tensor:
    rows = _Rows.of(src, indptr)
    found = kernels.attained_in_segments(kind, rows.x, rows.pointers) if rows.pointers.shape[0] > 1 else None
    return extreme_segments(kind, src, indptr, out)[0] if found is None else _written(out, rows.given(found))


def extreme_segments(kind: str, src: Tensor, indptr: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """What `segment_min_csr` and `segment_max_csr` return."""
    rows = _Rows.of(src, indptr)
    count, dim = rows.x.shape[0], indptr.dim() - 1
    size = max(rows.pointers.shape[0] - 1, 0)
    with torch.no_grad():
        found = kernels.extreme_of_segments(kind, rows.x, rows.pointers) if size else None
        if found is None:
            values, at = reductions.extreme(kind, rows.x.detach(), rows.index(), 0, None, size)
            at.masked_fill_(at == count, -1)
        else:
            values, at = found
        values, at = rows.given(values), rows.given(at)
        if rows.inner:
            at = torch.where(at < 0, rows.extent, at.remainder(max(rows.extent, 1)))
        else:
            at = torch.where(at < 0, rows.extent, at)
    return _written(out, reductions.chosen(src, dim, values, at, None)), at


@_public
def segment_sum_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> Tensor:
    """Sum what is between pointers along the last dimension of ``indptr``, whose others are those of ``src``, or 1.

    out: is written to and returned, where it is given. Raises ValueError for pointers that decrease, or go beyond
    ``src``.
    """
    return _summed(src, indptr, out)


@_public
def segment_add_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> Tensor:
    """Call `segment_sum_csr` by its other name."""
    return _summed(src, indptr, out)


@_public
def segment_mean_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> Tensor:
    """Divide the sums by how many numbers there are, integers rounded towards 0. Empty segments are 0."""
    return _averaged(src, indptr, out)


@_public
def segment_min_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the minima and where the first of each is, the extent of ``src`` for empty segments, which are 0."""
    return extreme_segments("min", src, indptr, out)


@_public
def segment_max_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the maxima and their places, as `segment_min_csr` does."""
    return extreme_segments("max", src, indptr, out)


@_public
def segment_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None, reduce: str = "sum") -> Tensor:
    """Reduce by ``"sum"`` or ``"add"``, ``"mean"``, ``"min"`` or ``"max"``. Raises ValueError for another reduction."""
    return reduced_segments(src, indptr, reduce, out)


@_public
def gather_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the number of ``src`` of each segment for all that it consists of. Gradients are sums.

    Raises ValueError where there is not one for each segment, or where batches have different numbers of results.
    """
    dim = indptr.dim() - 1
    segments = max(indptr.shape[-1] - 1, 0) if indptr.dim() else 0
    if not 0 <= dim < src.dim() or src.shape[dim] not in (0, segments):
        raise ValueError(f"gather_csr: indptr {tuple(indptr.shape)} does not fit src {tuple(src.shape)}")
    if not src.numel():
        found = src.new_zeros(*src.shape[:dim], 0, *src.shape[dim + 1 :]) + src.sum()
    elif dim == 0:
        _check(indptr, None)
        found = kernels.copied(src, indptr) if int(indptr[0]) == 0 else None
        found = src.repeat_interleave(indptr.diff(), 0) if found is None else found
    else:
        indptr = indptr.expand(*src.shape[:dim], -1)
        _check(indptr, None)
        lengths = indptr.diff().reshape(-1, segments)
        if (lengths.sum(1) != lengths[0].sum()).any():
            raise ValueError(f"gather_csr: batches have {lengths.sum(1)} results, but all must have as many")
        rows = src.reshape(-1, *src.shape[dim + 1 :]).repeat_interleave(lengths.flatten(), 0)
        found = rows.view(*src.shape[:dim], -1, *src.shape[dim + 1 :])
    return _written(out, found)


def _written(out: Tensor | None, found: Tensor) -> Tensor:
    return found if out is None else out.copy_(found)


def _of_pointers(pointers: Tensor) -> Tensor:
    """The number of the segment of each row that is between pointers."""
    segments = torch.arange(max(pointers.shape[0] - 1, 0), device=pointers.device)
    return segments.repeat_interleave(pointers.diff()) if pointers.numel() else segments


def _check(indptr: Tensor, extent: int | None) -> None:
    """Raise ValueError for pointers that decrease, or of which one is not from 0 to ``extent``."""
    falls = bool((indptr.diff() < 0).any())
    if falls or (indptr.numel() and (int(indptr.min()) < 0 or (extent is not None and int(indptr.max()) > extent))):
        limit = "" if extent is None else f", at most {extent}"
        raise ValueError(f"indptr must not decrease and be at least 0{limit}, got {indptr}")
