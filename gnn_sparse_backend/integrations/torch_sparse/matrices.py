"""Functions of matrices that are given as an index (2, nnz) and values, and conversions of these."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.substitutes.scripted import counted, public
from ..torch_scatter import reductions
from . import products
from .storage import SparseStorage
from .tensor import SparseTensor

_counted, _public = counted("torch_sparse"), public("torch_sparse")


@_public
def coalesce(index: Tensor, value: Tensor | None, m: int, n: int, op: str = "add") -> tuple[Tensor, Tensor | None]:
    """Sort entries by row and column, and reduce those of one place by ``op``."""
    held = SparseStorage(index[0], None, index[1], value, (m, n)).coalesce(op)
    return torch.stack([held.row(), held.col()]), held.value()


@_public
def transpose(
    index: Tensor, value: Tensor | None, m: int, n: int, coalesced: bool = True
) -> tuple[Tensor, Tensor | None]:
    """The transpose of a matrix (m, n). coalesced: sort its entries, and add those of one place."""
    return coalesce.__wrapped__(index.flip(0), value, n, m) if coalesced else (index.flip(0), value)


@_counted
def eye(m: int, dtype: torch.dtype | None = None, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Ones on the diagonal of a matrix (m, m)."""
    row = torch.arange(m, device=device)
    return torch.stack([row, row]), torch.ones(m, dtype=dtype, device=device)


@_public
def spmm(index: Tensor, value: Tensor, m: int, n: int, matrix: Tensor) -> Tensor:
    """The product of a matrix (m, n) with a dense one, (..., n, F) or (n,). Raises ValueError where shapes do not
    fit.
    """
    matrix = matrix[:, None] if matrix.dim() == 1 else matrix
    if matrix.shape[-2] != n:
        raise ValueError(f"a matrix of ({m}, {n}) has no product with one of {tuple(matrix.shape)}")
    messages = matrix.index_select(-2, index[1]) * value.unsqueeze(-1)
    return reductions.summed(messages, index[0], -2, None, m)


@_public
def spspmm(
    indexA: Tensor,
    valueA: Tensor,
    indexB: Tensor,
    valueB: Tensor,
    m: int,
    k: int,
    n: int,
    coalesced: bool = False,
) -> tuple[Tensor, Tensor]:
    """The product of sparse matrices (m, k) and (k, n). coalesced: sort their entries first."""
    a = SparseTensor(indexA[0], None, indexA[1], valueA, (m, k), is_sorted=not coalesced)
    b = SparseTensor(indexB[0], None, indexB[1], valueB, (k, n), is_sorted=not coalesced)
    row, col, value = products.matmul.__wrapped__(a, b).coo()
    return torch.stack([row, col]), value


@_public
def spadd(indexA: Tensor, valueA: Tensor, indexB: Tensor, valueB: Tensor, m: int, n: int) -> tuple[Tensor, Tensor]:
    """The sum of sparse matrices (m, n)."""
    return coalesce.__wrapped__(torch.cat([indexA, indexB], 1), torch.cat([valueA, valueB]), m, n)


@_counted
def to_torch_sparse(index: Tensor, value: Tensor, m: int, n: int) -> Tensor:
    return torch.sparse_coo_tensor(index.detach(), value, (m, n))


@_counted
def from_torch_sparse(A: Tensor) -> tuple[Tensor, Tensor]:
    return A.indices().detach(), A.values()


@_counted
def to_scipy(index: Tensor, value: Tensor, m: int, n: int) -> Any:
    """A ``scipy.sparse.coo_matrix``."""
    import scipy.sparse

    row, col = index.detach().cpu().numpy()
    return scipy.sparse.coo_matrix((value.detach().cpu().numpy(), (row, col)), (m, n))


@_counted
def from_scipy(A: Any) -> tuple[Tensor, Tensor]:
    """(index, values) of a matrix of SciPy's."""
    A = A.tocoo()
    index = torch.stack([torch.from_numpy(A.row).long(), torch.from_numpy(A.col).long()])
    return index, torch.from_numpy(A.data)
