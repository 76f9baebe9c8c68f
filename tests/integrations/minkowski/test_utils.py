"""Voxels of points, batches of samples, weights to begin with, and functions of features."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from .oracle import same, same_gradients
from .test_convolution import tensor

POINTS = np.array([[0.2, 1.9], [-0.1, 0.0], [0.4, 1.6], [0.3, 1.7], [-0.4, 0.2]])
VOXELS, FIRST, INVERSE = [[0, 3], [-1, 0]], [0, 1], [0, 1, 0, 0, 1]


@pytest.mark.parametrize("numpy", [True, False])
def test_sparse_quantize(ME, numpy):
    points = POINTS if numpy else torch.from_numpy(POINTS)
    features = np.arange(5.0)[:, None] if numpy else torch.arange(5.0)[:, None]
    found = ME.utils.sparse_quantize(points, features, return_index=True, return_inverse=True, quantization_size=0.5)
    assert [each.tolist() for each in found] == [VOXELS, [[0], [1]], FIRST, INVERSE]
    assert type(found[1]) is type(features) and found[0].dtype == torch.int32
    only = ME.utils.sparse_quantize(points, quantization_size=[0.5, 1])
    assert only.tolist() == [[0, 1], [-1, 0]]
    maps = ME.utils.sparse_quantize(points, return_maps_only=True, return_inverse=True, quantization_size=0.5)
    assert [each.tolist() for each in maps] == [FIRST, INVERSE]
    assert ME.utils.sparse_quantize(points).tolist() == [[0, 1], [-1, 0]]


@pytest.mark.parametrize("numpy", [True, False])
def test_labels_of_voxels(ME, numpy):
    as_given = (lambda x: x) if numpy else torch.from_numpy
    for labels, wanted in (([7, 3, 7, 7, 3], [7, 3]), ([7, 3, 7, 8, 3], [-1, 3]), ([-1, 2, 4, 4, -1], [-1, -1])):
        found = ME.utils.sparse_quantize(
            as_given(POINTS),
            labels=as_given(np.array(labels, np.int32)),
            ignore_label=-1,
            return_index=True,
            return_inverse=True,
            quantization_size=0.5,
        )
        assert [each.tolist() for each in found] == [VOXELS, wanted, FIRST, INVERSE]
        assert all(isinstance(each, np.ndarray) is numpy for each in found)
    coordinates = torch.tensor([[0, 1], [1, 1], [0, 1]]).int()
    quantization = __import__("MinkowskiEngine.utils.quantization", fromlist=["quantize"])
    assert [each.tolist() for each in quantization.quantize(coordinates)] == [[0, 1], [0, 1, 0]]
    assert quantization.quantize_label(coordinates.numpy(), np.array([1, 2, 1]), -1)[2].tolist() == [1, 2]


def test_bad_points(ME):
    for points, options, told in (
        (POINTS[0], {}, "must be a matrix"),
        (POINTS, {"labels": np.zeros(3)}, "labels must have 5 rows"),
        (POINTS, {"return_inverse": True}, "return_index"),
        (POINTS, {"quantization_size": [1, 2, 3]}, "each axis"),
    ):
        with pytest.raises(ValueError, match=told):
            ME.utils.sparse_quantize(points, **options)


def test_hashes_tell_rows_apart(ME):
    rows = np.array([[0, 1], [1, 0], [-1, 4], [0, 1]])
    for keys in (ME.utils.ravel_hash_vec(rows), ME.utils.fnv_hash_vec(rows)):
        assert keys[0] == keys[3] and len(set(keys.tolist())) == 3


@pytest.mark.parametrize("numpy", [True, False])
def test_collation(ME, numpy):
    parts = [POINTS[:2], POINTS[2:]]
    coords = parts if numpy else [torch.from_numpy(each) for each in parts]
    feats = [np.ones((2, 1)), np.zeros((3, 1))] if numpy else [torch.ones(2, 1), torch.zeros(3, 1)]
    labels = [np.array([1, 2]), np.array([3, 4, 5])]
    rows = [[0, 0, 1], [0, -1, 0], [1, 0, 1], [1, 0, 1], [1, -1, 0]]
    assert ME.utils.batched_coordinates(coords).tolist() == rows
    floating = ME.utils.batched_coordinates(coords, dtype=torch.float32)
    assert floating.dtype == torch.float32 and floating[0, 2].item() == pytest.approx(1.9)
    samples = list(zip(coords, feats, labels))
    for found in (
        ME.utils.sparse_collate(coords, feats, labels),
        ME.utils.batch_sparse_collate(samples),
        ME.utils.SparseCollation()(samples),
    ):
        assert found[0].tolist() == rows and found[1].flatten().tolist() == [1, 1, 0, 0, 0]
        assert found[2].tolist() == [1, 2, 3, 4, 5]
    assert len(ME.utils.sparse_collate(coords, feats)) == 2
    assert len(ME.utils.SparseCollation(limit_numpoints=4)(samples)[0]) == 2
    assert ME.utils.sparse_collate(coords, feats, ["a", "b"])[2] == ["a", "b"]
    with pytest.raises(ValueError, match="sample 0 has 2 coordinates, but 3 features"):
        ME.utils.sparse_collate(coords, feats[::-1])


def test_kaiming(ME):
    for shape, mode, fan in (
        ((27, 40, 60), "fan_out", 27 * 60),
        ((27, 40, 60), "fan_in", 27 * 40),
        ((50, 90), "fan_in", 90),
    ):
        kernel = ME.utils.kaiming_normal_(torch.empty(shape), mode=mode, nonlinearity="relu")
        assert kernel.std().item() == pytest.approx(math.sqrt(2 / fan), rel=0.05)


def test_functions_are_pytorchs(ME):
    MEF = ME.MinkowskiFunctional
    x = tensor(ME, 2)
    for name, options in (
        ("relu", {}),
        ("leaky_relu", {"negative_slope": 0.3}),
        ("softmax", {"dim": 1}),
        ("normalize", {}),
    ):
        y = getattr(MEF, name)(x, **options)
        same_gradients(y.F, getattr(F, name)(x.F, **options), [x.F])
        assert y.coordinate_map_key == x.coordinate_map_key
    target = torch.randint(3, (len(x),))
    same(MEF.cross_entropy(x, target), F.cross_entropy(x.F, target))
    field = ME.TensorField(x.F, x.C.double())
    assert isinstance(MEF.elu(field), ME.TensorField) and isinstance(
        ME.MinkowskiLinear(3, 2).double()(field), ME.TensorField
    )
    assert set(MEF.__all__) <= set(dir(MEF))


def test_every_layer_of_pytorch_is_there(ME):
    x = tensor(ME, 2)
    for name in dir(ME):
        plain = getattr(torch.nn, name.removeprefix("Minkowski"), None)
        kind = getattr(ME, name)
        if plain is None or not hasattr(kind, "MODULE"):
            continue
        arguments = {"Threshold": (0.1, 0.2), "Softmin": (1,), "Softmax": (1,), "LogSoftmax": (1,)}.get(
            plain.__name__, ()
        )
        layer = kind(*arguments).double().eval()
        assert kind.MODULE is plain and list(layer.state_dict()) == [
            f"module.{key}" for key in layer.module.state_dict()
        ]
        same(layer(x).F, plain(*arguments).double().eval()(x.F))
    y = ME.MinkowskiSinusoidal(3, 4).double()
    same(y(x).F, torch.sin(x.F @ y.kernel + y.bias) * y.coef)


def test_a_summary(ME, capsys):
    model = torch.nn.Sequential(ME.MinkowskiLinear(3, 4), ME.MinkowskiReLU()).double()
    assert ME.utils.summary(model, tensor(ME, 2)) == (16, 16)
    assert "MinkowskiLinear-2" in capsys.readouterr().out
