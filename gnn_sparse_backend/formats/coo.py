"""Coordinates."""

from __future__ import annotations

import torch

from ..frozen import dataclass
from .base import InOrder
from .structure import check_csr, index_type, row_of_position


@dataclass(frozen=True, eq=False, repr=False)
class CooFormat(InOrder):
    """COO: one fused axis over the edges, with the row and the column coordinate of each (SparseTIR, section 3.1).

    The rows are the expansion of ``indptr``; edges stay in CSR order, so rows ascend. Nothing is padded.

    Attributes:
        shape: (n_rows, n_cols).
        row: (nnz,) row coordinates, ascending.
        col: (nnz,) column coordinates.
    """

    shape: tuple[int, int]
    row: torch.Tensor
    col: torch.Tensor

    @classmethod
    def from_csr(cls, indptr, indices, shape, *, check=True):
        """Expand the rows of a CSR structure (see `structure.check_csr` for the arguments and errors)."""
        indptr, indices, shape = check_csr(indptr, indices, shape, check=check)
        dtype = index_type(indptr.dtype, *shape, indices.numel())
        return cls(shape, row_of_position(indptr, indices.numel(), dtype), indices.to(dtype))

    def to_coo(self):
        """(row, col, position), each (nnz,)."""
        return self.row, self.col, self.value_position
