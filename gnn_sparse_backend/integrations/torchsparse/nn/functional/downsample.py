"""Coordinates of coarser and finer grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .....nn.voxels.maps import kept
from .....structures.coordinates import Generated, Window
from ...conventions import AXES, convention
from ...places import Layer, forward
from ...sites import coords_of, range_of, sites_of
from ...tensor import SparseTensor
from ...utils.shapes import Axes, make_ntuple
from .conv_config import DOWNSAMPLE_MODES, _one_of

__all__ = ["spdownsample", "spupsample_generative"]


def spdownsample(coords: Tensor, stride: Axes = 2, kernel_size: Axes = 2, *args: Any, **kwargs: Any) -> Tensor:
    """(M, 4) int32 coordinates of the outputs of a strided layer, ascending.

    Args:
        coords: (N, 4) integers, of which some may be there several times.
        stride, kernel_size: of the layer.
        padding, spatial_range, downsample_mode: as of torchsparse 2.1, 0, None and ``"spconv"`` by default.
        tensor_stride: in the convention of torchsparse 1.4 the fourth argument instead: the stride of ``coords``.
    """
    given = _finest if convention().finest else _cells
    return given(
        torch.unique(coords, dim=0), make_ntuple(stride, AXES), make_ntuple(kernel_size, AXES), *args, **kwargs
    )


def spupsample_generative(
    coords: Tensor,
    stride: Axes = 2,
    kernel_size: Axes = 2,
    padding: Axes = 0,
    spatial_range: Sequence[int] | None = None,
) -> Tensor:
    """(M, 4) int32 coordinates of the outputs of a generative layer, ascending. spatial_range: of the result."""
    stride = make_ntuple(stride, AXES)
    fine = _finer(coords, stride, make_ntuple(kernel_size, AXES))
    if spatial_range is None:
        return fine
    at = fine[:, convention().axes]
    inside = (at >= 0) & (at < torch.tensor(tuple(spatial_range)[1:], device=at.device))
    return fine[inside.all(1)]


def _cells(
    coords: Tensor,
    stride: tuple[int, ...],
    kernel: tuple[int, ...],
    padding: Axes = 0,
    spatial_range: Sequence[int] | None = None,
    downsample_mode: str = DOWNSAMPLE_MODES[0],
) -> Tensor:
    occupied = _one_of("downsample_mode", downsample_mode, DOWNSAMPLE_MODES) == "minkowski"
    layer = Layer(kernel, stride, make_ntuple(padding, AXES), (1,) * AXES, True, occupied)
    return forward(SparseTensor(coords, coords, 1, spatial_range), layer).coords


def _finest(coords: Tensor, stride: tuple[int, ...], kernel: tuple[int, ...], tensor_stride: Axes = 1) -> Tensor:
    layer = Layer(kernel, stride, (0,) * AXES, (1,) * AXES, True, False)
    return forward(SparseTensor(coords, coords, tensor_stride), layer).coords


@kept
def _finer(coords: Tensor, stride: tuple[int, ...], kernel: tuple[int, ...]) -> Tensor:
    sites = sites_of(SparseTensor(coords, coords, stride))
    fine = sites.derived(Generated(Window.of(AXES, kernel, stride), centred=True))
    return coords_of(fine, range_of(fine))
