"""Learn features that are the same at the same place of two scans: FCGF (Choy, Park and Koltun, ICCV 2019), whose
network is written for MinkowskiEngine, which need not be installed.

    python -m models.fcgf --steps 200
    python -m models.fcgf --quick

A step takes two halves of the points of a scene, one of them turned and moved, and has the hardest contrastive loss of
the paper. Scenes are generated; a scan of KITTI in $GSB_DATA is one of them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # run as a file: make the `models` package importable
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from models.point_clouds import kitti, scenes

gsb.enable("MinkowskiEngine")

import MinkowskiEngine as ME  # noqa: E402

from models.point_clouds.resunet import CONFIGURATIONS, ResUNet  # noqa: E402

NEAR, APART = 0.1, 1.4
"""Distances of features below which equal places count as equal, and above which others count as different."""
PAIRS, CANDIDATES = 1024, 512
"""Pairs of equal places of a step, and places that the most similar wrong one is looked for among."""
QUICK = ["--steps", "30", "--width", "0.25", "--voxel", "0.6", "--azimuths", "300", "--beams", "32"]


def views(
    points: np.ndarray, voxel: float, rng: np.random.Generator
) -> tuple[ME.SparseTensor, ME.SparseTensor, Tensor]:
    """Two views of the points as sparse tensors, and (P, 2) rows of equal places in both."""
    angle, shift = rng.uniform(0, 2 * np.pi), rng.uniform(-1, 1, 3)
    turn = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    tensors, places = [], []
    for seen in (points, points @ turn.T + shift):
        chosen = np.flatnonzero(rng.random(len(points)) < 0.7)
        rows, first, inverse = ME.utils.sparse_quantize(
            np.ascontiguousarray(seen[chosen]), return_index=True, return_inverse=True, quantization_size=voxel
        )
        coordinates = ME.utils.batched_coordinates([rows])
        tensors.append(ME.SparseTensor(torch.ones(len(first), 1), coordinates))
        place = torch.full((len(points),), -1)
        place[torch.from_numpy(chosen)] = inverse
        places.append(place)
    pairs = torch.stack(places, 1)
    pairs = pairs[(pairs >= 0).all(1)].unique(dim=0)
    return (*tensors, pairs[torch.from_numpy(rng.permutation(len(pairs)))[:PAIRS]])


def hardest_contrastive(f: Tensor, g: Tensor, pairs: Tensor, rng: np.random.Generator) -> Tensor:
    """Equal places are near, and each is apart from the most similar of some others."""
    a, b = f[pairs[:, 0]], g[pairs[:, 1]]
    loss = ((a - b).norm(dim=1) - NEAR).relu().square().mean()
    for mine, others, row in ((a, g, pairs[:, 1]), (b, f, pairs[:, 0])):
        some = torch.from_numpy(rng.permutation(len(others))[:CANDIDATES])
        distance = torch.cdist(mine, others[some]).masked_fill(some == row[:, None], torch.inf)
        loss = loss + 0.5 * (APART - distance.amin(1)).relu().square().mean()
    return loss


def train(args: argparse.Namespace) -> list[float]:
    """The loss of each step."""
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    clouds = [scenes.generate(args.seed + number, args.azimuths, args.beams).points for number in range(args.scenes)]
    if (sample := kitti.sample()) is not None:
        clouds.append(sample.points[:: args.every])
    model = ResUNet(args.model, width=args.width)
    optimizer = torch.optim.Adam(model.parameters(), args.lr)
    losses = []
    for step in range(args.steps):
        x, y, pairs = views(clouds[step % len(clouds)], args.voxel, rng)
        loss = hardest_contrastive(model(x).F, model(y).F, pairs, rng)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 10 == 0 or step == args.steps - 1:
            print(f"step {step}: {len(x)} and {len(y)} voxels, {len(pairs)} pairs, loss {losses[-1]:.4f}", flush=True)
    return losses


def main(argv: list[str] | None = None) -> int:
    """Train and print losses. Returns the exit status: 1 where the loss does not fall."""
    parser = argparse.ArgumentParser(prog="python -m models.fcgf", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--model", choices=CONFIGURATIONS, default="ResUNetBN2C", help="which published configuration")
    parser.add_argument("--width", type=float, default=1.0, help="what its channels are multiplied by")
    parser.add_argument("--scenes", type=int, default=16, help="generated scenes")
    parser.add_argument("--azimuths", type=int, default=900, help="steps of the scanner's turn")
    parser.add_argument("--beams", type=int, default=64, help="beams of the scanner")
    parser.add_argument("--every", type=int, default=4, help="which points of the scan of KITTI are taken")
    parser.add_argument("--voxel", type=float, default=0.3, help="metres")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help=f"as {' '.join(QUICK)}")
    argv = sys.argv[1:] if argv is None else argv
    args = parser.parse_args(["--quick", *QUICK, *argv] if "--quick" in argv else argv)
    losses = train(args)
    print(gsb.status())
    part = max(len(losses) // 4, 1)
    first, last = (float(np.mean(each)) for each in (losses[:part], losses[-part:]))
    print(f"mean loss of the first {part} steps {first:.4f}, of the last {last:.4f}")
    return int(last >= first)


if __name__ == "__main__":
    sys.exit(main())
