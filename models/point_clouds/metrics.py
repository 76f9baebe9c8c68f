"""Intersection over union, the measure of segmentation."""

from __future__ import annotations

import torch
from torch import Tensor

from models.point_clouds.classes import IGNORED, NAMES


class Confusion:
    """How often points of one class were taken for another."""

    def __init__(self) -> None:
        self.counts = torch.zeros(len(NAMES), len(NAMES), dtype=torch.int64)
        """(classes, classes): by true class, by predicted class."""

    def add(self, labels: Tensor, predicted: Tensor) -> None:
        """Count points; those of the ignored class are left out."""
        known = labels != IGNORED
        pairs = labels[known] * len(NAMES) + predicted[known]
        self.counts += torch.bincount(pairs.cpu(), minlength=self.counts.numel()).view_as(self.counts)

    def iou(self) -> dict[str, float]:
        """For each class that there is, by name: points that have it and were given it, over those that have it or were
        given it.
        """
        hits = self.counts.diagonal()
        true, given = self.counts.sum(1), self.counts.sum(0)
        return {
            NAMES[c]: float(hits[c]) / float(true[c] + given[c] - hits[c])
            for c in range(len(NAMES))
            if c != IGNORED and true[c]
        }

    def mean_iou(self) -> float:
        """The mean over the classes that there are; NaN without any."""
        found = list(self.iou().values())
        return sum(found) / len(found) if found else float("nan")

    def accuracy(self) -> float:
        """The share of points that were given their class."""
        return float(self.counts.diagonal().sum()) / max(1, int(self.counts.sum()))
