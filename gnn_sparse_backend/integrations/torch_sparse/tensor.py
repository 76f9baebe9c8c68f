"""``SparseTensor``: a matrix that is a storage, and what can be done with it."""

from __future__ import annotations

from textwrap import indent
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import arithmetic, products, sampling, selection
from .conversions import Conversions
from .storage import SparseStorage

_TYPES = {
    "bfloat16": torch.bfloat16,
    "bool": torch.bool,
    "byte": torch.uint8,
    "char": torch.int8,
    "half": torch.half,
    "float": torch.float,
    "double": torch.double,
    "short": torch.short,
    "int": torch.int,
    "long": torch.long,
}


class SparseTensor(Conversions):
    """A sparse matrix (M, N), with values (nnz, ...) or without. Arguments are those of `SparseStorage`."""

    def __init__(
        self,
        row: Tensor | None = None,
        rowptr: Tensor | None = None,
        col: Tensor | None = None,
        value: Tensor | None = None,
        sparse_sizes: tuple[int | None, int | None] | None = None,
        is_sorted: bool = False,
        trust_data: bool = False,
    ) -> None:
        self.storage = SparseStorage(row, rowptr, col, value, sparse_sizes, is_sorted=is_sorted, trust_data=trust_data)

    @classmethod
    def from_storage(cls, storage: SparseStorage) -> SparseTensor:
        made = object.__new__(cls)
        made.storage = storage.copy()
        return made

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        sparse_sizes: tuple[int | None, int | None] | None = None,
        is_sorted: bool = False,
        trust_data: bool = False,
    ) -> SparseTensor:
        """edge_index: (2, nnz) rows and columns."""
        return cls(edge_index[0], None, edge_index[1], edge_attr, sparse_sizes, is_sorted, trust_data)

    def copy(self) -> SparseTensor:
        return self.from_storage(self.storage)

    def clone(self) -> SparseTensor:
        return self.from_storage(self.storage.clone())

    def coo(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.storage.row(), self.storage.col(), self.storage.value()

    def csr(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.storage.rowptr(), self.storage.col(), self.storage.value()

    def csc(self) -> tuple[Tensor, Tensor, Tensor | None]:
        order, value = self.storage.csr2csc(), self.storage.value()
        return self.storage.colptr(), self.storage.row()[order], None if value is None else value[order]

    def has_value(self) -> bool:
        return self.storage.has_value()

    def set_value_(self, value: Tensor | None, layout: str | None = None) -> SparseTensor:
        self.storage.set_value_(value, layout)
        return self

    def set_value(self, value: Tensor | None, layout: str | None = None) -> SparseTensor:
        return self.from_storage(self.storage.set_value(value, layout))

    def fill_value_(self, fill_value: float, dtype: torch.dtype | None = None) -> SparseTensor:
        return self.set_value_(self._filled(fill_value, dtype), layout="coo")

    def fill_value(self, fill_value: float, dtype: torch.dtype | None = None) -> SparseTensor:
        return self.set_value(self._filled(fill_value, dtype), layout="coo")

    def _filled(self, fill_value: float, dtype: torch.dtype | None) -> Tensor:
        dtype = torch.get_default_dtype() if dtype is None else dtype
        return torch.full((self.nnz(),), fill_value, dtype=dtype, device=self.device())

    def sparse_sizes(self) -> tuple[int, int]:
        return self.storage.sparse_sizes()

    def sparse_size(self, dim: int) -> int:
        return self.storage.sparse_size(dim)

    def sparse_resize(self, sparse_sizes: tuple[int, int]) -> SparseTensor:
        return self.from_storage(self.storage.sparse_resize(sparse_sizes))

    def sparse_reshape(self, num_rows: int, num_cols: int) -> SparseTensor:
        return self.from_storage(self.storage.sparse_reshape(num_rows, num_cols))

    def is_coalesced(self) -> bool:
        return self.storage.is_coalesced()

    def coalesce(self, reduce: str = "sum") -> SparseTensor:
        return self.from_storage(self.storage.coalesce(reduce))

    def fill_cache_(self) -> SparseTensor:
        self.storage.fill_cache_()
        return self

    def clear_cache_(self) -> SparseTensor:
        self.storage.clear_cache_()
        return self

    def sizes(self) -> list[int]:
        value = self.storage.value()
        return [*self.sparse_sizes(), *(() if value is None else value.shape[1:])]

    def size(self, dim: int) -> int:
        return self.sizes()[dim]

    def dim(self) -> int:
        return len(self.sizes())

    def nnz(self) -> int:
        return self.storage.col().numel()

    def numel(self) -> int:
        value = self.storage.value()
        return self.nnz() if value is None else value.numel()

    def density(self) -> float:
        places = self.sparse_size(0) * self.sparse_size(1)
        return self.nnz() / places if places else 0.0

    def sparsity(self) -> float:
        return 1 - self.density()

    def avg_row_length(self) -> float:
        return self.nnz() / self.sparse_size(0)

    def avg_col_length(self) -> float:
        return self.nnz() / self.sparse_size(1)

    def bandwidth(self) -> int:
        return int((self.storage.row() - self.storage.col()).abs().max())

    def avg_bandwidth(self) -> float:
        return float((self.storage.row() - self.storage.col()).abs().float().mean())

    def bandwidth_proportion(self, bandwidth: int) -> float:
        return int(((self.storage.row() - self.storage.col()).abs() <= bandwidth).sum()) / self.nnz()

    def is_quadratic(self) -> bool:
        return self.sparse_size(0) == self.sparse_size(1)

    def is_symmetric(self) -> bool:
        if not self.is_quadratic():
            return False
        (rowptr, col, value), (colptr, row, other) = self.csr(), self.csc()
        if not torch.equal(rowptr, colptr) or not torch.equal(col, row):
            return False
        return value is None or other is None or torch.equal(value, other)

    def requires_grad(self) -> bool:
        value = self.storage.value()
        return value is not None and value.requires_grad

    def requires_grad_(self, requires_grad: bool = True, dtype: torch.dtype | None = None) -> SparseTensor:
        """Record what happens to the values, which are ones where there are none."""
        if requires_grad and not self.has_value():
            self.fill_value_(1.0, dtype)
        if (value := self.storage.value()) is not None:
            value.requires_grad_(requires_grad)
        return self

    def detach_(self) -> SparseTensor:
        if (value := self.storage.value()) is not None:
            value.detach_()
        return self

    def detach(self) -> SparseTensor:
        value = self.storage.value()
        return self.set_value(None if value is None else value.detach(), layout="coo")

    def device(self) -> torch.device:
        return self.storage.col().device

    def dtype(self) -> torch.dtype:
        value = self.storage.value()
        return torch.float if value is None else value.dtype

    def is_floating_point(self) -> bool:
        return self.dtype().is_floating_point

    def is_cuda(self) -> bool:
        return self.storage.col().is_cuda

    def type(self, dtype: torch.dtype, non_blocking: bool = False) -> SparseTensor:
        return self.from_storage(self.storage.type(dtype, non_blocking))

    def type_as(self, tensor: Tensor, non_blocking: bool = False) -> SparseTensor:
        return self.type(tensor.dtype, non_blocking)

    def to_device(self, device: torch.device, non_blocking: bool = False) -> SparseTensor:
        return self.from_storage(self.storage.to_device(device, non_blocking))

    def device_as(self, tensor: Tensor, non_blocking: bool = False) -> SparseTensor:
        return self.to_device(tensor.device, non_blocking)

    def to(self, *args: Any, **kwargs: Any) -> SparseTensor:
        """To a device, or values to a type, with the arguments of ``Tensor.to``."""
        device, dtype, non_blocking = torch._C._nn._parse_to(*args, **kwargs)[:3]
        made = self if dtype is None else self.type(dtype, non_blocking)
        return made if device is None else made.to_device(device, non_blocking)

    def cpu(self) -> SparseTensor:
        return self.to_device(torch.device("cpu"))

    def cuda(self, device: int | str | None = None, non_blocking: bool = False) -> SparseTensor:
        return self.to_device(torch.empty(0, device=device or "cuda").device, non_blocking)

    def pin_memory(self) -> SparseTensor:
        return self.from_storage(self.storage.pin_memory())

    def is_pinned(self) -> bool:
        return self.storage.is_pinned()

    def share_memory_(self) -> SparseTensor:
        self.storage.share_memory_()
        return self

    def is_shared(self) -> bool:
        return self.storage.is_shared()

    def __getattr__(self, name: str) -> Any:
        if name not in _TYPES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return lambda: self.type(_TYPES[name])

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_TYPES]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SparseTensor) or self.sizes() != other.sizes():
            return False
        (rowptr, col, value), (pointers, columns, values) = self.csr(), other.csr()
        if (value is None) != (values is None) or not (torch.equal(rowptr, pointers) and torch.equal(col, columns)):
            return False
        return value is None or torch.equal(value, values)

    __hash__ = object.__hash__

    def __getitem__(self, index: Any) -> SparseTensor:
        """Select by numbers, slices without a step, lists, arrays and tensors of indices or of truth values, and an
        ellipsis. Raises SyntaxError for anything else.
        """
        items = list(index) if isinstance(index, tuple) else [index]
        if sum(each is Ellipsis for each in items) > 1:
            raise SyntaxError("an index has one ellipsis at most")
        dim, out = 0, self
        while items:
            item = items.pop(0)
            if item is Ellipsis:
                dim = self.dim() - len(items)
                continue
            if isinstance(item, (list, tuple)):
                item = torch.tensor(item, device=self.device())
            elif isinstance(item, np.ndarray):
                item = torch.from_numpy(item).to(self.device())
            if isinstance(item, int):
                out = selection.select(out, dim, item)
            elif isinstance(item, slice):
                start, stop, step = item.indices(self.size(dim))
                if item.step is not None or step != 1:
                    raise ValueError("Step parameter not yet supported.")
                out = selection.narrow(out, dim, start, max(stop - start, 0))
            elif isinstance(item, Tensor) and item.dtype == torch.bool:
                out = selection.masked_select(out, dim, item)
            elif isinstance(item, Tensor) and item.dtype == torch.int64:
                out = selection.index_select(out, dim, item)
            else:
                raise SyntaxError(f"cannot select by {item!r}")
            dim += 1
        return out

    def __repr__(self) -> str:
        row, col, value = self.coo()
        told = {"row": row, "col": col} | ({} if value is None else {"val": value})
        lines = [f"{name}={indent(repr(each), ' ' * 6)[6:]}" for name, each in told.items()]
        lines.append(f"size={tuple(self.sizes())}, nnz={self.nnz()}, density={100 * self.density():.02f}%")
        name = type(self).__name__
        return f"{name}({indent(','.join(chr(10) + each for each in lines)[1:], ' ' * (len(name) + 1)).lstrip()})"

    t = selection.t
    narrow = selection.narrow
    __narrow_diag__ = selection.__narrow_diag__
    select = selection.select
    index_select = selection.index_select
    index_select_nnz = selection.index_select_nnz
    masked_select = selection.masked_select
    masked_select_nnz = selection.masked_select_nnz
    permute = selection.permute
    remove_diag = selection.remove_diag
    set_diag = selection.set_diag
    fill_diag = selection.fill_diag
    get_diag = selection.get_diag
    add = __add__ = __radd__ = arithmetic.add
    add_ = __iadd__ = arithmetic.add_
    add_nnz = arithmetic.add_nnz
    add_nnz_ = arithmetic.add_nnz_
    mul = __mul__ = __rmul__ = arithmetic.mul
    mul_ = __imul__ = arithmetic.mul_
    mul_nnz = arithmetic.mul_nnz
    mul_nnz_ = arithmetic.mul_nnz_
    sum = arithmetic.sum
    mean = arithmetic.mean
    min = arithmetic.min
    max = arithmetic.max
    spmm = products.spmm
    spspmm = products.spspmm
    matmul = __matmul__ = products.matmul
    sample = sampling.sample
    sample_adj = sampling.sample_adj
    saint_subgraph = sampling.saint_subgraph
    random_walk = sampling.random_walk
    partition = sampling.partition
    reverse_cuthill_mckee = sampling.reverse_cuthill_mckee
