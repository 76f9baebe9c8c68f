"""Between points and voxels: means of the points of a voxel, and sums of the voxels around a point, with gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from .....nn.voxels.interpolation import blend
from .....nn.voxels.maps import kept
from .....ops.grouped.segment_reduce import segment_reduce
from .....structures.segments import Segments
from ....core.counters import ours
from ....core.handles import Handles
from ...conventions import AXES, convention

__all__ = ["calc_ti_weights", "spcount", "spdevoxelize", "spvoxelize"]

_by_index = Handles()  # segments, by the tensor of indices


def spcount(coords: Tensor, num: int | Tensor) -> Tensor:
    """(num,) int32 how often each index is there; negative ones are not counted.

    coords: (N,) integers below ``num``.
    """
    index = coords.reshape(-1)
    return torch.bincount(index[index >= 0].long(), minlength=int(num)).int()


def spvoxelize(feats: Tensor, coords: Tensor, counts: Tensor) -> Tensor:
    """(voxels, C) sums of the rows of each voxel, divided by ``counts``; 0 where that is 0.

    Args:
        feats: (N, C).
        coords: (N,) the voxel of each row, -1 where it has none.
        counts: (voxels,).
    """
    rows, segments = _segments(coords, counts.shape[0])
    found = segment_reduce(feats if rows is None else feats.index_select(0, rows), segments, "sum")
    ours("torchsparse", "spvoxelize")
    count = counts[:, None].to(found.dtype)
    return torch.where(count > 0, found / count.clamp(min=1), 0)


def spdevoxelize(feats: Tensor, coords: Tensor, weights: Tensor) -> Tensor:
    """(N, C) the sum of ``weights[n, k] * feats[coords[n, k]]`` over k. Gradients flow to ``feats`` alone.

    Args:
        feats: (voxels, C).
        coords: (N, K) indices of voxels, -1 where there is none; K is 8 for ``calc_ti_weights``.
        weights: (N, K).
    """
    found = blend(feats, coords, weights.detach())
    ours("torchsparse", "spdevoxelize")
    return found


@torch.no_grad()
def calc_ti_weights(coords: Tensor, idx_query: Tensor, scale: float = 1) -> Tensor:
    """Weights of the 8 voxels around each point, of trilinear interpolation, divided by the sum of those that exist.

    Args:
        coords: (N, 3 or more) floating positions in cells.
        idx_query: (N, 8) which voxel is at each corner, in the order of ``get_kernel_offsets(2)``, -1 where none is;
            (8, N) in the convention of torchsparse 1.4.
        scale: cells from one voxel to the next.

    Returns: in the shape of ``idx_query``.
    """
    place = coords[:, :AXES] / scale
    beyond = place - place.floor()
    corner = torch.arange(8, device=coords.device)[:, None] >> torch.arange(AXES - 1, -1, -1, device=coords.device) & 1
    weights = torch.where(corner.bool(), beyond[:, None], 1 - beyond[:, None]).prod(2)
    last = 0 if convention().finest else 1
    weights = (weights.t() if convention().finest else weights).masked_fill(idx_query == -1, 0)
    return weights / (weights.sum(last, keepdim=True) + 1e-8)


@kept
def _segments(index: Tensor, num: int) -> tuple[Tensor | None, Segments]:
    """(the rows that have a voxel, None for all; those of each voxel)."""

    def make() -> tuple[Tensor | None, Segments]:
        flat = index.reshape(-1)
        there = flat >= 0
        if bool(there.all()):
            return None, Segments.from_index(flat, num)
        rows = there.nonzero().squeeze(1)
        return rows, Segments.from_index(flat[rows], num)

    return _by_index.once(index, num, make)
