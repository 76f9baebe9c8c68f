"""Train a network that is written with spconv on a CPU: one line switches the backend on. spconv itself has no
gradients of convolutions there; what it can compute, the untrained network's result, has to be the same.

    python examples/spconv_model.py
"""

import spconv.pytorch as spconv
import torch
import torch.nn.functional as F
from torch import nn

import gnn_sparse_backend as gsb

SHAPE, SITES, CHANNELS, CLASSES, STEPS = [16, 64, 64], 3_000, 16, 4, 30


def block(conv, channels):
    return spconv.SparseSequential(conv, nn.BatchNorm1d(channels), nn.ReLU())


class UNet(nn.Module):
    """Nothing here knows of the backend."""

    def __init__(self):
        super().__init__()
        self.stem = block(spconv.SubMConv3d(4, CHANNELS, 3, indice_key="fine"), CHANNELS)
        self.down = block(spconv.SparseConv3d(CHANNELS, 32, 3, stride=2, padding=1, indice_key="down"), 32)
        self.inner = block(spconv.SubMConv3d(32, 32, 3, indice_key="coarse"), 32)
        self.up = block(spconv.SparseInverseConv3d(32, CHANNELS, 3, indice_key="down"), CHANNELS)
        self.head = nn.Linear(2 * CHANNELS, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        y = self.up(self.inner(self.down(x)))
        return self.head(torch.cat([x.features, y.features], 1))


def scene():
    """Sites of two batches, and a class of each: in which quarter of the space it lies."""
    cells = torch.randperm(2 * torch.Size(SHAPE).numel())[:SITES]
    indices = torch.stack(torch.unravel_index(cells, (2, *SHAPE)), 1).int()
    features = torch.cat([indices[:, 1:] / torch.tensor(SHAPE), torch.randn(SITES, 1)], 1)
    labels = 2 * (indices[:, 2] >= 32) + (indices[:, 3] >= 32)
    return spconv.SparseConvTensor(features, indices, SHAPE, batch_size=2), labels.long()


def main():
    torch.manual_seed(0)
    x, labels = scene()
    model = UNet()
    with torch.no_grad():
        expected = model(x)

    gsb.enable("spconv")  # the one line
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected, rtol=1e-3, atol=1e-3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(gsb.status())
    print(f"loss after {STEPS} steps: {losses[-1]:.3f}, at first {losses[0]:.3f}")

    assert losses[-1] < losses[0] / 3, "the network has learned where a site lies"
    rows = gsb.status().rows
    assert rows and all(row.ours and not row.fallbacks for row in rows), "every call ran on our kernels"


if __name__ == "__main__":
    main()
