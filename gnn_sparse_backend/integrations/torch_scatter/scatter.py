"""``scatter_*``: reductions by an index in any order."""

from __future__ import annotations

from torch import Tensor

from ..core.substitutes.scripted import public
from . import reductions

_public = public("torch_scatter")


@_public
def scatter_sum(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> Tensor:
    """Sum the numbers of ``src`` along ``dim`` into the rows that ``index`` says, (..., rows, ...).

    Args:
        src: of any shape, in a floating or integer type.
        index: int64, a vector along ``dim``, or with the first dimensions of ``src``, which it is broadcast to.
        out: is added to and returned, where it is given; its extent along ``dim`` is the number of rows.
        dim_size: the number of rows otherwise; by default the largest of ``index`` plus one.

    Raises IndexError for a dimension that there is not, RuntimeError for an index out of range or of another shape.
    """
    return reductions.summed(src, index, dim, out, dim_size)


@_public
def scatter_add(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> Tensor:
    """Call `scatter_sum` by its other name."""
    return reductions.summed(src, index, dim, out, dim_size)


@_public
def scatter_mul(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> Tensor:
    """Multiply instead of adding: rows of nothing are 1."""
    return reductions.multiplied(src, index, dim, out, dim_size)


@_public
def scatter_mean(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> Tensor:
    """Divide the sums by how many numbers there are, integers rounded down. Rows of nothing are 0."""
    return reductions.averaged(src, index, dim, out, dim_size)


@_public
def scatter_min(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the minima and where along ``dim`` the first of each is, the extent of ``src`` in rows of nothing, which
    are 0. The gradient goes there. With ``out`` only what is less than that counts.
    """
    return reductions.extreme("min", src, index, dim, out, dim_size)


@_public
def scatter_max(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the maxima, and their places, as `scatter_min` does."""
    return reductions.extreme("max", src, index, dim, out, dim_size)


@_public
def scatter(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: Tensor | None = None,
    dim_size: int | None = None,
    reduce: str = "sum",
) -> Tensor:
    """Reduce by ``reduce``: ``"sum"`` or ``"add"``, ``"mul"``, ``"mean"``, ``"min"`` or ``"max"``. The rest is as in
    `scatter_sum`. Raises ValueError for another reduction.
    """
    if reduce in ("sum", "add", "mul", "mean", "min", "max"):
        return reductions.reduced(reduce, src, index, dim, out, dim_size)
    raise ValueError(f"scatter: reduce must be 'sum', 'add', 'mul', 'mean', 'min' or 'max', got {reduce!r}")
