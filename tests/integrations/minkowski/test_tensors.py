"""Sparse tensors, tensor fields, keys and managers."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch

from . import oracle
from .oracle import random_sites, rows_of, same, same_gradients
from .test_convolution import tensor


def test_what_a_tensor_has(ME):
    rows = random_sites(20, 2)
    features = torch.randn(len(rows), 3)
    x = ME.SparseTensor(features, rows, requires_grad=True)
    assert x.F is features is x.features and torch.equal(x.C, rows) and x.C.dtype == torch.int32
    assert (len(x), x.D, x.dimension, x.shape, x.size()) == (len(rows), 2, 2, features.shape, features.shape)
    assert x.requires_grad and x.dtype == torch.float32 and x.device.type == "cpu" and x.tensor_stride == [1, 1]
    assert x.coordinate_key is x.coordinate_map_key and x.coordinate_map_key.get_key() == ([1, 1], "")
    assert "SparseTensor" in repr(x) and x.double().F.dtype == torch.float64 and not x.detach().requires_grad
    again = ME.SparseTensor(
        torch.ones(len(x), 1), coordinate_map_key=x.coordinate_map_key, coordinate_manager=x.coordinate_manager
    )
    assert torch.equal(again.C, x.C)
    again.C.zero_()  # which somebody may do to his own
    assert torch.equal(x.C, rows) and torch.equal(x.coordinate_manager.get_coordinates(1), rows)
    for made in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert torch.equal(made.F, x.F) and torch.equal(made.C, x.C)
    with pytest.warns(UserWarning, match="rounded down"):
        rounded = ME.SparseTensor(features, rows + 0.5)
    assert torch.equal(rounded.C, rows)


def test_batches_apart(ME):
    rows = torch.tensor([[2, 5, 1], [0, 1, 1], [2, 0, 0]]).int()
    x = ME.SparseTensor(torch.arange(3.0)[:, None], rows)
    assert [each.tolist() for each in x.decomposed_coordinates] == [[[1, 1]], [], [[5, 1], [0, 0]]]
    coordinates, features = x.decomposed_coordinates_and_features
    assert [each.flatten().tolist() for each in features] == [[1], [], [0, 2]]
    assert [each.tolist() for each in x.decomposition_permutations] == [[1], [], [0, 2]]
    assert x.coordinates_at(2).tolist() == coordinates[2].tolist() and x.features_at(0).tolist() == [[1]]
    assert [each.tolist() for each in x.coordinates_and_features_at(1)] == [[], []]
    assert x.coordinate_manager.number_of_unique_batch_indices() == 2


@pytest.mark.parametrize("in_place", [False, True])
def test_arithmetic_with_numbers_and_tensors(ME, in_place):
    def fresh():
        return ME.SparseTensor(x.F, coordinate_map_key=x._key, coordinate_manager=x._manager)

    x, y = tensor(ME, 2), torch.rand(3).double() + 1
    for name in ("add", "sub", "mul", "truediv"):
        plain = getattr(torch.Tensor, f"__{name}__")
        for other in (2.5, 3, y, x):
            found = getattr(fresh(), f"__{'i' if in_place else ''}{name}__")(other)
            same_gradients(found.F, plain(x.F, other.F if other is x else other), [x.F])
            assert found.coordinate_map_key == x.coordinate_map_key
    same((2 - x + y).F, 2 - x.F + y)
    same((1 / x).F, 1 / x.F)
    same((y * x).F, y * x.F)
    same((-(x**2)).F, -(x.F**2))
    other = tensor(ME, 2)
    with pytest.raises(ValueError, match="share one coordinate manager"):
        x + other
    with pytest.raises(TypeError):
        x + "1"


@pytest.mark.parametrize("grid", [1, 2])
def test_dense(ME, grid):
    x = tensor(ME, 2, grid)
    low = torch.tensor([-6 * grid, -8 * grid]).int()
    found, least, stride = x.dense(min_coordinate=low)
    assert least.tolist() == [low.tolist()] and stride.tolist() == [grid] * 2
    at = (x.C[:, 0].long(), *((x.C[:, 1:] - low) // grid).long().t())
    same_gradients(found.movedim(1, -1)[at], x.F, [x.F])
    assert found.abs().sum() == x.F.abs().sum()
    shape = torch.Size([3, 1, 20, 20])
    assert x.dense(shape, low)[0].shape == (3, 3, 20, 20)
    assert x.dense(min_coordinate=low, contract_stride=False)[0].shape[2] > 6 * grid
    with pytest.raises(ValueError, match="negative coordinates"):
        x.dense()
    with pytest.raises(ValueError, match="outside of"):
        x.dense(torch.Size([2, 3, 4, 4]), low)
    nothing = ME.SparseTensor(torch.ones(0, 3), torch.ones(0, 3).int())
    assert nothing.dense(torch.Size([2, 3, 4, 4]))[0].shape == (2, 3, 4, 4)


def test_sparse_tensors_of_pytorch(ME):
    x = tensor(ME, 2, 2)
    found, least, stride = x.sparse()
    assert least.tolist() == [(x.C[:, 1:].amin(0) // 2).tolist()] and stride.tolist() == [2, 2]
    dense = found.to_dense()
    at = (x.C[:, 0].long(), *(x.C[:, 1:] // 2 - least).long().t())
    same_gradients(dense[at], x.F, [x.F])
    low, high = torch.tensor([-8, -8]).int(), torch.tensor([10, 8]).int()
    assert x.sparse(low, high)[0].shape == (2, 10, 9, 3)
    assert x.sparse(low, high, contract_coords=False)[0].shape == (2, 19, 17, 3)
    with pytest.raises(ValueError, match="multiples of the stride"):
        x.sparse(torch.tensor([-7, -8]).int())


def test_dense_tensors_become_sparse(ME):
    dense = (torch.rand(2, 3, 4, 5, dtype=torch.float64) * (torch.rand(2, 1, 4, 5) > 0.5)).requires_grad_()
    there = (dense.detach() != 0).any(1, keepdim=True).double()
    for x, kept in (
        (ME.to_sparse(dense), there),
        (ME.to_sparse_all(dense), torch.ones_like(there)),
        (ME.MinkowskiToSparseTensor()(dense), torch.ones_like(there)),
    ):
        same_gradients(ME.MinkowskiToDenseTensor(dense.shape)(x), dense * kept, [dense])
    assert len(ME.to_sparse(dense)) < len(ME.to_sparse_all(dense)) == 40
    last = ME.to_sparse(dense.movedim(1, -1), "BXXC")
    same(last.dense(dense.shape)[0], dense)
    assert ME.dense_coordinates((1, 9, 2, 1, 2)).tolist() == [[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0], [0, 1, 0, 1]]
    assert ME.MinkowskiToFeature()(x) is x.F


def test_several_tensors(ME):
    x = tensor(ME, 2)
    y = ME.MinkowskiReLU()(x)
    stacked = torch.stack([x.F, y.F])
    for found, wanted in (
        (ME.cat(x, y), torch.cat([x.F, y.F], 1)),
        (ME.cat([x, y]), torch.cat([x.F, y.F], 1)),
        (ME.sum(x, y), stacked.sum(0)),
        (ME.mean(x, y), stacked.mean(0)),
        (ME.var(x, y), stacked.var(0, correction=0)),
        (ME.MinkowskiStackCat(ME.MinkowskiReLU(), ME.MinkowskiTanh())(x), torch.cat([x.F.relu(), x.F.tanh()], 1)),
        (ME.MinkowskiStackSum(ME.MinkowskiReLU(), ME.MinkowskiTanh())(x), x.F.relu() + x.F.tanh()),
    ):
        same_gradients(found.F, wanted, [x.F])
        assert found.coordinate_map_key == x.coordinate_map_key
    with pytest.raises(ValueError, match="one coordinate_map_key.*MinkowskiUnion"):
        ME.cat(x, ME.MinkowskiPruning()(x, torch.arange(len(x)) > 1))
    with pytest.raises(TypeError, match="at least two"):
        ME.cat(x)


def field(ME, count: int = 40, mode: str = "UNWEIGHTED_AVERAGE"):
    points = torch.cat([torch.randint(2, (count, 1)), torch.rand(count, 2) * 5 - 2.5], 1).double()
    features = torch.randn(count, 3, dtype=torch.float64, requires_grad=True)
    return ME.TensorField(features, points, quantization_mode=ME.SparseTensorQuantizationMode[mode])


@pytest.mark.parametrize("mode", ["UNWEIGHTED_AVERAGE", "UNWEIGHTED_SUM", "MAX_POOL", "RANDOM_SUBSAMPLE"])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_field_becomes_sparse_and_back(ME, mode, stride):
    f = field(ME, mode=mode)
    x = f.sparse(stride)
    cells = f.C.clone()
    cells[:, 1:] = (cells[:, 1:] / stride).floor() * stride
    of_point = torch.tensor([rows_of(x.C)[tuple(map(int, site))] for site in cells.tolist()])
    assert torch.equal(f.inverse_mapping(x.coordinate_map_key), of_point)
    reduced = {
        "UNWEIGHTED_AVERAGE": lambda each: each.mean(0),
        "UNWEIGHTED_SUM": lambda each: each.sum(0),
        "MAX_POOL": lambda each: each.amax(0),
        "RANDOM_SUBSAMPLE": lambda each: each[0],
    }[mode]
    same_gradients(x.F, torch.stack([reduced(f.F[of_point == row]) for row in range(len(x))]), [f.F])
    known = f.sparse(coordinate_map_key=x.coordinate_map_key)
    same(known.F, x.F)
    if mode in ("UNWEIGHTED_AVERAGE", "RANDOM_SUBSAMPLE"):
        same_gradients(x.slice(f).F, x.F[of_point], [f.F])
        assert torch.equal(x.cat_slice(f).F, torch.cat([x.F[of_point], f.F], 1)) and x.slice(f).C is f.C
        down = ME.MinkowskiAvgPooling(2, 2, dimension=2)(x)
        coarse = down.slice(f)
        cells[:, 1:] = (cells[:, 1:] / (2 * stride)).floor() * 2 * stride
        at = [rows_of(down.C)[tuple(map(int, site))] for site in cells.tolist()]
        same(coarse.F, down.F[at])
    else:
        with pytest.raises(ValueError, match="slice is for"):
            x.slice(f)


def test_splat_and_interpolation(ME):
    f = field(ME)
    x = f.splat()
    unit = torch.eye(len(x), dtype=torch.float64)
    weights = oracle.interpolated(unit, x.C, f.C, [1, 1])
    same(weights.sum(1), torch.ones(len(f)).double())
    same_gradients(x.F, weights.t() @ f.F, [f.F])
    back = x.interpolate(f)
    assert isinstance(back, ME.TensorField)
    same_gradients(back.F, weights @ x.F, [f.F])
    other = f.sparse()
    same(other.interpolate(f).F, oracle.interpolated(other.F, other.C, f.C, [1, 1]))


def test_a_slice_of_coordinates_that_were_merged(ME):
    rows = torch.tensor([[0, 1], [0, 2], [0, 1]]).int()
    x = ME.SparseTensor(torch.arange(3.0)[:, None], rows)
    found = ME.MinkowskiReLU()(x).slice(x)
    assert isinstance(found, ME.TensorField) and found.F.tolist() == [[0], [1], [0]]
    assert torch.equal(found.C, rows.float())


def test_managers(ME):
    x = tensor(ME, 2, count=12)
    manager, key = x.coordinate_manager, x.coordinate_map_key
    other, (first, inverse) = manager.insert_and_map(torch.cat([x.C, x.C[:2]]), [1, 1], "target")
    assert other.get_key() == ([1, 1], "target") and inverse.tolist()[-2:] == [0, 1] and len(first) == len(x)
    third, _ = manager.insert_and_map(x.C)
    assert third != key and third.get_tensor_stride() == [1, 1]
    strided = manager.stride(other, 2)
    assert strided.get_key() == ([2, 2], "target") and manager.stride(other, [2, 2]) == strided
    maps = manager.kernel_map(key, strided, kernel_size=3, stride=2)
    offsets = oracle.cube([3, 3], [1, 1], [1, 1])
    for k, met in enumerate(oracle.pairs(x.C, manager.get_coordinates(strided), offsets)):
        assert sorted(met) == sorted(map(tuple, maps[k].t().tolist())) if met else k not in maps
    assert {k: v.tolist() for k, v in manager.kernel_map(1, 1, kernel_size=1).items()} == {0: [list(range(len(x)))] * 2}
    pooled = manager.kernel_map(key, strided, kernel_size=2, stride=2, is_pool=True)
    assert sum(each.shape[1] for each in pooled.values()) == len(x)
    assert "sites" in repr(manager) and manager.size(key) == len(x)
    with pytest.raises(KeyError, match="no sites of"):
        manager.get_coordinates(ME.CoordinateMapKey([3, 3], "nowhere"))
    with pytest.raises(KeyError, match="nothing of stride"):
        manager.get_coordinates(7)
    with pytest.raises(ValueError, match="no multiple of the tensor_stride"):
        manager.insert_and_map(torch.tensor([[0, 2, 4], [0, 1, 2]]), 2)
    with pytest.raises(ValueError, match="coarser"):
        manager.kernel_map(strided, key)
    unset = ME.CoordinateMapKey(3)
    assert not unset.is_key_set() and unset.get_coordinate_size() == 3 and unset != ME.CoordinateMapKey(3)


def test_transposed_layers_stay_with_the_tensor_that_they_came_from(ME):
    x = tensor(ME, 2)
    y = tensor(ME, 2, coordinate_manager=x.coordinate_manager)
    assert x.coordinate_map_key != y.coordinate_map_key
    for each in (x, y):
        down = ME.MinkowskiConvolution(3, 3, 2, 2, dimension=2).double()(each)
        up = ME.MinkowskiConvolutionTranspose(3, 3, 2, 2, dimension=2).double()(down)
        assert up.coordinate_map_key == each.coordinate_map_key


def test_a_manager_for_all(ME):
    ME.set_sparse_tensor_operation_mode(ME.SparseTensorOperationMode.SHARE_COORDINATE_MANAGER)
    x, y = tensor(ME, 2), tensor(ME, 2)
    assert x.coordinate_manager is y.coordinate_manager is ME.global_coordinate_manager()
    assert len(x + y) >= max(len(x), len(y))
    with pytest.raises(ValueError, match="clear_global_coordinate_manager"):
        tensor(ME, 3)
    ME.clear_global_coordinate_manager()
    assert tensor(ME, 3).coordinate_manager is not x.coordinate_manager
    assert ME.sparse_tensor_operation_mode() == ME.SparseTensorOperationMode.SHARE_COORDINATE_MANAGER


@pytest.mark.parametrize(
    "make, told",
    [
        (lambda ME: ME.SparseTensor(torch.ones(3)), r"shape \(N, channels\), got \(3,\)"),
        (lambda ME: ME.SparseTensor(torch.ones(3, 1)), "give coordinates, or a coordinate_map_key"),
        (lambda ME: ME.SparseTensor(torch.ones(3, 1), torch.ones(2, 3).int()), "one number of rows"),
        (lambda ME: ME.SparseTensor(torch.ones(1, 1), torch.tensor([[-1, 0]])), "batch must be"),
        (
            lambda ME: ME.SparseTensor(
                torch.ones(2, 1),
                torch.ones(2, 3).int(),
                quantization_mode=ME.SparseTensorQuantizationMode.NO_QUANTIZATION,
            ),
            "there already",
        ),
        (
            lambda ME: ME.TensorField(
                torch.ones(2, 1),
                torch.ones(2, 3),
                quantization_mode=ME.SparseTensorQuantizationMode.SPLAT_LINEAR_INTERPOLATION,
            ),
            "splat",
        ),
        (lambda ME: ME.MinkowskiPruning()(tensor(ME, 2), torch.ones(3).bool()), "mask must be"),
        (lambda ME: ME.MinkowskiUnion()(tensor(ME, 2)), "at least two"),
        (lambda ME: ME.MinkowskiReLU()(torch.ones(3)), "takes a MinkowskiEngine.SparseTensor or TensorField"),
    ],
)
def test_errors(ME, make, told):
    with pytest.raises((ValueError, TypeError), match=told):
        make(ME)


def test_no_warnings_of_ordinary_use(ME):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = tensor(ME, 2)
        ME.MinkowskiGlobalPooling()(x + x)
