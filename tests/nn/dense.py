"""Convolutions of dense tensors by PyTorch, with from one to five axes, on a grid that begins anywhere."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def densified(features: Tensor, coordinates: Tensor, batches: int, low: list[int], sizes: list[int]) -> Tensor:
    """(batches, C, *sizes) of which the first cell is at ``low``. Gradients flow to features."""
    dense = features.new_zeros((batches, *sizes, features.shape[1]))
    at = (coordinates[:, 0], *(coordinates[:, 1:] - torch.tensor(low)).unbind(1))
    return dense.index_put(tuple(x.long() for x in at), features).movedim(-1, 1)


def box_of(coordinates: Tensor, dim: int) -> tuple[list[int], list[int]]:
    """Its lowest cell, and its sizes."""
    if not coordinates.shape[0]:
        return [0] * dim, [1] * dim
    low, high = coordinates[:, 1:].amin(0), coordinates[:, 1:].amax(0)
    return low.tolist(), (high - low + 1).tolist()


def conv(x: Tensor, weight: Tensor, stride, dilation, groups: int) -> Tensor:
    """Without padding. weight: (C_out, C_in / groups, *kernel)."""
    dim = x.dim() - 2
    if dim < 4:
        return _CONV[dim](x, weight, None, stride, 0, dilation, groups)
    steps = (x.shape[2] - dilation[0] * (weight.shape[2] - 1) - 1) // stride[0] + 1
    slices = []
    for step in range(steps):
        slices.append(
            sum(
                conv(x[:, :, step * stride[0] + dilation[0] * k], weight[:, :, k], stride[1:], dilation[1:], groups)
                for k in range(weight.shape[2])
            )
        )
    return torch.stack(slices, 2)


def conv_transpose(x: Tensor, weight: Tensor, stride, dilation, groups: int) -> Tensor:
    """Without padding. weight: (C_in, C_out / groups, *kernel)."""
    dim = x.dim() - 2
    if dim < 4:
        return _TRANSPOSED[dim](x, weight, None, stride, 0, 0, groups, dilation)
    total = (x.shape[2] - 1) * stride[0] + dilation[0] * (weight.shape[2] - 1) + 1
    slices: list = [0] * total
    for at in range(x.shape[2]):
        for k in range(weight.shape[2]):
            made = conv_transpose(x[:, :, at], weight[:, :, k], stride[1:], dilation[1:], groups)
            slices[at * stride[0] + dilation[0] * k] = slices[at * stride[0] + dilation[0] * k] + made
    empty = torch.zeros_like(next(s for s in slices if isinstance(s, Tensor)))
    return torch.stack([s if isinstance(s, Tensor) else empty for s in slices], 2)


def sampled(dense: Tensor, coordinates: Tensor, low: list[int]) -> Tensor:
    """The (N, C) values at these coordinates, 0 outside, of a grid whose first cell is at ``low``; and what is left of
    the grid without them.
    """
    at = (coordinates[:, 1:] - torch.tensor(low)).long()
    inside = ((at >= 0) & (at < torch.tensor(dense.shape[2:]))).all(1)
    at = at.clamp(min=0).minimum(torch.tensor(dense.shape[2:]) - 1)
    index = (coordinates[:, 0].long(), *at.unbind(1))
    values = dense.movedim(1, -1)[index]
    return torch.where(inside[:, None], values, 0)


def elsewhere(dense: Tensor, coordinates: Tensor, low: list[int], sizes: tuple[int, ...] | None = None) -> Tensor:
    """The grid with zeros at these coordinates, and outside of [0, sizes)."""
    at = (coordinates[:, 1:] - torch.tensor(low)).long()
    inside = ((at >= 0) & (at < torch.tensor(dense.shape[2:]))).all(1)
    index = (coordinates[inside, 0].long(), *at[inside].unbind(1))
    rest = dense.detach().clone().movedim(1, -1)
    rest[index] = 0
    for axis, size in enumerate(sizes or ()):
        cells = torch.arange(rest.shape[axis + 1]) + low[axis]
        outside = ((cells < 0) | (cells >= size)).nonzero().squeeze(1)
        rest.index_fill_(axis + 1, outside, 0)
    return rest


def in_dense_layout(weight: Tensor, kernel: tuple[int, ...], groups: int, transposed: bool = False) -> Tensor:
    """Weights (offsets, C_in / groups, C_out) as PyTorch has them."""
    weight = weight.unflatten(0, kernel)
    if not transposed:
        return weight.movedim((-1, -2), (0, 1))
    apart = weight.unflatten(-1, (groups, -1))  # (*kernel, C_in / groups, groups, C_out / groups)
    return apart.movedim((-2, -3, -1), (0, 1, 2)).flatten(0, 1)
