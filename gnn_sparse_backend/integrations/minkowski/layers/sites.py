"""Layers that change which sites there are, or read between them."""

from __future__ import annotations

from typing import Any

import torch

from ..interpolation import at_points
from ..key import CoordinateMapKey
from ..sparse_tensor import SparseTensor
from .base import MinkowskiModuleBase


class MinkowskiPruning(MinkowskiModuleBase):
    """Some of the sites."""

    def forward(self, input: SparseTensor, mask: torch.Tensor) -> SparseTensor:
        """The sites at which (N,) booleans are true, in their order."""
        x = self._checked(input)
        if mask.shape != (len(x),) or mask.dtype not in (torch.bool, torch.uint8):
            raise ValueError(
                f"MinkowskiPruning: mask must be ({len(x)},) booleans, one for each site, got {tuple(mask.shape)} of "
                f"{mask.dtype}"
            )
        rows = mask.to(x.device).nonzero().squeeze(1)
        return SparseTensor._of(x.F[rows], x._manager.prune(x._key, rows), x._manager)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class MinkowskiUnion(MinkowskiModuleBase):
    """The sites of all tensors, with the sums of their features."""

    def forward(self, *inputs: SparseTensor) -> SparseTensor:
        """Add at least two tensors of one coordinate manager."""
        if len(inputs) < 2:
            raise ValueError(f"MinkowskiUnion wants at least two tensors, got {len(inputs)}")
        first, *others = [self._checked(each) for each in inputs]
        for each in others:
            first._same_key(each)
        key = CoordinateMapKey(first.D + 1)
        maps = first._manager.union_map([x._key for x in inputs], key)
        features = torch.nn.functional.pad(first.F, (0, 0, 0, first._manager.size(key) - len(first)))
        for x, (_, rows) in zip(others, maps[1:]):
            features = features.index_add(0, rows, x.F)
        return SparseTensor._of(features, key, first._manager)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class MinkowskiInterpolation(MinkowskiModuleBase):
    """Linear interpolation at points; sites that are not there are 0.

    return_kernel_map, return_weights: whether the pairs (sites, points), and their weights, are returned, too.
    """

    def __init__(self, return_kernel_map: bool = False, return_weights: bool = False) -> None:
        super().__init__()
        self.return_kernel_map, self.return_weights = return_kernel_map, return_weights

    def forward(self, input: SparseTensor, tfield: torch.Tensor) -> Any:
        """(P, channels) at (P, 1 + D) points, the batch first."""
        x = self._checked(input)
        found: list[Any] = [at_points(x, tfield)]
        if self.return_kernel_map or self.return_weights:
            sites, points, weights = x._manager.interpolation_map_weight(x._key, tfield)
            found += [(sites.int(), points.int())] if self.return_kernel_map else []
            found += [weights] if self.return_weights else []
        return tuple(found) if len(found) > 1 else found[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
