"""``SparseTensor`` in programs of TorchScript: twins of our classes, and what such programs call on them.

TorchScript asks a class for its name in programs. That compiles the twins, once, and has PyTorch know them by our
classes: a matrix that a program is given is copied into a twin, field by field, and what it returns is one of ours.
Methods and functions of twins call operators, which run what eager programs run, with gradients. Operators take a
matrix (rows, columns) as pointers (rows + 1,), columns (nnz,), values (nnz, ...) or None, and the number of columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any  # TorchScript's words

import torch
from torch import Tensor
from torch.jit._state import _add_script_class, _get_script_class, _set_jit_overload_cache

from ...deferred import later
from ..core.substitutes.scripted import CompiledName, operator

if TYPE_CHECKING:
    from . import arithmetic, products, selection, storage, tensor
else:
    arithmetic, products, selection, storage, tensor = (
        later(__name__, f".{each}") for each in ("arithmetic", "products", "selection", "storage", "tensor")
    )

_operator = operator("torch_sparse")


def _matrix(rowptr: Tensor, col: Tensor, value: Tensor | None, columns: int) -> Any:
    sizes = rowptr.numel() - 1, columns
    held = storage.SparseStorage(None, rowptr, col, value, sizes, is_sorted=True, trust_data=True)
    return tensor.SparseTensor.from_storage(held)


@_operator
def stored(
    row: Tensor | None,
    rowptr: Tensor | None,
    col: Tensor | None,
    value: Tensor | None,
    rows: int | None,
    columns: int | None,
    is_sorted: bool,
    trust_data: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    sizes = rows, columns
    held = storage.SparseStorage(row, rowptr, col, value, sizes, is_sorted=is_sorted, trust_data=trust_data)
    return held.rowptr(), held.col(), held.value()


@_operator
def of_dense(mat: Tensor, has_value: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    found: tuple[Tensor, Tensor, Tensor | None] = tensor.SparseTensor.from_dense(mat, has_value).csr()
    return found


@_operator
def by_columns(rowptr: Tensor, col: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    held = _matrix(rowptr, col, None, columns).storage
    return held.colptr(), held.csr2csc()


@_operator
def dense_product(
    rowptr: Tensor, col: Tensor, value: Tensor | None, columns: int, other: Tensor, reduce: str
) -> Tensor:
    return products.matmul(_matrix(rowptr, col, value, columns), other, reduce)


@_operator
def combined(
    how: str,
    rowptr: Tensor,
    col: Tensor,
    value: Tensor | None,
    columns: int,
    other_rowptr: Tensor,
    other_col: Tensor,
    other_value: Tensor | None,
    other_columns: int,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """how: ``add``, ``mul`` or ``matmul``."""
    left, right = _matrix(rowptr, col, value, columns), _matrix(other_rowptr, other_col, other_value, other_columns)
    found: tuple[Tensor, Tensor, Tensor | None] = getattr(left, how)(right).csr()
    return found


@_operator
def with_vector(
    how: str, rowptr: Tensor, col: Tensor, value: Tensor | None, columns: int, other: Tensor
) -> Tensor | None:
    """how: ``add`` or ``mul``."""
    found: Tensor | None = getattr(_matrix(rowptr, col, value, columns), how)(other).storage.value()
    return found


@_operator
def with_diag(
    rowptr: Tensor, col: Tensor, value: Tensor | None, columns: int, values: Tensor | None, k: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    return selection.set_diag(_matrix(rowptr, col, value, columns), values, k).csr()


@_operator
def without_diag(
    rowptr: Tensor, col: Tensor, value: Tensor | None, columns: int, fill_value: float | None, k: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """fill_value: of a new diagonal in its place."""
    matrix = _matrix(rowptr, col, value, columns)
    filled = selection.remove_diag(matrix, k) if fill_value is None else selection.fill_diag(matrix, fill_value, k)
    return filled.csr()


@_operator
def selected(
    rowptr: Tensor, col: Tensor, value: Tensor | None, columns: int, mask: Tensor, layout: str | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    return selection.masked_select_nnz(_matrix(rowptr, col, value, columns), mask, layout).csr()


@_operator
def total(rowptr: Tensor, col: Tensor, value: Tensor | None, columns: int, dim: int | None) -> Tensor:
    return arithmetic.sum(_matrix(rowptr, col, value, columns), dim)


class SparseStorage:
    """The twin of `storage.SparseStorage`, which has its fields."""

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
    ):
        rows: int | None = None
        columns: int | None = None
        if sparse_sizes is not None:
            rows, columns = sparse_sizes
        pointers, indices, values = stored(row, rowptr, col, value, rows, columns, is_sorted, trust_data)
        if columns is None:
            columns = int(indices.max()) + 1 if indices.numel() > 0 else 0
        given: Tensor | None = pointers
        nothing: Tensor | None = None
        self._row = nothing
        self._rowptr = given
        self._col = indices
        self._value = values
        self._sparse_sizes = (pointers.numel() - 1, columns)
        self._rowcount = nothing
        self._colptr = nothing
        self._colcount = nothing
        self._csr2csc = nothing
        self._csc2csr = nothing

    def row(self) -> Tensor:
        found = self._row
        if found is None:
            found = torch.ops.torch_sparse.ptr2ind(self.rowptr(), self._col.numel())
            self._row = found
        return found

    def rowptr(self) -> Tensor:
        found = self._rowptr
        if found is None:
            row = self._row
            assert row is not None
            found = torch.ops.torch_sparse.ind2ptr(row, self._sparse_sizes[0])
            self._rowptr = found
        return found

    def col(self) -> Tensor:
        return self._col

    def has_value(self) -> bool:
        return self._value is not None

    def value(self) -> Tensor | None:
        return self._value

    def sparse_sizes(self) -> tuple[int, int]:
        return self._sparse_sizes

    def sparse_size(self, dim: int) -> int:
        return self._sparse_sizes[dim]

    def rowcount(self) -> Tensor:
        return self.rowptr().diff()

    def colptr(self) -> Tensor:
        return by_columns(self.rowptr(), self._col, self._sparse_sizes[1])[0]

    def csr2csc(self) -> Tensor:
        return by_columns(self.rowptr(), self._col, self._sparse_sizes[1])[1]

    def csc2csr(self) -> Tensor:
        return self.csr2csc().argsort()


class SparseTensor:
    """The twin of `tensor.SparseTensor`."""

    storage: SparseStorage

    def __init__(
        self,
        row: Tensor | None = None,
        rowptr: Tensor | None = None,
        col: Tensor | None = None,
        value: Tensor | None = None,
        sparse_sizes: tuple[int | None, int | None] | None = None,
        is_sorted: bool = False,
        trust_data: bool = False,
    ):
        self.storage = SparseStorage(
            row, rowptr, col, value, sparse_sizes, None, None, None, None, None, is_sorted, trust_data
        )

    def coo(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.storage.row(), self.storage.col(), self.storage.value()

    def csr(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.storage.rowptr(), self.storage.col(), self.storage.value()

    def csc(self) -> tuple[Tensor, Tensor, Tensor | None]:
        order, value = self.storage.csr2csc(), self.storage.value()
        return self.storage.colptr(), self.storage.row()[order], value[order] if value is not None else None

    def t(self):
        colptr, row, value = self.csc()
        return SparseTensor(None, colptr, row, value, (self.size(1), self.size(0)), True, True)

    def has_value(self) -> bool:
        return self.storage.has_value()

    def set_value(self, value: Tensor | None, layout: str | None = None):
        if value is not None and layout is not None:
            if layout == "csc":
                value = value[self.storage.csc2csr()]
        return SparseTensor(None, self.storage.rowptr(), self.storage.col(), value, self.sparse_sizes(), True, True)

    def fill_value(self, fill_value: float, dtype: int | None = None):
        value = torch.full((self.nnz(),), fill_value, dtype=dtype, device=self.device())
        return self.set_value(value, "coo")

    def sparse_sizes(self) -> tuple[int, int]:
        return self.storage.sparse_sizes()

    def sparse_size(self, dim: int) -> int:
        return self.storage.sparse_size(dim)

    def sizes(self) -> list[int]:
        value = self.storage.value()
        sizes = [self.sparse_size(0), self.sparse_size(1)]
        return sizes if value is None else sizes + value.size()[1:]

    def size(self, dim: int) -> int:
        return self.sizes()[dim]

    def dim(self) -> int:
        return len(self.sizes())

    def nnz(self) -> int:
        return self.storage.col().numel()

    def device(self) -> torch.device:
        return self.storage.col().device

    def is_cuda(self) -> bool:
        return self.storage.col().is_cuda

    def requires_grad(self) -> bool:
        value = self.storage.value()
        return value.requires_grad if value is not None else False

    def to_torch_sparse_csr_tensor(self, dtype: int | None = None) -> Tensor:
        rowptr, col, value = self.csr()
        if value is None:
            value = torch.ones(self.nnz(), dtype=dtype, device=self.device())
        return torch.sparse_csr_tensor(rowptr, col, value, self.sizes())


def _made(parts: tuple[Tensor, Tensor, Tensor | None], columns: int) -> SparseTensor:
    rowptr, col, value = parts
    return SparseTensor(None, rowptr, col, value, (rowptr.numel() - 1, columns), True, True)


def _combined(how: str, src: SparseTensor, other: SparseTensor) -> SparseTensor:
    rowptr, col, value = src.csr()
    other_rowptr, other_col, other_value = other.csr()
    columns, more = src.sparse_size(1), other.sparse_size(1)
    found = combined(how, rowptr, col, value, columns, other_rowptr, other_col, other_value, more)
    return _made(found, more if how == "matmul" else max(columns, more))


def _of_vector(how: str, src: SparseTensor, other: Tensor) -> SparseTensor:
    rowptr, col, value = src.csr()
    return src.set_value(with_vector(how, rowptr, col, value, src.sparse_size(1), other), "coo")


def matmul(src: SparseTensor, other: Tensor, reduce: str = "sum") -> Tensor:
    rowptr, col, value = src.csr()
    return dense_product(rowptr, col, value, src.sparse_size(1), other, reduce)


def spspmm(src: SparseTensor, other: SparseTensor, reduce: str = "sum") -> SparseTensor:
    if reduce != "sum" and reduce != "add":
        raise NotImplementedError("the product of sparse matrices is a sum")
    return _combined("matmul", src, other)


def add(src: SparseTensor, other: SparseTensor) -> SparseTensor:
    return _combined("add", src, other)


def add_vector(src: SparseTensor, other: Tensor) -> SparseTensor:
    return _of_vector("add", src, other)


def mul(src: SparseTensor, other: SparseTensor) -> SparseTensor:
    return _combined("mul", src, other)


def mul_vector(src: SparseTensor, other: Tensor) -> SparseTensor:
    return _of_vector("mul", src, other)


def set_diag(src: SparseTensor, values: Tensor | None = None, k: int = 0) -> SparseTensor:
    rowptr, col, value = src.csr()
    return _made(with_diag(rowptr, col, value, src.sparse_size(1), values, k), src.sparse_size(1))


def fill_diag(src: SparseTensor, fill_value: float, k: int = 0) -> SparseTensor:
    rowptr, col, value = src.csr()
    return _made(without_diag(rowptr, col, value, src.sparse_size(1), fill_value, k), src.sparse_size(1))


def remove_diag(src: SparseTensor, k: int = 0) -> SparseTensor:
    rowptr, col, value = src.csr()
    return _made(without_diag(rowptr, col, value, src.sparse_size(1), None, k), src.sparse_size(1))


def masked_select_nnz(src: SparseTensor, mask: Tensor, layout: str | None = None) -> SparseTensor:
    rowptr, col, value = src.csr()
    return _made(selected(rowptr, col, value, src.sparse_size(1), mask, layout), src.sparse_size(1))


def t(src: SparseTensor) -> SparseTensor:
    return src.t()


def sum(src: SparseTensor, dim: int | None = None) -> Tensor:
    rowptr, col, value = src.csr()
    return total(rowptr, col, value, src.sparse_size(1), dim)


_TWINS = {"SparseStorage": SparseStorage, "SparseTensor": SparseTensor}
_OVERLOADED = {"matmul": (matmul, spspmm), "add": (add, add_vector), "mul": (mul, mul_vector)}
_SCRIPTED = {
    "arithmetic": (sum,),
    "products": (spspmm,),
    "selection": (set_diag, fill_diag, remove_diag, masked_select_nnz, t),
}


def mark() -> None:
    """Have TorchScript ask here for our classes, and compile twins for our functions of one kind of arguments."""
    storage.SparseStorage._jit_override_qualname = CompiledName(lambda: compiled_name("SparseStorage"))
    tensor.SparseTensor._jit_override_qualname = CompiledName(lambda: compiled_name("SparseTensor"))
    for module, twins in _SCRIPTED.items():
        for twin in twins:
            function: Any = getattr(globals()[module], twin.__name__)
            function.__script_if_tracing_wrapper = False  # torch.compile asks whether it is true
            function.__original_fn = twin


def compiled_name(name: str) -> str:
    """The name of a twin in programs. It is compiled now, and with it what depends on the types of arguments."""
    twin = _TWINS[name]
    if (found := _get_script_class(twin)) is None:
        torch.jit.script(SparseTensor)
        for each, owner in (("SparseStorage", storage.SparseStorage), ("SparseTensor", tensor.SparseTensor)):
            _add_script_class(owner, _get_script_class(_TWINS[each]))
        for function, overloads in _OVERLOADED.items():
            ours = getattr(products if function == "matmul" else arithmetic, function)
            _set_jit_overload_cache(ours, [torch.jit.script(each) for each in overloads])
        found = _get_script_class(twin)
    qualified: str = found.qualified_name()
    return qualified
