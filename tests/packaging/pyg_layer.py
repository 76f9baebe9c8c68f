"""Run by test_wheel.py where the wheel is installed: a layer of PyG and its gradients, with the backend and without."""

import torch
from torch_geometric.nn import SAGEConv

import gnn_sparse_backend as gsb

torch.manual_seed(0)
edge_index, x = torch.randint(60, (2, 400)), torch.randn(60, 16)
layer = SAGEConv(16, 8)


def step():
    out = layer(x, edge_index)
    return out, torch.autograd.grad(out.square().sum(), list(layer.parameters()))


expected = step()
with gsb.enabled("pyg"):
    torch.testing.assert_close(step(), expected)
calls = gsb.status().to_dict()["calls"]["pyg"]
assert sum(counts["ours"] for counts in calls.values()) > 0, calls
assert not any(counts["fallbacks"] for counts in calls.values()), calls
