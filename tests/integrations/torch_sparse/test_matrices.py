"""Sparse matrices against dense ones."""

from __future__ import annotations

import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import torch_sparse as ts


def matrix(rows: int, columns: int, seed: int = 0, features: tuple[int, ...] = ()) -> torch.Tensor:
    """A dense matrix, of which a third of the places have whole numbers from 1 on."""
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randint(1, 9, (rows, columns, *features), generator=generator).double()
    return dense * (torch.rand(rows, columns, *(1,) * len(features), generator=generator) < 0.35)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(-4, 4), st.integers(0, 9), st.booleans())
def test_parts_of_a_matrix(rows, columns, k, seed, filled):
    dense = matrix(rows, columns, seed)
    mat = ts.SparseTensor.from_dense(dense)
    mat = mat.fill_cache_() if filled else mat
    index, mask = torch.randint(0, rows, (4,)), torch.rand(columns) < 0.5
    diagonal = dense.diagonal(k) if -rows < k < columns else dense.new_zeros(0)
    set_to_five = dense.clone()
    if diagonal.numel():
        set_to_five.diagonal(k).fill_(5)
    for found, expected in (
        (mat.t(), dense.t()),
        (mat[index], dense[index]),
        (mat[:, mask], dense[:, mask]),
        (mat[:, columns // 2 :], dense[:, columns // 2 :]),
        (mat.index_select(1, torch.tensor([0, columns - 1, 0])), dense[:, [0, columns - 1, 0]]),
        (mat.narrow(0, rows // 2, rows - rows // 2), dense[rows // 2 :]),
        (ts.cat([mat, mat], 0), torch.cat([dense, dense])),
        (ts.cat([mat, mat], 1), torch.cat([dense, dense], 1)),
        (ts.cat([mat, mat], (0, 1)), torch.block_diag(dense, dense)),
        (ts.__narrow_diag__(ts.cat([mat, mat], (0, 1)), (rows, columns), (rows, columns)), dense),
        (mat + mat.t().t(), 2 * dense),
        (mat * mat, dense * dense),
        (mat * torch.arange(columns)[None], dense * torch.arange(columns)),
        *([(mat.fill_diag(5, k), set_to_five)] if -rows < k < columns else []),
        (pickle.loads(pickle.dumps(mat)), dense),
        (ts.SparseTensor.from_scipy(mat.to_scipy("csc")), dense),
        (ts.SparseTensor.from_torch_sparse_csr_tensor(mat.to_torch_sparse_csr_tensor()), dense),
    ):
        row, col, value = found.coo()
        assert torch.equal(found.to_dense(), expected.double()) and value.shape == row.shape == col.shape
        key = row * found.size(1) + col
        assert bool((key.diff() > 0).all())
        fresh = ts.SparseTensor(row, None, col, value, found.sparse_sizes()).fill_cache_().storage
        for name in found.storage.cached_keys():
            assert torch.equal(getattr(found.storage, name)(), getattr(fresh, name)()), name
    for dim in (0, 1):
        torch.testing.assert_close(mat.sum(dim), dense.sum(dim))
        torch.testing.assert_close(mat.max(dim), dense.amax(dim))
    assert torch.equal(mat.get_diag(), dense.diagonal())


@pytest.mark.parametrize("weighted", (True, False))
@pytest.mark.parametrize("reduce", ("sum", "mean", "min", "max"))
def test_products(reduce, weighted):
    """A matrix with empty rows is multiplied with dense ones; the gradients are of both."""
    torch.manual_seed(0)
    dense = matrix(7, 5)
    dense[2] = 0
    mat = ts.SparseTensor.from_dense(dense, has_value=weighted)
    row, col, value = mat.coo()
    value = None if value is None else value.requires_grad_()
    for shape in ((5,), (5, 3), (2, 5, 3)):
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        z = x[:, None] if x.dim() == 1 else x
        none = torch.full((7, 5, z.shape[-1]), torch.nan, dtype=torch.float64)
        given = z.index_select(-2, col) * (1 if value is None else value[:, None])
        each = [none.index_put((row, col), one) for one in given.reshape(-1, *given.shape[-2:])]
        each = torch.stack(each).view(*z.shape[:-2], *none.shape)
        there = ~each.isnan()
        if reduce in ("sum", "mean"):
            expected = each.where(there, 0).sum(-2)
            expected = expected / there.sum(-2).clamp(min=1) if reduce == "mean" else expected
        else:
            worst = torch.inf if reduce == "min" else -torch.inf
            expected = getattr(each.where(there, worst), f"a{reduce}")(-2)
            expected = expected.where(there.any(-2), 0)
        found = ts.matmul(mat, x, reduce)
        torch.testing.assert_close(found, expected)
        grad, leaves = torch.randn_like(expected), [x, *([value] if weighted else [])]
        for one, other in zip(torch.autograd.grad(found, leaves, grad), torch.autograd.grad(expected, leaves, grad)):
            torch.testing.assert_close(one, other)


def test_sparse_products_and_functions_of_an_index():
    a, b = matrix(4, 6, 1), matrix(6, 3, 2)
    product = ts.SparseTensor.from_dense(a) @ ts.SparseTensor.from_dense(b)
    assert torch.equal(product.to_dense(), a @ b)
    index, value = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0]]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    index, value = ts.coalesce(index, value, 2, 2)
    assert index.tolist() == [[0, 0, 1], [0, 1, 0]] and value.tolist() == [4, 2, 4]
    assert ts.transpose(index, value, 2, 2)[1].tolist() == [4, 4, 2]
    assert ts.spmm(index, value, 2, 2, torch.ones(2, 1)).tolist() == [[6], [4]]
    assert ts.spadd(index, value, index, value, 2, 2)[1].tolist() == [8, 4, 8]


def test_samples_are_of_the_matrix():
    torch.manual_seed(0)
    mat = ts.SparseTensor.from_dense(matrix(9, 9, 3)).set_diag()
    dense = mat.to_dense()
    part, nodes = ts.sample_adj(mat, torch.tensor([4, 1]), 2)
    assert nodes[:2].tolist() == [4, 1] and part.sizes() == [2, nodes.numel()]
    for row, col, value in zip(*part.coo()):
        assert dense[nodes[row], nodes[col]] == value
    nodes = torch.tensor([5, 0, 3])
    assert torch.equal(ts.saint_subgraph(mat, nodes)[0].to_dense(), dense[nodes][:, nodes])
    walks = mat.random_walk(torch.arange(9), 4)
    assert bool((dense[walks[:, :-1], walks[:, 1:]] != 0).all())
    _, begins, order = mat.partition(3)
    assert begins[-1] == 9 and sorted(order.tolist()) == list(range(9))


def test_wrong_calls_are_told():
    index = torch.tensor([0, 3])
    with pytest.raises(ValueError, match="col has 3, but there are 2 columns"):
        ts.SparseTensor(row=index, col=index, sparse_sizes=(4, 2))
    with pytest.raises(TypeError, match=r"row must be a vector of int64.*torch.int32"):
        ts.SparseTensor(row=index.int(), col=index)
    mat = ts.SparseTensor(row=index, col=index)
    with pytest.raises(ValueError, match=r"\(4, 1, ...\).*\(3, 1\)"):
        mat + torch.ones(3, 1)
    with pytest.raises(ValueError, match="no product"):
        mat @ torch.ones(3, 1)
    with pytest.raises(NotImplementedError, match="'max'"):
        ts.matmul(mat, mat, "max")


def test_it_is_given_by_its_name():
    with gsb.enabled("torch_sparse"):
        import torch_sparse
        from torch_sparse.tensor import SparseTensor

        mat = SparseTensor.eye(3)
        assert torch_sparse.SparseTensor is SparseTensor and torch.equal(mat @ torch.eye(3), torch.eye(3))
        assert gsb.status().to_dict()["calls"]["torch_sparse"]["matmul"]["ours"] == 1
        assert torch.ops.torch_sparse.ind2ptr(torch.tensor([0, 2]), 3).tolist() == [0, 1, 1, 2]
