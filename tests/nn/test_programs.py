"""Networks of sparse layers as one program: compiled without a break, and exported, equal to eager ones."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend import nn
from gnn_sparse_backend.structures.coordinates import Window
from gnn_sparse_backend.structures.coordinates.written import read_window, sites_at, write_grid, write_window

from .test_modes import run, some


class UNet(torch.nn.Module):
    """Down and up again by three ways, with skip connections."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = torch.nn.Sequential(nn.SubMConv(4, 4, nn.Cross(3), bias=False, dim=2), nn.BatchNorm(4), nn.ReLU())
        self.down = nn.SparseConv(4, 4, 3, 2, dim=2)
        self.inner = torch.nn.Sequential(nn.SubMConv(4, 4, 3, groups=2, dim=2), nn.BatchNorm(4))
        self.up, self.back = nn.SparseConvTranspose(4, 4, 3, 2, dim=2), nn.SparseInverseConv(4, 4, 3, dim=2)
        self.pool, self.unpool = nn.SparseAvgPool(2, dim=2), nn.SparsePoolTranspose(2, dim=2)
        self.head = nn.Linear(16, 3)

    def forward(self, x: nn.SparseTensor) -> nn.SparseTensor:
        x = self.stem(x)
        z = self.inner(self.down(x))
        return self.head(nn.cat([x, self.up(z), self.back(z) + x, self.unpool(self.pool(x))]))


class OfTensors(torch.nn.Module):
    """The network of tensors, as a program that is exported takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.readout = UNet(), nn.GlobalMaxPool()

    def forward(self, features: torch.Tensor, coordinates: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.net(nn.SparseTensor(features, coordinates))
        return y.features, self.readout(y)


@pytest.mark.parametrize("backend", ("aot_eager", pytest.param("inductor", marks=pytest.mark.slow)))
@pytest.mark.slow
def test_compiled_without_a_break(backend):
    """One program for all scans; what it returns is a tensor with its sites and the way back."""
    torch._dynamo.reset()
    network = UNet()
    compiled = torch.compile(network, fullgraph=True, backend=backend, dynamic=True)
    for seed, count in ((0, 40), (1, 50)):
        x, reference = some(seed, count), UNet()
        wanted = run(reference, x, lambda net, x: net(x).features)
        network.load_state_dict(UNet().state_dict())
        found = run(network, x, lambda _, x: compiled(x).features)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        y = compiled(x)
        assert y.sites is x.sites and nn.SubMConv(3, 2, 3, dim=2)(y).coordinates is x.coordinates
    torch._dynamo.reset()
    down = torch.compile(UNet().down, fullgraph=True, backend="aot_eager")
    z = down(x)
    assert z.coordinates is UNet().down(x).coordinates
    assert nn.SparseInverseConv(4, 4, 3, dim=2)(z).coordinates is x.coordinates


class OfManySites(torch.nn.Module):
    """What changes which sites there are, or goes from sites to batches and points and back."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.down, self.up = nn.SparseConv(4, 4, 2, 2, dim=2), nn.SparseConvTranspose(4, 4, 2, 2, dim=2)
        self.wider = nn.SparseConv(4, 4, 3, dim=2)
        self.norm, self.groups = nn.InstanceNorm(4), nn.GroupNorm(2, 4, affine=False, over="batch")
        self.pool, self.largest = nn.GlobalAvgPool(sparse=True), nn.GlobalMaxPool()

    def forward(self, x: nn.SparseTensor, points: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kept = nn.select(x, x.features.detach()[:, 0] > 0)
        few = nn.select(x, torch.arange(3, device=x.device).flip(0))
        y, z, _ = nn.union(self.norm(self.wider(kept)), x, few)
        same, _ = nn.union(x, x)
        pooled = self.pool(x)
        y = nn.broadcast(y + z, pooled, "mul")
        y = nn.broadcast(self.groups(y), self.largest(same))
        y = self.up(self.down(nn.broadcast(y, pooled, "cat").with_features(y.features)))
        near, at = nn.interpolate(y, points), nn.interpolate(kept, points, "nearest")
        return y.features, y.coordinates, near, at, pooled.features, pooled.coordinates


class OfManyTensors(torch.nn.Module):
    """That network of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.net = OfManySites()

    def forward(self, features: torch.Tensor, coordinates: torch.Tensor, points: torch.Tensor):
        return self.net(nn.SparseTensor(features, coordinates, batch_size=2), points)


def assert_programs_agree(program, wanted, x, *given) -> None:
    """Results and gradients to the features, for random cotangents."""
    found, expected = program(*given), wanted(*given)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    smooth = [[each for each in results if each.requires_grad] for results in (found, expected)]
    cotangents = [torch.randn_like(each) for each in smooth[1]]
    gradients = (torch.autograd.grad(results, x.features, cotangents) for results in smooth)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def points_among(count: int = 30) -> torch.Tensor:
    points = torch.rand(count, 3) * 8
    points[:, 0] = torch.arange(count) % 2
    return points


@pytest.mark.slow  # a program for each of many modules
@pytest.mark.parametrize("backend", ("aot_eager", "inductor"))
def test_sites_that_change_without_a_break(backend):
    torch._dynamo.reset()
    network = OfManySites()
    compiled = torch.compile(network, fullgraph=True, backend=backend, dynamic=True)
    for seed, count in ((0, 40), (1, 50)):
        x = some(seed, count)
        assert_programs_agree(compiled, network, x, x, points_among())


def test_sites_that_change_exported():
    x, model, rows = some(), OfManyTensors().eval(), torch.export.Dim("sites", min=2)
    program = torch.export.export(
        model,
        (x.features.detach(), x.coordinates, points_among()),
        dynamic_shapes=({0: rows}, {0: rows}, None),
        strict=False,
    ).module()
    for seed, count in ((0, 40), (1, 50)):
        x = some(seed, count)
        assert_programs_agree(program, model, x, x.features, x.coordinates, points_among())
    with pytest.raises(ValueError, match="is no whole batch and finite position"):
        program(x.features, x.coordinates, torch.full((30, 3), torch.nan))


@pytest.mark.parametrize("strict", (False, pytest.param(True, marks=pytest.mark.slow)))
def test_exported(strict):
    model, example = OfTensors().eval(), some()
    rows = torch.export.Dim("sites", min=2)
    program = torch.export.export(
        model,
        (example.features.detach(), example.coordinates),
        dynamic_shapes=({0: rows}, {0: rows}),
        strict=strict,
    ).module()
    for seed, count in ((0, 40), (1, 50)):
        x = some(seed, count)
        coordinates = x.coordinates.clone()
        found, wanted = (f(x.features, coordinates) for f in (program, model))
        torch.testing.assert_close(found, wanted)
        cotangents = [torch.randn_like(y) for y in wanted]
        gradients = (torch.autograd.grad(y, x.features, cotangents) for y in (found, wanted))
        torch.testing.assert_close(*gradients)
        with pytest.raises(ValueError, match="are equal"):
            program(x.features, torch.zeros_like(coordinates))
        coordinates.copy_(coordinates.flip(0))  # the tensor has other sites then
        torch.testing.assert_close(program(x.features, coordinates), model(x.features, coordinates))


def test_windows_and_sites_as_integers():
    for window in (Window.of(3, (3, 2, 1), 2, 3), Window.of(2, nn.Cross(5)), Window.of(1, nn.Offsets([[-4], [2]]))):
        assert read_window(write_window(window), window.dim) == window
    x = nn.SparseTensor(torch.randn(1, 1), torch.tensor([[0, 1, 2]]), 4, 2, (6, 5))
    how = write_grid(x.stride, x.spatial_shape)
    assert sites_at(x.coordinates, 2, how) is x.sites
    other = sites_at(x.coordinates.clone(), 2, how)
    assert other is not x.sites and other.same_as(x.sites) and other.sizes == (6, 5)
    assert gsb.memory(x).nbytes  # which has found itself
