"""Compressed sparse rows."""

from __future__ import annotations

import torch

from ..frozen import dataclass
from .base import InOrder
from .structure import check_csr, row_of_position


@dataclass(frozen=True, eq=False, repr=False)
class CsrFormat(InOrder):
    """CSR: a dense-fixed row axis and under it a sparse-variable column axis (SparseTIR, section 3.1).

    The input structure itself: nothing is inferred, copied or padded, and slots are CSR positions.

    Attributes:
        shape: (n_rows, n_cols).
        indptr: (n_rows + 1,) offsets of the rows.
        indices: (nnz,) column coordinates, in the given order, repeated ones kept.
    """

    shape: tuple[int, int]
    indptr: torch.Tensor
    indices: torch.Tensor

    @classmethod
    def from_csr(cls, indptr, indices, shape, *, check=True):
        """Take a CSR structure as it is (see `structure.check_csr` for the arguments and errors)."""
        indptr, indices, shape = check_csr(indptr, indices, shape, check=check)
        return cls(shape, indptr, indices)

    def to_coo(self):
        """(row, col, position), each (nnz,)."""
        return row_of_position(self.indptr, self.nnz), self.indices, self.value_position
