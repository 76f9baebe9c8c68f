"""Training of an encoder, its pruning, and its fine-tuning with dense and with sparse layers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import prune

import gnn_sparse_backend as gsb
from models.pruning import measure, task
from models.pruning.masks import CRITERIA, STRUCTURES, Pruner, cubic, finish
from models.pruning.network import Encoder

ARMS = {
    "start": "dense, before pruning",
    "dense": "dense, never pruned",
    "pruning": "pruned step by step",
    "masked": "pruned, masks of PyTorch",
    "sparse": "pruned, sparse layers",
}
CHECKS = 8
"""Batches of an evaluation."""
LOOK = 50
"""Steps from one evaluation to the next."""


@dataclass(frozen=True)
class Config:
    """steps: before pruning; prune_steps: while the density falls, every ``every`` steps; tune_steps: after it.

    density: share of the layers' weights that is left. block: side of a block of the structure ``"blocks"``.

    at_least: how many times faster a layer is predicted to be that becomes sparse. rounds: of the comparison of times.
    layer_tokens: on which one layer of BERT's size is measured, 0: none is.
    """

    width: int = 768
    heads: int = 12
    inner: int = 3072
    layers: int = 12
    length: int = 64
    batch: int = 16
    steps: int = 250
    prune_steps: int = 250
    tune_steps: int = 100
    every: int = 10
    density: float = 0.065
    structure: str = "blocks"
    block: int = 32
    criterion: str = "magnitude"
    lr: float = 1e-3
    seed: int = 0
    at_least: float = 1.05
    rounds: int = 9
    layer_tokens: int = 512

    def __post_init__(self) -> None:
        for name in ("width", "heads", "inner", "layers", "batch", "prune_steps", "every", "block", "rounds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("steps", "tune_steps", "layer_tokens"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.length < 2:
            raise ValueError(f"length must be at least 2, a fact and a question, got {self.length}")
        if self.width % self.heads:
            raise ValueError(f"heads must divide the width {self.width}, got {self.heads}")
        if self.side > 1 and (self.width % self.block or self.inner % self.block):
            raise ValueError(f"block must divide width {self.width} and inner {self.inner}, got {self.block}")
        for name, known in (("structure", STRUCTURES), ("criterion", CRITERIA)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if not 0 < self.density <= 1:
            raise ValueError(f"density must be above 0 and at most 1, got {self.density}")
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, got {self.lr}")

    @property
    def side(self) -> int:
        """Of what is kept or pruned as one."""
        return self.block if self.structure == "blocks" else 1

    def total(self, pruned: bool) -> int:
        """Steps of all networks together."""
        fine = 2 * self.tune_steps
        return fine if pruned else fine + self.steps + 2 * self.prune_steps + self.tune_steps

    def encoder(self) -> Encoder:
        return Encoder(self.width, self.heads, self.inner, self.layers, self.length)


@dataclass
class Run:
    """One part of the training. first: its first step. losses, densities: of each step. accuracies: (step, share of
    right answers) now and then, and at the end.
    """

    name: str
    first: int
    losses: list[float] = field(default_factory=list)
    densities: list[float] = field(default_factory=list)
    accuracies: list[tuple[int, float]] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        return self.accuracies[-1][1]

    def to_dict(self) -> dict:
        return asdict(self)


@dataclass
class Result:
    """runs: by the names of ARMS. costs: of the arms "dense", "masked" and "sparse". decisions: of `gsb.nn.sparsify`.
    pruned: the state of the dense network after all, with zeros where weights were pruned.
    """

    runs: dict[str, Run]
    costs: dict[str, measure.Cost]
    decisions: gsb.nn.Sparsified
    pruned: dict[str, torch.Tensor]


def train(config: Config, pruned: dict | None = None, on_step: Callable[[Run], None] = lambda run: None) -> Result:
    """All of it; or what follows the pruning, from the state of a pruned network. ``on_step`` is called each step."""
    torch.manual_seed(config.seed)
    model, runs = config.encoder(), {}

    def part(name: str, model: Encoder, first: int, steps: int, pruner: Pruner | None = None) -> None:
        run = runs[name] = Run(name, first)
        density = 1.0 if name in ("start", "dense") else _density(model)
        last = first + steps
        optimizer = torch.optim.AdamW(model.parameters(), config.lr)
        warm = min(max(steps // 10, 1), 50)
        rate = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / warm, max(steps - step, 1) / max(steps // 2, 1))
        )
        for step in range(first, last):
            loss = _forward(model, _drawn(config, step))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if pruner is not None:
                pruner.watch()
            optimizer.step()
            rate.step()
            done = step + 1 - first
            if pruner is not None and (done % config.every == 0 or step + 1 == last):
                pruner.keep(cubic(done, steps, config.density))
                density = pruner.density()
            run.losses.append(loss.item())
            run.densities.append(density)
            if done % LOOK == 0 and step + 1 < last:
                run.accuracies.append((step + 1, evaluate(model, config)))
            on_step(run)
        run.accuracies.append((last, evaluate(model, config)))

    after = config.steps + config.prune_steps
    if pruned is None:
        part("start", model, 0, config.steps)
        dense = copy.deepcopy(model)
        pruner = Pruner(model.maps(), config.criterion, config.side)
        part("pruning", model, config.steps, config.prune_steps, pruner)
        finish(model.maps())
        part("dense", dense, config.steps, config.prune_steps + config.tune_steps)
    else:
        dense = config.encoder()
        _take(model, pruned)
    masked, sparse = (_masked(copy.deepcopy(model)) for _ in range(2))
    arms = {"dense": dense, "masked": masked, "sparse": sparse}  # what stays dense in the last one keeps its mask
    decisions = gsb.nn.sparsify(sparse, at_least=config.at_least, only=lambda name, layer: name.startswith("layers."))
    for name in ("masked", "sparse"):
        part(name, arms[name], after, config.tune_steps)
    costs = measure.compare(arms, lambda model: _forward(model, _drawn(config, after)), config.rounds)
    finish([each for each in sparse.maps() if prune.is_pruned(each)])
    return Result(runs, costs, decisions, sparse.state_dict())


def _take(model: Encoder, state: dict[str, torch.Tensor]) -> None:
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"the network that was loaded has other sizes; {error}") from None


def _drawn(config: Config, step: int) -> task.Facts:
    """What all arms see at a step."""
    return task.draw(config.batch, config.length, torch.Generator().manual_seed((config.seed << 32) + step))


def _forward(model: Encoder, drawn: task.Facts) -> torch.Tensor:
    scores = model(drawn.keys, drawn.seconds)
    return cross_entropy(scores[drawn.asked], drawn.answers[drawn.asked])


@torch.no_grad()
def evaluate(model: Encoder, config: Config) -> float:
    """Share of right answers on sequences that nobody was trained on."""
    hits = []
    for check in range(CHECKS):
        drawn = _drawn(config, -1 - check)
        found = model(drawn.keys, drawn.seconds).argmax(-1) == drawn.answers
        hits.append(found[drawn.asked])
    return torch.cat(hits).double().mean().item()


def _masked(model: Encoder) -> Encoder:
    """The weights that are not zero, by masks of ``torch.nn.utils.prune``."""
    for layer in model.maps():
        prune.custom_from_mask(layer, "weight", layer.weight.detach() != 0)
    return model


def _density(model: Encoder) -> float:
    """Of the maps of a network, masked, sparse or neither."""
    kept = every = 0
    for layer in model.layers.modules():
        if isinstance(layer, (nn.Linear, gsb.nn.SparseLinear)):
            kept += int((layer.weight.detach() != 0).sum())
            every += layer.in_features * layer.out_features
    return kept / every
