"""A scan: points with what the scanner says of them, and perhaps with labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scan:
    """N points of one turn of a scanner.

    points: (N, 3) float32, metres from the scanner, z upwards. remission: (N,) float32, the light that came back, 0 to
    1. labels: (N,) int64 classes (``classes.NAMES``), 0 where unknown.
    """

    name: str
    points: np.ndarray
    remission: np.ndarray
    labels: np.ndarray

    def __post_init__(self):
        n = len(self.points)
        if self.points.shape != (n, 3) or self.remission.shape != (n,) or self.labels.shape != (n,):
            raise ValueError(
                f"{self.name}: points (N, 3), remission (N,) and labels (N,) do not go together: got "
                f"{self.points.shape}, {self.remission.shape} and {self.labels.shape}"
            )

    def __len__(self) -> int:
        return len(self.points)
