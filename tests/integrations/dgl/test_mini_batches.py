"""Neighbour-sampled training under DGL: nothing is compiled after the first batches, and no memory is kept."""

import dgl
import dgl.nn.pytorch as dglnn
import pytest
import torch
import torch.nn.functional as F

import gnn_sparse_backend as gsb
from tests.mini_batches import CLASSES, NODES, WIDTH, check_ours, check_steady, edges, features


class Model(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layers = torch.nn.ModuleList([layer(WIDTH, 8), layer(8, CLASSES)])

    def forward(self, blocks, x):
        for layer, block in zip(self.layers, blocks):
            x = layer(block, x)
            x = x.mean(1) if x.dim() == 3 else x
        return x


LAYERS = {
    "sage": lambda a, b: dglnn.SAGEConv(a, b, "mean"),
    "graph conv": lambda a, b: dglnn.GraphConv(a, b, allow_zero_in_degree=True),
    "gat": lambda a, b: dglnn.GATConv(a, b, 2, allow_zero_in_degree=True),
}


def batches():
    source, target = edges()
    graph = dgl.graph((source, target), num_nodes=NODES)
    loader = dgl.dataloading.DataLoader(
        graph, torch.arange(NODES), dgl.dataloading.NeighborSampler([5, 5]), batch_size=20, shuffle=True
    )
    while True:
        yield from loader


@pytest.mark.slow
@pytest.mark.parametrize("name, batches_then", [("sage", 1000), ("graph conv", 100), ("gat", 100)])
def test_many_batches(name, batches_then):
    torch.manual_seed(0)
    dgl.seed(0)
    model, x = Model(LAYERS[name]), features()
    labels = torch.randint(0, CLASSES, (NODES,))
    draw = batches()

    def step():
        inputs, outputs, blocks = next(draw)
        F.cross_entropy(model(blocks, x[inputs]), labels[outputs]).backward()

    with gsb.enabled("dgl"):
        check_steady(step, then=batches_then)
    check_ours("dgl", 2 * batches_then)  # two layers


@pytest.mark.parametrize("name", LAYERS)
def test_batches_are_right(name):
    model, x = Model(LAYERS[name]), features()
    for _, (inputs, _, blocks) in zip(range(20), batches()):
        expected = model(blocks, x[inputs])
        with gsb.enabled("dgl"):
            torch.testing.assert_close(model(blocks, x[inputs]), expected, rtol=1e-4, atol=1e-5)
