"""A dense convolution over the grid around a cloud, with zeros where no site is: what cuDNN is made for."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from benchmarks.operators.suite import CannotDo
from models.point_clouds.layers import Layer

DENSE = "torch-dense"
MOST_VALUES = 1 << 30
"""Values of a grid, inputs and outputs together, beyond which it is not tried."""


def dense_conv(layer: Layer) -> Callable[[Tensor, Tensor, gsb.KernelMap], Tensor]:
    """Return ``(features, weight, kernel_map) -> features`` of a layer, with the grid's places found before.

    Raises CannotDo for a layer whose outputs are not at its inputs' sites, and for a grid of too many values.
    """
    if layer.kind != "submanifold":
        raise CannotDo("submanifold layers alone")
    batch, places = layer.sites[:, 0].long(), layer.sites[:, 1:].long()
    places = (places - places.amin(0)) // layer.at
    extents = [int(n) + 1 for n in (batch.amax(), *places.amax(0))]
    values = torch.Size(extents).numel() * (layer.inputs + layer.outputs)
    if values > MOST_VALUES:
        raise CannotDo(f"a grid of {values:,} values")
    at = (batch, *places.unbind(1))

    def convolve(features: Tensor, weight: Tensor, kernel_map: gsb.KernelMap) -> Tensor:
        grid = features.new_zeros(*extents, layer.inputs).index_put(at, features)
        kernel = weight.view(*[layer.kernel] * 3, layer.inputs, layer.outputs).permute(4, 3, 0, 1, 2)
        out = torch.nn.functional.conv3d(grid.permute(0, 4, 1, 2, 3), kernel, padding=layer.kernel // 2)
        return out.permute(0, 2, 3, 4, 1)[at]

    return convolve
