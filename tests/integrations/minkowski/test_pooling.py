"""Pooling, broadcasts and norms against loops over sites, in float64, with all gradients."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb

from . import oracle
from .oracle import random_sites, same, same_gradients, sites_in
from .test_convolution import per_axis, tensor

KINDS = {"MinkowskiSumPooling": torch.sum, "MinkowskiAvgPooling": torch.mean, "MinkowskiMaxPooling": torch.amax}
WINDOWS = [
    (2, 2, 1, 1),
    (3, 2, 1, 2),
    (3, 3, 1, 1),
    (3, 1, 1, 1),
    ((2, 3, 1), (2, 1, 1), 2, 1),
    ((2, 1, 2), (2, 1, 2), 1, 1),
]


def met_in_windows(x, y, size, steps, apart, transposed=False):
    """(input, output) of all pairs: cells of the coarser grid where the kernel is the stride."""
    fine = (y if transposed else x).tensor_stride
    if size == steps:
        offsets = [
            tuple(t * i for t, i in zip(fine, cell))
            for cell in torch.cartesian_prod(*map(torch.arange, size)).reshape(-1, len(size)).tolist()
        ]
    else:
        offsets = oracle.cube(size, apart, fine)
    return [pair for each in oracle.pairs(x.C, y.C, offsets, transposed) for pair in each]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("kernel, stride, dilation, grid", WINDOWS)
def test_pooling(ME, name, kernel, stride, dilation, grid):
    size, steps, apart = (per_axis(value, 3) for value in (kernel, stride, dilation))
    x = tensor(ME, 3, grid)
    y = getattr(ME, name)(size, steps, apart, dimension=3)(x)
    assert sites_in(y.C) == oracle.strided(x.C, [grid * s for s in steps])
    pairs = met_in_windows(x, y, size, steps, apart)
    rows = [[i for i, o in pairs if o == row] for row in range(len(y))]
    assert all(rows)
    same_gradients(y.F, torch.stack([KINDS[name](x.F[each], 0) for each in rows]), [x.F])


@pytest.mark.parametrize("kernel, stride", [(2, 2), (3, 2), ((2, 1, 2), (2, 1, 2))])
def test_transposed_pooling(ME, kernel, stride):
    size, steps = per_axis(kernel, 3), per_axis(stride, 3)
    x = tensor(ME, 3)
    down = ME.MinkowskiSumPooling(size, steps, dimension=3)(x)
    y = ME.MinkowskiPoolingTranspose(size, steps, dimension=3)(down)
    assert y.coordinate_map_key == x.coordinate_map_key
    pairs = torch.tensor(met_in_windows(down, y, size, steps, [1] * 3, True))
    same_gradients(y.F, torch.zeros(len(y), 3).double().index_add(0, pairs[:, 1], down.F[pairs[:, 0]]), [x.F])
    alone = ME.SparseTensor(torch.ones(1, 1), torch.tensor([[0, 2, -2, 4]]).int(), tensor_stride=2)
    every = ME.MinkowskiPoolingTranspose(2, 2, expand_coordinates=True, dimension=3)(alone)
    assert len(every) == 8 and every.F.sum() == 8 and every.C[:, 1:].amin(0).tolist() == [2, -2, 4]


@pytest.mark.parametrize("name, reduce", [("Sum", torch.sum), ("Avg", torch.mean), ("Max", torch.amax)])
def test_global_pooling_and_broadcasts(ME, name, reduce):
    x = tensor(ME, 2, width=3)
    pooled = getattr(ME, f"MinkowskiGlobal{name}Pooling")()(x)
    assert pooled.C.tolist() == [[0, 0, 0], [1, 0, 0]] and pooled.tensor_stride == [0, 0]
    of_batch = torch.stack([reduce(x.F[x.C[:, 0] == b], 0) for b in (0, 1)])
    same_gradients(pooled.F, of_batch, [x.F])
    spread = of_batch[x.C[:, 0].long()]
    for kind, wanted in (
        ("", spread),
        ("Addition", x.F + spread),
        ("Multiplication", x.F * spread),
        ("Concatenation", torch.cat([x.F, spread], 1)),
    ):
        y = getattr(ME, f"MinkowskiBroadcast{kind}")()(x, pooled)
        assert y.coordinate_map_key == x.coordinate_map_key
        same_gradients(y.F, wanted, [x.F])
    with pytest.raises(ValueError, match="features of 2 batches"):
        ME.MinkowskiBroadcast()(x, x)


def test_global_pooling_of_a_batch_that_was_pruned_away_and_of_points(ME):
    x = tensor(ME, 2)
    first = ME.MinkowskiPruning()(x, x.C[:, 0] == 0)
    pooled = ME.MinkowskiGlobalAvgPooling()(first)
    same(pooled.F, torch.stack([first.F.mean(0), torch.zeros(3).double()]))
    points = torch.cat([torch.tensor([[2.0], [0], [2]]), torch.rand(3, 2)], 1)
    field = ME.TensorField(torch.tensor([[1.0], [5], [3]]), points)
    pooled = ME.MinkowskiGlobalMaxPooling()(field)
    assert pooled.F.tolist() == [[5], [3]] and pooled.C.tolist() == [[0, 0, 0], [2, 0, 0]]
    assert [len(each) for each in field.decomposed_features] == [1, 0, 2]


@pytest.mark.parametrize("name, eps", [("MinkowskiInstanceNorm", 1e-8), ("MinkowskiStableInstanceNorm", 1e-6)])
def test_instance_norms(ME, name, eps):
    x = tensor(ME, 2)
    norm = getattr(ME, name)(3).double()
    with torch.no_grad():
        norm.weight.uniform_(), norm.bias.uniform_()
    parts = []
    for b in (0, 1):
        part = x.F[x.C[:, 0] == b]
        parts.append((part - part.mean(0)) / (part.var(0, correction=0) + eps).sqrt())
    wanted = torch.empty_like(x.F).index_put((x.C[:, 0].argsort(stable=True),), torch.cat(parts))
    same_gradients(norm(x).F, wanted * norm.weight + norm.bias, [x.F, norm.weight, norm.bias])


def test_norms_of_pytorch_and_their_conversion(ME):
    x = tensor(ME, 2)
    model = torch.nn.Sequential(
        ME.MinkowskiBatchNorm(3, momentum=0.3), ME.MinkowskiReLU(), ME.MinkowskiBatchNorm(3)
    ).double()
    plain = torch.nn.BatchNorm1d(3, momentum=0.3).double()
    same_gradients(model[0](x).F, plain(x.F), [x.F])
    same(model[0].bn.running_var, plain.running_var)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    assert "0.bn.running_mean" in state
    converted = ME.MinkowskiSyncBatchNorm.convert_sync_batchnorm(model)
    assert [type(each) for each in (converted[0], converted[2])] == [ME.MinkowskiSyncBatchNorm] * 2
    assert isinstance(converted[0].bn, torch.nn.SyncBatchNorm) and converted[0].bn.momentum == 0.3
    assert all(torch.equal(value, state[name]) for name, value in converted.state_dict().items())
    same(converted.eval()(x).F, torch.nn.BatchNorm1d(3).double().eval()(plain.eval()(x.F).relu()))
    alone = ME.MinkowskiSyncBatchNorm.convert_sync_batchnorm(ME.MinkowskiBatchNorm(2))
    assert isinstance(alone, ME.MinkowskiSyncBatchNorm)


def test_layers_are_counted_by_their_names(ME):
    class Own(ME.MinkowskiReLU):
        pass

    gsb.integrations.reset_status()
    x = tensor(ME, 2)
    Own()(ME.MinkowskiBatchNorm(3).double()(x)), ME.MinkowskiUnion()(x, x)
    counts = gsb.status().to_dict()["calls"]["MinkowskiEngine"]
    assert {name: each["ours"] for name, each in counts.items()} == {
        "MinkowskiBatchNorm": 1,
        "MinkowskiReLU": 1,
        "MinkowskiUnion": 2,
    }


def test_random_sites_are_distinct():
    assert len(sites_in(random_sites(30, 2))) > 10
