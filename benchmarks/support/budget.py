"""Dividing the time for the measurements among the cells."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping


class Budget:
    """Seconds for cells of given weights. What a cell leaves over, or takes too much, the later ones share.

    The time runs from the construction on.
    """

    def __init__(
        self, seconds: float, weights: Mapping[Hashable, float], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock = clock
        self._deadline = clock() + seconds
        self._remaining = dict(weights)

    def take(self, cell: Hashable, least: float = 0.01) -> float:
        """The seconds that this cell may take, ``least`` at least. Raises KeyError for one that was taken before."""
        weight = self._remaining.pop(cell)
        share = weight / (weight + sum(self._remaining.values()))
        return max(least, share * (self._deadline - self._clock()))

    def pause(self, seconds: float) -> None:
        """Leave out so many seconds that were spent on something else."""
        self._deadline += seconds


def weight(edges: int, width: float) -> float:
    """A cell's weight: grows more slowly than its work, so that small cells are measured well too."""
    return 1 + 3 * (edges * width / 1e8) ** 0.5
