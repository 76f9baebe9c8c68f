"""A matrix as a sum of formats: which non-zeros each part took, where their values lie, and how much is padded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...frozen import dataclass
from ..structure import row_of_position
from .spec import FormatSpec


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of a matrix in one format.

    Attributes:
        spec: the format as it was asked for; of hyb and coo, which are several pieces, that of a bucket.
        arrays: sizes and index arrays by the names of its rule, for the rows of whole blocks of all pieces.
        positions: (nnz,) coordinate of the matrix, in order of rows and columns, of each of its non-zeros in CSR order.
        slots: (nnz,) where the value of each lies among those of the piece.
        stored: the shape of its values.
        start: where they begin among those of all pieces.
    """

    spec: FormatSpec
    arrays: Mapping[str, Any]
    positions: Tensor
    slots: Tensor
    stored: tuple[int, ...]
    start: int

    @property
    def nnz(self) -> int:
        """Non-zeros."""
        return self.positions.numel()

    @property
    def num_slots(self) -> int:
        """Stored values, padding included."""
        return math.prod(self.stored)

    @property
    def padding(self) -> int:
        """Stored values that are no non-zeros."""
        return self.num_slots - self.nnz

    def __str__(self) -> str:
        many = f"{self.nnz} non-zeros in {self.num_slots} values"
        return f"{self.spec}: {many}, {self.padding} of them padding ({self.padding / max(self.num_slots, 1):.1%})"


class Decomposition:
    """A sparse matrix's structure in several formats, each non-zero in one of them. Made by `decompose`; immutable.

    Values are given in the order of the matrix that it was made of: (..., nnz). `pack` lays them out for the formats,
    one piece after the other, and that is what kernels read. A layer may keep its weights packed.

    Attributes:
        shape: (n_rows, n_cols).
        nnz: number of values; coordinates that repeat have one each, and their values are summed.
        formats: of the pieces that were asked for. fill: how full a block must be.
        pieces: those that have non-zeros; a single one may have none.
        indptr, indices: of the distinct coordinates in CSR order, ascending in each row.
        coordinate: (nnz,) the coordinate of each value; None where it is its own number.
        facts: what was derived of it, its transpose among them.
        made_of: (indptr, indices, edge_ids, columns, formats, fill, slots, slots of the transpose), and whether it is
            the transpose of what these describe: where programs are traced, they stand for it.
    """

    def __init__(
        self,
        arrays: tuple[Tensor, Tensor, Tensor | None],
        shape: tuple[int, int],
        formats: tuple[FormatSpec, ...],
        fill: float,
        pieces: tuple[Piece, ...],
    ) -> None:
        self.indptr, self.indices, self.coordinate = arrays
        self.shape, self.formats, self.fill, self.pieces = shape, formats, fill, pieces
        self.nnz = self.indices.numel() if self.coordinate is None else self.coordinate.numel()
        self.facts: dict[Any, Any] = {}
        self.made_of: tuple[Any, ...] = ()

    @property
    def device(self) -> torch.device:
        """Device of every array."""
        return self.indices.device

    @property
    def num_slots(self) -> int:
        """Stored values of all pieces, padding included."""
        return sum(piece.num_slots for piece in self.pieces)

    @property
    def padding(self) -> int:
        """Stored values that are no non-zeros."""
        return sum(piece.padding for piece in self.pieces)

    @property
    def padded_shape(self) -> tuple[int, int]:
        """The shape as whole blocks of all pieces cover it."""
        grids = [piece.spec.grid for piece in self.pieces]
        units = (math.lcm(*(grid[side] for grid in grids)) for side in (0, 1))
        rows, columns = (-(-extent // unit) * unit for extent, unit in zip(self.shape, units))
        return rows, columns

    def __getstate__(self) -> dict[str, Any]:
        """What was derived is derived again where it is wanted."""
        return self.__dict__ | {"facts": {}}

    def _kept(self, name: str, compute: Any) -> Any:
        value = self.facts.get(name)
        if value is None:
            value = self.facts[name] = compute()
        return value

    @property
    def place(self) -> Tensor:
        """(coordinates,) the slot of each coordinate, in int64."""
        return self._kept("place", self._place)

    def _place(self) -> Tensor:
        place = self.indices.new_empty(self.indices.numel(), dtype=torch.int64)
        for piece in self.pieces:
            place[piece.positions] = piece.slots.long() + piece.start
        return place

    @property
    def inverse(self) -> Tensor:
        """(num_slots,) the coordinate of each slot, and their number at padding, in int64."""
        return self._kept("inverse", self._inverse)

    def _inverse(self) -> Tensor:
        count = self.indices.numel()
        inverse = torch.full((self.num_slots,), count, dtype=torch.int64, device=self.device)
        inverse[self.place] = torch.arange(count, device=self.device)
        return inverse

    @property
    def mask(self) -> Tensor:
        """(num_slots,) bool, False at padding."""
        return self._kept("mask", lambda: self.inverse < self.indices.numel())

    @property
    def in_order(self) -> bool:
        """Whether values lie as they are given: one piece in CSR, of distinct coordinates."""
        return self.coordinate is None and len(self.pieces) == 1 and self.pieces[0].spec.kind == "csr"

    def pack(self, values: Tensor) -> Tensor:
        """(..., nnz) -> (..., num_slots), 0 at padding; differentiable. Values of one coordinate are summed."""
        self._check(values, self.nnz, "values")
        if self.in_order:
            return values
        if self.coordinate is not None:
            wide = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
            summed = wide.new_zeros((*values.shape[:-1], self.indices.numel())).index_add(-1, self.coordinate, wide)
            values = summed.to(values.dtype)
        if self.padding:
            values = torch.cat([values, values.new_zeros((*values.shape[:-1], 1))], -1)
        return values.index_select(-1, self.inverse)

    def unpack(self, packed: Tensor) -> Tensor:
        """(..., num_slots) -> (..., nnz): every value takes that of its slot; differentiable."""
        self._check(packed, self.num_slots, "packed values")
        if self.in_order:
            return packed
        found = packed.index_select(-1, self.place)
        return found if self.coordinate is None else found.index_select(-1, self.coordinate)

    def pad_values(self, values: Tensor) -> tuple[Tensor, ...]:
        """(..., nnz) -> the values of each piece, (..., *stored), 0 at padding; differentiable."""
        packed = self.pack(values)
        return tuple(
            packed[..., piece.start : piece.start + piece.num_slots].unflatten(-1, piece.stored)
            for piece in self.pieces
        )

    def _check(self, values: Tensor, count: int, what: str) -> None:
        if not isinstance(values, Tensor) or not values.dim() or values.shape[-1] != count:
            got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(f"{what} must be a tensor (..., {count}), got {got}")

    def rows(self) -> Tensor:
        """(coordinates,) the row of each, in int64."""
        return row_of_position(self.indptr, self.indices.numel(), torch.int64)

    def to_csr(self, values: Tensor) -> Tensor:
        """The matrix put together again of values (nnz,), as a torch CSR tensor of its distinct coordinates."""
        packed = self.pack(values).index_select(-1, self.place)
        return torch.sparse_csr_tensor(self.indptr, self.indices, packed, self.shape)

    def to_dense(self, values: Tensor) -> Tensor:
        """The matrix put together again of values (..., nnz), dense (..., n_rows, n_cols); differentiable."""
        packed = self.pack(values).index_select(-1, self.place)
        flat = packed.new_zeros((*packed.shape[:-1], math.prod(self.shape)))
        at = self.rows() * self.shape[1] + self.indices
        return flat.index_copy(-1, at, packed).unflatten(-1, self.shape)

    def values_of(self, matrix: Tensor) -> Tensor:
        """(..., nnz) the values at the coordinates of a dense matrix (..., n_rows, n_cols); differentiable."""
        if matrix.shape[-2:] != self.shape:
            raise ValueError(f"the matrix must be (..., {self.shape[0]}, {self.shape[1]}), got {tuple(matrix.shape)}")
        found = matrix.flatten(-2).index_select(-1, self.rows() * self.shape[1] + self.indices)
        return found if self.coordinate is None else found.index_select(-1, self.coordinate)

    def report(self) -> str:
        """What each piece took and what it pads, a line each."""
        rows, columns = self.shape
        head = f"{rows} x {columns}, {self.nnz} non-zeros, blocks at least {self.fill:.0%} full"
        return "\n".join([head, *(f"  {piece}" for piece in self.pieces)])

    def __repr__(self) -> str:
        pieces = ", ".join(f"{piece.spec}: {piece.nnz} + {piece.padding}" for piece in self.pieces)
        return f"Decomposition(shape={self.shape}, nnz={self.nnz}, {pieces})"
