"""Pieces of a CSR structure that kernels run on one after the other as if each were whole, and one that is all of it.

Column partitions (the c of hyb(c, k), SparseTIR, section 4.2.1, on rows of any length): what a piece gathers of a dense
operand fits a cache. Parts of long rows (ibid., the splitting of hyb's buckets): no row is longer than a task should
be.

Rows in the order of their lengths: the end of each is where the processor expects it. A loop over the non-zeros of a
row ends after a number of rounds that a branch predictor guesses from the rows before. Where neighbours have equally
many, it guesses right (Gale et al., Sparse GPU Kernels for Deep Learning, section 5.1.2, order rows to balance warps;
here the order is kept within windows, so that rows that gather the same columns stay near each other).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

import torch

from ..formats.structure import check_csr, check_integer, positions_of_rows
from ..frozen import dataclass
from .derived import Keeps


@dataclass(frozen=True, eq=False)
class Piece(Keeps):
    """Some of the non-zeros of a CSR structure, in CSR form of their own. Columns keep their coordinates.

    Where indices are the structure's own, ``indptr`` holds positions in it, and need not begin with 0.

    Attributes:
        shape: (n_rows, n_cols) of the piece.
        indptr, indices: its CSR arrays, of the structure's index type.
        positions: (nnz of the piece,) CSR position in the structure of each non-zero; None where it is the same, or
            where whoever reads numbers of edges finds them elsewhere.
    """

    shape: tuple[int, int]
    indptr: torch.Tensor
    indices: torch.Tensor
    positions: torch.Tensor | None
    facts: dict[Any, Any] = field(default_factory=dict, repr=False)
    _numbers: list = field(default_factory=list, repr=False)

    unsynchronised = None  # as of a graph: nothing is known of the lengths but what the arrays say

    @property
    def num_edges(self) -> int:
        """Length of ``indices``."""
        return self.indices.numel()

    def edge_numbers(self, numbers: torch.Tensor) -> torch.Tensor:
        """The entries of ``numbers``, one for each CSR position of the structure, that belong to the piece."""
        if self.positions is None:
            return numbers
        if not self._numbers or self._numbers[0] is not numbers:
            self._numbers[:] = numbers, numbers.index_select(0, self.positions)
        return self._numbers[1]


def column_partitions(indptr, indices, shape, parts) -> tuple[Piece, ...]:
    """Cut the columns into ``parts`` ranges of equal width (the last may be narrower, or empty): a piece for each.

    Order within a row is kept, so a row is reduced part by part, and within a part in the order of its non-zeros.
    Time O(parts * nnz); memory that of the structure's indices: `positions_in_partitions` are not kept.

    Args:
        indptr, indices, shape: a CSR structure (see `structure.check_csr`; its values are not looked at again).
        parts: at least 1.
    """
    indptr, indices, shape = check_csr(indptr, indices, shape, check=False)
    ends, pieces = indptr.long(), []
    for positions in positions_in_partitions(indices, shape, parts):
        starts = torch.searchsorted(positions, ends).to(indptr.dtype)
        pieces.append(Piece(shape, starts, indices.index_select(0, positions), None))
    return tuple(pieces)


def positions_in_partitions(indices, shape, parts) -> Iterator[torch.Tensor]:
    """The CSR positions, int64 and ascending, of the non-zeros in each of the `column_partitions`."""
    parts = check_integer("parts", parts)
    width = max(-(-shape[1] // parts), 1)
    # one byte for each non-zero, to be read once for each part
    part_of = torch.div(indices, width, rounding_mode="floor").to(torch.uint8 if parts <= 256 else indices.dtype)
    for part in range(parts):
        yield (part_of == part).nonzero().flatten()


@dataclass(frozen=True, eq=False)
class Rows:
    """Consecutive rows of a structure, first to last (exclusive), as a piece that shares the structure's indices.

    sums: None where the rows of ``piece`` are those rows. A long row is one row alone: ``piece`` has a row for each of
        its parts, in order, and ``sums``, (1, parts), adds their results up. edges: non-zeros of the rows.
    """

    first: int
    last: int
    edges: int
    piece: Piece
    sums: Piece | None = None


def row_parts(indptr, indices, shape, longest) -> tuple[Rows, ...]:
    """Rows of more than ``longest`` non-zeros in parts of ``longest`` and a rest, each by itself; those between them
    whole.

    Every row is in one of the results, in order. Nothing of the size of the structure is copied.

    Args: as for `column_partitions`; ``longest`` at least 1.
    """
    indptr, indices, (n_rows, n_cols) = check_csr(indptr, indices, shape, check=False)
    longest = check_integer("longest", longest)
    pieces: list[Rows] = []

    def whole(first: int, last: int) -> None:
        if first < last:
            own = indptr[first : last + 1]
            pieces.append(Rows(first, last, int(own[-1] - own[0]), Piece((last - first, n_cols), own, indices, None)))

    done = 0
    for row in (indptr.diff() > longest).nonzero().flatten().tolist():
        whole(done, row)
        start, end = indptr[row : row + 2].tolist()
        starts = torch.tensor([*range(start, end, longest), end], dtype=indptr.dtype, device=indptr.device)
        parts = starts.numel() - 1
        order = torch.arange(parts, dtype=indptr.dtype, device=indptr.device)
        sums = Piece((1, parts), starts.new_tensor([0, parts]), order, None)
        pieces.append(Rows(row, row + 1, end - start, Piece((parts, n_cols), starts, indices, None), sums))
        done = row + 1
    whole(done, n_rows)
    return tuple(pieces)


def rows_by_length(indptr, indices, shape, window) -> tuple[Piece, torch.Tensor]:
    """The structure with its rows in another order, and the row that each of them is, of the structure's index type.

    Windows of ``window`` consecutive rows are ordered by the number of their non-zeros, rows of the same number as
    before. Order within a row is kept. Time O(rows log rows + nnz); memory that of the structure's indices, and as much
    for the positions.

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
