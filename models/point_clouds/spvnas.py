"""MinkUNet as spvnas has it (Tang et al., ECCV 2020), on torchsparse's names over our layers, trained for a few steps.

    python -m models.point_clouds.spvnas --steps 10

Its public configuration: half of all channels, voxels of 5 centimetres, 80,000 points, two scans a step, 19 classes,
and SGD of rate 0.24 with Nesterov's momentum. One point speaks for each voxel. Scans are generated; where ``GSB_DATA``
has the scan of KITTI, which is without labels, the trained network is run on it, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gnn_sparse_backend.integrations import torchsparse
from gnn_sparse_backend.integrations.torchsparse import SparseTensor
from gnn_sparse_backend.integrations.torchsparse import nn as spnn
from gnn_sparse_backend.integrations.torchsparse.utils.collate import sparse_collate
from gnn_sparse_backend.integrations.torchsparse.utils.quantize import sparse_quantize
from models.point_clouds import data, kitti
from models.point_clouds.scan import Scan

CHANNELS = (32, 32, 64, 128, 256, 256, 128, 96, 96)
CLASSES, FEATURES, IGNORED = 19, 4, 255
VOXEL, POINTS, BATCH, RATIO = 0.05, 80_000, 2, 0.5


def block(inputs: int, outputs: int, kernel: int, stride: int = 1, transposed: bool = False) -> nn.Sequential:
    """A convolution, batch normalisation, and ReLU."""
    conv = spnn.Conv3d(inputs, outputs, kernel, stride, transposed=transposed)
    return nn.Sequential(conv, spnn.BatchNorm(outputs), spnn.ReLU(True))


class Residual(nn.Module):
    """Two convolutions of 3 x 3 x 3, and their input added, by one of 1 x 1 x 1 where channels change."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.net = nn.Sequential(*block(inputs, outputs, 3), spnn.Conv3d(outputs, outputs, 3), spnn.BatchNorm(outputs))
        self.downsample = nn.Sequential()
        if inputs != outputs:
            self.downsample = nn.Sequential(spnn.Conv3d(inputs, outputs, 1), spnn.BatchNorm(outputs))
        self.relu = spnn.ReLU(True)

    def forward(self, x: SparseTensor) -> SparseTensor:
        return self.relu(self.net(x) + self.downsample(x))


class MinkUNet(nn.Module):
    """Logits of each voxel, (V, classes): a stem, four stages down, and four up that join what was there on the way.

    ratio: of all channels, times ``CHANNELS``.
    """

    def __init__(self, classes: int = CLASSES, ratio: float = RATIO):
        super().__init__()
        stem, *others = (int(ratio * c) for c in CHANNELS)
        down, up = others[:4], others[4:]
        self.stem = nn.Sequential(*block(FEATURES, stem, 3), *block(stem, stem, 3))
        self.down, self.up, self.fuse = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        before = [stem, *down]
        for inputs, outputs in zip(before, down):
            stage = block(inputs, inputs, 2, 2), Residual(inputs, outputs), Residual(outputs, outputs)
            self.down.append(nn.Sequential(*stage))
        for inputs, outputs, joined in zip((down[-1], *up), up, before[-2::-1]):
            self.up.append(block(inputs, outputs, 2, 2, transposed=True))
            self.fuse.append(nn.Sequential(Residual(outputs + joined, outputs), Residual(outputs, outputs)))
        self.classifier = nn.Linear(up[-1], classes)

    def forward(self, x: SparseTensor) -> Tensor:
        x = self.stem(x)
        finer = []
        for stage in self.down:
            finer.append(x)
            x = stage(x)
        for up, fuse in zip(self.up, self.fuse):
            x = fuse(torchsparse.cat([up(x), finer.pop()]))
        return self.classifier(x.F)


class Sample(NamedTuple):
    """Voxels of scans, with x, y, z and remission of a point of each, and its class, ``IGNORED`` where unknown."""

    tensor: SparseTensor
    labels: Tensor


def sample(scans: Sequence[Scan], voxel: float = VOXEL, points: int = POINTS) -> Sample:
    """Scans as spvnas prepares them: rounded to voxels, of which ``points`` are drawn where there are more."""
    tensors, labels = [], []
    for scan in scans:
        places = np.round(scan.points / voxel).astype(np.int32)
        places -= places.min(0)
        _, rows = sparse_quantize(places, return_index=True)
        if len(rows) > points:
            rows = np.random.default_rng(0).choice(rows, points, replace=False)
        block_ = np.column_stack([scan.points, scan.remission])
        tensors.append(SparseTensor(block_[rows].astype(np.float32), places[rows]))
        labels.append(torch.from_numpy(np.where(scan.labels > 0, scan.labels - 1, IGNORED)[rows]))
    return Sample(sparse_collate(tensors), torch.cat(labels))


def train(model: nn.Module, samples: Sequence[Sample], steps: int) -> list[float]:
    """The loss of each step, on the samples by turns."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.24, momentum=0.9, weight_decay=1e-4, nesterov=True)
    losses = []
    for step in range(steps):
        x, labels = samples[step % len(samples)]
        loss = nn.functional.cross_entropy(model(x), labels, ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    own = "(default: %(default)s)"
    parser.add_argument("--steps", type=int, default=10, help=own)
    parser.add_argument("--ratio", type=float, default=RATIO, help=f"of all channels {own}")
    parser.add_argument("--voxel", type=float, default=VOXEL, metavar="METRES", help=own)
    parser.add_argument("--azimuths", type=int, default=900, help=f"steps of a turn of generated scans {own}")
    parser.add_argument("--seed", type=int, default=0, help=own)
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    scans = data.load("generated", BATCH, 1, args.seed, azimuths=args.azimuths).train
    samples = [sample([scan() for scan in scans], args.voxel)]
    model = MinkUNet(ratio=args.ratio)
    print(f"MinkUNet of spvnas, {sum(p.numel() for p in model.parameters()):,} parameters, on {samples[0].tensor}")
    for step, loss in enumerate(train(model, samples, args.steps), 1):
        print(f"step {step}: loss {loss:.4f}")
    if (scan := kitti.sample()) is not None:
        with torch.no_grad():
            found = model.eval()(sample([scan], args.voxel).tensor).argmax(1)
        counts = torch.bincount(found, minlength=CLASSES).tolist()
        print(f"voxels of {scan.name} by class: {counts}")


if __name__ == "__main__":
    main()
