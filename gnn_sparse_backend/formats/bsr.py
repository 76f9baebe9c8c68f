"""Block compressed sparse rows."""

from __future__ import annotations

import torch

from ..frozen import dataclass
from .base import SlotMapped, slot_mask
from .counts import distinct
from .structure import check_csr, check_integer, check_slots, index_type, row_of_position


@dataclass(frozen=True, eq=False, repr=False)
class BlockFormat(SlotMapped):
    """Base of the formats of dense blocks of (rows, columns), BSR and SR-BCRS."""

    shape: tuple[int, int]
    block: tuple[int, int]
    indptr: torch.Tensor
    indices: torch.Tensor
    mask: torch.Tensor
    slots: torch.Tensor

    def _places(self):
        """(block, row of the matrix, column in the block) of each slot ``(b * br + i) * bc + j``, in int64."""
        br, bc = self.block
        slots = self.slots.long()
        block_id = torch.div(slots, br * bc, rounding_mode="floor")
        block_row = self._rows_of_blocks().index_select(0, block_id)
        return block_id, block_row * br + slots // bc % br, slots % bc

    def _rows_of_blocks(self):
        """The row of blocks of each, in int64."""
        return row_of_position(self.indptr, len(self.indices), torch.int64)


class BsrFormat(BlockFormat):
    """BSR: CSR over dense blocks of br x bc (SparseTIR, section 3.1, and the CSR-to-BSR rule of section 3.2.1).

    The matrix is cut into a grid of ceil(n_rows / br) x ceil(n_cols / bc) blocks; a block with at least one
    edge is stored whole, the blocks of a block row ascend. Stores n_blocks * br * bc slots.

    Entries of a stored block without an edge, and those past the last row or column of the matrix, are
    False in ``mask``: a kernel must consult it, because 0 * Inf is NaN, and because a block of the border may
    reach beyond the operand. Edges at the same coordinate share a slot and `pad_values` sums them.

    Attributes:
        shape: (n_rows, n_cols).
        block: (br, bc).
        indptr: (n_block_rows + 1,) offsets of the block rows.
        indices: (n_blocks,) block column coordinates, ascending in each block row.
        mask: (n_blocks, br, bc) bool, True where there is an edge. ``mask.view(torch.uint8)`` costs nothing.
        slots: (nnz,) flat slot ``(b * br + i) * bc + j`` of each CSR position.
    """

    @classmethod
    def from_csr(cls, indptr, indices, shape, block, *, max_slots=None, check=True, counts=None):
        """Gather the edges of a CSR structure into blocks.

        Args:
            indptr, indices, shape, check: see `structure.check_csr`.
            block: block size b, or (br, bc).
            max_slots: limit on n_blocks * br * bc (see `structure.check_slots`).
            counts: its `BlockCounts`, where they are known; otherwise a GPU is waited for.

        Raises:
            ValueError: a block size under 1, more than 2**63 - 1 blocks in the grid, or the limit on slots is passed.
        """
        indptr, indices, shape = check_csr(indptr, indices, shape, check=check)
        br, bc = block_shape(block)
        n_block_rows, n_block_cols = -(-shape[0] // br), -(-shape[1] // bc)
        if n_block_rows * n_block_cols > 2**63 - 1:
            raise ValueError(
                f"a grid of {n_block_rows} x {n_block_cols} blocks cannot be numbered in 64 bits; "
                f"use blocks larger than {br} x {bc}"
            )
        nnz = indices.numel()
        # The grid is numbered in int32 where it fits, which halves the cost of the sort below.
        key_type = index_type(indptr.dtype, n_block_rows * n_block_cols, *shape, br, bc)
        rows, cols = row_of_position(indptr, nnz, key_type), indices.to(key_type)
        block_row = rows // br
        block_col = cols // bc
        keys, block_id = distinct(block_row * n_block_cols + block_col, None if counts is None else counts.blocks)
        n_blocks = keys.numel()
        check_slots(n_blocks * br * bc, nnz, max_slots, f"BSR with {n_blocks} blocks of {br} x {bc}")

        dtype = index_type(indptr.dtype, n_blocks * br * bc, *shape, nnz)
        starts = torch.arange(n_block_rows + 1, device=keys.device) * n_block_cols
        block_indptr = torch.searchsorted(keys.long(), starts, out_int32=dtype == torch.int32)
        block_indices = torch.remainder(keys, max(n_block_cols, 1)).to(dtype)
        slots = ((block_id * br + (rows - block_row * br)) * bc + (cols - block_col * bc)).to(dtype)
        return cls(shape, (br, bc), block_indptr, block_indices, slot_mask(slots, (n_blocks, br, bc)), slots)

    @property
    def num_blocks(self):
        """Stored blocks."""
        return self.indices.numel()

    def _coordinates(self):
        block_id, rows, place = self._places()
        return rows, self.indices.long().index_select(0, block_id) * self.block[1] + place


def block_shape(block):
    """``block``, an integer b or a pair, as (br, bc); TypeError or ValueError quoting it otherwise."""
    pair = tuple(block) if isinstance(block, (tuple, list)) else (block, block)
    if len(pair) != 2:
        raise ValueError(f"block must be an integer or a pair (br, bc), got {block!r}")
    return check_integer("block rows", pair[0]), check_integer("block columns", pair[1])
