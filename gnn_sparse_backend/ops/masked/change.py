"""What a call changes scores by: what kernels are made of, and given."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .programs.modified import PLANES
from .programs.modifier import Modifier


class Change(NamedTuple):
    """modifier: what scores become. tensors: those that it reads. planes: numbers for `PLANES`."""

    modifier: Modifier
    tensors: tuple[Tensor, ...]
    planes: tuple[int, int, int, int]

    def of_shares(self, shares: int) -> Change:
        """The change where each plane is ``shares`` neighbouring ones."""
        batch_step, batches, head_step, heads = self.planes
        return self._replace(planes=(batch_step * shares, batches, head_step * shares, heads))


def arguments_of(change: Change | None) -> dict[str, Any]:
    """The arguments of kernels by the names of their parameters (`programs.modified`)."""
    if change is None:
        return {}
    found: dict[str, Any] = dict(zip(PLANES, change.planes))
    for n, x in enumerate(change.tensors):
        x = x.detach()
        x = x.view(torch.uint8) if x.dtype is torch.bool else x
        last = sum((size - 1) * step for size, step in zip(x.shape, x.stride()))
        flat = x.as_strided((last + 1,), (1,))
        found |= {f"C{n}": flat, f"C{n}_span": last + 1}
        for d, (size, step) in enumerate(zip(x.shape, x.stride())):
            found |= {f"C{n}_size{d}": size, f"C{n}_step{d}": step}
    return found
