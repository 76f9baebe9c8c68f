"""What a format is inferred from, and what is found: the non-zeros of a matrix, and the arrays that a rule names."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ...frozen import dataclass
from ..counts import distinct, prefix_sums


@dataclass(frozen=True, eq=False)
class NonZeros:
    """The non-zeros of a matrix that a format may take, each at a coordinate of its own, by rows and columns.

    Attributes:
        rows, columns: (nnz,) int64.
        shape: (n_rows, n_cols).
        fill: how full what is stored whole must be; 0 where the format is the last one, which takes all that is left.
        last: whether it is.
        dtype: type of the matrix's own indices.
    """

    rows: Tensor
    columns: Tensor
    shape: tuple[int, int]
    fill: float = 0.0
    last: bool = True
    dtype: torch.dtype = torch.int32

    @property
    def nnz(self) -> int:
        """Non-zeros."""
        return self.rows.numel()

    @functools.cached_property
    def csr(self) -> tuple[Tensor, Tensor, tuple[int, int]]:
        """(indptr, indices, shape) in the type of the matrix's own indices."""
        counts = torch.bincount(self.rows, minlength=self.shape[0])
        return prefix_sums(counts).to(self.dtype), self.columns.to(self.dtype), self.shape

    def those(self, taken: Tensor | None) -> NonZeros:
        """Keep the non-zeros at which the mask ``taken``, (nnz,) bool, is true; all where it is None."""
        if taken is None:
            return self
        return replace(self, rows=self.rows[taken], columns=self.columns[taken])

    def full(self, keys: Tensor, least: float | Tensor) -> Tensor:
        """Say, (nnz,) bool, which share their key, (nnz,) int64, with ``least`` others or more, themselves included."""
        return self.sharing(keys) >= least

    def sharing(self, keys: Tensor) -> Tensor:
        """Count, (nnz,), how many have the key of each."""
        _, which = distinct(keys)
        return torch.bincount(which).index_select(0, which) if keys.numel() else keys


@dataclass(frozen=True, eq=False)
class Indices:
    """What ``infer`` of a format found.

    Attributes:
        arrays: by the names of the rule its sizes, as integers, and its index arrays, those of its axes among them.
        slots: (taken,) int64, where the value of each non-zero that is taken lies among the values of the format.
        taken: (nnz,) bool, or the positions of those that are taken, int64; None: all are.
        format: the name of the format whose rule this is, and its numbers, where it is another one.
    """

    arrays: Mapping[str, int | Tensor]
    slots: Tensor
    taken: Tensor | None = None
    format: tuple[str, tuple[int, ...]] | None = None
