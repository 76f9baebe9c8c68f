"""Norms over all sites, and over those of each batch."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch.nn import Module, Parameter

from ....ops.grouped.segment_reduce import segment_reduce
from ..sparse_tensor import SparseTensor
from ..tensor import Tensor
from .base import MinkowskiModuleBase

T = TypeVar("T", bound=Tensor)


class MinkowskiBatchNorm(MinkowskiModuleBase):
    """``torch.nn.BatchNorm1d`` over all sites of all batches, as ``bn``. Arguments as there."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__()
        self.bn: Module = torch.nn.BatchNorm1d(num_features, eps, momentum, affine, track_running_stats)

    def forward(self, input: T) -> T:
        x: Any = self._rows(input)
        return x._like(self.bn(x.F))

    def __repr__(self) -> str:
        bn: Any = self.bn
        return (
            f"{type(self).__name__}({bn.num_features}, eps={bn.eps}, momentum={bn.momentum}, affine={bn.affine}, "
            f"track_running_stats={bn.track_running_stats})"
        )


class MinkowskiSyncBatchNorm(MinkowskiBatchNorm):
    """``torch.nn.SyncBatchNorm`` over all sites of all processes, as ``bn``. Arguments as there."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.bn = torch.nn.SyncBatchNorm(num_features, eps, momentum, affine, track_running_stats, process_group)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Put a ``MinkowskiSyncBatchNorm`` with the same parameters in the place of every ``MinkowskiBatchNorm``.

        Returns: the module, which is changed; a new one where it is such a norm itself.
        """
        if isinstance(module, MinkowskiBatchNorm):
            if not isinstance(module, MinkowskiSyncBatchNorm):
                bn: Any = module.bn
                made = cls(bn.num_features, bn.eps, bn.momentum, bn.affine, bn.track_running_stats, process_group)
                made.bn = torch.nn.SyncBatchNorm.convert_sync_batchnorm(bn, process_group)
                return made.train(module.training)
            return module
        for name, child in module.named_children():
            setattr(module, name, cls.convert_sync_batchnorm(child, process_group))
        return module


class MinkowskiInstanceNorm(MinkowskiModuleBase):
    """The sites of each batch normalised by their mean and variance, channel by channel: ``x * weight + bias``, both
    (1, num_features).
    """

    eps = 1e-8

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.weight = Parameter(torch.ones(1, num_features))
        self.bias = Parameter(torch.zeros(1, num_features))

    def reset_parameters(self) -> None:
        """Ones and zeros."""
        with torch.no_grad():
            self.weight.fill_(1)
            self.bias.zero_()

    def forward(self, input: SparseTensor) -> SparseTensor:
        x = self._checked(input)
        index, segments = x._manager.at_origin(x._key)
        centred = x.F - segment_reduce(x.F, segments, "mean")[index]
        variance = segment_reduce(centred * centred, segments, "mean")
        return x._like(centred * (variance + self.eps).rsqrt()[index] * self.weight + self.bias)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(nchannels={self.num_features})"


class MinkowskiStableInstanceNorm(MinkowskiInstanceNorm):
    """``MinkowskiInstanceNorm`` with more added to the variance."""

    eps = 1e-6
