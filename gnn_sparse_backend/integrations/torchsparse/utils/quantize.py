"""Points as the voxels that hold them, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..conventions import AXES, convention

__all__ = ["sparse_quantize"]


def sparse_quantize(
    coords: np.ndarray,
    voxel_size: float | Sequence[float] = 1,
    *,
    return_index: bool = False,
    return_inverse: bool = False,
) -> np.ndarray | list[np.ndarray]:
    """``floor(coords / voxel_size)`` without repetition, in ascending order.

    Args:
        coords: (N, 3).
        voxel_size: one for all axes, or one for each.
        return_index: whether to return (M,) the first point of each voxel, too.
        return_inverse: whether to return (N,) the voxel of each point, too.

    Returns: (M, 3) int32, from 0 on in the convention of torchsparse 1.4; or a list of it and what was asked for.
    Positions are divided in float64.
    """
    size = np.asarray([voxel_size] * AXES if np.isscalar(voxel_size) else voxel_size, dtype=np.float64)
    coords = np.asarray(coords)
    if size.shape != (AXES,) or not (np.isfinite(size) & (size > 0)).all():
        raise ValueError(f"voxel_size must be a positive number, or one for each of {AXES} axes, got {voxel_size!r}")
    if coords.ndim != 2 or coords.shape[1] != AXES:
        raise ValueError(f"coords must have shape (N, {AXES}), got {coords.shape}")
    voxels = np.floor(coords / size).astype(np.int32)
    low = voxels.min(0) if len(voxels) else np.zeros(AXES, np.int32)
    offsets = voxels.astype(np.int64) - low
    # the number of a voxel's cell, the last axis fastest
    keys = np.ravel_multi_index(offsets.T, tuple(offsets.max(0) + 1)) if len(voxels) else np.zeros(0, np.int64)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    found = [voxels[first] - (low if convention().finest else 0)]
    found += [first] if return_index else []
    found += [inverse.reshape(-1)] if return_inverse else []
    return found[0] if len(found) == 1 else found
