"""``torch.jit.trace`` records our operators. spconv's own it records with wrong results, or fails."""

import pytest
import spconv.pytorch as spconv
import torch
from spconv.pytorch import functional
from torch import nn

import gnn_sparse_backend as gsb

from .oracle import WIDTH, counts, layer, random_tensor, same


def network(x):
    """A network with a layer of every kind, and the names that they are counted by."""
    down = layer("SparseConv", 2, WIDTH, WIDTH, 3, 2, 1, indice_key="down", dtype=torch.float64)
    stem = layer("SubMConv", 2, WIDTH, WIDTH, 3, indice_key="fine", dtype=torch.float64)
    up = layer("SparseInverseConv", 2, WIDTH, WIDTH, 3, "down", dtype=torch.float64)
    pools = spconv.SparseMaxPool2d(2, 2), spconv.SparseGlobalAvgPool()
    model = nn.ModuleList([stem, down, up]).requires_grad_(False)

    def run(features):
        y = model[0](x.replace_feature(features))
        y = functional.sparse_add(y, model[2](model[1](y)))
        return y.features, pools[1](pools[0](y))

    return run, ("SubMConv", "SparseConv", "SparseInverseConv", "sparse_add", "SparseMaxPool", "SparseGlobalAvgPool")


@pytest.mark.parametrize("before", [False, True])
def test_what_is_recorded_runs_on_other_features(before):
    """before: the sites are known, or are found while it is recorded, and are right afterwards too."""
    x = random_tensor(2, torch.float64)
    run, names = network(x)
    other = torch.randn_like(x.features, requires_grad=True)
    with gsb.enabled("spconv"):
        if before:
            run(other)
        traced = torch.jit.trace(run, x.features, check_trace=False)
        assert counts() == dict.fromkeys(names, 2 if before else 1)
        found, wanted = traced(other), run(other)
        for ours, theirs in zip(found, wanted):
            same(ours, theirs, torch.float64)
        total = [sum(y.square().sum() for y in results) for results in (found, wanted)]
        (ours,), (theirs,) = (torch.autograd.grad(each, other) for each in total)
        same(ours, theirs, torch.float64)
