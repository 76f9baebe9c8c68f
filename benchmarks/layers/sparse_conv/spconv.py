"""Convolutions of spconv (Yan et al., 2018), where its wheel is installed: ``pip install spconv==2.3.8`` has a CPU's.

On a CPU it has one algorithm, ``Native``, in float32 and float64, and no backward pass. With more than one thread some
of its rows are wrong, others at each call.
"""

from __future__ import annotations

import functools
import importlib.util

import torch
from torch import Tensor

from models.point_clouds.layers import Layer

NAME = "spconv"
RACE = "On more than one thread its sums race; on one they are right."


@functools.cache
def installed() -> bool:
    return importlib.util.find_spec(NAME) is not None


def refusal(mode: str) -> str | None:
    """Why it does not run in a mode of ``contenders.MODES``; None where it does."""
    if not installed():
        return "not measured: spconv is not installed (pip install spconv==2.3.8)"
    if mode == "step":
        return "its backward pass fails on a CPU"
    if mode == "bfloat16":
        return "has no bfloat16 on a CPU"
    return None


class Pairs:
    """The pairs of a layer as spconv finds them, from coordinates."""

    def __init__(self, layer: Layer):
        fine = layer.sites_out if layer.kind == "transposed" else layer.sites
        # not negative, and in the cells of the coarser grid that they are in
        low = fine[:, 1:].amin(0).div(layer.stride, rounding_mode="floor") * layer.stride
        self._indices = fine.int().clone()
        self._indices[:, 1:] -= low.int()
        self._sizes = [-(-(int(size) + 1) // layer.stride) * layer.stride for size in self._indices[:, 1:].amax(0)]
        self._low, self._layer = low // layer.stride, layer
        self.sites, self.pairs, self.counts = self.find()

    def find(self) -> tuple[Tensor, Tensor, Tensor]:
        """(outputs' coordinates, pairs, pairs of each offset)."""
        from spconv.core import ConvAlgo
        from spconv.pytorch import ops

        layer, batches = self._layer, int(self._indices[:, 0].max()) + 1
        kernel, stride, nothing, ones = ([n] * 3 for n in (layer.kernel, layer.stride, 0, 1))
        submanifold = layer.kind == "submanifold"
        return ops.get_indice_pairs(
            self._indices, batches, self._sizes, ConvAlgo.Native, kernel, stride, nothing, ones, nothing, submanifold
        )

    def order(self, coordinates: Tensor) -> Tensor:
        """For each of our coarser sites, where spconv has it."""
        theirs = self.sites.long().clone()
        theirs[:, 1:] += self._low
        both = torch.cat([theirs, coordinates.long()])
        number = torch.unique(both, dim=0, return_inverse=True)[1]
        place = torch.empty(len(theirs), dtype=torch.int64)
        place[number[: len(theirs)]] = torch.arange(len(theirs))
        return place[number[len(theirs) :]]


class Convolution:
    """A layer as spconv runs it on its own pairs, which are found once."""

    def __init__(self, layer: Layer, features: Tensor, weight: Tensor):
        from spconv.core import ConvAlgo
        from spconv.pytorch import functional

        found = Pairs(layer)
        kernel = (layer.kernel,) * 3
        weight = weight.view(*kernel, layer.inputs, layer.outputs).permute(4, 0, 1, 2, 3).contiguous()
        self._order = None  # of its outputs
        if layer.kind == "strided":
            self._order = found.order(layer.sites_out)
        elif layer.kind == "transposed":
            sorted_ = torch.empty_like(features)
            sorted_[found.order(layer.sites)] = features
            features = sorted_
        run = {
            "submanifold": functional.indice_subm_conv,
            "strided": functional.indice_conv,
            "transposed": functional.indice_inverse_conv,
        }[layer.kind]
        outputs = layer.kernel_map.shape[0]
        self._call = lambda: run(features, weight, found.pairs, found.counts, outputs, ConvAlgo.Native)

    @torch.no_grad()
    def __call__(self) -> tuple[Tensor]:
        return (self._call(),)

    def in_our_order(self, answer: tuple[Tensor]) -> tuple[Tensor]:
        """What a call gave, at our sites in their order."""
        return answer if self._order is None else (answer[0][self._order],)
