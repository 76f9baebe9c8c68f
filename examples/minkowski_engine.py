"""A network that is written for MinkowskiEngine, which is not installed: ``gsb.enable`` gives ours for its name. Shapes
of points are told apart: balls, boxes and sticks, of which each cloud has one, in any place.

    python examples/minkowski_engine.py
"""

import torch
import torch.nn.functional as F

import gnn_sparse_backend as gsb

gsb.enable("MinkowskiEngine")  # before the first import of it

import MinkowskiEngine as ME  # noqa: E402

VOXEL, STEPS = 0.1, 30
SHAPES = (
    F.normalize,  # a ball
    lambda x: x / x.abs().amax(1, keepdim=True),  # a box
    lambda x: x.tanh() * torch.tensor([0.1, 0.1, 2.0]),  # a stick
)


def sample(label, generator):
    """(voxels, features, label) of one cloud: points of the surface of its shape."""
    points = SHAPES[label](torch.randn(600, 3, generator=generator))
    points = points * (0.6 + 0.4 * torch.rand(1, generator=generator)) + torch.rand(3, generator=generator)
    voxels = ME.utils.sparse_quantize(points, quantization_size=VOXEL)
    return voxels, torch.ones(len(voxels), 1), torch.tensor([label])


class Classifier(ME.MinkowskiNetwork):
    """Convolutions with strides, and the largest of each channel over all voxels of a cloud."""

    def __init__(self, D=3):
        super().__init__(D)
        self.layers = torch.nn.Sequential(
            ME.MinkowskiConvolution(1, 16, kernel_size=3, dimension=D),
            ME.MinkowskiBatchNorm(16),
            ME.MinkowskiReLU(),
            ME.MinkowskiConvolution(16, 32, kernel_size=3, stride=2, dimension=D),
            ME.MinkowskiGlobalMaxPooling(),
            ME.MinkowskiLinear(32, len(SHAPES)),
        )

    def forward(self, x):
        return self.layers(x).F


def batch(seed, size=12):
    """A batch of clouds, with as many of each shape."""
    generator = torch.Generator().manual_seed(seed)
    clouds = [sample(number % len(SHAPES), generator) for number in range(size)]
    coordinates, features, labels = ME.utils.batch_sparse_collate(clouds)
    return ME.SparseTensor(features, coordinates), labels


def main():
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(STEPS):
        x, labels = batch(step)
        loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss after {STEPS} batches: {loss.item():.3f}")

    model.eval()
    x, labels = batch(seed=1_000, size=30)
    right = int((model(x).argmax(1) == labels).sum())
    print(f"{right} of 30 clouds are told apart that were not trained on")
    assert right >= 25
    print(gsb.status())


if __name__ == "__main__":
    main()
