"""Rows in the order of their lengths, so that the end of each is where the processor expects it.

A loop over the non-zeros of a row ends after a number of rounds that a branch predictor guesses from the rows before.
Where neighbours have equally many, it guesses right (Gale et al., Sparse GPU Kernels for Deep Learning, section 5.1.2,
order rows to balance warps; here the order is kept within windows, so that rows that gather the same columns stay near
each other).
"""

from __future__ import annotations

import torch

from ..formats.structure import check_csr, check_integer, positions_of_rows
from .pieces import Piece


def rows_by_length(indptr, indices, shape, window) -> tuple[Piece, torch.Tensor]:
    """The structure with its rows in another order, and the row that each of them is, of the structure's index type.

    Windows of so many consecutive rows are ordered by the number of their non-zeros, rows of the same number as before.
    Order within a row is kept. Time O(rows log rows + nnz); memory that of the structure's indices, and as much for the
    positions.

    Args:
        indptr, indices, shape: a CSR structure (see `structure.check_csr`; its values are not looked at again).
        window: at least 1.
    """
    indptr, indices, shape = check_csr(indptr, indices, shape, check=False)
    window = check_integer("window", window)
    rows = shape[0]
    lengths = indptr.diff().long()
    longest = int(lengths.max()) if rows else 0
    number = torch.div(torch.arange(rows, device=indptr.device), window, rounding_mode="floor")
    order = torch.argsort(number * (longest + 1) + lengths, stable=True)
    starts, positions = positions_of_rows(indptr, order)
    return Piece(shape, starts, indices.index_select(0, positions), positions), order.to(indptr.dtype)


__all__ = ["rows_by_length"]
