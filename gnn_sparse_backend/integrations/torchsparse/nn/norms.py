"""Normalisation: over all sites, or over those of each batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..sites import sites_of
from ..tensor import SparseTensor, check_tensor
from .utils.apply import fapply

__all__ = ["BatchNorm", "GroupNorm", "InstanceNorm"]


class BatchNorm(nn.BatchNorm1d):
    """``torch.nn.BatchNorm1d`` over all sites of all batches."""

    def forward(self, input: SparseTensor) -> SparseTensor:  # type: ignore[override]
        return fapply(input, super().forward)


class GroupNorm(nn.GroupNorm):
    """``torch.nn.GroupNorm`` over the sites of each batch and the channels of each group."""

    def forward(self, input: SparseTensor) -> SparseTensor:  # type: ignore[override]
        return _by_batch(input, super().forward)


class InstanceNorm(nn.InstanceNorm1d):
    """``torch.nn.InstanceNorm1d`` over the sites of each batch. torchsparse's own takes sites for channels."""

    def forward(self, input: SparseTensor) -> SparseTensor:  # type: ignore[override]
        return _by_batch(input, super().forward)


def _by_batch(x: SparseTensor, function: Callable[[Tensor], Tensor]) -> SparseTensor:
    """``function`` of the features of each batch as (1, C, sites)."""
    segments = sites_of(check_tensor("normalisation", x)).of_batches
    order = torch.arange(len(x.feats), device=x.feats.device) if segments.order is None else segments.order.long()
    parts = [
        function(x.feats.index_select(0, rows).t()[None])[0].t()
        for rows in order.split(segments.offsets.diff().tolist())
        if len(rows)
    ]
    return x.like(torch.cat(parts).index_select(0, order.argsort()) if parts else x.feats)
