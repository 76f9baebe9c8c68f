"""One direction of a graph: CSR arrays with what is kept beside them, or its edges as they were given, and the pair of
both directions.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..compiler.cache.bounded import KernelCache
from .build import coo_to_csr, counts_up, index_dtype, transpose_csr
from .checks import ascends, check_edges
from .derived import untransformed
from .large.sorting import is_large, is_mirrored, sort_rows

MOST_CALLS = 256
"""Signatures of calls that a structure remembers."""


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
            return coo_to_csr(row, col, self.shape[0], in_order, dtype)


class Csr:
    """CSR arrays, and what the graphs that show them keep.

    opposite: where the arrays of the transpose can be had, if somebody else knows them: ``() -> (indptr, indices,
        edge_ids)``, of any integer type, or None.
    first: the `Csr` that had these arrays first, where both directions have the same; None where this is it.
    mirrors: the `Csr` whose transpose this is, where both have the same arrays and nobody has asked yet for the numbers
        of these edges (`edge_ids`); else None.
    computed: whether the arrays were computed from those of the transpose, from which they can be computed again.
    facts: what was derived (`derived`). plans: of the operators that ran, by what the planner was asked. calls: what is
        ready to run, by the signature of a call.
    uses: calls so far of which some order of the rows would pay (`ops.message.executables.one_pass`).
    unsynchronised: None; or for arrays on a GPU that are never read, non-zeros of a row at most, as far as sizes tell.
    listed: the edges as they were given, while the arrays have not been made of them (`of_list`).
    """

    __slots__ = (
        "_numbers",
        "calls",
        "computed",
        "facts",
        "first",
        "indices",
        "indptr",
        "listed",
        "mirrors",
        "opposite",
        "plans",
        "shape",
        "unsynchronised",
        "uses",
    )

    def __init__(self, indptr: Tensor, indices: Tensor, edge_ids: Tensor | None, shape: tuple[int, int], opposite=None):
        self.indptr, self.indices, self._numbers, self.shape = indptr, indices, edge_ids, shape
        self.opposite = opposite
        self.first: Csr | None = None
        self.mirrors: Csr | None = None
        self.computed = False
        self.plans: dict[Any, Any] = {}
        self.facts: dict[Any, Any] = {}
        self.calls: KernelCache[Any, Any] = KernelCache("calls of a graph", MOST_CALLS)
        self.uses = 0
        self.unsynchronised: int | None = None
        self.listed: EdgeList | None = None

    @classmethod
    def of_list(cls, edges: EdgeList) -> Csr:
        """What stands for the arrays of edges that nobody has converted."""
        csr = cls(None, None, None, edges.shape)
        csr.listed = edges
        return csr

    @property
    def edge_ids(self) -> Tensor | None:
        """The user's number of the edge at each position, made now where these are the arrays of the transpose; None
        where they count up.
        """
        of = self.mirrors
        if of is not None:
            *_, self._numbers = untransformed(sort_rows, of.indptr, of.indices, of.edge_ids, self.shape[0])
            self.mirrors = None
        return self._numbers

    @edge_ids.setter
    def edge_ids(self, numbers: Tensor | None) -> None:
        self._numbers = numbers

    @property
    def arrays(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The arrays that there are now."""
        return self.indptr, self.indices, self._numbers

    def transposed(self) -> Csr:
        if is_large(self.indices) and self.shape[0] == self.shape[1] and is_mirrored(self.indptr, self.indices):
            csr = Csr(self.indptr, self.indices, None, self.shape)
            csr.first, csr.mirrors, csr.computed, self.opposite = self.first or self, self, True, None
            return csr
        arrays = None if self.opposite is None else self.opposite()
        computed = arrays is None
        if computed:
            arrays = transpose_csr(self.indptr, self.indices, self.edge_ids, self.shape[1])
        self.opposite = None
        csr = Csr(*stored(*arrays, self.indices.dtype), self.shape[::-1])
        csr.computed = computed
        return csr


class Pair:
    """A structure and its transpose, shared by the ``Graph`` objects that show either.

    A graph holds its pair and a pair holds its graphs weakly: there is no reference cycle, so the index arrays of a
    dropped mini-batch are freed at once, and transposing twice still gives back the same object.

    found: whether it is to be found by its arrays (`find_pair`), as a structure of its own.
    """

    __slots__ = ("__weakref__", "lock", "sides", "views")

    def __init__(self, csr: Csr, found: bool = True):
        self.sides: list[Csr | None] = [csr, None]
        self.views: list[weakref.ref | None] = [None, None]
        self.lock = threading.RLock()
        if found and csr.listed is None:
            _live[_key(csr)] = self

    @classmethod
    def of_edges(cls, row: Tensor, col: Tensor, shape: tuple[int, int], in_order: bool) -> tuple[Pair, int]:
        """(a pair, the side of it) that has the edges ``(row[e], col[e])``, which are in range. in_order: whether the
        rows do not decrease. Many edges in the order of their columns are not sorted: they are the other side, as they
        come.
        """
        dtype = index_dtype(shape, row.numel())
        by_columns = not in_order and is_large(row) and ascends(col)
        if by_columns:
            row, col, shape = col, row, shape[::-1]
        return cls(Csr(*coo_to_csr(row, col, shape[0], in_order or by_columns, dtype), shape)), int(by_columns)

    def side(self, index: int) -> Csr:
        csr = self.sides[index]
        if csr is None:
            with self.lock:
                csr = self.sides[index]
                if csr is None:
                    other = self.sides[1 - index]
                    if other.listed is not None:
                        csr = self.sides[index] = Csr.of_list(other.listed.reversed())
                    else:
                        csr = self.sides[index] = untransformed(other.transposed)
                        if csr.mirrors is None:
                            _live[_key(csr)] = self
        return csr

    def numbers(self, index: int) -> Tensor | None:
        """The `Csr.edge_ids` of a side, from when on it is found by its arrays (`find_pair`)."""
        csr = self.side(index)
        with self.lock:
            if csr.mirrors is not None:
                csr.edge_ids  # noqa: B018  # makes them
                _live[_key(csr)] = self
        return csr.edge_ids

    def convert(self, index: int) -> Csr:
        """A side with its arrays, made of the list of edges if they are not there yet. Raises ValueError that quotes
        an edge that is out of range.
        """
        csr = self.side(index)
        with self.lock:
            edges = csr.listed
            if edges is not None:
                csr.indptr, csr.indices, csr.edge_ids = untransformed(self._converted, index, edges)
                csr.listed = None
                csr.calls.clear()  # which were of the list, as its degrees were
                csr.facts.clear()
                _live[_key(csr)] = self
        return csr

    def _converted(self, index: int, edges: EdgeList) -> list:
        if index == 0:
            arrays = edges.to_csr()
        else:  # as that of any graph, whichever side is asked for first
            first = self.convert(0)
            arrays = transpose_csr(first.indptr, first.indices, first.edge_ids, edges.shape[0])
        return stored(*arrays, arrays[1].dtype)

    def spare(self, index: int) -> bool:
        """Whether a side can be computed again, edge by edge in the same order, and nobody holds a graph that shows
        it.
        """
        csr, view = self.sides[index], self.views[index]
        return csr is not None and csr.computed and (view is None or view() is None)

    def release(self) -> None:
        """Forget a side that is `spare`, and how often either was used."""
        with self.lock:
            for index, csr in enumerate(self.sides):
                if csr is not None:
                    csr.uses = 0
                    if self.spare(index):
                        if csr.mirrors is None:
                            _live.pop(_key(csr), None)
                        self.sides[index] = None


def stored(
    indptr: Tensor,
    indices: Tensor,
    edge_ids: Tensor | None,
    dtype: torch.dtype,
    copied: Sequence[bool] = (False, False, False),
) -> list:
    """CSR arrays as a graph keeps them: contiguous, of one type, without edge ids that count up. copied: which of the
    three are copies in any case.
    """
    if edge_ids is not None and counts_up(edge_ids):
        edge_ids = None
    arrays = indptr, indices, edge_ids
    return [None if a is None else _as_kept(a.detach(), dtype, copy) for a, copy in zip(arrays, copied)]


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
    first = pair.sides[0]
    return pair, 0 if first.listed is None and _key(first) == key else 1


def live_pairs() -> list[Pair]:
    """The pairs of all graphs whose arrays were made."""
    return list({id(pair): pair for pair in list(_live.values())}.values())


_live: weakref.WeakValueDictionary[tuple, Pair] = weakref.WeakValueDictionary()


def _key(csr: Csr) -> tuple:
    indptr, indices, edge_ids = csr.arrays
    addresses = indptr.data_ptr(), indices.data_ptr(), 0 if edge_ids is None else edge_ids.data_ptr()
    return (*addresses, csr.shape, indices.numel(), indices.dtype, indptr.device)
