"""The common face of the formats."""

from __future__ import annotations

import dataclasses
import math

import torch

from . import values as maps


class SparseFormat:
    """Base of the formats: frozen dataclasses of tensors that describe the structure of one sparse matrix.

    A format holds coordinates only; values are laid out for it by `pad_values`. Subclasses have the fields
    ``shape`` (n_rows, n_cols) and ``nnz`` (number of edges, repeated coordinates counted), the constructor
    ``from_csr``, and:

    - ``index_dtype``: torch.int32 or torch.int64; that of the CSR structure, widened where int32 would overflow;
    - ``num_slots``: stored positions, padding included;
    - ``value_position``: CSR position of the value at each slot, -1 at padded slots;
    - ``pad_values(values)``: values (nnz, ...) in CSR order laid out in the format, 0 at padded slots;
    - ``unpad_values(padded)``: its inverse and adjoint;
    - ``to_coo()``: (row, col, position), each (nnz,), in the order of the slots.
    """

    shape: tuple[int, int]
    nnz: int

    @property
    def padding(self):
        """Padded slots per edge, ``num_slots / nnz - 1``; without edges, 0.0 if nothing is stored and else inf.

        A format that merges repeated coordinates (BSR, SR-BCRS, DIA) can get below 0.
        """
        if self.nnz:
            return self.num_slots / self.nnz - 1
        return float("inf") if self.num_slots else 0.0

    @property
    def nbytes(self):
        """Bytes of all the tensors of the structure, value maps and masks included, values not."""
        return sum(array.nbytes for array in self._tensors())

    @property
    def device(self):
        """The device of every array."""
        return self._tensors()[0].device

    @property
    def index_dtype(self):
        """torch.int32 or torch.int64, the type of every index array."""
        return self._tensors()[0].dtype

    def _positions(self):
        """(nnz,) 0, 1, 2, ...: CSR positions in their own order."""
        return torch.arange(self.nnz, dtype=self.index_dtype, device=self.device)

    def _tensors(self):
        fields = (getattr(self, field.name) for field in dataclasses.fields(self))
        return [value for value in fields if isinstance(value, torch.Tensor)]

    def __repr__(self):
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        words = [f"shape={self.shape}", f"nnz={self.nnz}"]
        words += [f"{name}={value}" for name, value in fields.items() if isinstance(value, int) and name != "nnz"]
        words += [f"index_dtype={self.index_dtype}", f"padding={self.padding:.3g}"]
        return f"{type(self).__name__}({', '.join(words)})"


class Unpadded(SparseFormat):
    """Base of the formats with a slot for each edge and no other (CSR, COO, CSC); so has their last array."""

    @property
    def nnz(self):
        """Number of edges."""
        return self._tensors()[-1].numel()

    @property
    def num_slots(self):
        """Stored positions: ``nnz``."""
        return self.nnz


class InOrder(Unpadded):
    """Base of those that store the edges in CSR order (CSR, COO)."""

    @property
    def value_position(self):
        """(nnz,) the identity."""
        return self._positions()

    def pad_values(self, values):
        """The values themselves."""
        return maps.check_values(values, self.nnz)

    def unpad_values(self, padded):
        """The values themselves."""
        return maps.check_padded(padded, (self.nnz,))


class SlotMapped(SparseFormat):
    """Base of the formats with dense pieces (BSR, SR-BCRS, DIA): edges at the same coordinate share one slot.

    Subclasses have the fields ``mask`` (bool, True where at least one edge is stored) and ``slots``
    ((nnz,), flat slot of each CSR position), and a method that gives the row and column of each slot.
    """

    mask: torch.Tensor
    slots: torch.Tensor

    @property
    def nnz(self):
        """Number of edges, repeated coordinates counted."""
        return self.slots.numel()

    @property
    def num_slots(self):
        """Stored positions, the size of ``mask``."""
        return self.mask.numel()

    @property
    def num_duplicates(self):
        """Edges that share the slot of an earlier one (synchronises with the host)."""
        return self.nnz - int(self.mask.sum())

    @property
    def value_position(self):
        """CSR position of each slot, of the shape of ``mask``, -1 at padded slots.

        Raises:
            ValueError: edges share a slot, so that no slot-to-position map exists; use ``slots`` or `pad_values`.
        """
        if self.num_duplicates:
            raise ValueError(
                f"{self.num_duplicates} of {self.nnz} edges repeat a coordinate, and {type(self).__name__} keeps "
                "one slot per coordinate; use slots or pad_values, which sums their values"
            )
        return self.position_of_slots()

    def position_of_slots(self):
        """`value_position` of a matrix that is known to repeat no coordinate: nobody waits for a GPU to say so."""
        position = self.slots.new_full((self.num_slots,), -1)
        position[self.slots.long()] = torch.arange(self.nnz, dtype=self.slots.dtype, device=self.device)
        return position.reshape(self.mask.shape)

    def pad_values(self, values):
        """(nnz, ...) -> (*mask.shape, ...), 0 at padded slots; values of repeated coordinates are summed.

        ``pad_values(ones)`` is the number of edges in each slot.
        """
        return maps.pad_by_slot(maps.check_values(values, self.nnz), self.slots, self.mask.shape)

    def to_coo(self):
        """(row, col, position), each (nnz,), in CSR order."""
        rows, cols = self._coordinates()
        return rows.to(self.index_dtype), cols.to(self.index_dtype), self._positions()

    def unpad_values(self, padded):
        """(*mask.shape, ...) -> (nnz, ...): each edge takes the value of its slot (adjoint of `pad_values`)."""
        return maps.unpad_by_slot(maps.check_padded(padded, self.mask.shape), self.slots, self.mask.dim())


def slot_mask(slots, slot_shape):
    """Bool mask of ``slot_shape``, True at the given flat slots."""
    mask = torch.zeros(math.prod(slot_shape), dtype=torch.bool, device=slots.device)
    return mask.index_fill_(0, slots.long(), True).reshape(slot_shape)
