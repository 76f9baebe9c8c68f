"""Tensors on other sites than they were on: unions, selections and the way back from them, by dictionaries of sites."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from gnn_sparse_backend import nn

from .test_convolution import QUIET


def sites_of(x: nn.SparseTensor) -> dict[tuple[int, ...], int]:
    return {tuple(row): number for number, row in enumerate(x.coordinates.tolist())}


@st.composite
def tensors(draw, count: int):
    """Tensors on one grid, some of them on few sites or none."""
    dim = draw(st.integers(1, 5))
    cell = st.tuples(st.integers(0, 2), *[st.integers(-2, 2)] * dim)
    torch.manual_seed(draw(st.integers(0, 2**16)))
    found = []
    for _ in range(count):
        rows = draw(st.lists(cell, unique=True, max_size=9))
        dtype = draw(st.sampled_from((torch.int32, torch.int64)))
        rows = torch.tensor(rows, dtype=dtype).view(-1, dim + 1)
        features = torch.randn(len(rows), draw(st.integers(1, 3)), dtype=torch.float64).requires_grad_()
        found.append(nn.SparseTensor(features, rows, stride=2))
    return found


@settings(max_examples=60, **QUIET)
@given(tensors(3))
def test_union_equals_dictionaries(given_tensors):
    results = nn.union(*given_tensors)
    wanted: dict[tuple[int, ...], None] = {}
    for x in given_tensors:
        wanted |= dict.fromkeys(sites_of(x))
    for x, y in zip(given_tensors, results, strict=True):
        assert y.sites is results[0].sites and y.stride == (2,) * x.dim
        assert list(sites_of(y)) == list(wanted)
        assert y.batch_size == max(z.batch_size for z in given_tensors)
        numbers, zeros = sites_of(x), x.features.new_zeros(x.shape[1])
        expected = [x.features[numbers[site]] if site in numbers else zeros for site in wanted]
        expected = (torch.stack(expected) if expected else x.features) + 0 * x.features.sum()
        assert torch.equal(y.features, expected)
        cotangent = torch.randn_like(expected)
        (gradient,) = torch.autograd.grad(y.features, x.features, cotangent, retain_graph=True)
        (theirs,) = torch.autograd.grad(expected, x.features, cotangent, materialize_grads=True)
        assert torch.equal(gradient, theirs)
    if not set(wanted) - set(sites_of(given_tensors[0])) and results[0].batch_size == given_tensors[0].batch_size:
        assert results[0].sites is given_tensors[0].sites


def some(seed: int = 0, dtype=torch.float64) -> nn.SparseTensor:
    torch.manual_seed(seed)
    sites = torch.cat([torch.randint(0, 2, (25, 1)), torch.randint(-3, 4, (25, 2))], 1).unique(dim=0)
    sites = sites[torch.randperm(len(sites))]
    return nn.SparseTensor(torch.randn(len(sites), 3, dtype=dtype).requires_grad_(), sites)


def test_union_is_made_once_and_keeps_the_way_back():
    x, y = some(), nn.select(some(), torch.arange(4))
    one = nn.union(y, x)[0]
    assert nn.union(y, x)[0].sites is one.sites
    assert nn.union(x, y)[1].sites is x.sites
    assert nn.union(x) == (x,) and nn.union(x, x + 1)[0] is x
    down = nn.SparseConv(3, 3, 2, 2, dim=2).double()
    coarse, _ = nn.union(down(x), down(some(1)))
    up = nn.SparseConvTranspose(3, 3, 2, 2, dim=2).double()
    assert up(coarse).coordinates is x.coordinates
    assert nn.SparseInverseConv(3, 3, 2, dim=2).double()(coarse).coordinates is x.coordinates
    features = x.features[:6].detach().clone().requires_grad_()
    y = nn.SparseTensor(features, x.coordinates[:6])
    function = lambda f: (lambda a, b: (a * b).features)(*nn.union(y.with_features(f), x))
    assert gradcheck(function, features) and gradgradcheck(function, features)
    with pytest.raises(ValueError, match=r"union wants tensors on one grid, got .*stride \(1, 1\).*stride \(2, 2\)"):
        nn.union(x, coarse)
    with pytest.raises(ValueError, match="nn.union puts tensors of one grid"):
        x + y
    with pytest.raises(TypeError, match="got none"):
        nn.union()


@settings(max_examples=60, **QUIET)
@given(tensors(1), st.randoms(use_true_random=False))
def test_selections(given_tensors, random):
    (x,) = given_tensors
    rows = random.sample(range(len(x)), random.randint(0, len(x)))
    by_mask = torch.zeros(len(x), dtype=torch.bool)
    by_mask[rows] = True
    for chosen, order in ((torch.tensor(rows, dtype=torch.int64), rows), (by_mask, sorted(rows))):
        y = nn.select(x, chosen)
        assert torch.equal(y.coordinates, x.coordinates[order]) and torch.equal(y.features, x.features[order])
        assert y.batch_size == x.batch_size and y.stride == x.stride
        cotangent = torch.randn_like(y.features)
        ours, theirs = (torch.autograd.grad(f, x.features, cotangent) for f in (y.features, x.features[order]))
        assert torch.equal(ours[0], theirs[0])
        if len(x):  # maps of the chosen sites are those of a tensor of these sites
            again = nn.SparseTensor(y.features, y.coordinates, 2, x.batch_size)
            conv = nn.SubMConv(x.shape[1], 2, 3, dim=x.dim).double()
            torch.testing.assert_close(conv(y).features, conv(again).features)


def test_selections_return():
    x = some()
    down, up = nn.SparseConv(3, 3, 3, 2, dim=2).double(), nn.SparseConvTranspose(3, 3, 3, 2, dim=2).double()
    coarse = down(x)
    pruned = nn.select(coarse, coarse.features[:, 0] > 0)
    assert 0 < len(pruned) < len(coarse)
    found = up(pruned)
    assert found.coordinates is x.coordinates
    zeros = torch.where(coarse.features[:, :1] > 0, coarse.features, 0)
    torch.testing.assert_close(found.features, up(coarse.with_features(zeros)).features)
    assert nn.SparseInverseConv(3, 3, 3, dim=2).double()(pruned).coordinates is x.coordinates
    assert nn.select(x, torch.ones(len(x), dtype=torch.bool)) is x
    for rows, error, words in (
        (torch.ones(3, dtype=torch.bool), ValueError, r"one for each site, got \(3,\)"),
        (torch.tensor([1, 2, 1]), ValueError, "rows 0 and 2 are both 1"),
        (torch.tensor([0, 99]), ValueError, r"rows\[1\] = 99"),
        (torch.tensor([0.5]), TypeError, "must hold integers"),
    ):
        with pytest.raises(error, match=words):
            nn.select(x, rows)
