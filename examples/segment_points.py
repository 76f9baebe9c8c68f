"""Segment a point cloud with sparse convolutions: which points lie on sheets, which on rods, and which on nothing?
A point by itself does not tell, for all have the same feature; its neighbours do. Points become voxels, submanifold
convolutions look at the voxels around each, and the answer goes back to the points of a cloud that was not trained on.

    python examples/segment_points.py
"""

import torch
import torch.nn.functional as F
from torch import nn

import gnn_sparse_backend as gsb
from gnn_sparse_backend import nn as sparse

SIZE, VOXEL, EPOCHS = 4.0, 0.1, 40
CLASSES = ("sheet", "rod", "noise")


def cloud(seed):
    """Points (N, 3) in metres, and the class of each: 6 sheets, 30 rods, and single points between them."""
    generator = torch.Generator().manual_seed(seed)
    points, labels = [], []
    for label, shapes, axes, count in ((0, 6, 2, 1_000), (1, 30, 1, 60), (2, 600, 0, 1)):
        for shape in range(shapes):
            middle = SIZE * torch.rand(3, generator=generator)
            spread = torch.zeros(3)
            spread[[(shape + axis) % 3 for axis in range(axes)]] = 1.0
            points.append(middle + spread * (torch.rand(count, 3, generator=generator) - 0.5))
            labels.append(torch.full((count,), label))
    return torch.cat(points), torch.cat(labels)


class Segmenter(nn.Module):
    """Two convolutions over 3 x 3 x 3 voxels: the answer at a voxel depends on those at most two away."""

    def __init__(self, hidden=16):
        super().__init__()
        self.layers = nn.Sequential(
            sparse.SubMConv(1, hidden, kernel_size=3, bias=False),
            sparse.BatchNorm(hidden),
            sparse.ReLU(),
            sparse.SubMConv(hidden, hidden, kernel_size=3, bias=False),
            sparse.BatchNorm(hidden),
            sparse.ReLU(),
            sparse.Linear(hidden, len(CLASSES)),
        )

    def forward(self, points):
        """Logits of each point. Points of one voxel share them."""
        coordinates, _, voxel_of = gsb.voxelize(points, VOXEL)
        x = sparse.SparseTensor(torch.ones(len(coordinates), 1), coordinates)
        return self.layers(x).features[voxel_of]


def main():
    torch.manual_seed(0)
    model = Segmenter()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(EPOCHS):
        points, labels = cloud(seed=epoch % 4)
        loss = F.cross_entropy(model(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss after {EPOCHS} clouds: {loss.item():.3f}")

    points, labels = cloud(seed=100)
    predicted = model.eval()(points).argmax(1)
    for label, name in enumerate(CLASSES):
        right = (predicted[labels == label] == label).float().mean().item()
        print(f"{name}: {right:.0%} of {int((labels == label).sum())} points are found")
        assert right > 0.7, "the network has not learned what the neighbours tell"


if __name__ == "__main__":
    main()
