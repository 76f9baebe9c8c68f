"""Run a PyG model on compiled kernels: the model stays as it is, and a `with` block switches the backend on.
A two-layer GCN is trained with PyG's own kernels and with ours, and has to learn the same.

    python examples/pyg_model.py
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import seed_everything
from torch_geometric.datasets import FakeDataset
from torch_geometric.nn import GCNConv

import gnn_sparse_backend as gsb

HIDDEN, EPOCHS = 32, 10


class GCN(nn.Module):
    """Nothing here knows of the backend."""

    def __init__(self, features, classes):
        super().__init__()
        self.first = GCNConv(features, HIDDEN)
        self.second = GCNConv(HIDDEN, classes)

    def forward(self, x, edge_index):
        return self.second(torch.relu(self.first(x, edge_index)), edge_index)


def train(data, classes):
    """The loss of every epoch."""
    torch.manual_seed(0)
    model = GCN(data.num_features, classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(EPOCHS):
        loss = F.cross_entropy(model(data.x, data.edge_index), data.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    seed_everything(0)
    dataset = FakeDataset(avg_num_nodes=5_000, avg_degree=20, num_channels=64, num_classes=4)

    expected = train(dataset[0], dataset.num_classes)
    with gsb.enabled("pyg"):  # or gsb.enable("pyg"), from here on
        losses = train(dataset[0], dataset.num_classes)
    print(gsb.status())
    print(f"loss after {EPOCHS} epochs: {losses[-1]:.4f} on our kernels, {expected[-1]:.4f} on PyG's own")

    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    assert losses[-1] < losses[0]
    # The sum of each layer ran on our kernels. PyG counted degrees once by itself, and the table says why.
    calls = gsb.status().to_dict()["calls"].get("pyg", {})
    assert "mul.sum" in calls, "the backend never ran"
    assert calls["mul.sum"] == {"ours": 2 * EPOCHS, "fallbacks": {}}


if __name__ == "__main__":
    main()
