"""Write a relational graph convolution (RGCN) on heterogeneous data: one call sums over all relations, in both passes.
The same parameters in PyG's HeteroConv, with and without the backend, have to give the same result and gradients.

    python examples/rgcn_heterogeneous.py
"""

import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv

import gnn_sparse_backend as gsb

NODES = {"author": 2_000, "paper": 4_000, "venue": 50}
WIDTHS = {"author": 24, "paper": 48, "venue": 8}
EDGES = {
    ("author", "writes", "paper"): 10_000,
    ("paper", "written_by", "author"): 10_000,
    ("paper", "cites", "paper"): 30_000,
    ("venue", "publishes", "paper"): 4_000,
    ("paper", "appears_in", "venue"): 4_000,
}
OUT = 16


class RGCNLayer(nn.Module):
    """h_i = sum over relations r of the mean of W_r x_j over the neighbours j by r (Schlichtkrull et al., 2018)."""

    def __init__(self, relations):
        super().__init__()
        matrices = {"|".join(name): torch.randn(WIDTHS[name[0]], OUT) / WIDTHS[name[0]] ** 0.5 for name in relations}
        self.matrices = nn.ParameterDict(matrices)

    def forward(self, graph: gsb.RelGraph, x: dict) -> dict:
        matrices = {name: self.matrices["|".join(name)] for name in graph.relations}
        return gsb.rgms(graph, x, matrices, reduce="mean")


def same_in_pyg(layer):
    """PyG's layer with the parameters of ours: a convolution for each relation, whose results are added."""
    convs = {}
    for name in EDGES:
        convs[name] = SAGEConv((WIDTHS[name[0]], -1), OUT, aggr="mean", root_weight=False, bias=False)
        convs[name].lin_l.weight.data.copy_(layer.matrices["|".join(name)].t())
    return HeteroConv(convs, aggr="sum")


def results(out, x):
    """What a layer gave for each node type, and the gradients of a loss of that to the features of each."""
    loss = sum(y.square().sum() for y in out.values())
    return out, torch.autograd.grad(loss, list(x.values()))


def main():
    torch.manual_seed(0)
    data = HeteroData()
    for kind, count in NODES.items():
        data[kind].x = torch.randn(count, WIDTHS[kind], requires_grad=True)
    for name, count in EDGES.items():
        data[name].edge_index = torch.stack([torch.randint(NODES[kind], (count,)) for kind in (name[0], name[2])])

    graph, x = gsb.RelGraph.from_pyg(data), data.x_dict
    layer = RGCNLayer(graph.relations)
    ours = results(layer(graph, x), x)
    print(f"{graph} gave", {kind: tuple(y.shape) for kind, y in ours[0].items()})

    theirs = same_in_pyg(layer)
    expected = results(theirs(x, data.edge_index_dict), x)
    with gsb.enabled("pyg"):  # the layer of PyG runs the same operator
        switched = results(theirs(x, data.edge_index_dict), x)
    print(gsb.status())
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(switched, expected, rtol=1e-4, atol=1e-4)
    (row,) = gsb.status().rows
    assert (row.operator, row.ours, row.fallbacks) == ("rgms", 1, {})


if __name__ == "__main__":
    main()
