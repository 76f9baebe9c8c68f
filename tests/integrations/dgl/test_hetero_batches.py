"""Sampled heterogeneous batches under DGL: nothing is compiled after the first, and no memory is kept."""

import dgl
import dgl.nn.pytorch as dglnn
import pytest
import torch
import torch.nn.functional as F

import gnn_sparse_backend as gsb
from tests.integrations.dgl.oracle import calls
from tests.mini_batches import CLASSES, NODES, WIDTH, check_steady, edges, features

KINDS = 3
RELATIONS = 6


def hetero():
    """The mini-batches' graph with three types of nodes by number, and two relations from each type to the next."""
    source, target = edges()
    ends = {}
    for kind in range(KINDS):
        mine = source % KINDS == kind
        for which in range(2):
            chosen = mine & (target % 2 == which)
            u, v = source[chosen] // KINDS, (target[chosen] // KINDS).clamp(max=NODES // KINDS - 1)
            ends[f"t{kind}", f"r{kind}{which}", f"t{(kind + which) % KINDS}"] = u, v
    return dgl.heterograph(ends, num_nodes_dict={f"t{kind}": NODES // KINDS + 1 for kind in range(KINDS)})


def batches(graph, nodes):
    loader = dgl.dataloading.DataLoader(
        graph, nodes, dgl.dataloading.NeighborSampler([5, 5]), batch_size=20, shuffle=True
    )
    while True:
        yield from loader


def of_types():
    """(step, output of a batch) of a model of two HeteroGraphConv."""
    torch.manual_seed(0)
    graph, x, labels = hetero(), features(), torch.randint(0, CLASSES, (NODES,))
    layers = torch.nn.ModuleList(
        dglnn.HeteroGraphConv({etype: dglnn.GraphConv(a, b, "right") for etype in graph.etypes})
        for a, b in ((WIDTH, 8), (8, CLASSES))
    )
    draw = batches(graph, {"t0": torch.arange(NODES // KINDS)})

    def output(inputs, blocks):
        h = {kind: x[nodes] for kind, nodes in inputs.items()}
        for layer, block in zip(layers, blocks):
            h = layer(block, h)
        return h["t0"]

    def step():
        inputs, outputs, blocks = next(draw)
        F.cross_entropy(output(inputs, blocks), labels[outputs["t0"]]).backward()

    return step, output, draw


def of_edges():
    """The same of two RelGraphConv on a graph whose edges have types."""
    torch.manual_seed(0)
    source, target = edges()
    graph, x, labels = dgl.graph((source, target), num_nodes=NODES), features(), torch.randint(0, CLASSES, (NODES,))
    graph.edata["kind"] = (source * 7 + target) % RELATIONS
    layers = torch.nn.ModuleList(
        [dglnn.RelGraphConv(WIDTH, 8, RELATIONS, "basis", 2), dglnn.RelGraphConv(8, CLASSES, RELATIONS)]
    )
    draw = batches(graph, torch.arange(NODES))

    def output(inputs, blocks):
        h = x[inputs]
        for layer, block in zip(layers, blocks):
            h = layer(block, h, block.edata["kind"])
        return h

    def step():
        inputs, outputs, blocks = next(draw)
        F.cross_entropy(output(inputs, blocks), labels[outputs]).backward()

    return step, output, draw


@pytest.mark.slow
@pytest.mark.parametrize("make, batches_then", [(of_types, 40), (of_edges, 200)])
def test_many_batches(make, batches_then):
    dgl.seed(0)
    step, _, _ = make()
    with gsb.enabled("dgl"):
        check_steady(step, then=batches_then)
    assert calls()["rgms"][1] == {}


@pytest.mark.parametrize("make", [of_types, of_edges])
def test_batches_are_right(make):
    dgl.seed(1)
    _, output, draw = make()
    for _, (inputs, _, blocks) in zip(range(20), draw):
        expected = output(inputs, blocks)
        with gsb.enabled("dgl"):
            torch.testing.assert_close(output(inputs, blocks), expected, rtol=1e-4, atol=1e-5)
