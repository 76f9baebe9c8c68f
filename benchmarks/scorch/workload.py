"""What the three workloads have in common: contenders that give one answer, a right one, and the least work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from benchmarks.operators.work import Work
from benchmarks.support.cells import relative_error

OURS = "gsb"
TOLERANCE = 1e-4
"""Largest difference to float64, relative to the largest number of the answer."""
Call = Callable[[], Tensor]


class Workload(ABC):
    """A network of a size, on made-up weights. Nothing is trained: no time depends on the values.

    notes: contenders by name, and what a reader has to know of each. Ours begin with ``gsb``.
    """

    notes: ClassVar[Mapping[str, str]]

    @abstractmethod
    def call_of(self, name: str) -> Call:
        """The forward pass of a contender, with whatever it can keep between calls made before. Raises Unable."""

    @abstractmethod
    def rest(self) -> Call:
        """What all contenders do alike, by itself: all but the products that they make in ways of their own."""

    @abstractmethod
    def compute_expected(self) -> Tensor:
        """The right answer, in float64."""

    @abstractmethod
    def work(self) -> Work:
        """The least that any algorithm does."""

    @cached_property
    def expected(self) -> Tensor:
        return self.compute_expected()

    def mismatch(self, answer: Tensor) -> str | None:
        """What is wrong with an answer; None if it is right."""
        error = relative_error(answer, self.expected)
        return None if error < TOLERANCE else f"off by {error:.2g}"
