"""Compile and measure where a data set is loaded, so that training compiles nothing.
A transform does it at the first access to a graph; the kernel counts before and after a training step prove it.

    python examples/precompile_dataset.py
"""

import torch
import torch.nn.functional as F
from torch_geometric import seed_everything
from torch_geometric.datasets import FakeDataset
from torch_geometric.nn import SAGEConv

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import stats
from gnn_sparse_backend.integrations.pyg.transform import Precompile

FEATURES, HIDDEN, CLASSES = 64, 32, 4


def main():
    seed_everything(0)
    # What the layers below run: means over neighbours of rows of 64 and of 32 numbers, and their gradients.
    prepare = Precompile(features={"mean": [FEATURES, HIDDEN]}, budget="2m")
    dataset = FakeDataset(num_channels=FEATURES, num_classes=CLASSES, transform=prepare)
    data = dataset[0]
    (report,) = prepare.reports
    print(report)
    assert report.complete, "the budget was enough: all plans are measured, here or before"

    first, second = SAGEConv(FEATURES, HIDDEN), SAGEConv(HIDDEN, CLASSES)
    before = stats()
    with gsb.enabled("pyg"):
        hidden = torch.relu(first(data.x, data.edge_index))
        loss = F.cross_entropy(second(hidden, data.edge_index), data.y)
        loss.backward()
    after = stats()
    print(gsb.status())
    print(f"the first training step compiled {after.compiles - before.compiles} kernels")

    assert (after.compiles, after.disk_loads) == (before.compiles, before.disk_loads)
    rows = gsb.status().rows
    assert rows and all(row.ours and not row.fallbacks for row in rows), "every call ran on our kernels"


if __name__ == "__main__":
    main()
