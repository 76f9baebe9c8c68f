"""Layers that normalise over the sites of each batch, or over those of all processes."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...ops.core.library import Attributes, Operands
from ...ops.core.operator import Operator, recorded
from ...ops.grouped.segment_reduce import segment_reduce
from ...ops.message.api.aggregate import edge_map
from .broadcast import of_batches
from .maps import kept
from .tensor import SparseTensor, check_sparse
from .traced import reduced_by_batch, rows_of_batches

OVER = ("site", "batch")


class GroupNorm(torch.nn.GroupNorm):
    """``torch.nn.GroupNorm`` over groups of channels: of each site, or of all sites of each batch.

    Args:
        num_groups, num_channels, eps, affine, device, dtype: as of ``torch.nn.GroupNorm``.
        over: ``"site"``: mean and variance are those of a group of channels at one site; ``"batch"``: those of a group
            at all sites of a batch, as a dense layer has them of all cells and torchsparse of sites.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        over: str = "site",
    ) -> None:
        super().__init__(num_groups, num_channels, eps, affine, device, dtype)
        if over not in OVER:
            raise ValueError(f"over must be one of {OVER}, got {over!r}")
        self.over = over

    def forward(self, x: SparseTensor) -> SparseTensor:
        check_sparse(type(self).__name__, x)
        if self.over == "site":
            return x.with_features(super().forward(x.features))
        if x.shape[1] != self.num_channels:
            raise ValueError(f"{type(self).__name__}: expected {self.num_channels} channels, got {x.shape[1]}")
        return x.with_features(self._of_batches(x))

    def _of_batches(self, x: SparseTensor) -> Tensor:
        """Sums are in at least float32, and variances those of what is left without the mean."""
        features = x.features.float() if x.dtype.itemsize < 4 else x.features
        if torch.compiler.is_compiling():
            return self._traced(features, x.sites).to(x.dtype)
        graph, segments = of_batches(x.sites), _segments(x.sites)

        def mean(values: Tensor) -> Tensor:
            each = segment_reduce(values, segments, "mean").unflatten(1, (self.num_groups, -1))
            return each.mean(2, keepdim=True).expand_as(each).flatten(1)

        rest = edge_map(graph, "sub(x0, x1)", [("e", features), ("v", mean(features))])
        scale = (mean(rest * rest) + self.eps).rsqrt()
        if not self.affine:
            return edge_map(graph, "mul(x0, x1)", [("e", rest), ("v", scale)]).to(x.dtype)
        scale, bias = scale * self.weight, self.bias.to(rest.dtype)
        return edge_map(graph, "add(mul(x0, x1), x2)", [("e", rest), ("v", scale), ("all", bias)]).to(x.dtype)

    def _traced(self, features: Tensor, sites: Any) -> Tensor:
        """`_of_batches` in a program."""

        def mean(values: Tensor) -> Tensor:
            each = reduced_by_batch(values, sites, "mean").unflatten(1, (self.num_groups, -1))
            return each.mean(2, keepdim=True).expand_as(each).flatten(1)

        rest = features - rows_of_batches(mean(features), sites)
        found = rest * rows_of_batches((mean(rest * rest) + self.eps).rsqrt(), sites)
        return found * self.weight + self.bias if self.affine else found


class InstanceNorm(GroupNorm):
    """Each channel of each batch normalised over its sites: ``torch.nn.InstanceNorm3d`` where there are sites.

    Args:
        num_features: channels.
        eps: added to variances, which are divided by the number of sites.
        affine: whether there are ``weight`` and ``bias``, (num_features,), at first ones and zeros.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, num_features, eps, affine, device, dtype, over="batch")

    def extra_repr(self) -> str:
        return f"{self.num_channels}, eps={self.eps}, affine={self.affine}"


class SyncBatchNorm(torch.nn.SyncBatchNorm):
    """``torch.nn.SyncBatchNorm`` over all sites of all batches of all processes, on GPUs and, where PyTorch's refuses
    to, on CPUs. Arguments and state are those of ``torch.nn.SyncBatchNorm``.

    ``torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)`` makes PyTorch's layers of each ``nn.BatchNorm``; they take
    a ``SparseTensor`` in the same way.
    """

    def forward(self, x: SparseTensor) -> SparseTensor:
        check_sparse(type(self).__name__, x)
        return x.with_features(_synchronised(self, x.features))


_of_tensors = torch.nn.SyncBatchNorm.forward


@functools.wraps(_of_tensors)
def _forward(layer: torch.nn.SyncBatchNorm, x: Tensor | SparseTensor) -> Tensor | SparseTensor:
    if isinstance(x, SparseTensor):
        return x.with_features(_synchronised(layer, x.features))
    return _of_tensors(layer, x)


# What makes PyTorch's layers of those of a model knows no other class to make, and the layer reads its input in the
# first line: so it is told of a SparseTensor, of which no other program has one.
torch.nn.SyncBatchNorm.forward = _forward  # type: ignore[method-assign]


def _synchronised(layer: torch.nn.SyncBatchNorm, features: Tensor) -> Tensor:
    """What the layer makes of features (N, C)."""
    together = layer.training and dist.is_available() and dist.is_initialized()
    if not together or not features.is_cpu:
        return _of_tensors(layer, features)
    group = layer.process_group or dist.group.WORLD
    wide = features.float() if features.dtype.itemsize < 4 else features
    count = wide.new_full((1,), float(wide.shape[0]))
    *sums, total = _all_sums(torch.cat([wide.sum(0), count]), group).split([wide.shape[1], 1])
    mean = sums[0] / total
    rest = wide - mean
    variance = _all_sums((rest * rest).sum(0), group) / total
    if layer.track_running_stats:
        _note(layer, mean.detach(), (variance * total / (total - 1)).detach())
    found = rest * (variance + layer.eps).rsqrt()
    if layer.affine:
        found = found * layer.weight + layer.bias
    return found.to(features.dtype)


def _all_sums(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The sum over all processes, whose gradient is the sum of theirs."""
    found: Tensor = recorded(_SUM, group, (x,))
    return found


def _reduce(group: dist.ProcessGroup, operands: Operands, attributes: Attributes) -> Tensor:
    (x,) = operands
    assert x is not None
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


_SUM = Operator(
    "sum_of_processes",
    _reduce,
    lambda group, attributes, saved, memo, needed, cotangent: (_all_sums(cotangent, group),),
    saved=lambda attributes, operands, results: ((), None),
)


@torch.no_grad()
def _note(layer: torch.nn.SyncBatchNorm, mean: Tensor, variance: Tensor) -> None:
    assert layer.running_mean is not None and layer.running_var is not None and layer.num_batches_tracked is not None
    layer.num_batches_tracked.add_(1)
    part = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), part)
    layer.running_var.lerp_(variance.to(layer.running_var.dtype), part)


@kept
def _segments(sites):
    return sites.of_batches
