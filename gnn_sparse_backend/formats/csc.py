"""Compressed sparse columns."""

from __future__ import annotations

import torch

from ..frozen import dataclass
from . import values as maps
from .base import Unpadded
from .structure import check_csr, index_type, row_of_position


@dataclass(frozen=True, eq=False, repr=False)
class CscFormat(Unpadded):
    """CSC: the CSR structure of the transpose, with the permutation of the values.

    Inferred by a stable sort of the edges by column, so that the rows of a column ascend and repeated
    coordinates keep their order. Stores exactly nnz slots.

    Attributes:
        shape: (n_rows, n_cols) of the matrix, not of its transpose.
        indptr: (n_cols + 1,) offsets of the columns.
        indices: (nnz,) row coordinates, ascending in each column.
        value_position: (nnz,) CSR position of each slot, a permutation.
    """

    shape: tuple[int, int]
    indptr: torch.Tensor
    indices: torch.Tensor
    value_position: torch.Tensor

    @classmethod
    def from_csr(cls, indptr, indices, shape, *, check=True):
        """Transpose a CSR structure (see `structure.check_csr` for the arguments and errors)."""
        indptr, indices, shape = check_csr(indptr, indices, shape, check=check)
        n_rows, n_cols = shape
        nnz = indices.numel()
        dtype = index_type(indptr.dtype, n_rows, n_cols, nnz)
        by_column, position = torch.sort(indices, stable=True)
        columns = torch.arange(n_cols + 1, dtype=dtype, device=indices.device)
        col_indptr = torch.searchsorted(by_column.to(dtype), columns, out_int32=dtype == torch.int32)
        rows = row_of_position(indptr, nnz, dtype).index_select(0, position)
        return cls(shape, col_indptr, rows, position.to(dtype))

    def pad_values(self, values):
        """(nnz, ...) from CSR order to CSC order."""
        return maps.check_values(values, self.nnz).index_select(0, self.value_position)

    def unpad_values(self, padded):
        """(nnz, ...) from CSC order to CSR order."""
        padded = maps.check_padded(padded, (self.nnz,))
        return torch.zeros_like(padded).index_copy(0, self.value_position.long(), padded)

    def to_coo(self):
        """(row, col, position), each (nnz,), by columns."""
        return self.indices, row_of_position(self.indptr, self.nnz), self.value_position
