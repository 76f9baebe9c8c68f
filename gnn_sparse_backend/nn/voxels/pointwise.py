"""Layers of PyTorch that work on each site alone, or normalise over all of them, for a ``SparseTensor``.

Each is the layer of ``torch.nn`` of that name, with its arguments and its state, applied to the features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import Module

from .tensor import SparseTensor, check_sparse

_Base = Module if TYPE_CHECKING else object


class OverFeatures(_Base):
    """Before a layer of PyTorch among the bases of a class: applies it to the features."""

    def forward(self, x: SparseTensor) -> SparseTensor:
        check_sparse(type(self).__name__, x)
        return x.with_features(super().forward(x.features))


class BatchNorm(OverFeatures, torch.nn.BatchNorm1d):
    """``torch.nn.BatchNorm1d`` over all sites of all batches."""

    def forward(self, x: SparseTensor) -> SparseTensor:
        if not torch.compiler.is_compiling():
            return super().forward(x)
        check_sparse(type(self).__name__, x)
        # PyTorch's layer asks how many sites there are, where nobody knows
        if self.training or self.running_mean is None:
            torch._check(x.features.shape[0] > 1, lambda: "BatchNorm: expected more than one site when training")
            return super().forward(x)
        assert self.running_var is not None
        rest = x.features - self.running_mean
        found = rest * (self.running_var + self.eps).rsqrt()
        if self.affine:
            found = found * self.weight + self.bias
        return x.with_features(found.to(x.dtype))


class LayerNorm(OverFeatures, torch.nn.LayerNorm):
    """``torch.nn.LayerNorm`` over the channels of each site."""


class Linear(OverFeatures, torch.nn.Linear):
    """``torch.nn.Linear`` at each site: a convolution whose kernel is 1."""


class Dropout(OverFeatures, torch.nn.Dropout):
    """``torch.nn.Dropout`` of the features."""


class ReLU(OverFeatures, torch.nn.ReLU):
    """``torch.nn.ReLU`` of the features."""


class LeakyReLU(OverFeatures, torch.nn.LeakyReLU):
    """``torch.nn.LeakyReLU`` of the features."""


class PReLU(OverFeatures, torch.nn.PReLU):
    """``torch.nn.PReLU`` of the features."""


class ELU(OverFeatures, torch.nn.ELU):
    """``torch.nn.ELU`` of the features."""


class GELU(OverFeatures, torch.nn.GELU):
    """``torch.nn.GELU`` of the features."""


class SiLU(OverFeatures, torch.nn.SiLU):
    """``torch.nn.SiLU`` of the features."""


class Sigmoid(OverFeatures, torch.nn.Sigmoid):
    """``torch.nn.Sigmoid`` of the features."""


class Tanh(OverFeatures, torch.nn.Tanh):
    """``torch.nn.Tanh`` of the features."""


class Identity(OverFeatures, torch.nn.Identity):
    """The tensor itself."""
