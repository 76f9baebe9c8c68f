"""``torchsparse.backend.GPUHashTable``, which published code uses by itself, as a search over sorted rows."""

from __future__ import annotations

import torch
from torch import Tensor

from ...structures.coordinates.packing import find, find_rows
from .nn.utils.kernel import get_kernel_offsets
from .utils.shapes import make_divisible

DIVISOR = 128
"""Results have rows up to a multiple of this, as those of torchsparse have."""


class GPUHashTable:
    """Numbers or coordinates to be looked up, on any device.

    Args: a capacity, or the keys and values that torchsparse would write to; none is needed here.
    """

    def __init__(self, *buffers: Tensor | int) -> None:
        self._keys: Tensor | None = None
        self._rows: Tensor | None = None

    def insert_vals(self, keys: Tensor) -> None:
        """Insert (N,) int64 numbers."""
        self._keys = keys

    def lookup_vals(self, keys: Tensor) -> Tensor:
        """(M, rounded up) int32: 1 plus the place of each number, 0 where it is not there."""
        return _padded(find(keys, _inserted(self._keys, "insert_vals")))

    def insert_coords(self, coords: Tensor) -> None:
        """Insert (N, 4) integers, the batch last."""
        self._rows = coords

    def lookup_coords(self, coords: Tensor, kernel_size: Tensor, stride: Tensor, kernel_volume: int) -> Tensor:
        """(M rounded up, volume) int32: 1 plus the place of ``stride * coords + offset`` at each offset of a kernel, 0
        where it is not there.
        """
        rows = _inserted(self._rows, "insert_coords")
        offsets = get_kernel_offsets(tuple(torch.as_tensor(kernel_size).tolist()), device=str(coords.device))
        steps = torch.as_tensor(stride, device=coords.device)
        cells = (coords[:, None, :3] * steps + offsets).flatten(0, 1)
        batch = coords[:, 3:].repeat_interleave(len(offsets), 0)
        return _padded(find_rows(torch.cat([cells, batch], 1), rows).view(-1, int(kernel_volume)))


def _inserted(there: Tensor | None, how: str) -> Tensor:
    if there is None:
        raise RuntimeError(f"GPUHashTable: nothing is there to be looked up; call {how} before")
    return there


def _padded(places: Tensor) -> Tensor:
    made = places.new_zeros((make_divisible(places.shape[0], DIVISOR), *places.shape[1:]), dtype=torch.int32)
    made[: places.shape[0]] = places + 1
    return made
