"""A network of all kinds of layers trains on the CPU, where spconv alone has no backward pass."""

import gc

import pytest
import spconv.pytorch as spconv
import torch
from torch import nn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.spconv import maps

from .oracle import counts, random_tensor, same_tensor


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = spconv.SparseSequential(
            spconv.SubMConv3d(4, 8, 3, bias=False, indice_key="fine"), nn.BatchNorm1d(8), nn.ReLU()
        )
        self.down = spconv.SparseConv3d(8, 8, 3, 2, 1, indice_key="down")
        self.inner = spconv.SparseSequential(spconv.SubMConv3d(8, 8, 3, indice_key="coarse"), nn.ReLU())
        self.up = spconv.SparseInverseConv3d(8, 8, 3, indice_key="down")
        self.head = spconv.SubMConv3d(16, 3, 3, indice_key="fine")

    def forward(self, x):
        x = self.stem(x)
        y = self.up(self.inner(self.down(x)))
        return self.head(x.replace_feature(torch.cat([x.features, y.features], 1)))


def test_a_unet_trains():
    model, x = UNet(), random_tensor(3, count=60)
    target = torch.randint(0, 3, (60,))
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    losses = []
    with gsb.enabled("spconv"):
        for _ in range(3):
            loss = nn.functional.cross_entropy(model(x).features, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert all(p.grad.abs().max() > 0 for p in model.parameters())
        assert counts() == {"SubMConv": 9, "SparseConv": 3, "SparseInverseConv": 3}
        found = model(x)
    assert losses[0] > losses[1] > losses[2]
    same_tensor(found, model(x))


def test_nothing_outlives_its_tensors():
    with gsb.enabled("spconv"):
        model = UNet()
        for _ in range(3):
            model(random_tensor(3)).features.sum().backward()
        gc.collect()
        assert not len(maps._sites)


@pytest.mark.slow
def test_torch_compile_breaks_the_graph_at_each_layer():
    model, x = UNet(), random_tensor(3)
    with gsb.enabled("spconv"):
        found = torch.compile(model, backend="eager")(x)
    assert counts() == {"SubMConv": 3, "SparseConv": 1, "SparseInverseConv": 1}
    same_tensor(found, model(x))
