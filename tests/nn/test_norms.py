"""Layers over the sites of each batch: norms and broadcasts against loops over batches, and norms of all processes."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.autograd import gradcheck, gradgradcheck

from gnn_sparse_backend import nn

from .test_pooling import some


def each_batch(x: nn.SparseTensor, function) -> torch.Tensor:
    """What a function makes of the (n, C) features of each batch, at the rows of x."""
    out = torch.empty_like(x.features)
    for batch in range(x.batch_size):
        rows = x.coordinates[:, 0] == batch
        out = out.masked_scatter(rows[:, None], function(x.features[rows], batch)) if rows.any() else out
    return out


def close(found, wanted, operands, **tolerance) -> None:
    torch.testing.assert_close(found, wanted, **tolerance)
    cotangent = torch.randn_like(wanted)
    ours, theirs = (torch.autograd.grad(y, operands, cotangent, retain_graph=True) for y in (found, wanted))
    torch.testing.assert_close(ours, theirs, **tolerance)


@pytest.mark.parametrize("affine", (True, False))
def test_groups_and_instances_of_batches(affine):
    x = some()
    x = x.with_features(torch.randn(len(x), 6, dtype=torch.float64).requires_grad_())
    for layer, groups in (
        (nn.GroupNorm(2, 6, 1e-3, affine, over="batch"), 2),
        (nn.InstanceNorm(6, 1e-3, affine), 6),
    ):
        layer.double()
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter)

        def dense(features, batch, groups=groups, layer=layer):
            """(n, C) of a batch as (1, C, n), over which a dense layer normalises."""
            return torch.nn.functional.group_norm(features.t()[None], groups, layer.weight, layer.bias, 1e-3)[0].t()

        wanted = each_batch(x, dense)
        close(layer(x).features, wanted, (x.features, *layer.parameters()))
        low = layer.bfloat16()(x.to(torch.bfloat16)).features
        assert low.dtype == torch.bfloat16
        torch.testing.assert_close(low.double(), wanted.double(), rtol=5e-2, atol=5e-2)
    small = nn.SparseTensor(torch.randn(4, 2, dtype=torch.float64).requires_grad_(), x.coordinates[:4])
    layer = nn.InstanceNorm(2, 0.1).double()
    function = lambda f: layer(small.with_features(f)).features
    assert gradcheck(function, small.features) and gradgradcheck(function, small.features)
    torch.testing.assert_close(
        nn.GroupNorm(2, 6).double()(x).features, torch.nn.functional.group_norm(x.features, 2)
    )  # of each site
    with pytest.raises(ValueError, match="expected 2 channels, got 6"):
        layer(x)
    with pytest.raises(ValueError, match="got 'row'"):
        nn.GroupNorm(2, 6, over="row")


@pytest.mark.parametrize("how", ("add", "mul", "cat"))
def test_broadcasts(how):
    x = some()
    rows = torch.randn(3, 3, dtype=torch.float64).requires_grad_()
    each = rows[x.coordinates[:, 0]]
    wanted = {"add": x.features + each, "mul": x.features * each, "cat": torch.cat([x.features, each], 1)}[how]
    found = nn.broadcast(x, rows, how)
    assert found.coordinates is x.coordinates
    close(found.features, wanted, (x.features, rows))
    function = lambda f, r: nn.broadcast(x.with_features(f), r, how).features
    assert gradcheck(function, (x.features, rows)) and gradgradcheck(function, (x.features, rows), fast_mode=True)
    pooled = nn.GlobalMaxPool(sparse=True)(x)
    assert pooled.coordinates.tolist() == [[0, 0, 0], [1, 0, 0], [2, 0, 0]]
    assert torch.equal(pooled.features, nn.GlobalMaxPool()(x))
    assert torch.equal(nn.broadcast(x, pooled, how).features, nn.broadcast(x, pooled.features, how).features)
    with pytest.raises(ValueError, match=r"each of 3 batches, got \(2, 3\)"):
        nn.broadcast(x, rows[:2], how)
    with pytest.raises(ValueError, match="'sub'"):
        nn.broadcast(x, rows, "sub")


@pytest.fixture
def one_process():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("momentum", (0.1, None))
def test_norm_of_all_processes(one_process, momentum):
    """Alone it is a batch norm, in training and after it; converted models have it too."""
    x = some()
    plain = nn.BatchNorm(3, momentum=momentum).double()
    torch.nn.init.normal_(plain.weight)
    converted = torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(plain, nn.ReLU()))[0]
    assert type(converted) is torch.nn.SyncBatchNorm and converted.weight is plain.weight
    ours = nn.SyncBatchNorm(3, momentum=momentum).double()
    ours.load_state_dict(plain.state_dict())
    converted.load_state_dict({name: value.clone() for name, value in plain.state_dict().items()})
    converted.running_mean, converted.running_var = converted.running_mean.clone(), converted.running_var.clone()
    converted.num_batches_tracked = converted.num_batches_tracked.clone()
    for _ in range(2):
        wanted = plain(x).features
        close(ours(x).features, wanted, (x.features,))
        close(converted(x).features, wanted, (x.features,))
    torch.testing.assert_close(ours.state_dict(), plain.state_dict())
    for layer in (ours, plain, converted):
        layer.eval()
    torch.testing.assert_close(ours(x).features, plain(x).features)
    torch.testing.assert_close(converted(x).features, plain(x).features)
    with pytest.raises(TypeError, match="SyncBatchNorm takes a gnn_sparse_backend.nn.SparseTensor, got Tensor"):
        ours(x.features)
