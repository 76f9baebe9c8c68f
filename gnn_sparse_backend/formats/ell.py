"""ELLPACK: every row padded to one width."""

from __future__ import annotations

import torch

from ..frozen import dataclass
from . import values as maps
from .base import SparseFormat
from .structure import check_csr, check_integer, check_slots, index_type


@dataclass(frozen=True, eq=False, repr=False)
class EllFormat(SparseFormat):
    """ELL: a dense-fixed row axis and under it a sparse-fixed column axis (SparseTIR, section 3.1).

    Row i holds its edges first, in CSR order, then padding up to ``width``. A padded slot has the coordinate
    **-1**, which means absent: a kernel skips negative coordinates, so padding never reads an operand.
    Stores n_rows * width slots; the padding is n_rows * width / nnz - 1.

    Attributes:
        shape: (n_rows, n_cols).
        nnz: number of edges.
        indices: (n_rows, width) column coordinates, -1 at padded slots.
        value_position: (n_rows, width) CSR positions, -1 at padded slots.
    """

    shape: tuple[int, int]
    nnz: int
    indices: torch.Tensor
    value_position: torch.Tensor

    @classmethod
    def from_csr(cls, indptr, indices, shape, width=None, *, max_slots=None, check=True):
        """Pad every row of a CSR structure to ``width`` edges.

        With ``width`` given and ``check=False`` nothing synchronises with the host.

        Args:
            indptr, indices, shape, check: see `structure.check_csr`; ``check`` also covers the row lengths.
            width: slots per row; default the longest row.
            max_slots: limit on n_rows * width (see `structure.check_slots`).

        Raises:
            ValueError: a row is longer than ``width`` (the row is quoted), or the limit on slots is passed.
        """
        indptr, indices, shape = check_csr(indptr, indices, shape, check=check)
        n_rows, n_cols = shape
        nnz = indices.numel()
        if width is None:
            width = int(indptr.diff().max()) if n_rows else 0
        else:
            width = check_integer("width", width, minimum=0)
            if check:
                _check_row_lengths(indptr, width)
        check_slots(n_rows * width, nnz, max_slots, f"ELL of width {width} on {n_rows} rows")

        # nnz + width: positions run past the end of the last rows before they are masked.
        dtype = index_type(indptr.dtype, n_rows * width, n_rows, n_cols, nnz + width)
        indptr, indices = indptr.to(dtype), indices.to(dtype)
        position = indptr[:-1, None] + torch.arange(width, dtype=dtype, device=indptr.device)
        position.masked_fill_(position >= indptr[1:, None], -1)
        # Slot 0 of the extended array is the coordinate of padding.
        extended = torch.cat([indices.new_full((1,), -1), indices])
        columns = extended.index_select(0, (position + 1).reshape(-1)).reshape(n_rows, width)
        return cls(shape, nnz, columns, position)

    @property
    def width(self):
        """Slots per row."""
        return self.indices.shape[1]

    @property
    def num_slots(self):
        """Stored positions: n_rows * width."""
        return self.indices.numel()

    def pad_values(self, values):
        """(nnz, ...) -> (n_rows, width, ...), 0 at padded slots."""
        return maps.pad_by_position(maps.check_values(values, self.nnz), self.value_position)

    def unpad_values(self, padded):
        """(n_rows, width, ...) -> (nnz, ...), padded slots ignored."""
        padded = maps.check_padded(padded, self.indices.shape)
        return maps.unpad_by_position([(padded, self.value_position)], self.nnz)

    def to_coo(self):
        """(row, col, position), each (nnz,)."""
        real = self.indices >= 0
        rows = torch.arange(self.shape[0], dtype=self.index_dtype, device=self.device)
        return rows[:, None].expand_as(real)[real], self.indices[real], self.value_position[real]


def _check_row_lengths(indptr, width):
    lengths = indptr.diff()
    if lengths.numel() and int(lengths.max()) > width:
        row = int(lengths.argmax())
        raise ValueError(
            f"row {row} has {int(lengths[row])} edges, more than width = {width}; "
            "raise width, or use hyb, which splits long rows"
        )
