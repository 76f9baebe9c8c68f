"""``MinkowskiNetwork``: what published networks derive from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch.nn import Module


class MinkowskiNetwork(Module, ABC):
    """A module that knows its number of axes, ``D``."""

    def __init__(self, D: int) -> None:
        super().__init__()
        self.D = D

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """Compute what the network is for; each has its own."""
