"""A small training of PyG's layers, with the backend and without."""

from __future__ import annotations

import contextlib

import torch

import gnn_sparse_backend as gsb

NODES, EDGES, FEATURES, CLASSES = 300, 2400, 32, 7


def network(layers: str) -> torch.nn.ModuleList:
    """Two layers of a kind, from torch's present seed."""
    from torch_geometric.nn import FastRGCNConv, GATv2Conv, GCNConv, GINConv, SAGEConv, TransformerConv

    makes = {
        "gcn": GCNConv,
        "sage": SAGEConv,
        "gin": lambda a, b: GINConv(torch.nn.Linear(a, b)),
        "gatv2": lambda a, b: GATv2Conv(a, b, heads=2, concat=False),
        "transformer": lambda a, b: TransformerConv(a, b, heads=2, concat=False),
        "rgcn": lambda a, b: FastRGCNConv(a, b, 3),
    }
    return torch.nn.ModuleList([makes[layers](FEATURES, FEATURES), makes[layers](FEATURES, CLASSES)])


LAYERS = "gcn", "sage", "gin", "gatv2", "transformer", "rgcn"


def losses(device: torch.device, steps: int, enabled: bool = False, layers: str = "sage") -> list[float]:
    """Return the losses of the steps of a training on a random graph."""
    torch.manual_seed(0)
    edges = torch.randint(0, NODES, (2, EDGES)).to(device)
    x, y = torch.randn(NODES, FEATURES).to(device), torch.randint(0, CLASSES, (NODES,)).to(device)
    relation = (torch.arange(EDGES) % 3).to(device)
    model = network(layers).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    more = (relation,) if layers == "rgcn" else ()
    found = []
    with gsb.enabled("pyg") if enabled else contextlib.nullcontext():
        for _ in range(steps):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(model[1](model[0](x, edges, *more).relu(), edges, *more), y)
            loss.backward()
            optimiser.step()
            found.append(float(loss.detach()))
    return found
