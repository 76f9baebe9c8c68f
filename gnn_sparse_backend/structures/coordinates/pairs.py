"""Kernel maps of coordinates: each pair of a finer and a coarser site that a kernel connects.

Sites are sorted once, and a search finds where a line of the kernel, its offsets along the last axis, begins among
them. The offsets of the line follow without a search: keys are distinct, so the place of key q + 1 is that of key q, or
the next one if q is there. Half of the lines of a symmetric map are searched. With a stride most offsets of a
finer site have no coarser one, so that the search is for the coarser sites of those that have.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

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
    if set(window.stride) == {1}:
        known = offsets // 2 if symmetric else offsets
        offset, outputs, inputs = _from_coarse(fine, coarse, window, known)
    else:
        known = offsets
        offset, outputs, inputs = _from_fine(fine, coarse, window)
    begin = torch.searchsorted(offset, torch.arange(known + 1, device=fine.device))
    outputs, inputs = (x if y is None else y[x] for x, y in ((outputs, coarse.order), (inputs, fine.order)))
    if symmetric:
        # offset K - 1 - k has the pairs of k with ends swapped, in the same order: a shift keeps the order of sites
        every, count = torch.arange(shape[0], device=fine.device), offset.numel()
        shift = (begin[1:] + begin[:-1] - count).flip(0).repeat_interleave(begin.diff().flip(0), output_size=count)
        mirrored = torch.arange(count, device=fine.device) + shift
        begin = torch.cat([begin, (2 * count + shape[0] - begin).flip(0)])
        outputs, inputs = (
            torch.cat([one, every, other.index_select(0, mirrored)])
            for one, other in ((outputs, inputs), (inputs, outputs))
        )
    if coarse.order is not None:
        offset = torch.arange(offsets, device=fine.device).repeat_interleave(begin.diff(), output_size=inputs.numel())
        order = (offset * shape[0] + outputs).argsort()
        outputs, inputs = outputs[order], inputs[order]
    dtype = index_dtype(shape, inputs.numel())
    return KernelMap._make(inputs.to(dtype), outputs.to(dtype), begin.to(dtype), shape, symmetric)


def _from_coarse(fine: Coordinates, coarse: Coordinates, window: Window, known: int) -> tuple[Tensor, Tensor, Tensor]:
    """(offset, output, input) of all pairs of the first ``known`` offsets, in order, of strides of 1. Outputs and
    inputs are numbered in ascending order of their sites.
    """
    queries = (window.fine_range(axis, *bound) for axis, bound in enumerate(coarse.bounds[1:]))
    packing = Packing(joined(fine.bounds, (coarse.bounds[0], *queries)))
    keys = packing.pack(fine.ascending)
    first = packing.pack(coarse.ascending - torch.tensor((0, *window.before), device=fine.device))
    in_lines = window.dilation[-1] == 1 and window.cells is None
    line = window.kernel[-1] if in_lines else 1
    starts = _starts(window, packing, in_lines)
    begin = first + torch.tensor(starts[: -(-known // line)], device=fine.device)[:, None]
    place = torch.searchsorted(keys, begin, out_int32=keys.numel() < INT32_LIMIT)
    keys = torch.cat([keys, keys.new_full((1,), MOST_CELLS)])
    shape = place.shape[0], line, place.shape[1]
    places, found = place.new_empty(shape), torch.empty(shape, dtype=torch.bool, device=fine.device)
    for step in range(line):
        places[:, step] = place
        torch.eq(keys.index_select(0, place.view(-1)).view_as(place), begin + step, out=found[:, step])
        place = place + found[:, step]
    at = found.flatten()[: known * shape[2]].nonzero().squeeze(1)
    offset = at.div(shape[2], rounding_mode="floor")
    return offset, at - offset * shape[2], places.view(-1).index_select(0, at)


def _from_fine(fine: Coordinates, coarse: Coordinates, window: Window) -> tuple[Tensor, Tensor, Tensor]:
    """(offset, output, input) of all pairs, in order, for any strides: where these divide, a fine site has one coarse
    site at an offset.
    """
    bounds = (window.coarse_range(axis, *bound) for axis, bound in enumerate(fine.bounds[1:]))
    packing = Packing(joined(coarse.bounds, (fine.bounds[0], *bounds)))
    keys, rows = packing.pack(coarse.ascending), fine.ascending.long()
    query = ((rows[:, 0] - packing.bounds[0][0]) * packing.strides[0])[None]
    valid = torch.ones_like(query, dtype=torch.bool)
    offsets, reach = window.steps, window.reach
    for axis, stride in enumerate(window.stride):
        ahead = rows[:, axis + 1] + window.before[axis]
        whole = ahead.div(stride, rounding_mode="floor")
        rest = ahead - whole * stride
        # at an offset q * stride + r, sites that are r beyond a multiple have the coarse site q before that
        box, along = window.cells is None, [step[axis] for step in offsets]
        steps = [divmod(step, stride) for step in (range(0, reach[axis] + 1, window.dilation[axis]) if box else along)]
        back, beyond = torch.tensor(steps, device=fine.device).t()[:, :, None]
        cells = (whole - (back + packing.bounds[axis + 1][0])) * packing.strides[axis + 1]
        # those of a box are all offsets along the axes before with all along this one
        query = (query[:, None] + cells).flatten(0, 1) if box else query + cells
        valid = (valid[:, None] & (rest == beyond)).flatten(0, 1) if box else valid & (rest == beyond)
    at = valid.view(-1).nonzero().squeeze(1)
    query = query.view(-1).index_select(0, at)
    place = torch.searchsorted(keys, query)
    there = torch.cat([keys, keys.new_full((1,), MOST_CELLS)]).index_select(0, place) == query
    at, place = at[there], place[there]
    offset = at.div(rows.shape[0], rounding_mode="floor")
    return offset, place, at - offset * rows.shape[0]


def _starts(window: Window, packing: Packing, in_lines: bool) -> list[int]:
    """How far in keys each line of the kernel, or each offset, begins behind the first offset."""
    steps = window.steps[:: window.kernel[-1] if in_lines else 1]
    return [sum(step * stride for step, stride in zip(each, packing.strides[1:])) for each in steps]
