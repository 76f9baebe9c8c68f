"""Products of two sparse matrices on the host, with gradients to the values of both."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ...compiler.compile import compile_loops
from ...compiler.loops.gustavson import product_function, words_of
from ...runtime.type_names import type_name
from .storage import SparseStorage

_KERNELS = torch.float32, torch.float64, torch.int32, torch.int64


def product(a: SparseStorage, b: SparseStorage) -> SparseStorage:
    """The product of matrices (m, k) and (k, n) on the host, with every entry that a sum of products has, also where
    it is 0. It has values where one of both has; (nnz, ...) values are none that it takes.
    """
    given = [each.value() for each in (a, b)]
    known = [value for value in given if value is not None]
    dtype = known[0].dtype if known else torch.float32
    for value in known[1:]:
        dtype = torch.promote_types(dtype, value.dtype)
    left, right = (
        torch.ones(each.col().numel(), dtype=dtype) if value is None else value.to(dtype)
        for each, value in zip((a, b), given)
    )
    rowptr, col, value = _Product.apply(left, right, a, b)
    return _storage(rowptr, col, value if known else None, (a.sparse_sizes()[0], b.sparse_sizes()[1]))


class _Product(Function):
    """(pointers, columns, values) of the product of matrices that have the values ``left`` and ``right``."""

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, a: SparseStorage, b: SparseStorage
    ) -> tuple[Tensor, Tensor, Tensor]:
        rowptr, col, value = _multiplied(left, right, a, b)
        ctx.save_for_backward(left, right, rowptr, col)
        ctx.a, ctx.b = a, b
        ctx.mark_non_differentiable(rowptr, col)
        return rowptr, col, value

    @staticmethod
    def backward(ctx: Any, _: Any, __: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        left, right, rowptr, col = ctx.saved_tensors
        a, b = ctx.a, ctx.b
        c = _storage(rowptr, col, gradient, (a.sparse_sizes()[0], b.sparse_sizes()[1]))
        of_left = _at(product(c, _transposed(b, right)), a) if ctx.needs_input_grad[0] else None
        of_right = _at(product(_transposed(a, left), c), b) if ctx.needs_input_grad[1] else None
        return of_left, of_right, None, None


def _multiplied(left: Tensor, right: Tensor, a: SparseStorage, b: SparseStorage) -> tuple[Tensor, Tensor, Tensor]:
    (rows, inner), columns = a.sparse_sizes(), b.sparse_sizes()[1]
    dtype = left.dtype if left.dtype in _KERNELS else torch.float32
    # as many products for each thread
    work = torch.zeros(a.col().numel() + 1, dtype=torch.int64)
    torch.cumsum(b.rowcount()[a.col()], 0, out=work[1:])
    chunks = max(1, min(torch.get_num_threads(), rows))
    shares = int(work[-1]) * torch.arange(1, chunks) // chunks
    ends = torch.tensor([0, rows])
    bounds = torch.cat([ends[:1], torch.searchsorted(work[a.rowptr()], shares), ends[1:]]).clamp(max=rows)
    words = words_of(columns)
    given = chunks, rows, inner, columns, a.col().numel(), b.col().numel(), words, bounds
    given = (*given, a.rowptr(), a.col(), b.rowptr(), b.col())
    sets, pointers = torch.zeros(chunks * words, dtype=torch.int64), torch.zeros(rows + 1, dtype=torch.int64)
    name = type_name(dtype)
    compile_loops(product_function, name, True).entry(*given, sets, pointers)
    pointers = pointers.cumsum(0)
    total = int(pointers[-1])
    found, values = torch.empty(total, dtype=torch.int64), torch.empty(total, dtype=dtype)
    operands = (x.detach().to(dtype).contiguous() for x in (left, right))
    sums = torch.empty(chunks * columns, dtype=dtype)
    compile_loops(product_function, name, False).entry(*given, sets, pointers, total, *operands, sums, found, values)
    return pointers, found, values.to(left.dtype)


def _storage(rowptr: Tensor, col: Tensor, value: Tensor | None, sizes: tuple[int, int]) -> SparseStorage:
    return SparseStorage(None, rowptr, col, value, sizes, is_sorted=True, trust_data=True)


def _transposed(of: SparseStorage, value: Tensor) -> SparseStorage:
    order = of.csr2csc()
    return _storage(of.colptr(), of.row()[order], value[order], of.sparse_sizes()[::-1])


def _at(found: SparseStorage, wanted: SparseStorage) -> Tensor:
    """(nnz,) the values of a matrix at the entries of another, 0 where it has none."""
    columns, value = wanted.sparse_sizes()[1], found.value()
    keys, places = (each.row() * columns + each.col() for each in (wanted, found))
    at = torch.searchsorted(places, keys).clamp(max=max(places.numel() - 1, 0))
    if not places.numel():
        return value.new_zeros(keys.numel())
    return torch.where(places[at] == keys, value[at], 0)
