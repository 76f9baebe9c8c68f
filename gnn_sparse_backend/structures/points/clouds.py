"""Clouds of points, as searches take them."""

from __future__ import annotations

import torch
from torch import Tensor

from ...frozen import dataclass


@dataclass(frozen=True)
class Cloud:
    """Points of several clouds, one cloud behind the other, on the host.

    points: (N, D) float32 or float64, without gaps. begins: (clouds + 1,) int64.
    """

    points: Tensor
    begins: Tensor

    @property
    def count(self) -> int:
        """How many clouds there are."""
        return int(self.begins.shape[0]) - 1

    def numbers(self) -> Tensor:
        """(N,) int64 the cloud of each point."""
        if self.count == 1:
            return torch.zeros(self.points.shape[0], dtype=torch.int64)
        return torch.arange(self.count).repeat_interleave(self.begins.diff())


def checked_points(name: str, points: Tensor) -> Tensor:
    """(N, D) points on the host, in float32 where that holds their type and else in float64.

    Raises ValueError for NaN and infinities.
    """
    x = points.detach().cpu()
    narrow = x.dtype in (torch.float32, torch.float16, torch.bfloat16)
    x = x.reshape(x.shape[0], x.shape[1:].numel()).to(torch.float32 if narrow else torch.float64).contiguous()
    if not bool(x.sum().isfinite()) and not bool((finite := x.isfinite()).all()):
        at = int((~finite).any(1).nonzero()[0])
        raise ValueError(f"{name}[{at}] = {x[at].tolist()}: points must be finite, nothing is near to NaN or infinity")
    return x


def begins_of(name: str, batch: Tensor | None, count: int, clouds: int) -> Tensor:
    """(clouds + 1,) int64 where each cloud begins, of points whose clouds ascend.

    Raises ValueError where they do not, or there is not one for each point.
    """
    if batch is None:
        return torch.tensor([0] + [count] * clouds)
    if batch.dim() != 1 or batch.shape[0] != count:
        raise ValueError(f"{name} must have one entry for each of {count} points, got {tuple(batch.shape)}")
    batch = batch.detach().cpu().to(torch.int64).contiguous()
    if count and (bool((batch.diff() < 0).any()) or int(batch[0]) < 0 or int(batch[-1]) >= clouds):
        raise ValueError(f"{name} must ascend from 0 or more to less than {clouds}, sort points by it; got {batch}")
    return torch.searchsorted(batch, torch.arange(clouds + 1))
