"""Kernel maps of coordinates: each pair of a finer and a coarser site that a kernel connects.

Sites are sorted once, and a search finds where a line of the kernel, its offsets along the last axis, begins among
them. The offsets of the line follow without a search: keys are distinct, so the place of key q + 1 is that of key q, or
the next one if q is there. Of a map that is symmetric half of the lines are searched.
"""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..build import INT32_LIMIT, index_dtype
from ..derived import Derived
from ..kernel_map import KernelMap
from .packing import MOST_CELLS, Packing, joined
from .sites import Coordinates
from .window import Window


class _Sites(weakref.ref):
    """Which sites a fact is about, without keeping them."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(self())


@dataclass(frozen=True)
class PairsFrom(Derived[KernelMap]):
    """The map from finer sites (its inputs) to those that keep it (its outputs)."""

    window: Window
    fine: _Sites

    def compute(self, coarse: Coordinates) -> KernelMap:
        return _kernel_map(self.fine(), coarse, self.window)


def kernel_map_between(fine: Coordinates, coarse: Coordinates, window: Window) -> KernelMap:
    """The map of a convolution from ``fine`` to ``coarse``, made once. Its transpose is that of the transposed one."""
    return coarse.derived(PairsFrom(window, _Sites(fine)))


def _kernel_map(fine: Coordinates, coarse: Coordinates, window: Window) -> KernelMap:
    shape, offsets = (coarse.rows.shape[0], fine.rows.shape[0]), window.num_offsets
    symmetric = fine is coarse and window.symmetric
    if not all(shape):
        nothing = torch.empty(0, dtype=torch.int32, device=fine.device)
        return KernelMap._make(nothing, nothing.clone(), nothing.new_zeros(offsets + 1), shape, symmetric)
    place, found = _search(fine, coarse, window, symmetric)
    at = found.view(-1).nonzero().squeeze(1)
    offset = at.div(shape[0], rounding_mode="floor")
    outputs, inputs = at - offset * shape[0], place.view(-1).index_select(0, at)
    begin = torch.searchsorted(offset, torch.arange(found.shape[0] + 1, device=fine.device))
    outputs, inputs = (x if y is None else y[x] for x, y in ((outputs, coarse.order), (inputs, fine.order)))
    if symmetric:
        every = torch.arange(shape[0], device=fine.device)
        outputs, inputs = torch.cat([outputs, every, inputs]), torch.cat([inputs, every, outputs])
        middle = every.new_full(every.shape, found.shape[0])
        offset = torch.cat([offset, middle, offsets - 1 - offset])
        begin = torch.cat([begin, (2 * at.numel() + shape[0] - begin).flip(0)])
    if symmetric or coarse.order is not None:
        order = (offset * shape[0] + outputs).argsort()
        outputs, inputs = outputs[order], inputs[order]
    dtype = index_dtype(shape, at.numel())
    return KernelMap._make(inputs.to(dtype), outputs.to(dtype), begin.to(dtype), shape, symmetric)


def _search(fine: Coordinates, coarse: Coordinates, window: Window, symmetric: bool) -> tuple[Tensor, Tensor]:
    """For the offsets of the kernel, or the first half of them, and the coarse sites in ascending order: the place of a
    fine site among those in ascending order, and whether it is there. (offsets, coarse sites) int32 or int64, and bool.
    """
    queries = [
        (low * s - b, high * s - b + reach)
        for (low, high), s, b, reach in zip(coarse.bounds[1:], window.stride, window.before, window.reach)
    ]
    packing = Packing(joined(fine.bounds, (coarse.bounds[0], *queries)))
    keys = packing.pack(fine.ascending)
    steps = torch.tensor((1, *window.stride), device=fine.device)
    first = packing.pack(coarse.ascending * steps - torch.tensor((0, *window.before), device=fine.device))
    in_lines = window.dilation[-1] == 1
    line = window.kernel[-1] if in_lines else 1
    starts = _starts(window, packing, in_lines)
    known = window.num_offsets // 2 if symmetric else window.num_offsets
    begin = first + torch.tensor(starts[: -(-known // line)], device=fine.device)[:, None]
    place = torch.searchsorted(keys, begin, out_int32=keys.numel() < INT32_LIMIT)
    keys = torch.cat([keys, keys.new_full((1,), MOST_CELLS)])
    shape = place.shape[0], line, place.shape[1]
    places, found = place.new_empty(shape), torch.empty(shape, dtype=torch.bool, device=fine.device)
    for step in range(line):
        places[:, step] = place
        torch.eq(keys.index_select(0, place.view(-1)).view_as(place), begin + step, out=found[:, step])
        place = place + found[:, step]
    return places.flatten(0, 1)[:known], found.flatten(0, 1)[:known]


def _starts(window: Window, packing: Packing, in_lines: bool) -> list[int]:
    """How far in keys each line of the kernel, or each offset, begins behind the first offset."""
    axes: list[Any] = [
        [d * k * stride for k in range(size)]
        for size, d, stride in zip(window.kernel, window.dilation, packing.strides[1:])
    ]
    return [sum(each) for each in itertools.product(*(axes[:-1] if in_lines else axes))]


__all__ = ["PairsFrom", "kernel_map_between"]
