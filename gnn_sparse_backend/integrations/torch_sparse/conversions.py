"""A sparse matrix as one of PyTorch's or SciPy's, and dense, and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..torch_scatter.segment_csr import reduced_segments
from .storage import SparseStorage, get_layout


class Conversions:
    """Ways from and to other matrices."""

    storage: SparseStorage

    @classmethod
    def _made(cls, row: Tensor | None, rowptr: Tensor | None, col: Tensor, value: Tensor | None, sizes: Any) -> Any:
        held = SparseStorage(row, rowptr, col, value, tuple(sizes), is_sorted=True, trust_data=True)
        return cls.from_storage(held)  # type: ignore[attr-defined]

    @classmethod
    def from_dense(cls, mat: Tensor, has_value: bool = True) -> Any:
        """The entries of a matrix (M, N, ...) that are not 0."""
        row, col = (mat.abs().sum(tuple(range(2, mat.dim()))) if mat.dim() > 2 else mat).nonzero().t()
        return cls._made(row, None, col, mat[row, col] if has_value else None, mat.shape[:2])

    @classmethod
    def from_torch_sparse_coo_tensor(cls, mat: Tensor, has_value: bool = True) -> Any:
        mat = mat.coalesce()
        row, col = mat.indices()
        return cls._made(row, None, col, mat.values() if has_value else None, mat.shape[:2])

    @classmethod
    def from_torch_sparse_csr_tensor(cls, mat: Tensor, has_value: bool = True) -> Any:
        rowptr, col = mat.crow_indices().long(), mat.col_indices().long()
        return cls._made(None, rowptr, col, mat.values() if has_value else None, mat.shape[:2])

    @classmethod
    def from_scipy(cls, mat: Any, has_value: bool = True) -> Any:
        mat = mat.tocsr()
        mat.sort_indices()
        rowptr, col = (torch.from_numpy(x).long() for x in (mat.indptr, mat.indices))
        return cls._made(None, rowptr, col, torch.from_numpy(mat.data) if has_value else None, mat.shape)

    @classmethod
    def eye(
        cls,
        M: int,
        N: int | None = None,
        has_value: bool = True,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
        fill_cache: bool = False,
    ) -> Any:
        """Ones on the diagonal of a matrix (M, N)."""
        N = M if N is None else N
        many = min(M, N)
        row = torch.arange(many, device=device)
        rowptr = torch.arange(M + 1, device=device).clamp(max=many)
        value = torch.ones(many, dtype=dtype, device=device) if has_value else None
        made = cls._made(row, rowptr, row, value, (M, N))
        return made.fill_cache_() if fill_cache else made

    def to_dense(self: Any, dtype: torch.dtype | None = None) -> Tensor:
        row, col, value = self.coo()
        value = torch.ones(self.nnz(), dtype=dtype, device=self.device()) if value is None else value
        return value.new_zeros(self.sizes()).index_put((row, col), value)

    def to_torch_sparse_coo_tensor(self: Any, dtype: torch.dtype | None = None) -> Tensor:
        row, col, value = self.coo()
        return torch.sparse_coo_tensor(torch.stack([row, col]), self._numbers(value, dtype), self.sizes())

    def to_torch_sparse_csr_tensor(self: Any, dtype: torch.dtype | None = None) -> Tensor:
        rowptr, col, value = self.csr()
        return torch.sparse_csr_tensor(rowptr, col, self._numbers(value, dtype), self.sizes())

    def to_torch_sparse_csc_tensor(self: Any, dtype: torch.dtype | None = None) -> Tensor:
        colptr, row, value = self.csc()
        return torch.sparse_csc_tensor(colptr, row, self._numbers(value, dtype), self.sizes())

    def to_scipy(self: Any, layout: str | None = None, dtype: torch.dtype | None = None) -> Any:
        """A ``scipy.sparse.coo_matrix``, ``csr_matrix`` or ``csc_matrix``, as ``layout`` says."""
        import scipy.sparse

        layout = get_layout(layout)
        first, second, value = getattr(self, layout)()
        first, second, value = (x.detach().cpu().numpy() for x in (first, second, self._numbers(value, dtype)))
        if layout == "coo":
            return scipy.sparse.coo_matrix((value, (first, second)), self.sizes())
        kind = scipy.sparse.csr_matrix if layout == "csr" else scipy.sparse.csc_matrix
        return kind((value, second, first), self.sizes())

    def to_symmetric(self: Any, reduce: str = "sum") -> Any:
        """A square matrix with each entry at both of its places; those that meet there are reduced."""
        size = max(self.sparse_sizes())
        row, col, value = self.coo()
        row, col = torch.cat([row, col]), torch.cat([col, row])
        key = row * size + col
        ascending, order = key.sort(stable=True)
        first = torch.ones_like(ascending, dtype=torch.bool)
        torch.ne(ascending[1:], ascending[:-1], out=first[1:])
        if value is not None:
            pointers = torch.nn.functional.pad(first.nonzero().flatten(), (0, 1), value=key.numel())
            value = reduced_segments(torch.cat([value, value])[order], pointers, reduce)
        kept = order[first]
        return self._made(row[kept], None, col[kept], value, (size, size))

    def _numbers(self: Any, value: Tensor | None, dtype: torch.dtype | None) -> Tensor:
        return torch.ones(self.nnz(), dtype=dtype, device=self.device()) if value is None else value
