"""Hashes, look-ups, voxels, points and coarser coordinates against dictionaries."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnn_sparse_backend.integrations import torchsparse as ts
from gnn_sparse_backend.integrations.torchsparse import conventions
from gnn_sparse_backend.integrations.torchsparse.nn import functional as F
from gnn_sparse_backend.integrations.torchsparse.nn.utils import get_kernel_offsets

ints = st.integers(-(2**31), 2**31 - 1)
small = st.integers(-3, 3)
versions = st.sampled_from(("2.1", "1.4"))


def rows(*columns, most=12):
    return st.lists(st.tuples(*columns), max_size=most)


def matrix(values, columns: int, dtype=torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype).view(-1, columns)


def fnv(row) -> int:
    """FNV-1a of words of 32 bits, folded to 60 bits."""
    found = 14695981039346656037
    for word in row:
        found = ((found ^ (word % 2**32)) * 1099511628211) % 2**64
    return (found >> 60) ^ (found & (2**60 - 1))


@settings(max_examples=40, deadline=None)
@given(rows(ints, ints, ints, ints), rows(small, small, small, most=4), versions)
def test_hashes(coords, offsets, version):
    conventions.follow(version)
    assert F.sphash(matrix(coords, 4)).tolist() == [fnv(row) for row in coords]
    first = version == "2.1"
    moved = [
        [fnv((row[0], *(x + y for x, y in zip(row[1:], o))) if first else (*(x + y for x, y in zip(row, o)), row[3]))
         for row in coords]
        for o in offsets
    ]  # fmt: skip
    found = F.sphash(matrix(coords, 4), matrix(offsets, 3))
    assert found.shape == (len(offsets), len(coords)) and found.tolist() == moved


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-4, 4), max_size=8), st.lists(st.integers(-4, 4), max_size=8))
def test_queries(references, queries):
    place = {}
    for at, key in enumerate(references):
        place.setdefault(key, at)
    found = F.sphashquery(matrix(queries, 1, torch.int64), matrix(references, 1, torch.int64).view(-1))
    assert found.shape == (len(queries), 1) and found.view(-1).tolist() == [place.get(key, -1) for key in queries]


@settings(max_examples=30, deadline=None)
@given(rows(small, small, small, st.integers(0, 1)), rows(small, small, small, st.integers(0, 1)),
       st.sampled_from((1, 2, 3, (3, 1, 1), (1, 2, 3))), st.integers(1, 2))  # fmt: skip
def test_hash_tables(there, wanted, kernel, stride):
    there = list(dict.fromkeys(there))
    place = {row: at + 1 for at, row in enumerate(there)}
    offsets = get_kernel_offsets(kernel).tolist()
    table = ts.backend.GPUHashTable(torch.zeros(64), torch.zeros(64))
    with pytest.raises(RuntimeError, match="call insert_coords before"):
        table.lookup_coords(matrix(wanted, 4), torch.ones(3), torch.ones(3), 1)
    table.insert_coords(matrix(there, 4))
    kernel_size = torch.tensor(kernel if isinstance(kernel, tuple) else (kernel,) * 3)
    found = table.lookup_coords(matrix(wanted, 4), kernel_size, torch.tensor([stride] * 3), len(offsets))
    expected = [[place.get((*(x * stride + y for x, y in zip(row, o)), row[3]), 0) for o in offsets] for row in wanted]
    assert found.dtype is torch.int32 and found.shape[0] % 128 == 0
    assert found[: len(wanted)].tolist() == expected and not found[len(wanted) :].any()


def test_offsets_are_numbered_by_the_parity_of_their_count():
    assert get_kernel_offsets(3)[:4].tolist() == [[-1, -1, -1], [0, -1, -1], [1, -1, -1], [-1, 0, -1]]
    assert get_kernel_offsets(2)[:3].tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert get_kernel_offsets((1, 2, 3), (1, 2, 1), 2).tolist() == [[0, y, z] for y in (0, 4) for z in (-2, 0, 2)]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-1, 3), min_size=1, max_size=12), st.booleans())
def test_voxels_are_means(index, counted):
    idx, feats = torch.tensor(index).int(), torch.randn(len(index), 4).double().requires_grad_()
    counts = F.spcount(idx, 4)
    assert counts.dtype is torch.int32 and counts.tolist() == [index.count(v) for v in range(4)]
    if not counted:
        counts = torch.tensor([2, 0, 1, 5]).int()
    wanted = torch.zeros(4, 4).double()
    for row, voxel in enumerate(index):
        if voxel >= 0 and counts[voxel]:
            wanted[voxel] = wanted[voxel] + feats[row] / counts[voxel]
    found = F.spvoxelize(feats, idx, counts)
    torch.testing.assert_close(found, wanted)
    if wanted.requires_grad:
        cotangent = torch.randn_like(wanted)
        ours, theirs = (torch.autograd.grad(y, feats, cotangent)[0] for y in (found, wanted))
        torch.testing.assert_close(ours, theirs)


@settings(max_examples=30, deadline=None)
@given(rows(*[st.integers(-1, 4)] * 8, most=6), st.integers(0, 99))
def test_points_are_sums_of_voxels(index, seed):
    torch.manual_seed(seed)
    idx, weights = matrix(index, 8), torch.rand(len(index), 8).double().requires_grad_()
    feats = torch.randn(5, 4).double().requires_grad_()
    found = F.spdevoxelize(feats, idx, weights)
    there = (idx >= 0).double() * weights.detach()
    wanted = (there[:, :, None] * feats[idx.long().clamp(min=0)]).sum(1)
    torch.testing.assert_close(found, wanted)
    cotangent = torch.randn_like(wanted)
    found.backward(cotangent)
    torch.testing.assert_close(feats.grad, torch.autograd.grad(wanted, feats, cotangent)[0])
    assert weights.grad is None


@settings(max_examples=30, deadline=None)
@given(rows(*[st.floats(-4, 4, width=16)] * 3, most=5), st.sampled_from((1, 2)), st.integers(0, 255), versions)
def test_trilinear_weights(points, scale, missing, version):
    """A corner weighs the volume of the box across from it; missing corners share theirs out among the others."""
    conventions.follow(version)
    place = torch.tensor(points, dtype=torch.float64).view(-1, 3)
    there = [not missing >> corner & 1 for corner in range(8)]
    idx = torch.tensor([0 if each else -1 for each in there]).repeat(len(points), 1)
    wanted = torch.zeros(len(points), 8).double()
    for row, point in enumerate(points):
        for corner, high in enumerate(itertools.product((0, 1), repeat=3)):
            beyond = [x / scale - np.floor(x / scale) for x in point]
            wanted[row, corner] = there[corner] * np.prod([b if h else 1 - b for b, h in zip(beyond, high)])
    wanted /= wanted.sum(1, keepdim=True) + 1e-8
    last = version == "1.4"
    found = F.calc_ti_weights(place, idx.t() if last else idx, scale)
    torch.testing.assert_close(found.t() if last else found, wanted)


@settings(max_examples=40, deadline=None)
@given(rows(st.integers(0, 1), *[st.integers(0, 6)] * 3), st.sampled_from(("spconv", "minkowski")),
       st.integers(1, 3), st.integers(1, 3), st.integers(0, 1))  # fmt: skip
def test_coarser_coordinates(coords, mode, stride, kernel, padding):
    found = F.spdownsample(matrix(coords, 4), stride, kernel, padding, None, mode)
    if not coords:
        assert found.shape == (0, 4)
        return
    if mode == "minkowski" or stride in (1, kernel):
        wanted = {(b, *(x // stride for x in cell)) for b, *cell in coords}
    else:
        ends = [(max(c[a] for c in coords) + 2 * padding - (kernel - 1)) // stride for a in (1, 2, 3)]
        wanted = set()
        for b, *cell in coords:
            for step in itertools.product(range(kernel), repeat=3):
                moved = [x + padding - k for x, k in zip(cell, step)]
                if all(x % stride == 0 and 0 <= x // stride <= end for x, end in zip(moved, ends)):
                    wanted.add((b, *(x // stride for x in moved)))
    assert found.dtype is torch.int32 and found.tolist() == sorted(map(list, wanted))


def test_coarser_coordinates_of_the_finest_grid():
    conventions.follow("1.4")
    coords = torch.tensor([[4, 2, 0, 1], [6, 2, 0, 0], [6, 2, 0, 0]]).int()
    assert F.spdownsample(coords, 2, 2, 2).tolist() == [[4, 0, 0, 0], [4, 0, 0, 1]]


def test_finer_coordinates():
    fine = F.spupsample_generative(torch.tensor([[0, 1, 0, 0]]).int(), 2, (3, 1, 1), 0, (1, 3, 9, 9))
    assert fine.tolist() == [[0, 1, 0, 0], [0, 2, 0, 0]]


@settings(max_examples=30, deadline=None)
@given(rows(*[st.floats(-9, 9)] * 3), st.sampled_from((0.5, 2, (0.5, 1.0, 3.0))), versions)
def test_quantisation(points, size, version):
    from gnn_sparse_backend.integrations.torchsparse.utils.quantize import sparse_quantize

    conventions.follow(version)
    coords = np.array(points, dtype=np.float64).reshape(-1, 3)
    voxels, index, inverse = sparse_quantize(coords, size, return_index=True, return_inverse=True)
    cells = [tuple(row) for row in np.floor(coords / np.array(size)).astype(int).tolist()]
    low = [min((c[axis] for c in cells), default=0) for axis in range(3)] if version == "1.4" else [0] * 3
    ascending = sorted(set(cells))
    assert voxels.dtype == np.int32
    assert voxels.tolist() == [[x - y for x, y in zip(cell, low)] for cell in ascending]
    assert index.tolist() == [cells.index(cell) for cell in ascending]
    assert inverse.tolist() == [ascending.index(cell) for cell in cells]
    assert sparse_quantize(coords, size).tolist() == voxels.tolist()


@pytest.mark.parametrize(
    "call, told",
    [
        (
            lambda f: f.sphash(torch.zeros(2, 4)),
            r"coords must have shape \(N, 4\) and int32, got \(2, 4\) and ",
        ),
        (lambda f: f.sphash(torch.zeros(2, 4).int(), torch.zeros(2, 4).int()), r"offsets must have shape \(N, 3\)"),
        (lambda f: f.spdownsample(torch.zeros(1, 4).int(), 2, 3, 0, None, "other"), "downsample_mode must be one of"),
        (lambda f: f.set_kmap_mode("grid"), "kmap_mode must be one of .* got 'grid'"),
        (
            lambda f: f.spdevoxelize(torch.zeros(2, 4), torch.zeros(3).int(), torch.zeros(3)),
            "rows .P, K. are matrices",
        ),
    ],
)
def test_wrong_use_is_told(call, told):
    with pytest.raises(ValueError, match=told):
        call(F)
