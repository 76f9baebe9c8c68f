"""Train on sampled mini-batches: kernels take the sizes of a batch as arguments, so a new batch compiles nothing.
DGL's neighbour sampler draws blocks around 100 nodes at a time, and the model is an ordinary GraphSAGE.

    python examples/mini_batches.py
"""

import dgl
import torch
import torch.nn.functional as F
from dgl.dataloading import DataLoader, NeighborSampler
from dgl.nn import SAGEConv
from torch import nn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import stats

NODES, EDGES, FEATURES, HIDDEN, CLASSES, EPOCHS = 5_000, 100_000, 64, 32, 4, 3


class GraphSAGE(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = SAGEConv(FEATURES, HIDDEN, "mean")
        self.second = SAGEConv(HIDDEN, CLASSES, "mean")

    def forward(self, blocks, x):
        return self.second(blocks[1], torch.relu(self.first(blocks[0], x)))


def main():
    torch.manual_seed(0)
    dgl.seed(0)
    graph = dgl.rand_graph(NODES, EDGES)
    x = torch.randn(NODES, FEATURES)
    labels = x[:, :CLASSES].argmax(1)
    train_nodes = torch.arange(500)
    loader = DataLoader(graph, train_nodes, NeighborSampler([10, 5]), batch_size=100, shuffle=True)
    model = GraphSAGE()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    gsb.enable("dgl")
    known = []
    for epoch in range(EPOCHS):
        total = 0.0
        for inputs, outputs, blocks in loader:
            loss = F.cross_entropy(model(blocks, x[inputs]), labels[outputs])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        known.append(stats().compiles + stats().disk_loads)
        print(f"epoch {epoch}: mean loss {total / len(loader):.4f}, kernels made or loaded so far: {known[-1]}")
    print(gsb.status())

    assert known[-1] == known[0], "later batches have other sizes, and run on the same kernels"
    rows = gsb.status().rows
    assert rows and all(row.ours >= EPOCHS * len(loader) and not row.fallbacks for row in rows)

    # The same batch on DGL's own kernels gives the same logits.
    logits = model(blocks, x[inputs])
    gsb.disable("dgl")
    torch.testing.assert_close(logits, model(blocks, x[inputs]), rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    main()
