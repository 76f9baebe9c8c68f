"""Features at points between sites, by a dictionary of sites in float64."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from gnn_sparse_backend import nn
from gnn_sparse_backend.nn.voxels.interpolation import MODES

from .test_convolution import QUIET
from .test_sites import sites_of, tensors


def by_hand(x: nn.SparseTensor, points: torch.Tensor, mode: str) -> torch.Tensor:
    numbers, results = sites_of(x), []
    for batch, *position in points.tolist():
        at = [p / s for p, s in zip(position, x.stride)]
        found = 0 * x.features.sum() + x.features.new_zeros(x.shape[1])
        for corner in itertools.product((0, 1), repeat=x.dim) if mode == "linear" else [(0,) * x.dim]:
            site = (int(batch), *(math.floor(p) + c for p, c in zip(at, corner)))
            weight = math.prod(1 - abs(p - s) for p, s in zip(at, site[1:])) if mode == "linear" else 1
            if site in numbers:
                found = found + weight * x.features[numbers[site]]
        results.append(found)
    return torch.stack(results)


@settings(max_examples=60, **QUIET)
@given(tensors(1), st.sampled_from(MODES), st.integers(1, 6), st.integers(0, 2**16))
def test_equals_a_dictionary(given_tensors, mode, count, seed):
    (x,) = given_tensors
    torch.manual_seed(seed)
    points = torch.cat([torch.randint(0, 4, (count, 1)), 12 * torch.rand(count, x.dim, dtype=torch.float64) - 6], 1)
    points[0] = points[0].round()  # at the corner of a voxel
    found, wanted = nn.interpolate(x, points, mode), by_hand(x, points, mode)
    torch.testing.assert_close(found, wanted)
    cotangent = torch.randn_like(wanted)
    ours, theirs = (torch.autograd.grad(y, x.features, cotangent) for y in (found, wanted))
    torch.testing.assert_close(ours, theirs)


def some(dtype=torch.float64) -> nn.SparseTensor:
    torch.manual_seed(0)
    sites = torch.randint(0, 3, (20, 3)).unique(dim=0)
    return nn.SparseTensor(torch.randn(len(sites), 4, dtype=dtype).requires_grad_(), sites)


def test_types_and_derivatives():
    x, points = some(), torch.rand(5, 3) * 3
    points[:, 0] = torch.arange(5) // 2
    for mode in MODES:
        function = lambda f, mode=mode: nn.interpolate(x.with_features(f), points, mode)
        assert gradcheck(function, x.features) and gradgradcheck(function, x.features)
        low = nn.interpolate(x.to(torch.bfloat16), points.double(), mode)
        assert low.dtype == torch.bfloat16
        torch.testing.assert_close(low.double(), function(x.features), rtol=2e-2, atol=5e-2)
    assert nn.interpolate(x, points[:0]).shape == (0, 4)
    rows, weights = torch.tensor([[0, 3], [-1, 2], [-1, -1]]), torch.rand(3, 2, dtype=torch.float64).requires_grad_()
    function = lambda f, w: nn.blend(f, rows, w)
    assert gradcheck(function, (x.features, weights)) and gradgradcheck(function, (x.features, weights))
    wanted = torch.where(rows[:, :, None] >= 0, x.features[rows.clamp(min=0)] * weights[:, :, None], 0).sum(1)
    torch.testing.assert_close(function(x.features, weights), wanted)


def test_what_does_not_fit_is_quoted():
    x = some()
    for points, error, words in (
        (torch.rand(4, 2), ValueError, r"shape \(P, 3\), the batch first, .* got \(4, 2\)"),
        (torch.zeros(4, 3, dtype=torch.int64), TypeError, "points must be float32"),
        (torch.tensor([[0, 1.5, 0], [0, math.nan, 0]]), ValueError, r"points\[1\] = \[0.0, nan, 0.0\]"),
        (torch.tensor([[0.5, 1, 0]]), ValueError, r"points\[0\] = \[0.5, 1.0, 0.0\] is no whole batch"),
    ):
        with pytest.raises(error, match=words):
            nn.interpolate(x, points)
    with pytest.raises(ValueError, match="cubic"):
        nn.interpolate(x, torch.rand(4, 3), "cubic")
    with pytest.raises(ValueError, match=r"rows\[0\] = 99"):
        nn.blend(x.features, torch.tensor([[99]]))
    with pytest.raises(ValueError, match=r"shape of rows, \(1, 1\), got \(1, 2\)"):
        nn.blend(x.features, torch.tensor([[0]]), torch.rand(1, 2))
