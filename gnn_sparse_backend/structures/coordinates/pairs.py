"""Kernel maps of coordinates: each pair of a finer and a coarser site that a kernel connects.

Sites are sorted once. The sites that an offset of the kernel wants are then in order too, so that they are merged with
those that there are; half of the offsets of a symmetric map are (Spira, arXiv 2511.20834, searches such keys).
"""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...compiler.compile import compile_loops
from ...compiler.loops.merging import COUNT, FILL, pairs_function, reorder_function
from ...frozen import dataclass
from ...runtime.type_names import type_name
from ..build import index_dtype
from ..derived import Derived
from ..kernel_map import KernelMap
from .packing import joined, packing_of
from .sites import Coordinates
from .window import Window

SHARED = 1 << 16
"""Steps of a merge from which threads share it."""
SHARES = 4
"""Parts of it for each thread."""


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
    keys, first, begin, steps = _keys(fine, coarse, window, same)
    lines, places = _lines(window, known, begin, steps)
    parallel = torch.get_num_threads() > 1 and lines * sum(shape) >= SHARED
    chunks = min(SHARES * torch.get_num_threads(), shape[0]) if parallel else 1
    counts, indptr = torch.empty(chunks * known, dtype=torch.int64), torch.empty(offsets + 1, dtype=torch.int64)
    given = shape[1], shape[0], chunks, lines, known, offsets, keys, first, places, counts, indptr
    compile_loops(pairs_function, COUNT, parallel).entry(*given)
    pairs = int(indptr[-1])
    dtype = index_dtype(shape, pairs)
    inputs, outputs = torch.empty(pairs, dtype=dtype), torch.empty(pairs, dtype=dtype)
    compile_loops(pairs_function, FILL, parallel, type_name(dtype)).entry(*given, pairs, inputs, outputs)
    numbers, order = fine.packed.order, coarse.packed.order
    if numbers is not None:
        inputs = numbers.to(dtype).index_select(0, inputs)
    if order is not None:
        tasks = min(chunks, offsets)
        rows = torch.full((tasks * shape[0],), -1, dtype=dtype)
        given = shape[0], offsets, pairs, tasks, indptr, order, rows, inputs, outputs
        compile_loops(reorder_function, parallel, type_name(dtype)).entry(*given)
    return KernelMap._make(inputs, outputs, indptr.to(dtype), shape, symmetric, numbers is order is None)


def _keys(
    fine: Coordinates, coarse: Coordinates, window: Window, same: bool
) -> tuple[Tensor, Tensor, int, tuple[int, ...]]:
    """(keys of the fine sites, those of coarse sites, where a kernel begins from there, and a step along each axis)."""
    times, before = (1, *window.stride), (0, *(-b for b in window.before))
    packing, keys, _ = fine.packed
    queries = (window.fine_range(axis, *bound) for axis, bound in enumerate(coarse.bounds[1:]))
    box = joined(fine.bounds, (coarse.bounds[0], *queries))
    if not packing.holds(box):

        def columns() -> list[Tensor]:
            wanted = coarse.rows.long() * torch.tensor(times) + torch.tensor(before)
            return list(torch.cat([fine.rows.long(), wanted]).unbind(1))

        packing = packing_of(box, columns, (0, *map(max, window.reach, window.before)))
        keys = packing.pack(fine.ascending())[0]
    steps = tuple(1 << shift for shift in packing.shifts[1:])
    begin = sum(b * step for b, step in zip(before[1:], steps)) if same else 0
    first = keys if same else packing.pack(coarse.ascending(), times, before)[0]
    return keys, first, begin, steps


@kept
def _lines(window: Window, known: int, begin: int, steps: tuple[int, ...]) -> tuple[int, Tensor]:
    """(how many lines the first ``known`` offsets are in, whose keys follow one another; the first key of each, then
    its first offset), where the kernel begins, and a step along each axis is, in keys.
    """
    wanted = [begin + sum(s * step for s, step in zip(each, steps)) for each in window.steps[:known]]
    begins = [k for k, key in enumerate(wanted) if not k or key != wanted[k - 1] + 1]
    return len(begins), torch.tensor([*(wanted[k] for k in begins), *begins, len(wanted)])
