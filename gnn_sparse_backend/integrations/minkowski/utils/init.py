"""Weights to begin with."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """``torch.nn.init.kaiming_normal_`` of a kernel (K, in_channels, out_channels) or (in_channels, out_channels), in
    place. A matrix has its second dimension for ``fan_in``, as in MinkowskiEngine.
    """
    if tensor.dim() not in (2, 3) or mode.lower() not in ("fan_in", "fan_out"):
        raise ValueError(
            "kaiming_normal_ wants a kernel of 2 or 3 dimensions and mode 'fan_in' or 'fan_out', got "
            f"{tuple(tensor.shape)} and {mode!r}"
        )
    cells, *channels = tensor.shape if tensor.dim() == 3 else (1, *reversed(tensor.shape))
    fan = cells * channels[mode.lower() == "fan_out"]
    with torch.no_grad():
        return tensor.normal_(0, torch.nn.init.calculate_gain(nonlinearity, a) / math.sqrt(fan))
