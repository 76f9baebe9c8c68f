"""Sums of tensors on different sites, of which spconv has no gradients on the CPU, and by hashing nothing at all."""

import pytest
import spconv.pytorch as spconv
import torch
from spconv.pytorch import functional
from spconv.pytorch.tables import AddTableMisaligned

import gnn_sparse_backend as gsb

from .oracle import WIDTH, counts, in_order, layer, random_tensor, same

ADDITIONS = {
    "sparse_add": lambda *tensors: functional.sparse_add(*tensors),
    "sparse_add_hash_based": lambda *tensors: functional.sparse_add_hash_based(*tensors),
    "AddTableMisaligned": lambda *tensors: AddTableMisaligned()(list(tensors)),
}


def part(x, rows):
    """Some sites of a tensor, in another order."""
    rows = torch.tensor(rows)[torch.randperm(len(rows))]
    features = torch.randn(len(rows), WIDTH, dtype=x.features.dtype, requires_grad=True)
    return spconv.SparseConvTensor(features, x.indices[rows], x.spatial_shape, x.batch_size)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("addition", ADDITIONS)
def test_sums_are_those_of_dense_tensors(addition, count):
    x = random_tensor(3, torch.float64, 40)
    tensors = [part(x, rows) for rows in (range(0, 25), range(15, 40), range(30, 31))][:count]
    with gsb.enabled("spconv"):
        found = ADDITIONS[addition](*tensors)
    assert counts() == {"sparse_add": 1}
    dense = sum(tensor.dense() for tensor in tensors)
    same(found.dense(), dense, torch.float64)
    assert len(found.indices) == (25, 40, 40)[count - 1] and found.indices.dtype is torch.int32
    weights = torch.randn_like(dense)
    features = [tensor.features for tensor in tensors]
    for ours, theirs in zip(
        torch.autograd.grad(found.dense(), features, weights), torch.autograd.grad(dense, features, weights)
    ):
        same(ours, theirs, torch.float64)


def test_spconv_adds_the_same_sites():
    x = random_tensor(2)
    tensors = part(x, range(12)), part(x, range(8, 20))
    with gsb.enabled("spconv"):
        found = functional.sparse_add(*tensors)
    wanted = functional.sparse_add(*tensors)
    assert torch.equal(found.indices, wanted.indices), "both ascend"
    same(found.features, wanted.features, torch.float32)
    assert found.spatial_shape == wanted.spatial_shape and not found.indice_dict


def test_at_the_sites_of_one_the_way_back_is_kept():
    """The sum has the order that the maps of this tensor are of."""
    down = layer("SparseConv", 2, WIDTH, WIDTH, 3, 2, 1, indice_key="down")
    up = layer("SparseInverseConv", 2, WIDTH, WIDTH, 3, "down")
    with gsb.enabled("spconv"):
        coarse = down(random_tensor(2))
        other = part(coarse, range(0, len(coarse.indices), 2))
        total = functional.sparse_add(other, coarse)
        back = up(total)
        dense = coarse.replace_feature(
            (coarse.dense() + other.dense())[
                (coarse.indices[:, 0].long(), slice(None), *coarse.indices[:, 1:].long().unbind(1))
            ]
        )
        wanted = up(dense)
    assert total.indices is coarse.indices
    for ours, theirs in zip(in_order(back), in_order(wanted)):
        same(ours, theirs, torch.float32)


def test_what_does_not_go_together_is_spconvs_to_refuse():
    x, y = random_tensor(2), random_tensor(2, torch.float64)
    other = spconv.SparseConvTensor(x.features, x.indices, [9, 9], 2)
    with gsb.enabled("spconv"):
        with pytest.raises(AssertionError):
            functional.sparse_add_hash_based(x, other)
        with pytest.raises(RuntimeError):
            functional.sparse_add_hash_based(x, y)
    rows = gsb.status().to_dict()["calls"]["spconv"]
    assert rows == {"sparse_add": {"ours": 0, "fallbacks": {"the shapes do not fit": 2}}}
