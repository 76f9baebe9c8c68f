"""Training on the batches of PyG's own NodeLoader. Its NeighborSampler needs a compiled library, so the sampler is one
in PyTorch.
"""

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as gnn
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, SamplerOutput

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import stats
from gnn_sparse_backend.integrations.core import counters
from models.neighbours import NeighbourSampler
from tests.mini_batches import CLASSES, NODES, WIDTH, edges, features


class Sampler(BaseSampler):
    """``NeighbourSampler`` as PyG's loaders ask for one."""

    def __init__(self, edge_index, fanouts):
        self.inner, self.fanouts, self.generator = (
            NeighbourSampler(edge_index, NODES),
            fanouts,
            torch.Generator().manual_seed(3),
        )

    def sample_from_nodes(self, index, **_):
        nodes, edge_index = self.inner.sample(index.node, self.fanouts, self.generator)
        return SamplerOutput(
            node=nodes, row=edge_index[0], col=edge_index[1], edge=None, metadata=(index.input_id, index.time)
        )

    def sample_from_edges(self, *_, **__):
        raise NotImplementedError


def loader(batch_size=200, workers=0):
    edge_index = edges()
    data = Data(x=features(), edge_index=edge_index, y=torch.arange(NODES) % CLASSES)
    return NodeLoader(
        data,
        Sampler(edge_index, (6, 4)),
        input_nodes=torch.arange(0, NODES, 8),
        batch_size=batch_size,
        num_workers=workers,
    )


def train(batches, backend):
    """Losses of an epoch, and the model's parameters after it."""
    torch.manual_seed(0)
    model = gnn.GraphSAGE(WIDTH, 8, 2, CLASSES)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    for batch in batches:
        if backend:
            with gsb.enabled("pyg"):
                loss = F.cross_entropy(
                    model(batch.x, batch.edge_index)[: batch.batch_size], batch.y[: batch.batch_size]
                )
                loss.backward()
        else:
            loss = F.cross_entropy(model(batch.x, batch.edge_index)[: batch.batch_size], batch.y[: batch.batch_size])
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return torch.tensor(losses), [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_is_the_same_with_and_without_the_backend(workers):
    batches = list(loader(workers=workers))
    assert len(batches) == -(-NODES // 8 // 200) and all(type(batch) is Data for batch in batches)
    for got, expected in zip(train(batches, True), train(batches, False)):
        torch.testing.assert_close(got, expected, rtol=2e-3, atol=1e-4)


def test_batches_run_on_our_kernels_and_compile_nothing_after_the_first(monkeypatch):
    batches = list(loader())
    train(batches, True)
    before = stats()
    monkeypatch.setattr(counters, "_ours", {})
    monkeypatch.setattr(counters, "_fallbacks", {})
    train(batches, True)
    assert (stats().compiles, stats().disk_loads) == (before.compiles, before.disk_loads)
    calls = gsb.status().to_dict()["calls"]["pyg"].values()
    assert sum(call["ours"] for call in calls) >= 2 * len(batches) and not any(call["fallbacks"] for call in calls)
