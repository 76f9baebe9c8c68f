"""Normalisation: over all sites, or over those of each batch."""

from __future__ import annotations

import torch

from .... import nn
from ..sites import of_package
from ..tensor import SparseTensor, check_tensor
from .utils.apply import fapply

__all__ = ["BatchNorm", "GroupNorm", "InstanceNorm"]


class BatchNorm(torch.nn.BatchNorm1d):
    """``torch.nn.BatchNorm1d`` over all sites of all batches."""

    def forward(self, input: SparseTensor) -> SparseTensor:  # type: ignore[override]
        return fapply(input, super().forward)


class GroupNorm(nn.GroupNorm):
    """``torch.nn.GroupNorm`` over the sites of each batch and the channels of each group. Arguments as there."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_groups, num_channels, eps, affine, device, dtype, over="batch")

    def forward(self, input: SparseTensor) -> SparseTensor:  # type: ignore[override]
        return input.like(super().forward(of_package(check_tensor("GroupNorm", input))).features)


class InstanceNorm(nn.InstanceNorm):
    """``torch.nn.InstanceNorm1d`` over the sites of each batch. torchsparse's own takes sites for channels.

    Args: as there, where ``track_running_stats`` is False.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
    ) -> None:
        if track_running_stats:
            raise NotImplementedError("InstanceNorm: track_running_stats=True is not there: take BatchNorm")
        super().__init__(num_features, eps, affine)

    def forward(self, input: SparseTensor) -> SparseTensor:  # type: ignore[override]
        return input.like(super().forward(of_package(check_tensor("InstanceNorm", input))).features)
