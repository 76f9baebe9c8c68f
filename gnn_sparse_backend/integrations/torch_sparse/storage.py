"""``SparseStorage``: entries of a matrix by rows, and what is derived of them once and kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...deferred import later
from ...formats.counts import extent_of, prefix_sums
from ..torch_scatter.segment_csr import reduced_segments
from .utils import ind2ptr, index_sort, ptr2ind

if TYPE_CHECKING:
    from ...structures import graph as graphs
else:
    graphs = later(__name__, "...structures.graph")

CACHED = "rowcount", "colptr", "colcount", "csr2csc", "csc2csr"
"""What is derived, and may be forgotten."""
_INDICES = "row", "rowptr", "col", *CACHED
LAYOUTS = "coo", "csr", "csc"


def get_layout(layout: str | None = None) -> str:
    """``"coo"``, ``"csr"`` or ``"csc"``: in which order values are given; with a warning where nothing says it."""
    if layout is None:
        warnings.warn(
            '`layout` argument unset, using default layout "coo". This may lead to unexpected behaviour.', stacklevel=3
        )
        return "coo"
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(map(repr, LAYOUTS))}, got {layout!r}")
    return layout


class SparseStorage:
    """The entries of a sparse matrix, ordered by row and column.

    Args:
        row, col: (nnz,) int64. rowptr: (rows + 1,) int64, in the place of ``row`` or beside it.
        value: (nnz, ...), or None for a matrix that says only where entries are.
        sparse_sizes: (rows, columns); by default what the largest indices ask for.
        rowcount, colptr, colcount, csr2csc, csc2csr: what would be derived.
        is_sorted: the entries are in order; they are sorted otherwise.
        trust_data: do not look whether indices are within the sizes.

    Raises ValueError or TypeError where these do not fit each other.
    """

    _graph: graphs.Graph | None = None

    def __init__(
        self,
        row: Tensor | None = None,
        rowptr: Tensor | None = None,
        col: Tensor | None = None,
        value: Tensor | None = None,
        sparse_sizes: tuple[int | None, int | None] | None = None,
        rowcount: Tensor | None = None,
        colptr: Tensor | None = None,
        colcount: Tensor | None = None,
        csr2csc: Tensor | None = None,
        csc2csr: Tensor | None = None,
        is_sorted: bool = False,
        trust_data: bool = False,
    ) -> None:
        if col is None or (row is None and rowptr is None):
            raise ValueError("a SparseStorage needs col, and row or rowptr")
        nnz = col.numel()
        given = dict(row=row, rowptr=rowptr, col=col, rowcount=rowcount, colptr=colptr, colcount=colcount)
        given |= dict(csr2csc=csr2csc, csc2csr=csc2csr)
        rows, columns = sparse_sizes or (None, None)
        if rows is None:
            rows = rowptr.numel() - 1 if rowptr is not None else extent_of(row)
        elif not trust_data and row is not None and extent_of(row) > rows:
            raise ValueError(f"row has {extent_of(row) - 1}, but there are {rows} rows")
        if columns is None:
            columns = extent_of(col)
        elif not trust_data and extent_of(col) > columns:
            raise ValueError(f"col has {extent_of(col) - 1}, but there are {columns} columns")
        lengths = dict(row=nnz, col=nnz, csr2csc=nnz, csc2csr=nnz, rowptr=rows + 1, rowcount=rows)
        lengths |= dict(colptr=columns + 1, colcount=columns)
        for name, index in given.items():
            if index is None:
                continue
            if index.dtype != torch.int64 or index.dim() != 1 or index.device != col.device:
                raise TypeError(
                    f"{name} must be a vector of int64 on {col.device}, "
                    f"got {index.dtype} of shape {tuple(index.shape)} on {index.device}"
                )
            if index.numel() != lengths[name]:
                raise ValueError(f"{name} must have {lengths[name]} entries, got {index.numel()}")
            setattr(self, f"_{name}", index.contiguous())
        for name in given.keys() - {name for name, index in given.items() if index is not None}:
            setattr(self, f"_{name}", None)
        if value is not None and (value.shape[:1] != (nnz,) or value.device != col.device):
            raise ValueError(
                f"value must have {nnz} entries on {col.device}, got {tuple(value.shape)} on {value.device}"
            )
        self._value = None if value is None else value.contiguous()
        self._sparse_sizes = int(rows), int(columns)
        self._graph = None
        if not is_sorted and nnz:
            self._sort()

    def _sort(self) -> None:
        key = self._keys()
        if bool((key[1:] < key[:-1]).any()):
            _, order = index_sort(key, self._sparse_sizes[0] * self._sparse_sizes[1])
            self._row, self._col = self.row()[order], self._col[order]
            self._value = None if self._value is None else self._value[order]
            self._csr2csc = self._csc2csr = None

    def _keys(self) -> Tensor:
        """(nnz,) numbers of the entries' places, row by row."""
        return self.row() * self._sparse_sizes[1] + self._col

    @classmethod
    def empty(cls) -> SparseStorage:
        none = torch.tensor([], dtype=torch.int64)
        return cls(row=none, col=none, sparse_sizes=(0, 0), is_sorted=True, trust_data=True)

    def changed(self, **fields: Any) -> SparseStorage:
        """A storage with other fields, the rest as it is; checks nothing."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        if not fields.keys() <= {"value", *CACHED}:
            made._graph = None
        made.__dict__.update({f"_{name}": value for name, value in fields.items()})
        return made

    def mapped(self, function: Callable[[Tensor], Tensor]) -> SparseStorage:
        """A storage of what a function makes of each tensor."""
        return self.changed(graph=None, **{name: function(tensor) for name, tensor in self.tensors()})

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors that there are, by name."""
        for name in (*_INDICES, "value"):
            if (tensor := getattr(self, f"_{name}")) is not None:
                yield name, tensor

    def graph(self) -> graphs.Graph:
        """The entries as edges from columns into rows."""
        if self._graph is None:
            self._graph = graphs.Graph.from_csr(self.rowptr(), self._col, self._sparse_sizes)
        return self._graph

    def has_row(self) -> bool:
        return self._row is not None

    def row(self) -> Tensor:
        if self._row is None:
            self._row = ptr2ind(self._rowptr, self._col.numel())
        return self._row

    def has_rowptr(self) -> bool:
        return self._rowptr is not None

    def rowptr(self) -> Tensor:
        if self._rowptr is None:
            self._rowptr = ind2ptr(self._row, self._sparse_sizes[0])
        return self._rowptr

    def col(self) -> Tensor:
        return self._col

    def has_value(self) -> bool:
        return self._value is not None

    def value(self) -> Tensor | None:
        return self._value

    def set_value_(self, value: Tensor | None, layout: str | None = None) -> SparseStorage:
        """Take values in the order of a layout. Raises ValueError where there is not one for each entry."""
        self._value = self._ordered(value, layout)
        return self

    def set_value(self, value: Tensor | None, layout: str | None = None) -> SparseStorage:
        return self.changed(value=self._ordered(value, layout))

    def _ordered(self, value: Tensor | None, layout: str | None) -> Tensor | None:
        if value is None:
            return None
        if get_layout(layout) == "csc":
            value = value[self.csc2csr()]
        if value.shape[:1] != self._col.shape or value.device != self._col.device:
            raise ValueError(
                f"value must have {self._col.numel()} entries on {self._col.device}, got {tuple(value.shape)}"
            )
        return value.contiguous()

    def sparse_sizes(self) -> tuple[int, int]:
        return self._sparse_sizes

    def sparse_size(self, dim: int) -> int:
        return self._sparse_sizes[dim]

    def sparse_resize(self, sparse_sizes: tuple[int, int]) -> SparseStorage:
        """Other sizes: rows and columns are left out at the end, or empty ones are added. Entries stay."""
        rows, columns = sparse_sizes
        nnz = self._col.numel()
        return self.changed(
            sparse_sizes=(rows, columns),
            rowptr=_resized(self._rowptr, rows + 1, nnz),
            rowcount=_resized(self._rowcount, rows, 0),
            colptr=_resized(self._colptr, columns + 1, nnz),
            colcount=_resized(self._colcount, columns, 0),
        )

    def sparse_reshape(self, num_rows: int, num_cols: int) -> SparseStorage:
        """Keep the places, counted row by row, in a matrix of another shape; -1 for what the other extent leaves."""
        total = self._sparse_sizes[0] * self._sparse_sizes[1]
        num_rows = total // num_cols if num_rows == -1 else num_rows
        num_cols = total // num_rows if num_cols == -1 else num_cols
        if num_rows * num_cols != total:
            raise ValueError(f"a matrix of {self._sparse_sizes} has no shape ({num_rows}, {num_cols})")
        key = self._keys()
        row, col = key.div(num_cols, rounding_mode="floor"), key.remainder(num_cols)
        return SparseStorage(row, None, col, self._value, (num_rows, num_cols), is_sorted=True, trust_data=True)

    def has_rowcount(self) -> bool:
        return self._rowcount is not None

    def rowcount(self) -> Tensor:
        if self._rowcount is None:
            self._rowcount = self.rowptr().diff()
        return self._rowcount

    def has_colptr(self) -> bool:
        return self._colptr is not None

    def colptr(self) -> Tensor:
        if self._colptr is None:
            self._colptr = prefix_sums(self.colcount())
        return self._colptr

    def has_colcount(self) -> bool:
        return self._colcount is not None

    def colcount(self) -> Tensor:
        if self._colcount is None:
            counted = self._colptr is not None
            self._colcount = (
                self._colptr.diff() if counted else torch.bincount(self._col, minlength=self._sparse_sizes[1])
            )
        return self._colcount

    def has_csr2csc(self) -> bool:
        return self._csr2csc is not None

    def csr2csc(self) -> Tensor:
        """(nnz,) the entries column by column."""
        if self._csr2csc is None:
            key = self._sparse_sizes[0] * self._col + self.row()
            self._csr2csc = index_sort(key, self._sparse_sizes[0] * self._sparse_sizes[1])[1]
        return self._csr2csc

    def has_csc2csr(self) -> bool:
        return self._csc2csr is not None

    def csc2csr(self) -> Tensor:
        """(nnz,) where each entry is among those column by column."""
        if self._csc2csr is None:
            order = self.csr2csc()
            self._csc2csr = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
        return self._csc2csr

    def is_coalesced(self) -> bool:
        """Whether no two entries have one place."""
        key = self._keys()
        return bool((key[1:] > key[:-1]).all())

    def coalesce(self, reduce: str = "add") -> SparseStorage:
        """Reduce entries of one place to one."""
        key = self._keys()
        first = torch.ones_like(key, dtype=torch.bool)
        torch.ne(key[1:], key[:-1], out=first[1:])
        if bool(first.all()):
            return self
        value = self._value
        if value is not None:
            pointers = torch.nn.functional.pad(first.nonzero().flatten(), (0, 1), value=key.numel())
            value = reduced_segments(value, pointers, reduce)
        return SparseStorage(
            self.row()[first], None, self._col[first], value, self._sparse_sizes, is_sorted=True, trust_data=True
        )

    def fill_cache_(self) -> SparseStorage:
        for derive in (self.row, self.rowptr, self.rowcount, self.colptr, self.colcount, self.csr2csc, self.csc2csr):
            derive()
        return self

    def clear_cache_(self) -> SparseStorage:
        for name in CACHED:
            setattr(self, f"_{name}", None)
        return self

    def cached_keys(self) -> list[str]:
        return [name for name in CACHED if getattr(self, f"_{name}") is not None]

    def num_cached_keys(self) -> int:
        return len(self.cached_keys())

    def copy(self) -> SparseStorage:
        return self.changed()

    def clone(self) -> SparseStorage:
        return self.mapped(torch.clone)

    def type(self, dtype: torch.dtype, non_blocking: bool = False) -> SparseStorage:
        value = self._value
        if value is None or value.dtype == dtype:
            return self
        return self.changed(value=value.to(dtype, non_blocking=non_blocking))

    def type_as(self, tensor: Tensor, non_blocking: bool = False) -> SparseStorage:
        return self.type(tensor.dtype, non_blocking)

    def to_device(self, device: torch.device, non_blocking: bool = False) -> SparseStorage:
        if device == self._col.device:
            return self
        return self.mapped(lambda x: x.to(device, non_blocking=non_blocking))

    def device_as(self, tensor: Tensor, non_blocking: bool = False) -> SparseStorage:
        return self.to_device(tensor.device, non_blocking)

    def cuda(self) -> SparseStorage:
        return self if self._col.is_cuda else self.mapped(lambda x: x.cuda())

    def pin_memory(self) -> SparseStorage:
        return self.mapped(lambda x: x.pin_memory())

    def is_pinned(self) -> bool:
        return all(tensor.is_pinned() for _, tensor in self.tensors())

    def share_memory_(self) -> SparseStorage:
        for _, tensor in self.tensors():
            tensor.share_memory_()
        return self

    def is_shared(self) -> bool:
        return all(tensor.is_shared() for _, tensor in self.tensors())

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_graph": None}


def _resized(index: Tensor | None, size: int, fill: int) -> Tensor | None:
    if index is None or index.numel() >= size:
        return None if index is None else index[:size]
    return torch.nn.functional.pad(index, (0, size - index.numel()), value=fill)
