"""The convolutions that a network runs on a cloud: recorded, and compiled and measured before the first epoch."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.nn import SparseConvTranspose, SparseTensor, SubMConv
from gnn_sparse_backend.nn.voxels.convolution import Convolution
from gnn_sparse_backend.tuning.precompile import seconds_of
from models.point_clouds.plain import convolutions


@dataclass(frozen=True)
class Layer:
    """A convolution that a network runs, without bias and in one group.

    kind: "submanifold", "strided" or "transposed". kernel, stride: along each axis. at: stride of the sites of its
    inputs. inputs, outputs: channels. sites, sites_out: (rows, 4) coordinates. count: layers of one pass that are
    alike.
    """

    kind: str
    kernel: int
    stride: int
    at: int
    inputs: int
    outputs: int
    kernel_map: gsb.KernelMap
    sites: Tensor
    sites_out: Tensor
    count: int = 1

    def __str__(self) -> str:
        return f"{self.kind} {self.kernel}^3, {self.inputs} to {self.outputs}, at stride {self.at}"


@torch.no_grad()
def layers_of(model: nn.Module, x: SparseTensor) -> list[Layer]:
    """Every distinct convolution of a forward pass, in the order of the first of its kind. Nothing is convolved."""
    maps: list[gsb.KernelMap] = []
    found: dict[tuple, Layer] = {}

    def convolve(features: Tensor, weight: Tensor, kernel_map: gsb.KernelMap, *others) -> Tensor:
        maps.append(kernel_map)
        return features.new_zeros(kernel_map.shape[0], weight.shape[2])

    def record(layer: Convolution, arguments: tuple[SparseTensor], y: SparseTensor) -> None:
        (x,), kernel_map = arguments, maps.pop()
        key = id(kernel_map), layer.c_in, layer.c_out
        again = found[key].count if key in found else 0
        kind = "transposed" if isinstance(layer, SparseConvTranspose) else "strided"
        found[key] = Layer(
            "submanifold" if isinstance(layer, SubMConv) else kind,
            layer.kernel_size[0],
            layer.stride[0],
            x.stride[0],
            layer.c_in,
            layer.c_out,
            kernel_map,
            x.coordinates,
            y.coordinates,
            again + 1,
        )

    training = model.training
    with ExitStack() as stack:
        stack.callback(model.train, training)
        model.eval()  # zeros are no statistics
        stack.enter_context(convolutions(convolve))
        for layer in model.modules():
            if isinstance(layer, Convolution):
                stack.callback(layer.register_forward_hook(record).remove)
        model(x)
    return list(found.values())


def prepare(model: nn.Module, x: SparseTensor, budget: str) -> int:
    """``gsb.precompile`` on the map of every distinct convolution, within ``budget`` in all. Returns how many of them
    it reached.
    """
    end, done = time.perf_counter() + seconds_of(budget), 0
    for layer in layers_of(model, x):
        left = max(0.0, end - time.perf_counter())
        report = gsb.precompile(layer.kernel_map, (layer.inputs, layer.outputs), budget=left, progress=False)
        done += sum(row.state == "compiled" for row in report.rows)
    return done
