"""Strided row-major block compressed row storage."""

from __future__ import annotations

import torch

from .base import slot_mask
from .bsr import BlockFormat, block_shape
from .counts import distinct, prefix_sums
from .partitions.row_parts import ceil_div
from .structure import check_csr, check_slots, index_type, row_of_position


class SrBcrsFormat(BlockFormat):
    """SR-BCRS: columns of a few rows, gathered in groups (SparseTIR, section 4.3.2; Li, Osawa and Hoefler, SC 2022,
    section 3.1).

    The rows are cut into ceil(n_rows / t) tiles of t. A tile stores its columns with at least one edge, each as a
    vector of t slots; they ascend, and stand in groups of g, the last of which is filled up with vectors without a
    column. A group is a dense block of t x g slots, row by row, whose columns need not be neighbours: a tile never has
    more groups than BSR has blocks of (t, g). Stores n_groups * t * g slots.

    Entries without an edge are False in ``mask``, which a kernel must consult as in BSR. A vector that fills a group up
    has the column **-1** and no entry: there is nothing to read for it.

    Attributes:
        shape: (n_rows, n_cols).
        block: (t, g), the shape of a group.
        indptr: (n_tiles + 1,) offsets of the tiles' groups.
        indices: (n_groups, g) column of each vector, ascending in each tile, -1 behind the last.
        mask: (n_groups, t, g) bool, True where there is an edge. ``mask.view(torch.uint8)`` costs nothing.
        slots: (nnz,) flat slot ``(b * t + i) * g + j`` of each CSR position.
    """

    @classmethod
    def from_csr(cls, indptr, indices, shape, block, *, max_slots=None, check=True, counts=None):
        """Gather the edges of a CSR structure into vectors, and these into groups.

        Args:
            indptr, indices, shape, check: see `structure.check_csr`.
            block: (t, g), rows of a tile and vectors of a group, or one integer for both.
            max_slots: limit on n_groups * t * g (see `structure.check_slots`).
            counts: its `BlockCounts`, where they are known; otherwise a GPU is waited for.

        Raises:
            ValueError: a size under 1, more than 2**63 - 1 vectors in the grid, or the limit on slots is passed.
        """
        indptr, indices, shape = check_csr(indptr, indices, shape, check=check)
        height, group = block_shape(block)
        n_tiles, n_cols = -(-shape[0] // height), shape[1]
        if n_tiles * n_cols > 2**63 - 1:
            raise ValueError(
                f"a grid of {n_tiles} x {n_cols} vectors cannot be numbered in 64 bits; use tiles of more than "
                f"{height} rows"
            )
        nnz = indices.numel()
        # The grid is numbered in int32 where it fits, which halves the cost of the sort below.
        key_type = index_type(indptr.dtype, n_tiles * n_cols, *shape, height, group)
        rows, cols = row_of_position(indptr, nnz, key_type), indices.to(key_type)
        tile = rows // height
        keys, vector = distinct(tile * n_cols + cols, None if counts is None else counts.vectors)
        # Offsets of the tiles' vectors, and of their groups.
        starts = torch.searchsorted(keys.long(), torch.arange(n_tiles + 1, device=keys.device) * n_cols)
        groups = ceil_div(starts.diff(), group)
        group_ptr = prefix_sums(groups)
        n_groups = int(group_ptr[-1]) if counts is None else counts.groups
        check_slots(n_groups * height * group, nnz, max_slots, f"SR-BCRS with {n_groups} groups of {height} x {group}")

        dtype = index_type(indptr.dtype, n_groups * height * group, *shape, nnz)
        shift = group_ptr[:-1] * group - starts[:-1]
        place = torch.arange(keys.numel(), device=keys.device) + torch.repeat_interleave(
            shift, starts.diff(), output_size=keys.numel()
        )
        columns = torch.full((n_groups * group,), -1, dtype=dtype, device=keys.device)
        columns[place] = torch.remainder(keys, max(n_cols, 1)).to(dtype)
        at = place.index_select(0, vector)
        in_group = at % group
        slots = (((at - in_group) * height + (rows - tile * height) * group) + in_group).to(dtype)
        mask = slot_mask(slots, (n_groups, height, group))
        return cls(shape, (height, group), group_ptr.to(dtype), columns.view(n_groups, group), mask, slots)

    @property
    def num_groups(self):
        """Stored groups of vectors."""
        return self.indices.shape[0]

    def _coordinates(self):
        group, rows, place = self._places()
        return rows, self.indices.flatten().index_select(0, group * self.block[1] + place)
