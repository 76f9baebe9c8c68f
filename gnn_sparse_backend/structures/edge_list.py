"""Edges as they were given: the two index tensors of a graph that nobody has converted."""

from __future__ import annotations

import torch
from torch import Tensor

from .build import coo_to_csr, index_dtype
from .checks import check_edges

CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: the edge index "
    "of a graph, between its first use and this one"
)


class EdgeList:
    """The rows and columns of edges, (edges,) each, in the user's order: of the user's memory, and not checked.

    Kernels that read it check every entry as they read it. It does not belong to the user's tensors, and neither keeps
    the other alive.

    lost: nanoseconds that passes over the list took longer than passes over rows would have, as far as is known.
    """

    __slots__ = ("col", "lost", "row", "shape", "version")

    def __init__(self, row: Tensor, col: Tensor, shape: tuple[int, int]):
        self.row, self.col, self.shape, self.lost = row, col, shape, 0.0
        self.version = None if row.is_inference() or col.is_inference() else (row._version, col._version)

    def read(self) -> tuple[Tensor, Tensor]:
        """Rows and columns. Raises RuntimeError if somebody has written to them since the graph was made."""
        row, col = self.row, self.col
        if self.version is not None and self.version != (row._version, col._version):
            raise RuntimeError(CHANGED)
        return row, col

    def reversed(self) -> EdgeList:
        """The list of the transpose."""
        found = EdgeList.__new__(EdgeList)
        found.row, found.col, found.shape, found.lost = self.col, self.row, self.shape[::-1], self.lost
        found.version = None if self.version is None else self.version[::-1]
        return found

    def to_csr(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """(indptr, indices, edge_ids) of the graph. Raises ValueError that quotes an entry that is out of range."""
        row, col = self.read()
        in_order = check_edges(row, col, self.shape)
        dtype = index_dtype(self.shape, row.numel())
        with torch.inference_mode(False):
            return coo_to_csr(row.to(dtype), col.to(dtype, copy=True), self.shape[0], in_order)
