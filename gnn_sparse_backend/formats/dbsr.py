"""Doubly compressed block sparse rows."""

from __future__ import annotations

import torch

from ..frozen import dataclass
from .bsr import BlockFormat, BsrFormat
from .counts import numbers_of, prefix_sums, read


@dataclass(frozen=True, eq=False, repr=False)
class DbsrFormat(BlockFormat):
    """DBSR: BSR without its empty rows of blocks (SparseTIR, section 4.3.2), as pruned weights have them.

    The blocks are those of `BsrFormat`, in the same order with the same values; beside them stand the rows of blocks
    that have any, so that what a kernel visits grows with the blocks and not with the rows.

    Attributes:
        shape, block, indices, mask, slots: as of BSR.
        indptr: (n_stored_rows + 1,) offsets of the stored rows of blocks.
        rows: (n_stored_rows,) the row of blocks that each is, ascending.
    """

    rows: torch.Tensor

    @classmethod
    def from_csr(cls, indptr, indices, shape, block, *, max_slots=None, check=True, counts=None):
        """Gather the edges of a CSR structure into blocks; arguments and errors are those of `BsrFormat.from_csr`."""
        bsr = BsrFormat.from_csr(indptr, indices, shape, block, max_slots=max_slots, check=check, counts=counts)
        lengths = bsr.indptr.diff()
        rows = numbers_of(lengths > 0, *read((lengths > 0).sum()))
        offsets = prefix_sums(lengths.index_select(0, rows)).to(bsr.indptr.dtype)
        return cls(bsr.shape, bsr.block, offsets, bsr.indices, bsr.mask, bsr.slots, rows.to(bsr.indptr.dtype))

    @property
    def num_blocks(self):
        """Stored blocks."""
        return self.indices.numel()

    def _rows_of_blocks(self):
        return self.rows.long().index_select(0, super()._rows_of_blocks())

    def _coordinates(self):
        block_id, rows, place = self._places()
        return rows, self.indices.long().index_select(0, block_id) * self.block[1] + place
