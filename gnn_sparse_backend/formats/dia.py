"""Diagonals."""

from __future__ import annotations

import torch

from ..frozen import dataclass
from .base import SlotMapped, slot_mask
from .structure import check_csr, check_integer, check_slots, index_type, row_of_position

DEFAULT_MAX_DIAGONALS = 1024
"""Diagonals that a DIA structure may store without being asked."""


@dataclass(frozen=True, eq=False, repr=False)
class DiaFormat(SlotMapped):
    """DIA: a sparse axis of diagonals and under it a dense axis of rows; for banded matrices.

    Slot (d, i) is the coordinate (i, i + offsets[d]): the layout is by rows, as a kernel over output rows
    wants it (scipy's ``dia_matrix`` is by columns). A diagonal with at least one edge is stored whole,
    n_diagonals * n_rows slots in all (Saad, Iterative Methods for Sparse Linear Systems, section 3.4).

    Slots without an edge, and those that leave the matrix, are False in ``mask``: a kernel must consult it,
    because 0 * Inf is NaN and i + offsets[d] may lie outside the operand. Edges at the same coordinate share
    a slot and `pad_values` sums them.

    Attributes:
        shape: (n_rows, n_cols).
        offsets: (n_diagonals,) column minus row, ascending, in [-(n_rows - 1), n_cols - 1].
        mask: (n_diagonals, n_rows) bool, True where there is an edge.
        slots: (nnz,) flat slot ``d * n_rows + i`` of each CSR position.
    """

    shape: tuple[int, int]
    offsets: torch.Tensor
    mask: torch.Tensor
    slots: torch.Tensor

    @classmethod
    def from_csr(cls, indptr, indices, shape, *, max_diagonals=DEFAULT_MAX_DIAGONALS, max_slots=None, check=True):
        """Gather the edges of a CSR structure into diagonals.

        Args:
            indptr, indices, shape, check: see `structure.check_csr`.
            max_diagonals: limit on the number of diagonals with an edge.
            max_slots: limit on n_diagonals * n_rows (see `structure.check_slots`).

        Raises:
            ValueError: a limit is passed; the error gives the number of diagonals.
        """
        indptr, indices, shape = check_csr(indptr, indices, shape, check=check)
        max_diagonals = check_integer("max_diagonals", max_diagonals)
        n_rows, n_cols = shape
        nnz = indices.numel()
        key_type = index_type(indptr.dtype, n_rows + n_cols)
        rows = row_of_position(indptr, nnz, key_type)
        # Diagonals are numbered from the lower left corner, so that presence is one scatter, not a sort.
        diagonal = indices.to(key_type) - rows + (n_rows - 1)
        present = torch.zeros(max(n_rows + n_cols - 1, 0), dtype=torch.bool, device=indices.device)
        numbers = present.index_fill_(0, diagonal.long(), True).nonzero().reshape(-1)
        n_diagonals = numbers.numel()
        if n_diagonals > max_diagonals:
            raise ValueError(
                f"the {nnz} edges lie on {n_diagonals} diagonals, more than max_diagonals = {max_diagonals}; "
                "DIA is for banded matrices: use another format, or raise max_diagonals"
            )
        check_slots(n_diagonals * n_rows, nnz, max_slots, f"DIA with {n_diagonals} diagonals of {n_rows} rows")

        dtype = index_type(indptr.dtype, n_diagonals * n_rows, n_rows + n_cols, nnz)
        rank = torch.searchsorted(numbers, diagonal.long())
        slots = (rank * n_rows + rows).to(dtype)
        return cls(shape, (numbers - (n_rows - 1)).to(dtype), slot_mask(slots, (n_diagonals, n_rows)), slots)

    @property
    def num_diagonals(self):
        """Stored diagonals."""
        return self.offsets.numel()

    def _coordinates(self):
        slots, n_rows = self.slots.long(), max(self.shape[0], 1)
        rows = slots % n_rows
        offset = self.offsets.long().index_select(0, slots // n_rows)
        return rows, rows + offset
