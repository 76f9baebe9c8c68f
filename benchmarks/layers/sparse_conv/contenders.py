"""Who convolves: ``gsb.sparse_conv``, plain PyTorch on the same maps, and spconv."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from benchmarks.layers.layers import disagreement, gradient_disagreement
from benchmarks.layers.sparse_conv import spconv
from models.point_clouds.layers import Layer
from models.point_clouds.plain import gather_scatter_conv

OURS, TORCH, WIDE = "gsb", "torch", "torch-float32"


def converted_conv(features: Tensor, weight: Tensor, kernel_map: gsb.KernelMap) -> Tensor:
    """Plain PyTorch in float32, of operands that are converted, and the result back."""
    return gather_scatter_conv(features.float(), weight.float(), kernel_map).to(features.dtype)


FUNCTIONS = {OURS: gsb.sparse_conv, TORCH: gather_scatter_conv, WIDE: converted_conv}
CONTENDERS = (OURS, TORCH, WIDE, spconv.NAME)
NOTES = {
    OURS: "gsb.sparse_conv",
    TORCH: "gather, matrix product and index_add_ in PyTorch for each offset, on our maps",
    WIDE: "in bfloat16 the same in float32, operands and result converted: where products of bfloat16 are slow",
    spconv.NAME: "spconv 2.3.8, algorithm Native, on its own maps",
}
MODES = {"forward": (torch.float32, False), "bfloat16": (torch.bfloat16, False), "step": (torch.float32, True)}
"""By name the type of all values, and whether the gradients to features and weights are computed as well."""
RESULTS = ("y", "dx", "dweight")
# of sums in bfloat16 that are rounded after each offset, as PyTorch's are
HALF_TOLERANCE = 4 * torch.finfo(torch.bfloat16).eps


@dataclass(frozen=True)
class Operands:
    """Normal features and cotangents, and weights that keep their size, from a seed."""

    features: Tensor
    weight: Tensor
    cotangent: Tensor

    @classmethod
    def of(cls, layer: Layer, dtype: torch.dtype, device: torch.device | str = "cpu", seed: int = 0) -> Operands:
        generator = torch.Generator().manual_seed(seed)
        (outputs, inputs), offsets = layer.kernel_map.shape, layer.kernel**3
        met = max(1.0, layer.kernel_map.num_pairs / max(1, outputs))
        weight = torch.randn(offsets, layer.inputs, layer.outputs, generator=generator) / (met * layer.inputs) ** 0.5
        features = torch.randn(inputs, layer.inputs, generator=generator)
        cotangent = torch.randn(outputs, layer.outputs, generator=generator)
        return cls(*(x.to(device, dtype) for x in (features, weight, cotangent)))


def refusal(name: str, mode: str) -> str | None:
    """Why a contender does not run in a mode; None where it does."""
    if name == WIDE and mode != "bfloat16":
        return f"{WIDE} is {TORCH} in float32"
    return spconv.refusal(mode) if name == spconv.NAME else None


def call_of(name: str, layer: Layer, mode: str, seed: int = 0) -> tuple[Callable[[], tuple], Callable[[tuple], tuple]]:
    """(a call, what puts its answer in our order) of a contender."""
    dtype, backward = MODES[mode]
    given = Operands.of(layer, dtype, layer.kernel_map.device, seed)
    if name == spconv.NAME:
        made = spconv.Convolution(layer, given.features, given.weight)
        return made, made.in_our_order
    return (step_of if backward else forward_of)(FUNCTIONS[name], layer, given), lambda answer: answer


def forward_of(function: Callable, layer: Layer, given: Operands) -> Callable[[], tuple[Tensor]]:
    @torch.no_grad()
    def forward() -> tuple[Tensor]:
        return (function(given.features, given.weight, layer.kernel_map),)

    return forward


def step_of(function: Callable, layer: Layer, given: Operands) -> Callable[[], tuple[Tensor, ...]]:
    leaves = given.features.detach().requires_grad_(), given.weight.detach().requires_grad_()

    def step() -> tuple[Tensor, ...]:
        y = function(*leaves, layer.kernel_map)
        return (y.detach(), *torch.autograd.grad(y, leaves, given.cotangent))

    return step


def mismatch(answer: tuple, expected: tuple) -> str | None:
    """How an answer differs from the expected one, which is in float32, by more than rounding; None if it does not."""
    if answer[0].dtype is not torch.float32:
        return gradient_disagreement(RESULTS, [y.float() for y in answer], expected, HALF_TOLERANCE)
    return disagreement(RESULTS[:1], answer[:1], expected[:1]) or gradient_disagreement(
        RESULTS[1:], answer[1:], expected[1:]
    )


def expected_of(layer: Layer, mode: str, seed: int = 0) -> tuple[Tensor, ...]:
    """The answer in float32 of plain PyTorch, to operands that were rounded to the mode's type."""
    dtype, backward = MODES[mode]
    given = Operands.of(layer, dtype, layer.kernel_map.device, seed)
    wide = Operands(*(x.float() for x in (given.features, given.weight, given.cotangent)))
    return (step_of if backward else forward_of)(gather_scatter_conv, layer, wide)()
