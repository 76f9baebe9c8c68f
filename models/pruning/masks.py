"""Pruning step by step: which weights of a model stay, by their size or by where they move."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

CRITERIA = ("magnitude", "movement")
STRUCTURES = ("blocks", "single")


def cubic(step: int, steps: int, density: float) -> float:
    """Share of the weights that is left: 1 before step 0, ``density`` from the last step on, and between them cubic, as
    of Zhu and Gupta (2017).
    """
    left = 1 - min(step / max(steps, 1), 1.0)
    return density + (1 - density) * left**3


class Pruner:
    """Masks of ``torch.nn.utils.prune`` on layers of a model, which become sparser step by step.

    Each matrix keeps the same share. What is pruned stays pruned.

    Args:
        layers: whose weights are pruned.
        criterion: ``"magnitude"`` ranks weights by their size; ``"movement"`` (Sanh et al., 2020) by how far training
            has moved them away from zero: the sum of minus weight times gradient.
        block: side of the square blocks that stay or go as one; 1 for single weights.
    """

    def __init__(self, layers: list[nn.Linear], criterion: str, block: int) -> None:
        self.layers, self.criterion, self.block = layers, criterion, block
        for layer in layers:
            prune.identity(layer, "weight")
        self.moved = [torch.zeros_like(layer.weight_orig) for layer in layers]

    def watch(self) -> None:
        """Take the gradients of a step, before the optimiser takes it."""
        if self.criterion == "movement":
            for layer, moved in zip(self.layers, self.moved):
                moved -= layer.weight_orig.grad * layer.weight_orig.detach()

    def keep(self, density: float) -> None:
        """Prune to so much of the weights."""
        for layer, moved in zip(self.layers, self.moved):
            scores = self._scores(layer, moved)
            kept = torch.zeros(scores.numel(), dtype=torch.bool)
            kept[scores.flatten().topk(max(1, round(density * scores.numel()))).indices] = True
            kept = kept.view_as(scores).repeat_interleave(self.block, 0).repeat_interleave(self.block, 1)
            layer.weight_mask.mul_(kept)

    def density(self) -> float:
        kept = sum(int(layer.weight_mask.sum()) for layer in self.layers)
        return kept / sum(layer.weight_mask.numel() for layer in self.layers)

    def _scores(self, layer: nn.Linear, moved: Tensor) -> Tensor:
        """One score for each block; minus infinity where it is pruned."""
        scores = layer.weight_orig.detach().square() if self.criterion == "magnitude" else moved
        parts = [x.unflatten(1, (-1, self.block)).unflatten(0, (-1, self.block)) for x in (scores, layer.weight_mask)]
        return parts[0].mean((1, 3)).masked_fill(parts[1].amax((1, 3)) == 0, -torch.inf)


def finish(layers: list[nn.Linear]) -> None:
    """Put the pruned weights where they were, without masks."""
    for layer in layers:
        prune.remove(layer, "weight")
