"""A model written for torchsparse, trained without it: ``enable`` gives our layers for ``import torchsparse``. A small
U-Net over voxels tells points of three shapes apart.

    python examples/torchsparse_points.py
"""

import numpy as np
import torch
from torch import nn

import gnn_sparse_backend as gsb

gsb.enable("torchsparse")  # before the first import of it

import torchsparse  # noqa: E402
from torchsparse import SparseTensor  # noqa: E402
from torchsparse import nn as spnn  # noqa: E402
from torchsparse.utils.collate import sparse_collate_fn  # noqa: E402
from torchsparse.utils.quantize import sparse_quantize  # noqa: E402

SHAPES, VOXEL, EPOCHS = ("sphere", "plane", "rods"), 0.1, 6


class Scenes(list):
    """Points on shapes around the origin, with what each lies on, as voxels: a list of numbers of scenes."""

    def __getitem__(self, number):
        rng = np.random.default_rng(number)
        sphere = rng.normal(size=(600, 3))
        sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
        plane = rng.uniform(-1, 1, (600, 3)) * (1, 1, 0)
        rods = rng.uniform(-1, 1, (600, 3)) * (0, 0, 1) + rng.integers(-2, 3, (600, 3)) * (0.4, 0.4, 0)
        points = np.concatenate([sphere, plane, rods]) @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
        labels = np.repeat(np.arange(3), 600)
        coords, index = sparse_quantize(points - points.min(0), VOXEL, return_index=True)
        feats = np.ones((len(coords), 1), np.float32)
        return {"input": SparseTensor(feats, coords), "label": SparseTensor(labels[index], coords)}


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Sequential(spnn.Conv3d(1, width, 3), spnn.BatchNorm(width), spnn.ReLU(True))
        self.down = nn.Sequential(
            spnn.Conv3d(width, 2 * width, 2, stride=2), spnn.BatchNorm(2 * width), spnn.ReLU(True)
        )
        self.inner = nn.Sequential(spnn.Conv3d(2 * width, 2 * width, 3), spnn.BatchNorm(2 * width), spnn.ReLU(True))
        self.up = spnn.Conv3d(2 * width, width, 2, stride=2, transposed=True)
        self.head = spnn.Conv3d(2 * width, len(SHAPES), 3, bias=True)

    def forward(self, x):
        x = self.stem(x)
        y = self.up(self.inner(self.down(x)))
        return self.head(torchsparse.cat([x, y])).F


def main():
    torch.manual_seed(0)
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(Scenes(range(16)), batch_size=2, collate_fn=sparse_collate_fn)
    for epoch in range(EPOCHS):
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["input"]), batch["label"].F)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch == 0:
            first = loss.item()
    print(f"loss after 1 and {EPOCHS} epochs: {first:.3f} and {loss.item():.3f}")
    unseen = sparse_collate_fn([Scenes()[99]])
    right = (model.eval()(unseen["input"]).argmax(1) == unseen["label"].F).float().mean().item()
    print(f"{right:.0%} of the voxels of a scene that was not seen are told apart")
    print(gsb.status())
    assert right > 0.6, "the network has not learned what the neighbours tell"


if __name__ == "__main__":
    main()
