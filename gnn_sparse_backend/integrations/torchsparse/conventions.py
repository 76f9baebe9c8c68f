"""What coordinates mean: torchsparse changed it between its versions, and programs of both are published.

In 2.1 the batch is the first column, and coordinates count cells of the tensor's own grid, which a layer of stride 2
halves. In 1.4 and 2.0 the batch is the last column, and coordinates count cells of the finest grid, so that at stride 2
all are even. Nothing in a program says which it means, so ``GSB_TORCHSPARSE`` does; 2.1 where it is silent.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ... import config
from ...frozen import dataclass

AXES = 3


@dataclass(frozen=True)
class Convention:
    """Attributes:
    version: what ``torchsparse.__version__`` is.
    batch: the column of the batch.
    finest: whether coordinates count cells of the finest grid.
    """

    version: str
    batch: int
    finest: bool

    @property
    def axes(self) -> slice:
        """The columns that are not the batch."""
        return slice(1, 1 + AXES) if self.batch == 0 else slice(0, AXES)

    def rows(self, coords: Tensor, stride: tuple[int, ...]) -> Tensor:
        """(N, 4) the batch first, in cells of a grid of this stride."""
        if not self.finest:
            return coords
        steps = torch.tensor(stride, device=coords.device)
        cells = coords[:, self.axes].div(steps, rounding_mode="floor")
        if bool((beside := (cells * steps != coords[:, self.axes]).any(1)).any()):
            at = int(beside.nonzero()[0])
            raise ValueError(
                f"coords[{at}] = {coords[at].tolist()} is not on a grid of stride {stride}: in torchsparse "
                f"{self.version} coordinates are multiples of it (GSB_TORCHSPARSE=2.1 for the later convention)"
            )
        return torch.cat([coords[:, self.batch, None], cells], 1)

    def coords(self, rows: Tensor, stride: tuple[int, ...]) -> Tensor:
        """(N, 4) int32 coordinates of such rows, a copy that may be written to."""
        if not self.finest:
            return rows.to(torch.int32, copy=True)
        return torch.cat([rows[:, 1:] * torch.tensor(stride, device=rows.device), rows[:, :1]], 1).int()

    def joined(self, batch: Tensor, cells: Tensor) -> Tensor:
        """(N, 4) coordinates of a column of batches and three of cells."""
        return torch.cat([batch, cells] if self.batch == 0 else [cells, batch], 1)


CONVENTIONS = {"2.1": Convention("2.1.0", 0, False), "1.4": Convention("1.4.0", 3, True)}
_in_force = CONVENTIONS[config.TORCHSPARSE.get() or "2.1"]


def convention() -> Convention:
    """The one in force."""
    return _in_force


def follow(version: str | None = None) -> None:
    """Put another one of ``CONVENTIONS`` in force, for tensors that are made from now on. None: what the environment
    says.
    """
    global _in_force
    _in_force = CONVENTIONS[version or config.TORCHSPARSE.get() or "2.1"]
