"""Pieces of a CSR structure that kernels run on one after the other as if each were whole.

Column partitions (the c of hyb(c, k), SparseTIR, section 4.2.1, on rows of any length): what a piece gathers of a dense
operand fits a cache. Parts of long rows (ibid., the splitting of hyb's buckets): no row is longer than a task should be.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from .row_parts import split_rows
from .structure import check_csr, check_integer


@dataclass(frozen=True, eq=False)
class Piece:
    """Some of the non-zeros of a CSR structure, in CSR form of their own. Columns keep their coordinates.

    Attributes:
        shape: (n_rows, n_cols) of the piece.
        indptr, indices: its CSR arrays, of the structure's index type.
        positions: (nnz of the piece,) CSR position in the structure of each non-zero; None where it is the same.
        plans: for the planner, as that of a graph.
    """

    shape: tuple[int, int]
    indptr: torch.Tensor
    indices: torch.Tensor
    positions: torch.Tensor | None
    plans: dict = field(default_factory=dict)

    @property
    def num_edges(self) -> int:
        """Non-zeros of the piece."""
        return self.indices.numel()

    def edge_numbers(self, numbers: torch.Tensor) -> torch.Tensor:
        """The entries of ``numbers``, one for each CSR position of the structure, that belong to the piece."""
        if self.positions is None:
            return numbers
        found = self.plans.get("edge_numbers")
        if found is None or found[0] is not numbers:
            found = self.plans["edge_numbers"] = (numbers, numbers.index_select(0, self.positions))
        return found[1]


def column_partitions(indptr, indices, shape, parts) -> tuple[Piece, ...]:
    """Cut the columns into ``parts`` ranges of equal width (the last may be narrower, or empty): a piece for each.

    Order within a row is kept, so a row is reduced part by part, and within a part in the order of its non-zeros.
    Time O(parts * nnz); memory that of the structure's indices, and as much for the positions.

    Args:
        indptr, indices, shape: a CSR structure (see `structure.check_csr`; its values are not looked at again).
        parts: at least 1.
    """
    indptr, indices, shape = check_csr(indptr, indices, shape, check=False)
    parts = check_integer("parts", parts)
    width = max(-(-shape[1] // parts), 1)
    # one byte for each non-zero, to be read once for each part
    part_of = torch.div(indices, width, rounding_mode="floor").to(torch.uint8 if parts <= 256 else indices.dtype)
    pieces = []
    for part in range(parts):
        positions = (part_of == part).nonzero().flatten()
        starts = torch.searchsorted(positions, indptr.long()).to(indptr.dtype)
        pieces.append(Piece(shape, starts, indices.index_select(0, positions), positions.to(indptr.dtype)))
    return tuple(pieces)


@dataclass(frozen=True, eq=False)
class RowParts:
    """Rows cut into parts.

    Attributes:
        whole: the structure with a row for each part; parts of a row are adjacent and in order.
        row_of_part: (parts,) row that each part belongs to.
        sums: (rows, parts), the structure that adds the parts of each row up, in order; rows without non-zeros have none.
    """

    whole: Piece
    row_of_part: torch.Tensor
    sums: Piece


def row_parts(indptr, indices, shape, longest) -> RowParts:
    """Cut every row of more than ``longest`` non-zeros into parts of ``longest`` and a rest.

    Args: as for `column_partitions`; ``longest`` at least 1.
    """
    indptr, indices, (n_rows, n_cols) = check_csr(indptr, indices, shape, check=False)
    longest = check_integer("longest", longest)
    row, start, _ = split_rows(indptr.diff().long(), longest)
    starts = torch.cat([start, start.new_full((1,), indices.numel())]).to(indptr.dtype)
    count = row.numel()
    first = torch.searchsorted(row, torch.arange(n_rows + 1, device=row.device)).to(indptr.dtype)
    order = torch.arange(count, dtype=indptr.dtype, device=row.device)
    return RowParts(Piece((count, n_cols), starts, indices, None), row, Piece((n_rows, count), first, order, None))


__all__ = ["Piece", "RowParts", "column_partitions", "row_parts"]
