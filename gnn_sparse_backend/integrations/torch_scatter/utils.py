"""How an index stands beside what it is of."""

from __future__ import annotations

from torch import Tensor


def broadcast(src: Tensor, other: Tensor, dim: int) -> Tensor:
    """``src`` in the shape of ``other``: a vector lies along dimension ``dim``, anything else begins at the first one.

    Raises RuntimeError, as ``expand`` does, where the shapes do not fit.
    """
    dim = dim + other.dim() if dim < 0 else dim
    shape = list(src.shape)  # all of this is TorchScript, too
    if src.dim() == 1:
        shape = [1] * dim + shape
    return src.view(shape + [1] * (other.dim() - len(shape))).expand(other.shape)


def vector_along(index: Tensor, dim: int) -> Tensor | None:
    """The (n,) index that was broadcast from along dimension ``dim``; None where it differs along others."""
    if index.dim() == 1:
        return index
    others = [at for at in range(index.dim()) if at != dim]
    if dim >= index.dim() or not all(index.stride(at) == 0 or index.shape[at] == 1 for at in others):
        return None
    return index[tuple(slice(None) if at == dim else 0 for at in range(index.dim()))] if index.numel() else None
