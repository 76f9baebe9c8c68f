"""Tiles of rows that a block of warps owns, and what it visits of them: relation after relation, in shares of the
relation's edges.
"""

from __future__ import annotations

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.types import BYTES
from ...core.tiles.row_products import BlockSpec

# Bytes between rows in shared memory beside the row itself: what a warp loads of several rows then lies in different
# banks.
PAD_BYTES = 16


class OwnedRows:
    """The axes and arrays of `formats.partitions.relational_tiles.RowTiles`, as a program begins with them.

    Parameters: (num_tiles, panels, shares, nnz, cols, relations, ...more, panel_ptr, owned_ptr, share_ptr, indices,
    Start, Stop, Relation, Place): tile t has the rows numbered Start[t], ..., Stop[t] - 1, panel c the shares from
    owned_ptr[c] on.
    """

    def __init__(self, p: ProgramBuilder, spec: BlockSpec, *more: str) -> None:
        count, panels, shares, nnz, self.cols, self.relations, *self.more = p.sizes(
            "num_tiles", "panels", "shares", "nnz", "cols", "relations", *more
        )
        self.T = p.dense_fixed("T", count)
        self.C = p.dense_variable("C", self.T, (panels, panels), "panel_ptr", spec.index_dtype)
        self.U = p.dense_variable("U", self.C, (shares, shares), "owned_ptr", spec.index_dtype)
        self.J = p.sparse_variable(
            "J", self.U, (self.cols, nnz), ("share_ptr", "indices"), spec.index_dtype, sorted=False, unique=False
        )
        self.Start, self.Stop = (p.buffer(name, (self.T,), spec.index_dtype) for name in ("Start", "Stop"))
        self.Relation = p.buffer("Relation", (self.T, self.C), spec.index_dtype)
        self.Place = p.buffer("Place", (self.T, self.C, self.U, self.J), "uint8")


def stride_of(elements: int, dtype: str) -> int:
    """Elements from one row in shared memory to the next."""
    return elements + PAD_BYTES // BYTES[dtype]
