"""Training of segmentation networks side by side: on our convolutions, on plain PyTorch, and a linear model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gnn_sparse_backend.tuning.precompile import seconds_of
from models.dataset import DataError
from models.point_clouds.classes import IGNORED, NAMES
from models.point_clouds.data import FEATURES, Cloud, Scans
from models.point_clouds.layers import prepare
from models.point_clouds.metrics import Confusion
from models.point_clouds.network import BLOCKS, MinkUNet, PointwiseLinear
from models.point_clouds.plain import convolutions, gather_scatter_conv
from models.train import measured

NETWORKS = ("off", "on")
LINEAR = "linear"
# a convex problem of few weights, which goes as far at a rate at which a network would diverge
LINEAR_LR = 0.05


@dataclass(frozen=True)
class Config:
    """depth: of BLOCKS. width: of all channels, times those of the paper. voxel: metres. batch: scans of a step.

    augment: turn, mirror and scale each scan anew at each epoch. precompile: time to compile and measure in what the
    layers run, before the training on our convolutions; "" for none.
    """

    depth: int = 18
    width: float = 1.0
    voxel: float = 0.1
    epochs: int = 8
    batch: int = 1
    lr: float = 2e-3
    augment: bool = True
    seed: int = 0
    precompile: str = ""
    device: str = "cpu"

    def __post_init__(self):
        if self.depth not in BLOCKS:
            raise ValueError(f"depth must be one of {tuple(BLOCKS)}, got {self.depth}")
        for name in ("epochs", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("width", "voxel", "lr"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.precompile:
            seconds_of(self.precompile)


@dataclass
class Run:
    """What one training gave. name: "off", "on" or "linear". losses: of each step. seconds: of each epoch's steps, with
    the building of kernel maps, without reading and voxels. peak_bytes: what an epoch takes at most above what is there
    before; None where the system does not tell. iou, mean_iou, accuracy: of the points of the validation scans.
    """

    name: str
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    peak_bytes: int | None = None
    inference_seconds: float = float("nan")
    iou: dict[str, float] = field(default_factory=dict)
    mean_iou: float = float("nan")
    accuracy: float = float("nan")

    @property
    def epoch_seconds(self) -> float:
        """The median, without the first, which compiles kernels, where there are others."""
        return statistics.median(self.seconds[1:] or self.seconds)

    def last_loss(self) -> float:
        """The mean over the last epoch's steps."""
        return statistics.fmean(self.losses[-(len(self.losses) // max(1, len(self.seconds))) :])


class Trainee:
    """A model with its optimiser and its way to convolve."""

    def __init__(self, name: str, scans: Scans, config: Config):
        torch.manual_seed(config.seed)
        if name == LINEAR:
            model, lr = PointwiseLinear(FEATURES, len(NAMES)), LINEAR_LR
        else:
            model, lr = MinkUNet(FEATURES, len(NAMES), config.depth, config.width), config.lr
        self.model: nn.Module = model.to(config.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.scans, self.config, self.run = scans, config, Run(name)

    def convolutions(self):
        """What the layers convolve with, for a block."""
        return convolutions(gather_scatter_conv) if self.run.name == "off" else nullcontext()

    def epoch(self, number: int, weights: Tensor) -> None:
        """Train on every scan once, in an order and by movements that depend on the seed and the epoch alone. weights:
        of the classes, in the loss.
        """
        self.model.train()
        seconds = 0.0
        with self.convolutions():
            for cloud in clouds(self.scans.train, self.config, number):
                start = self._clock()
                self.optimizer.zero_grad()
                loss = F.cross_entropy(self.model(cloud.tensor()), cloud.labels, weights, ignore_index=IGNORED)
                loss.backward()
                self.optimizer.step()
                seconds += self._clock() - start
                self.run.losses.append(loss.item())
        self.run.seconds.append(seconds)

    @torch.no_grad()
    def predict(self, cloud: Cloud) -> Tensor:
        """(N,) the class of each point."""
        self.model.eval()
        with self.convolutions():
            logits = self.model(cloud.tensor())
        logits[:, IGNORED] = float("-inf")
        return logits.argmax(1)[cloud.voxel_of]

    def evaluate(self) -> None:
        """Set what the run says of the validation scans."""
        confusion, seconds = Confusion(), []
        for scan in self.scans.val:
            cloud = Cloud.of([scan()], self.config.voxel).to(self.config.device)
            start = self._clock()
            predicted = self.predict(cloud)
            seconds.append(self._clock() - start)
            confusion.add(cloud.point_labels, predicted)
        self.run.inference_seconds = statistics.median(seconds)
        self.run.iou, self.run.mean_iou, self.run.accuracy = (
            confusion.iou(),
            confusion.mean_iou(),
            confusion.accuracy(),
        )

    def save(self, folder: Path) -> None:
        """``NAME.pt``: state dicts, and what the run has given so far."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "config": asdict(self.config),
            "run": asdict(self.run),
        }
        part = folder / f"{self.run.name}.part"
        torch.save(state, part)  # an interrupted run leaves the file of the epoch before
        part.replace(folder / f"{self.run.name}.pt")

    def resume(self, folder: Path) -> None:
        """Go on from ``NAME.pt`` where it is there. Raises DataError where it is of another network."""
        path = folder / f"{self.run.name}.pt"
        if not path.is_file():
            return
        state = torch.load(path, map_location=self.config.device, weights_only=True)
        for name in ("depth", "width", "voxel", "seed"):
            if state["config"][name] != getattr(self.config, name):
                raise DataError(
                    f"{path} was trained with {name} {state['config'][name]}, not {getattr(self.config, name)}: give "
                    "the same, or another --checkpoints"
                )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.run = Run(**state["run"])

    def _clock(self) -> float:
        """Seconds, once the GPU has done what it was given."""
        if self.config.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def clouds(scans: Sequence[Callable], config: Config, epoch: int) -> Iterator[Cloud]:
    """The batches of an epoch."""
    rng = np.random.default_rng([config.seed, epoch])
    order = rng.permutation(len(scans))
    for first in range(0, len(order), config.batch):
        chosen = [scans[number]() for number in order[first : first + config.batch]]
        yield Cloud.of(chosen, config.voxel, rng if config.augment else None).to(config.device)


def class_weights(scans: Scans, most: int = 8) -> Tensor:
    """(classes,) one over the root of a class's share of the points of the first scans: small things count more."""
    counts = np.ones(len(NAMES))
    for scan in scans.train[:most]:
        counts += np.bincount(scan().labels, minlength=len(NAMES))
    weights = 1 / np.sqrt(counts / counts.sum())
    return torch.from_numpy(weights / weights[counts > 1].mean()).float().clamp(max=5)


def train(
    names: Sequence[str],
    scans: Scans,
    config: Config,
    on_epoch: Callable[[Run], None] = lambda run: None,
    checkpoints: Path | None = None,
    resume: bool = False,
) -> list[Trainee]:
    """Train each of ``names``, the networks from the same parameters and on the same batches, in turns of an epoch, so
    that whatever else the machine does meets all of them alike.

    ``on_epoch`` is called after each. checkpoints: a folder where the state is saved after each; resume: go on from
    what is there.
    """
    trainees = [Trainee(name, scans, config) for name in names]
    if checkpoints is not None and resume:
        for trainee in trainees:
            trainee.resume(checkpoints)
    weights = class_weights(scans).to(config.device)
    if config.precompile and "on" in names:
        cloud = next(clouds(scans.train, config, 0))
        prepare(trainees[names.index("on")].model, cloud.tensor(), config.precompile)
    for epoch in range(config.epochs):
        for trainee in trainees if epoch % 2 == 0 else reversed(trainees):
            if len(trainee.run.seconds) > epoch:  # before it was interrupted
                continue
            work = partial(trainee.epoch, epoch, weights)
            if epoch == 0:  # what is made once would count
                work()
            else:
                _, peak = measured(work, config.device)
                if peak is not None:
                    trainee.run.peak_bytes = max(trainee.run.peak_bytes or 0, peak)
            if checkpoints is not None:
                trainee.save(checkpoints)
            on_epoch(trainee.run)
    for trainee in trainees:
        trainee.evaluate()
    return trainees


# The two networks add float32 numbers in different orders. The loss of the first step, from equal parameters, shows a
# wrong kernel at once; later, training amplifies rounding.
LOSS_TOLERANCE = 1e-4


def disagreement(off: Run, on: Run) -> str | None:
    """How the first loss with our convolutions differs from that of plain PyTorch by more than rounding; None if it
    does not.
    """
    first, other = off.losses[0], on.losses[0]
    if not abs(first - other) <= LOSS_TOLERANCE * abs(first):
        return f"loss of the first step: {first:.7g} on plain PyTorch, {other:.7g} on our convolutions"
    return None
