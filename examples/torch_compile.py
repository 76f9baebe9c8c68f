"""Compile a model that uses the operators with torch.compile: no graph break, forward and backward.
The default compiler of PyTorch, inductor, wants a C++ compiler on the CPU; another may be named.

    python examples/torch_compile.py [aot_eager]
"""

import sys

import torch
from torch import nn

import gnn_sparse_backend as gsb

NODES, EDGES, FEATURES, HIDDEN, CLASSES = 2_000, 20_000, 64, 32, 4


class GIN(nn.Module):
    """Two layers of a graph isomorphism network (Xu et al., 2019)."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, graph, x):
        x = torch.relu(self.first(x + gsb.spmm(graph, x)))
        return self.second(x + gsb.spmm(graph, x))


def main():
    torch.manual_seed(0)
    edge_index = torch.randint(0, NODES, (2, EDGES))
    graph = gsb.Graph.from_edge_index(edge_index, size=(NODES, NODES))
    model, x = GIN(), torch.randn(NODES, FEATURES)
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    compiled = torch.compile(model, fullgraph=True, backend=backend)  # fullgraph: a graph break would be an error

    expected, out = model(graph, x), compiled(graph, x)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
    parameters = list(model.parameters())
    gradients = [torch.autograd.grad(y.square().mean(), parameters) for y in (expected, out)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    print(f"compiled by {backend}: results and {len(parameters)} gradients as without")


if __name__ == "__main__":
    main()
