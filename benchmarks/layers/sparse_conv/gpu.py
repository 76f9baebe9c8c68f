"""The cells of ``python -m benchmarks.sparse_conv --device cuda``: the same layers on a GPU, in any precision."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace

import torch

from benchmarks.layers import contenders as names_of
from benchmarks.layers import gpu_steps
from benchmarks.layers.layers import gradient_disagreement
from benchmarks.layers.sparse_conv import clouds
from benchmarks.layers.sparse_conv.contenders import FUNCTIONS, OURS, RESULTS, TORCH, Operands, forward_of, step_of
from benchmarks.layers.sparse_conv.dense import DENSE, dense_conv
from benchmarks.layers.sparse_conv.work import convolution_work
from benchmarks.support.gpu import device as gpu
from benchmarks.support.gpu import timing as gpu_timing
from benchmarks.support.turns import Switched
from models.point_clouds.layers import Layer

NAMES = (TORCH, DENSE, TORCH + names_of.BACKEND)


def cells_on_gpu(options: argparse.Namespace, places: Iterable[clouds.Place]) -> Iterable[gpu_steps.Cell]:
    """A cell for each layer; the layers of a small cloud stand for those of the others where there is no GPU."""
    device = gpu_timing.device_and_name()[0]
    for place in places:
        cloud = (place if device else clouds.Place("small", 0.2)).cloud()
        if cloud is None:
            continue
        for layer in clouds.layers(cloud if device is None else cloud.to(device), options.depth):
            for mode in dict.fromkeys("step" if mode == "step" else "forward" for mode in options.modes):
                yield cell_on_gpu(str(place), layer, mode, options.dtype, options.seed)


def cell_on_gpu(place: str, layer: Layer, mode: str, dtype: str, seed: int) -> gpu_steps.Cell:
    values = gpu.DTYPES[dtype]
    run = step_of if mode == "step" else forward_of

    def make(name: str, device: torch.device) -> Switched:
        if name == DENSE:
            function = dense_conv(layer)
        else:
            function = FUNCTIONS[OURS if name.endswith(names_of.BACKEND) else TORCH]
        return Switched(run(function, layer, Operands.of(layer, values, device, seed)))

    def reference(device: torch.device) -> tuple:
        given = Operands.of(layer, values, device, seed)
        wide = replace(given, **{name: x.double() for name, x in vars(given).items()})
        return run(FUNCTIONS[TORCH], layer, wide)()

    def mismatch(answer: tuple, expected: tuple) -> str | None:
        tolerance = 1e-4 if values is torch.float32 else 8 * torch.finfo(values).eps
        return gradient_disagreement(RESULTS, [y.double() for y in answer], expected, tolerance)

    return gpu_steps.Cell(
        {"graph": place, "layer": str(layer), "mode": mode},
        NAMES,
        make,
        mismatch,
        lambda name: convolution_work(layer, backward=mode == "step", itemsize=values.itemsize),
        reference,
    )


def main(options: argparse.Namespace, places: Iterable[clouds.Place], console) -> int:
    """As ``gpu_steps.main``; each precision has a file of its own."""
    return gpu_steps.main(
        gpu_steps.named("sparse_conv", options.dtype),
        "layers of MinkUNet",
        cells_on_gpu(options, places),
        NAMES,
        ("graph", "layer", "mode"),
        options.out,
        console,
        gpu.DTYPES[options.dtype],
    )
