"""Products of two sparse matrices, against dense ones in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnn_sparse_backend.integrations.torch_sparse import SparseTensor, matmul


def drawn(generator: torch.Generator, rows: int, columns: int, entries: int, dtype: torch.dtype) -> SparseTensor:
    """Entries at random places, some of them twice."""
    row, col = (torch.randint(0, max(n, 1), (entries * (n > 0),), generator=generator) for n in (rows, columns))
    count = min(len(row), len(col))
    value = torch.randint(-3, 4, (count,), generator=generator).to(dtype)
    return SparseTensor(row=row[:count], col=col[:count], value=value, sparse_sizes=(rows, columns))


def dense(matrix: SparseTensor) -> torch.Tensor:
    """In float64, with equal entries summed."""
    row, col, value = matrix.coo()
    out = torch.zeros(matrix.sparse_sizes(), dtype=torch.float64)
    value = torch.ones(row.numel(), dtype=torch.float64) if value is None else value.double()
    return out.index_put((row, col), value, accumulate=True)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 99),
    st.tuples(*[st.sampled_from((0, 1, 2, 7, 40))] * 3),
    st.sampled_from((0, 1, 30, 400)),
    st.sampled_from((torch.float32, torch.float64, torch.int64, torch.bfloat16)),
)
def test_of_all_shapes_and_types(seed, sizes, entries, dtype):
    """Whole numbers, whose sums are exact; every entry that a sum of products has is there, by ascending column."""
    generator = torch.Generator().manual_seed(seed)
    a = drawn(generator, *sizes[:2], entries, dtype)
    b = drawn(generator, *sizes[1:], entries, dtype)
    c = matmul(a, b)
    row, col, value = c.coo()
    assert value.dtype == dtype and c.sparse_sizes() == (sizes[0], sizes[2])
    expected = dense(a) @ dense(b)
    if dtype == torch.bfloat16:
        torch.testing.assert_close(dense(c), expected, rtol=0.01, atol=0)
    else:
        assert torch.equal(dense(c), expected)
    pattern = (dense(a.set_value(None)) @ dense(b.set_value(None))).nonzero()
    assert torch.equal(torch.stack([row, col], 1), pattern)


def test_of_long_rows_and_without_values():
    generator = torch.Generator().manual_seed(1)
    a = drawn(generator, 3, 50, 120, torch.float32).set_value(None)
    b = drawn(generator, 50, 3000, 60_000, torch.float32).set_value(None)
    c = matmul(a, b)
    assert c.storage.value() is None
    row, col, _ = c.coo()
    assert torch.equal(torch.stack([row, col], 1), (dense(a) @ dense(b)).nonzero())
    with pytest.raises(ValueError, match=r"\(3, 50\) has no product"):
        matmul(a, a)


def test_gradients_of_values():
    generator = torch.Generator().manual_seed(2)
    a, b = drawn(generator, 5, 6, 14, torch.float64), drawn(generator, 6, 4, 13, torch.float64)
    values = [torch.rand(x.nnz(), generator=generator, dtype=torch.float64).requires_grad_() for x in (a, b)]

    def product(left, right):
        return matmul(a.set_value(left, layout="coo"), b.set_value(right, layout="coo")).storage.value()

    assert torch.autograd.gradcheck(product, values) and torch.autograd.gradgradcheck(product, values)
    assert torch.autograd.gradcheck(lambda left: product(left, values[1].detach()), values[:1])
