"""Training of the detector, under ``gsb.enable("spconv")``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

import gnn_sparse_backend as gsb
from models.detection.examples import THINGS, Example
from models.detection.network import CHANNELS, OUT, Detector

FEATURES = 4
METRES = 0.25
"""What an error of a height of one metre weighs."""


@dataclass(frozen=True)
class Config:
    """width: of all channels, times those of the paper, in whole eights. steps: of the optimiser."""

    width: float = 1.0
    steps: int = 40
    lr: float = 3e-3
    seed: int = 0

    def __post_init__(self):
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}")
        for name in ("width", "lr"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")

    def detector(self) -> Detector:
        torch.manual_seed(self.seed)
        *channels, out = (max(8, 8 * round(each * self.width / 8)) for each in (*CHANNELS, OUT))
        return Detector(FEATURES, len(THINGS), channels, out)


@dataclass
class Run:
    """losses: of each step, the sum of both. things, heights: its parts; things is None where points have no
    labels.
    """

    losses: list[float] = field(default_factory=list)
    things: list[float | None] = field(default_factory=list)
    heights: list[float] = field(default_factory=list)


def train(
    model: Detector, examples: Sequence[Example], config: Config, on_step: Callable[[Run], None] = lambda run: None
) -> Run:
    """Train on the examples in turns. spconv has no gradients on a CPU: its layers run on our kernels meanwhile."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=0.01)
    run = Run()
    model.train()
    with gsb.enabled("spconv"):
        for step in range(config.steps):
            things, heights = losses(model, examples[step % len(examples)])
            loss = heights if things is None else things + heights
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10)
            optimizer.step()
            run.losses.append(loss.item())
            run.things.append(None if things is None else things.item())
            run.heights.append(heights.item())
            on_step(run)
    return run


def losses(model: Detector, example: Example) -> tuple[Tensor | None, Tensor]:
    """Focal loss of things at every cell of the map, None where there are no labels; and the mean error of heights in
    cells that hold a point, weighted.
    """
    cells, logits, heights = model(example.tensor())
    rows, there = example.found_at(cells)
    wrong = METRES * F.l1_loss(heights[there], example.heights[rows[there]])
    if example.things is None:
        return None, wrong
    return focal_loss(logits, example.things[rows] * there[:, None]), wrong


def focal_loss(logits: Tensor, wanted: Tensor) -> Tensor:
    """Cross entropy in which sites that are told well count little (Lin et al., ICCV 2017), by thing."""
    wrong = torch.where(wanted > 0, -logits, logits)
    return (torch.sigmoid(wrong).square() * F.softplus(wrong)).sum() / wanted.sum().clamp(min=1)


@torch.no_grad()
def precision(model: Detector, example: Example) -> dict[str, tuple[float, float]]:
    """By class that there is: the share of its cells among as many that the model is surest of, and among all cells."""
    model.eval()
    with gsb.enabled("spconv"):
        cells, logits, _ = model(example.tensor())
    rows, there = example.found_at(cells)
    wanted = example.things[rows] * there[:, None]
    found = {}
    for column, name in enumerate(THINGS):
        count = int(wanted[:, column].sum())
        if count:
            surest = logits[:, column].topk(count).indices
            found[name] = wanted[surest, column].mean().item(), count / len(cells)
    return found
