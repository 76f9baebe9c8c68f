"""Run by test_wheel.py where the wheel is installed: `spmm` and its gradients against a dense matrix."""

import torch

import gnn_sparse_backend as gsb

torch.manual_seed(0)
source, destination = torch.randint(50, (300,)), torch.randint(40, (300,))
x = torch.randn(50, 16, dtype=torch.float64, requires_grad=True)
weight = torch.rand(300, dtype=torch.float64, requires_grad=True)
graph = gsb.Graph.from_edge_index(torch.stack([source, destination]), size=(50, 40))
dense = torch.zeros(40, 50, dtype=torch.float64).index_put((destination, source), weight, accumulate=True)

ours, expected = gsb.spmm(graph, x, weight), dense @ x
torch.testing.assert_close(ours, expected)
cotangent = torch.randn_like(expected)
torch.testing.assert_close(
    torch.autograd.grad(ours, (x, weight), cotangent), torch.autograd.grad(expected, (x, weight), cotangent)
)
