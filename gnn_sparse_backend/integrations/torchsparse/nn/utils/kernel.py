"""The offsets of a kernel, in the order in which weights have them."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from ...conventions import AXES
from ...utils.shapes import Axes, make_ntuple

__all__ = ["get_kernel_offsets"]


def get_kernel_offsets(size: Axes, stride: Axes = 1, dilation: Axes = 1, device: str = "cpu") -> Tensor:
    """(K, 3) int32 offsets around a site, times ``stride * dilation``. Of an even size one more is behind the site.

    The last axis is fastest where K is even, and the first one where it is odd.
    """
    size, stride, dilation = (make_ntuple(x, ndim=AXES) for x in (size, stride, dilation))
    axes = [[(at - (k - 1) // 2) * s * d for at in range(k)] for k, s, d in zip(size, stride, dilation)]
    odd = all(k % 2 for k in size)
    offsets = [each[::-1] for each in itertools.product(*axes[::-1])] if odd else list(itertools.product(*axes))
    return torch.tensor(offsets, dtype=torch.int32, device=device)
