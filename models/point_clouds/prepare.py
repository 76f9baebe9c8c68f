"""What the layers of a network run on a cloud: recorded, and compiled and measured before the first epoch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import gnn_sparse_backend as gsb
from models.point_clouds.data import Cloud
from models.point_clouds.plain import convolutions


@dataclass(frozen=True)
class Layer:
    """A convolution that a network runs: its map and the channels before and behind it. count: how often."""

    kernel_map: gsb.KernelMap
    inputs: int
    outputs: int
    count: int = 1


@torch.no_grad()
def layers_of(model: nn.Module, cloud: Cloud) -> list[Layer]:
    """Every distinct convolution of a forward pass, in the order of the first of its kind."""
    found: dict[tuple, list] = {}

    def record(features: Tensor, weight: Tensor, kernel_map, bias=None, groups=1) -> Tensor:
        found.setdefault((id(kernel_map), *weight.shape[1:]), []).append(kernel_map)
        return gsb.sparse_conv(features, weight, kernel_map, bias, groups)

    with convolutions(record):
        model(cloud)
    return [Layer(maps[0], *key[1:], len(maps)) for key, maps in found.items()]


def prepare(model: nn.Module, cloud: Cloud, budget: str) -> None:
    pass
