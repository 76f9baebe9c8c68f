"""``gsb.voxelize`` against a dictionary of points by voxel."""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd import gradcheck

import gnn_sparse_backend as gsb

FOLD = {"mean": lambda x: sum(x) / len(x), "sum": sum, "max": max, "min": min}


def by_hand(points, sizes, batch, reduce):
    voxels: dict = {}
    for number, (point, b) in enumerate(zip(points.tolist(), batch.tolist())):
        voxels.setdefault((b, *(math.floor(p / s) for p, s in zip(point, sizes))), []).append(number)
    order = sorted(voxels)
    features = [[FOLD[reduce](column) for column in zip(*points[voxels[v]].tolist())] for v in order]
    inverse = [0] * len(points)
    for row, voxel in enumerate(order):
        for number in voxels[voxel]:
            inverse[number] = row
    return torch.tensor(order), torch.tensor(features, dtype=points.dtype), torch.tensor(inverse)


@pytest.mark.parametrize("reduce", FOLD)
def test_points_of_a_voxel_become_one_site(reduce):
    torch.manual_seed(1)
    points, batch = torch.randn(200, 4, dtype=torch.float64) * 2, torch.randint(0, 3, (200,))
    for size, sizes in ((0.5, (0.5,) * 3), ((0.5, 1, 2), (0.5, 1, 2)), ((0.7,), (0.7,))):
        found, wanted = gsb.voxelize(points, size, batch, reduce), by_hand(points, sizes, batch, reduce)
        assert torch.equal(found[0].long(), wanted[0]) and found[0].dtype == torch.int32
        torch.testing.assert_close(found[1], wanted[1])
        assert torch.equal(found[2], wanted[2])


def test_gradients_and_no_points():
    points = (torch.randn(20, 3, dtype=torch.float64) * 2).requires_grad_()
    assert gradcheck(lambda p: gsb.voxelize(p, 0.9)[1], points)
    coordinates, features, inverse = gsb.voxelize(torch.zeros(0, 5), 1.0)
    assert coordinates.shape == (0, 4) and features.shape == (0, 5) and inverse.shape == (0,)
    far = torch.tensor([[2.0**40, 0, 0], [0, 0, 0]], dtype=torch.float64)
    assert gsb.voxelize(far, 1.0)[0].tolist() == [[0, 0, 0, 0], [0, 2**40, 0, 0]]


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ((torch.zeros(3, 3).long(), 1), TypeError, "points must be float32, .* got torch.int64"),
        ((torch.zeros(3), 1), ValueError, r"points must have shape \(N, D \+ E\), got \(3,\)"),
        ((torch.zeros(3, 3), 0.0), ValueError, "positive and finite, got 0.0"),
        ((torch.zeros(3, 3), "a"), TypeError, "got 'a'"),
        ((torch.zeros(3, 2), (1, 1, 1)), ValueError, r"points have 2 columns, got \(1, 1, 1\)"),
        ((torch.tensor([[0.0, torch.nan, 0.0]]), 1), ValueError, r"points\[0\] = \[0.0, nan, 0.0\]"),
        ((torch.tensor([[0.0, 0, 0], [1e30, 0, 0]]), 1), ValueError, r"points\[1\] = "),
        ((torch.tensor([[0.0] * 3, [1e9] * 3]), 1), ValueError, "64-bit keys cannot number"),
        ((torch.zeros(3, 3), 1, torch.zeros(2).long()), ValueError, r"each of 3 points .* got shape \(2,\)"),
        ((torch.zeros(3, 3), 1, torch.tensor([0, -1, 0])), ValueError, r"batch\[1\] = -1"),
        ((torch.zeros(3, 3), 1, None, "median"), ValueError, "median"),
    ],
)
def test_bad_input_is_quoted(arguments, error, words):
    with pytest.raises(error, match=words):
        gsb.voxelize(*arguments)
