"""Neighbour-sampled training under PyG: nothing is compiled after the first batches, and no memory is kept."""

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as gnn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.core.graphs import TRANSIENT
from gnn_sparse_backend.integrations.pyg.host import GRAPHS
from tests.integrations.pyg.pair import DEGREES
from tests.mini_batches import CLASSES, NODES, WIDTH, check_ours, check_steady, edges, features, sampled


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "make, batches_then",
    [
        (lambda: gnn.GraphSAGE(WIDTH, 8, 2, CLASSES), 50),
        pytest.param(lambda: gnn.GCN(WIDTH, 8, 2, CLASSES), 1000, marks=pytest.mark.slow),
        (lambda: gnn.GAT(WIDTH, 8, 2, CLASSES, heads=2), 50),
    ],
    ids=["sage", "gcn", "gat"],
)
def test_many_batches(make, batches_then):
    torch.manual_seed(0)
    model, x = make(), features()
    labels = torch.randint(0, CLASSES, (NODES,))
    batches = sampled(edges(), 20, (5, 5), 0)

    def step():
        nodes, edge_index = next(batches)
        out = model(x[nodes], edge_index)[:20]
        F.cross_entropy(out, labels[nodes[:20]]).backward()

    with gsb.enabled("pyg"):
        check_steady(step, then=batches_then)
        assert GRAPHS.nbytes < 64 << 20
    check_ours("pyg", 2 * batches_then, but=(DEGREES,))  # two layers


def test_batches_are_right():
    model, x = gnn.GraphSAGE(WIDTH, 8, 2, CLASSES), features()
    batches = sampled(edges(), 50, (7, 3), 1)
    for _, (nodes, edge_index) in zip(range(20), batches):
        expected = model(x[nodes], edge_index)
        with gsb.enabled("pyg"):
            torch.testing.assert_close(model(x[nodes], edge_index), expected, rtol=1e-4, atol=1e-5)


def test_fresh_tensors_of_a_known_content_are_not_built_again(calls_to):
    edge_index, x = edges(), features()
    layer = gnn.SAGEConv(WIDTH, 4)
    others = sampled(edges(), 20, (5, 5), 2)
    with gsb.enabled("pyg"):
        layer(x, edge_index.clone())
        built = calls_to(GRAPHS, "_add")
        for _ in range(5):
            layer(x, edge_index.clone())
        assert not built
        for _, (nodes, batch) in zip(range(2 * TRANSIENT), others):
            layer(x[nodes], batch)
        built.clear()
        layer(x, edge_index.clone())
        assert not built
