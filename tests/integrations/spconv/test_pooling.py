"""Pooling layers: spconv's own results where it has some on the CPU, and sites gathered by hand."""

import pytest
import spconv.pytorch as spconv
import torch
from spconv.core import ConvAlgo

import gnn_sparse_backend as gsb

from .oracle import WIDTH, counts, layer, random_tensor, same, same_tensor


def windows(x, out, kernel: int) -> list[torch.Tensor]:
    """The features of the sites in the window of each site of ``out``, of kernel and stride ``kernel``."""
    cells = x.indices.clone()
    cells[:, 1:] //= kernel
    return [x.features[(cells == row).all(1)] for row in out.indices]


@pytest.mark.parametrize("dim", [pytest.param(1, marks=pytest.mark.exhaustive), 2, 3])
def test_max_is_spconvs_forward_and_backward(dim):
    """That of ConvAlgo.Native is 0 where all sites of a window are negative."""
    module = layer("SparseMaxPool", dim, 3, 2, 1, indice_key="pool")
    up = layer("SparseInverseConv", dim, WIDTH, WIDTH, 3, "pool")
    x = random_tensor(dim)
    with gsb.enabled("spconv"):
        found = module(x)
        back = up(found)
    assert counts() == {"SparseMaxPool": 1, "SparseInverseConv": 1}
    wanted = module(x)
    same_tensor(found, wanted)
    assert (wanted.features == 0).any()
    same_tensor(back, up(wanted))
    weights = torch.randn(2, *found.spatial_shape, WIDTH)
    at = lambda y: weights[tuple(y.indices.long().unbind(1))]
    for ours, theirs in zip(
        torch.autograd.grad(found.features, x.features, at(found)),
        torch.autograd.grad(wanted.features, x.features, at(wanted)),
    ):
        same(ours, theirs, torch.float32)


def test_max_of_another_algorithm_is_the_largest_site():
    module = layer("SparseMaxPool", 2, 2, 2)
    module.algo = ConvAlgo.MaskImplicitGemm  # the constructor of a build without CUDA refuses it
    x = random_tensor(2)
    with gsb.enabled("spconv"):
        found = module(x)
    assert torch.equal(found.features, torch.stack([rows.amax(0) for rows in windows(x, found, 2)]))
    assert (found.features < 0).any()


def test_mean_is_over_the_sites_that_exist():
    """spconv itself has it on GPUs alone."""
    module, x = layer("SparseAvgPool", 3, 2, 2, record_voxel_count=True), random_tensor(3, torch.float64, 40)
    with gsb.enabled("spconv"):
        found = module(x)
    assert counts() == {"SparseAvgPool": 1} and module.get_max_num_voxels().item() == len(found.indices)
    wanted = torch.stack([rows.mean(0) for rows in windows(x, found, 2)])
    same(found.features, wanted, torch.float64)
    cotangent = torch.randn_like(wanted)
    (ours,), (theirs,) = (torch.autograd.grad(y, x.features, cotangent) for y in (found.features, wanted))
    same(ours, theirs, torch.float64)
    assert found.spatial_shape == [2, 2, 2]


@pytest.mark.parametrize("name, reduce", [("SparseGlobalMaxPool", torch.amax), ("SparseGlobalAvgPool", torch.mean)])
def test_global_pooling_is_of_every_channel_of_a_batch(name, reduce):
    """spconv itself has it on GPUs alone, and the mean of the first channel alone."""
    x = random_tensor(2, torch.float64)
    with gsb.enabled("spconv"):
        found = getattr(spconv, name)()(x)
    wanted = torch.stack([reduce(x.features[x.indices[:, 0] == batch], 0) for batch in range(2)])
    same(found, wanted, torch.float64)
    assert counts() == {name: 1}
    cotangent = torch.randn_like(wanted)
    (ours,), (theirs,) = (torch.autograd.grad(y, x.features, cotangent) for y in (found, wanted))
    same(ours, theirs, torch.float64)
