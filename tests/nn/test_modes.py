"""A network of sparse layers compiled, under autocast, checkpointed, and on several processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from gnn_sparse_backend import nn


class Network(torch.nn.Module):
    """One of every kind of layer, with a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = torch.nn.Sequential(nn.SubMConv(4, 4, 3, bias=False, dim=2), nn.BatchNorm(4), nn.ReLU())
        self.down, self.up = nn.SparseConv(4, 4, 3, 2, dim=2), nn.SparseConvTranspose(4, 4, 3, 2, dim=2)
        self.pool, self.back = nn.SparseMaxPool(2, dim=2), nn.SparseInverseConv(4, 4, 2, dim=2)
        self.readout = nn.GlobalAvgPool()

    def forward(self, x: nn.SparseTensor) -> torch.Tensor:
        x = self.stem(x)
        y = self.up(self.down(x)) + x
        return self.readout(nn.cat([y, self.back(self.pool(y))]))


def some(seed: int = 0, count: int = 40, dtype=torch.float32) -> nn.SparseTensor:
    torch.manual_seed(seed)
    sites = torch.cat([torch.randint(0, 2, (count, 1)), torch.randint(0, 8, (count, 2))], 1).unique(dim=0)
    return nn.SparseTensor(torch.randn(len(sites), 4, dtype=dtype).requires_grad_(), sites, batch_size=2)


def run(network, x: nn.SparseTensor, through=lambda network, x: network(x)) -> list[torch.Tensor]:
    out = through(network, x)
    return [out, *torch.autograd.grad(out.square().sum(), (x.features, *network.parameters()))]


def test_checkpointed():
    x = some()
    wanted = run(Network(), x)
    found = run(Network(), x, lambda network, x: checkpoint(network, x, use_reentrant=False))
    torch.testing.assert_close(found, wanted)


def test_training_after_inference_mode():
    """What is kept from there takes part in a backward pass."""
    x = some()
    with torch.inference_mode():
        found = Network()(x)
    assert torch.equal(found, run(Network(), x)[0])


def test_autocast():
    x = some()
    wanted = run(Network(), x)
    with torch.autocast("cpu", torch.bfloat16):
        assert Network().down(x).dtype == torch.bfloat16
        found = run(Network(), x)
    assert found[1].dtype == torch.float32
    torch.testing.assert_close(found[0].float(), wanted[0], rtol=0.1, atol=0.1)


def test_compiled():
    torch._dynamo.reset()
    layer, x = nn.SubMConv(4, 3, 3, dim=2), some()
    compiled = torch.compile(layer, backend="aot_eager")
    wanted, found = (
        [out.features, *torch.autograd.grad(out.features.square().sum(), (x.features, *layer.parameters()))]
        for out in (layer(x), compiled(x))
    )
    torch.testing.assert_close(found, wanted)


@pytest.mark.slow
def test_network_compiled():
    """Kernel maps are found between the compiled parts; other sites are not another program."""
    torch._dynamo.reset()
    network = Network()
    compiled = torch.compile(network)
    for seed, count in ((0, 40), (1, 50), (2, 30)):
        x = some(seed, count)
        wanted = run(Network(), x)
        torch.testing.assert_close(run(network, x, lambda _, x: compiled(x)), wanted, rtol=1e-4, atol=1e-4)


PROCESS = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from gnn_sparse_backend import nn
from tests.nn.test_modes import Network, some
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)
network = Network()
network.stem[1].eval()
parallel = DistributedDataParallel(network)
parallel(some(rank)).square().sum().backward()
alone = Network()
alone.stem[1].eval()
sum(alone(some(other)).square().sum() for other in range(size)).div(size).backward()
for ours, theirs in zip(network.parameters(), alone.parameters(), strict=True):
    torch.testing.assert_close(ours.grad, theirs.grad)
together = torch.nn.SyncBatchNorm.convert_sync_batchnorm(Network())
found = together(some(rank))
found.square().sum().backward()
alone = Network()
xs = [some(other) for other in range(size)]
outs = [alone.stem[0](x).features for x in xs]
normed = alone.stem[1].forward(nn.batch([x.with_features(out) for x, out in zip(xs, outs)])).features
wanted = normed.split([len(x) for x in xs])[rank]
torch.testing.assert_close(together.stem[1](together.stem[0](xs[rank])).features, wanted)
for grad in (together.stem[0].weight.grad,):
    dist.all_reduce(grad)
stems = [x.with_features(y) for x, y in zip(xs, normed.split([len(x) for x in xs]))]
for stem in stems:
    rest = alone.stem[2](stem)
    y = alone.up(alone.down(rest)) + rest
    alone.readout(nn.cat([y, alone.back(alone.pool(y))])).square().sum().backward(retain_graph=True)
torch.testing.assert_close(together.stem[0].weight.grad, alone.stem[0].weight.grad, rtol=1e-3, atol=1e-4)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_on_two_processes(tmp_path):
    environment = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "WORLD_SIZE": "2",
        "MASTER_PORT": "29571",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS], env=environment | {"RANK": str(rank)}, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    for process in started:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
