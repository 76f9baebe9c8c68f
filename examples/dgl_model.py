"""Run a DGL model on compiled kernels: the model stays as it is, and one line switches the backend on.
A GraphSAGE classifier is trained with DGL's own kernels and with ours, and has to learn the same.

    python examples/dgl_model.py
"""

import dgl
import torch
import torch.nn.functional as F
from dgl.nn import SAGEConv
from torch import nn

import gnn_sparse_backend as gsb

NODES, EDGES, FEATURES, HIDDEN, CLASSES, EPOCHS = 5_000, 100_000, 64, 32, 4, 10


class GraphSAGE(nn.Module):
    """Nothing here knows of the backend."""

    def __init__(self):
        super().__init__()
        self.first = SAGEConv(FEATURES, HIDDEN, "mean")
        self.second = SAGEConv(HIDDEN, CLASSES, "mean")

    def forward(self, graph, x):
        return self.second(graph, torch.relu(self.first(graph, x)))


def train(graph, x, labels):
    """The loss of every epoch."""
    torch.manual_seed(0)
    model = GraphSAGE()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(EPOCHS):
        loss = F.cross_entropy(model(graph, x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(0)
    dgl.seed(0)
    graph = dgl.rand_graph(NODES, EDGES)
    x = torch.randn(NODES, FEATURES)
    labels = x[:, :CLASSES].argmax(1)

    expected = train(graph, x, labels)
    gsb.enable("dgl")  # the one line
    losses = train(graph, x, labels)
    print(gsb.status())
    print(f"loss after {EPOCHS} epochs: {losses[-1]:.4f} on our kernels, {expected[-1]:.4f} on DGL's own")

    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    assert losses[-1] < losses[0]
    rows = gsb.status().rows
    assert rows and all(row.ours and not row.fallbacks for row in rows), "every call ran on our kernels"


if __name__ == "__main__":
    main()
