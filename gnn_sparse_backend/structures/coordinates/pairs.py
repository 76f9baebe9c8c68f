"""Kernel maps of coordinates: each pair of a finer and a coarser site that a kernel connects.

Sites are sorted once. The sites that an offset of the kernel wants are then in order too, so that they are merged with
those that there are; half of the offsets of a symmetric map are (Spira, arXiv 2511.20834, searches such keys).
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import Kernel
from ...compiler.compile import compile_loops
from ...compiler.loops.merging import COUNT, FILL, pairs_function, reorder_function
from ...runtime.type_names import type_name
from ..build import index_dtype
from ..derived import Derived
from ..kernel_map import KernelMap
from .packing import chunks_of, joined, packing_of
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
        fine = self.fine()
        return _kernel_map(fine.on_host, coarse.on_host, self.window).to(coarse.device)


def kernel_map_between(fine: Coordinates, coarse: Coordinates, window: Window) -> KernelMap:
    """The map of a convolution from ``fine`` to ``coarse``, made once. Its transpose is that of the transposed one."""
    return coarse.derived(PairsFrom(window, _Sites(fine)))


def _kernel_map(fine: Coordinates, coarse: Coordinates, window: Window) -> KernelMap:
    shape, offsets = (coarse.rows.shape[0], fine.rows.shape[0]), window.num_offsets
    same = fine is coarse and set(window.stride) == {1}
    symmetric = fine is coarse and window.symmetric
    if not all(shape):
        nothing = torch.empty(0, dtype=torch.int32)
        return KernelMap._make(nothing, nothing.clone(), nothing.new_zeros(offsets + 1), shape, symmetric, True)
    known = offsets // 2 if symmetric else offsets
    keys, first, places = _keys(fine, coarse, window, same)
    starts, line_ptr = _lines(places[:known])
    chunks = chunks_of(shape[0])
    counts, indptr = torch.empty(chunks * known, dtype=torch.int64), torch.empty(offsets + 1, dtype=torch.int64)
    given = shape[1], shape[0], chunks, starts.numel(), known, offsets, keys, first, starts, line_ptr, counts, indptr
    _pairs(COUNT).entry(*given)
    pairs = int(indptr[-1])
    dtype = index_dtype(shape, pairs)
    inputs, outputs = torch.empty(pairs, dtype=dtype), torch.empty(pairs, dtype=dtype)
    _pairs(FILL, type_name(dtype)).entry(*given, pairs, inputs, outputs)
    if fine.order is not None:
        inputs = fine.order.to(dtype).index_select(0, inputs)
    if coarse.order is not None:
        tasks = min(chunks, offsets)
        rows = torch.full((tasks * shape[0],), -1, dtype=dtype)
        _reorder(type_name(dtype)).entry(
            shape[0], offsets, pairs, tasks, indptr, coarse.order, rows, inputs, outputs
        )
    ordered = fine.order is None and coarse.order is None
    return KernelMap._make(inputs, outputs, indptr.to(dtype), shape, symmetric, ordered)


def _keys(fine: Coordinates, coarse: Coordinates, window: Window, same: bool) -> tuple[Tensor, Tensor, list[int]]:
    """(keys of the fine sites, those at which a coarse site's kernel begins, and where its offsets are from there)."""
    times, before = (1, *window.stride), (0, *(-b for b in window.before))
    queries = (window.fine_range(axis, *bound) for axis, bound in enumerate(coarse.bounds[1:]))

    def columns() -> list[Tensor]:
        wanted = coarse.rows.long() * torch.tensor(times) + torch.tensor(before)
        return list(torch.cat([fine.rows.long(), wanted]).unbind(1))

    far = (0, *map(max, window.reach, window.before))
    packing = packing_of(joined(fine.bounds, (coarse.bounds[0], *queries)), columns, far)
    keys = packing.pack(fine.ascending)[0]
    steps = [1 << shift for shift in packing.shifts[1:]]
    begin = sum(b * step for b, step in zip(before[1:], steps)) if same else 0
    first = keys if same else packing.pack(coarse.ascending, times, before)[0]
    axes = ([d * k * step for k in range(size)] for size, d, step in zip(window.kernel, window.dilation, steps))
    return keys, first, [begin + sum(each) for each in itertools.product(*axes)]


def _lines(places: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(places that do not follow the one before them, where these are)."""
    at = [k for k, place in enumerate(places) if not k or place != places[k - 1] + 1]
    return torch.tensor([places[k] for k in at], dtype=torch.int64), torch.tensor([*at, len(places)])


@kept
def _pairs(what: str, *index: str) -> Kernel:
    return compile_loops(pairs_function, what, *index)


@kept
def _reorder(index: str) -> Kernel:
    return compile_loops(reorder_function, index)
