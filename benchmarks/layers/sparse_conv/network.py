"""The whole MinkUNet: what of a forward pass builds maps, training steps, and the first step of a process."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import nullcontext
from functools import partial
from unittest import mock

import torch
import torch.nn.functional as F

from benchmarks.layers.sparse_conv import clouds
from benchmarks.layers.sparse_conv.contenders import OURS, TORCH
from benchmarks.support import cli, memory
from benchmarks.support.timing import Rules, Timing, interleaved
from models.point_clouds.classes import IGNORED
from models.point_clouds.data import Cloud
from models.point_clouds.plain import convolutions, gather_scatter_conv

NETWORKS = (OURS, TORCH)
LOSS_TOLERANCE = 1e-4


class Training:
    """MinkUNet with its optimiser, on our convolutions or on plain PyTorch."""

    def __init__(self, name: str, cloud: Cloud, depth: int = 18, seed: int = 0):
        torch.manual_seed(seed)
        self.model = clouds.network(depth).to(cloud.features.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self._context = partial(convolutions, gather_scatter_conv) if name == TORCH else nullcontext
        self.cloud = cloud
        # of clouds without labels: any will do
        self.labels = cloud.labels if cloud.labels.any() else cloud.labels + 1

    @torch.no_grad()
    def inference(self, x=None) -> tuple[torch.Tensor]:
        """Logits; of the cloud as a new tensor, without maps, or of ``x``, which may have them."""
        self.model.eval()
        with self._context():
            return (self.model(self.cloud.tensor() if x is None else x),)

    def step(self) -> tuple[torch.Tensor]:
        """Maps, forward, loss, backward and Adam; gives the loss."""
        self.model.train()
        with self._context():
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(self.cloud.tensor()), self.labels, ignore_index=IGNORED)
            loss.backward()
            self.optimizer.step()
        return (loss.detach(),)


def measure(place: clouds.Place, cloud: Cloud, budget: float, depth: int = 18) -> dict:
    """As plain values, times in seconds. ``step`` and ``inference`` by network, both with maps that are built anew, and
    ``inference`` of ours with ``known`` maps too; ``map_share``: of our forward pass. ``loss_difference``: relative, of
    the first steps.
    """
    trained = {name: Training(name, cloud, depth) for name in NETWORKS}
    losses = {name: training.step()[0].item() for name, training in trained.items()}
    difference = abs(losses[OURS] - losses[TORCH]) / abs(losses[TORCH])
    x = cloud.tensor()
    passes = {name: training.inference for name, training in trained.items()}
    passes |= {f"{name}, maps known": partial(training.inference, x) for name, training in trained.items()}
    rules = Rules(budget_s=budget / 2, min_rounds=3, long_rounds=2, hopeless=1e9, slow=1e9)
    inference = interleaved(passes, rules)
    step = interleaved({name: training.step for name, training in trained.items()}, rules)
    new, known = (inference[name].median for name in (OURS, f"{OURS}, maps known"))
    return {
        "where": f"{place}, MinkUNet-{depth}",
        "graph": str(place),
        "voxels": len(cloud),
        "losses": losses,
        "loss_difference": difference,
        "wrong": None if difference <= LOSS_TOLERANCE else f"first losses differ by {difference:.1e}",
        "inference": _plain(inference),
        "step": _plain(step),
        "map_share": max(0.0, 1 - known / new),
        "speedup": {"inference": _ratio(inference), "step": _ratio(step)},
    }


def _plain(timings: dict[str, Timing]) -> dict[str, dict]:
    return {name: timing.to_dict() for name, timing in timings.items()}


def _ratio(timings: dict[str, Timing]) -> float:
    return timings[TORCH].median / timings[OURS].median


def first_step(name: str, place: clouds.Place, threads: int, depth: int = 18) -> dict[str, float]:
    """Seconds of the first and of the second step, in this process, which should be fresh; data and network are made
    before.
    """
    cli.set_threads(threads)
    cli.quiet_libraries()
    training, seconds = Training(name, place.cloud(), depth), []
    for _ in range(2):
        begin = time.perf_counter()
        training.step()
        seconds.append(time.perf_counter() - begin)
    return dict(zip(("first", "second"), seconds))


def first_steps(place: clouds.Place, threads: int, depth: int = 18) -> dict[str, dict[str, float]]:
    """Of ours ``cold``, where no kernel is kept on the disk, and ``warm``, where all are; and of plain PyTorch."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, GSB_CACHE_DIR=folder):
        for what, name in (("cold", OURS), ("warm", OURS), (TORCH, TORCH)):
            found[what] = memory.in_child(first_step, name, place, threads, depth)
    return found
