"""One direction of a graph: CSR arrays and what is derived from them, and the pair of both directions."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import torch
from torch import Tensor

from ..formats.partitions.row_groups import look_at_rows
from ..runtime import devices
from .build import counts_up, transpose_csr
from .immutable import once


class Csr:
    """CSR arrays with lazily derived values. Deriving a value twice in a race is harmless, so reads take no lock.

    opposite: where the arrays of the transpose can be had, if somebody else knows them: ``() -> (indptr, indices,
    edge_ids)``, of any integer type, or None.
    """

    __slots__ = ("_derived", "edge_ids", "indices", "indptr", "opposite", "plans", "shape")

    def __init__(self, indptr: Tensor, indices: Tensor, edge_ids: Tensor | None, shape: tuple[int, int], opposite=None):
        self.indptr, self.indices, self.edge_ids, self.shape = indptr, indices, edge_ids, shape
        self.opposite = opposite
        self.plans: dict = {}
        self._derived: dict = {}

    def derived(self, key, compute):
        """The value under ``key``, computed as ``compute(self)`` at its first use."""
        value = self._derived.get(key)
        return self._derived.setdefault(key, compute(self)) if value is None else value

    def transposed(self) -> Csr:
        arrays = None if self.opposite is None else self.opposite()
        if arrays is None:
            arrays = transpose_csr(self.indptr, self.indices, self.edge_ids, self.shape[1])
        self.opposite = None
        return Csr(*stored(*arrays, self.indices.dtype), self.shape[::-1])


class Pair:
    """A structure and its transpose, shared by the ``Graph`` objects that show either.

    A graph holds its pair and a pair holds its graphs weakly: there is no reference cycle, so the index arrays of a
    dropped mini-batch are freed at once, and transposing twice still gives back the same object.
    """

    __slots__ = ("__weakref__", "lock", "sides", "views")

    def __init__(self, csr: Csr):
        self.sides: list[Csr | None] = [csr, None]
        self.views: list[weakref.ref | None] = [None, None]
        self.lock = threading.RLock()
        _live[_key(csr)] = self

    def side(self, index: int) -> Csr:
        csr = self.sides[index]
        if csr is None:
            with self.lock:
                csr = self.sides[index]
                if csr is None:
                    csr = self.sides[1 - index].transposed()
                    self.sides[index] = csr
                    _live[_key(csr)] = self
        return csr


def stored(indptr: Tensor, indices: Tensor, edge_ids: Tensor | None, dtype: torch.dtype, copy: bool = False) -> list:
    """CSR arrays as a graph keeps them: contiguous, of one type, without edge ids that count up."""
    if edge_ids is not None and counts_up(edge_ids):
        edge_ids = None
    return [None if a is None else _as_kept(a.detach(), dtype, copy) for a in (indptr, indices, edge_ids)]


def _as_kept(array: Tensor, dtype: torch.dtype, copy: bool) -> Tensor:
    if copy or array.dtype is not dtype:
        array = array.to(dtype, copy=copy)
    return array.contiguous()


def find_pair(indptr: Tensor, indices: Tensor, edge_ids: Tensor | None, num_cols: int) -> tuple[Pair, int] | None:
    """The live pair that owns exactly these arrays, and which of its sides they are.

    An address identifies an array only while its owner is alive, and every pair in the table is: it holds its arrays.
    """
    csr = Csr(indptr, indices, edge_ids, (indptr.numel() - 1, num_cols))
    key = _key(csr)
    pair = _live.get(key)
    if pair is None:
        return None
    return pair, 0 if _key(pair.sides[0]) == key else 1


_live: weakref.WeakValueDictionary[tuple, Pair] = weakref.WeakValueDictionary()


def _key(csr: Csr) -> tuple:
    edge_ids = csr.edge_ids
    return (
        csr.indptr.data_ptr(),
        csr.indices.data_ptr(),
        0 if edge_ids is None else edge_ids.data_ptr(),
        csr.shape,
        csr.indices.numel(),
        csr.indices.dtype,
        csr.indptr.device,
    )


def offsets_of(structure) -> np.ndarray:
    """``indptr`` of a structure on the CPU (a ``Csr``, a graph or a piece of one) as NumPy sees it: a few of its
    operations on a mini-batch take as long as one of PyTorch's.
    """
    return once(structure.plans, "offsets", structure.indptr.numpy)


def look_of(structure) -> np.ndarray:
    """`look_at_rows` of a structure on the CPU, once."""
    return once(structure.plans, "look", lambda: look_at_rows(offsets_of(structure)))


def in_degrees(csr: Csr) -> Tensor:
    if not devices.on_cpu(csr.indptr.device):
        return csr.indptr.diff()
    offsets = offsets_of(csr)
    return torch.from_numpy(offsets[1:] - offsets[:-1])


def columns_ascend(csr: Csr) -> bool:
    """Whether the columns of each row are in order, so that passes over ranges of columns keep that of the
    non-zeros.
    """
    return csr.derived("columns_ascend", _columns_ascend)


def _columns_ascend(csr: Csr) -> bool:
    falls = csr.indices[1:] < csr.indices[:-1]
    starts = csr.indptr[1:-1].long() - 1
    falls[starts[(starts >= 0) & (starts < falls.numel())]] = False
    return not bool(falls.any())


def inverse_in_degrees(csr: Csr, dtype: torch.dtype) -> Tensor:
    return csr.derived(("inverse_in_degrees", dtype), lambda c: c.indptr.diff().clamp(min=1).to(dtype).reciprocal())
