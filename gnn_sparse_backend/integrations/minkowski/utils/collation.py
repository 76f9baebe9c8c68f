"""Samples to batches."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = "np.ndarray | Tensor"
_log = logging.getLogger(__name__)


def batched_coordinates(
    coords: Sequence[Array], dtype: torch.dtype = torch.int32, device: torch.device | str | None = None
) -> Tensor:
    """(N of all, 1 + D) the number of the sample before its coordinates.

    Args:
        coords: (N_i, D) of each sample. Floating ones are rounded down, where the result holds integers.
        dtype: torch.int32 or torch.float32.
        device: of the result; None: the CPU.
    """
    if dtype not in (torch.int32, torch.float32):
        raise ValueError(f"coordinates are torch.int32 or torch.float32, got {dtype}")
    rows = [torch.as_tensor(each) for each in coords]
    shapes = [tuple(each.shape) for each in rows]
    if any(len(shape) != 2 or shape[1] != shapes[0][1] for shape in shapes):
        raise ValueError(f"coordinates must be matrices (N, D) of one D, got shapes {shapes}")
    batched = []
    for number, each in enumerate(rows):
        if dtype == torch.int32 and each.is_floating_point():
            each = each.floor()
        batched.append(torch.nn.functional.pad(each.to(device=device or "cpu", dtype=dtype), (1, 0), value=number))
    return torch.cat(batched)


def sparse_collate(
    coords: Sequence[Array],
    feats: Sequence[Array],
    labels: Sequence[Any] | None = None,
    dtype: torch.dtype = torch.int32,
    device: torch.device | str | None = None,
) -> tuple[Any, ...]:
    """(``batched_coordinates``, features one below the other, labels likewise if there are any).

    Args:
        coords, feats: (N_i, D) and (N_i, channels) of each sample.
        labels: of each sample; a list of them comes back where they are no arrays.
        dtype, device: of the coordinates; by default the device of the first ones.

    Raises ValueError where numbers of rows differ.
    """
    for number, (rows, features) in enumerate(zip(coords, feats, strict=True)):
        if len(rows) != len(features):
            raise ValueError(f"sample {number} has {len(rows)} coordinates, but {len(features)} features")
    if device is None and isinstance(coords[0], Tensor):
        device = coords[0].device
    joined = batched_coordinates(coords, dtype, device), torch.cat([torch.as_tensor(each) for each in feats])
    if labels is None:
        return joined
    found = [torch.from_numpy(each) if isinstance(each, np.ndarray) else each for each in labels]
    return (*joined, torch.cat(found) if isinstance(found[0], Tensor) else found)


def batch_sparse_collate(
    data: Sequence[Sequence[Any]], dtype: torch.dtype = torch.int32, device: torch.device | str | None = None
) -> tuple[Any, ...]:
    """``sparse_collate`` of samples (coordinates, features) or (coordinates, features, labels): a ``collate_fn``."""
    return sparse_collate(*zip(*data), dtype=dtype, device=device)


class SparseCollation:
    """``batch_sparse_collate`` of samples with labels, as an object.

    limit_numpoints: samples from the one on with which there are more points are left out; -1: none.
    dtype, device: of the coordinates.
    """

    def __init__(
        self,
        limit_numpoints: int = -1,
        dtype: torch.dtype = torch.int32,
        device: torch.device | str | None = None,
    ) -> None:
        self.limit_numpoints, self.dtype, self.device = limit_numpoints, dtype, device

    def __call__(self, list_data: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        ends = np.cumsum([len(sample[0]) for sample in list_data])
        kept = len(ends) if self.limit_numpoints <= 0 else int((ends <= self.limit_numpoints).sum())
        if kept < len(ends):
            _log.warning(
                "%d points are more than limit_numpoints=%d: %d of %d samples are left out",
                ends[-1],
                self.limit_numpoints,
                len(ends) - kept,
                len(ends),
            )
        return batch_sparse_collate(list_data[:kept], self.dtype, self.device)
