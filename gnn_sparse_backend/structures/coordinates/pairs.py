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

from ...runtime.memory import check_memory
from ..build import index_dtype
from ..derived import Derived
from ..kernel_map import KernelMap
from .packing import Packing, joined
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
    num_fine, num_coarse, offsets = fine.rows.shape[0], coarse.rows.shape[0], window.num_offsets
    shape = num_coarse, num_fine
    symmetric = fine is coarse and window.symmetric
    dtype = index_dtype(shape, offsets * num_coarse)
    check_memory("the table of a kernel map", (offsets, num_coarse), dtype.itemsize)
    if not num_fine or not num_coarse:
        nothing = torch.empty(0, dtype=dtype, device=fine.device)
        return KernelMap._make(nothing, nothing, nothing.new_zeros(offsets + 1), shape, symmetric)
    place, found = _search(fine, coarse, window, symmetric)
    inputs = place if fine.order is None else fine.order[place]
    table = torch.full((offsets, num_coarse), -1, dtype=dtype, device=fine.device)
    known = found.shape[0]
    rows = torch.where(found, inputs, -1).to(dtype)
    if coarse.order is None:
        table[:known] = rows
    else:
        table[:known].index_copy_(1, coarse.order, rows)
    if symmetric:
        numbers = torch.arange(num_coarse, dtype=dtype, device=fine.device)
        table[known] = numbers
        at, outputs = (table[:known] >= 0).nonzero().unbind(1)
        table[offsets - 1 - at, table[at, outputs].long()] = outputs.to(dtype)
    there = table >= 0
    indptr = torch.zeros(offsets + 1, dtype=dtype, device=fine.device)
    indptr[1:] = there.sum(1).cumsum(0)
    outputs = torch.arange(num_coarse, dtype=dtype, device=fine.device).expand(offsets, -1)[there]
    return KernelMap._make(table[there], outputs, indptr, shape, symmetric)


def _search(fine: Coordinates, coarse: Coordinates, window: Window, symmetric: bool) -> tuple[Tensor, Tensor]:
    """For the offsets of the kernel, or the first half of them, and the coarse sites in ascending order: the place of a
    fine site among those in ascending order, and whether it is there.
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
    if symmetric:
        starts = starts[: window.num_offsets // 2 // line + 1]
    begin = first + torch.tensor(starts, device=fine.device)[:, None]
    place = torch.searchsorted(keys, begin)
    keys = torch.cat([keys, keys.new_full((1,), 2**63 - 1)])
    places, found = [], []
    for step in range(line):
        places.append(place)
        found.append(keys[place] == begin + step)
        if step + 1 < line:
            place = place + found[-1]
    known = window.num_offsets // 2 if symmetric else window.num_offsets
    place, there = (torch.stack(x, 1).flatten(0, 1)[:known] for x in (places, found))
    return place.clamp_(max=keys.numel() - 2), there


def _starts(window: Window, packing: Packing, in_lines: bool) -> list[int]:
    """How far in keys each line of the kernel, or each offset, begins behind the first offset."""
    axes: list[Any] = [
        [d * k * stride for k in range(size)]
        for size, d, stride in zip(window.kernel, window.dilation, packing.strides[1:])
    ]
    return [sum(each) for each in itertools.product(*(axes[:-1] if in_lines else axes))]


__all__ = ["PairsFrom", "kernel_map_between"]
