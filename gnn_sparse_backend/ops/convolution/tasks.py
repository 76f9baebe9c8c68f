"""What threads share of a kernel map: ranges of rows by offsets, blocks of rows, and shares of the pairs.

Most arrays are short, and NumPy takes a fraction of PyTorch's time for those.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...frozen import dataclass
from ...planner.cpu.convolution import ConvCounts
from ...runtime import devices
from ...structures.coordinates.packing import in_order
from ...structures.derived import Derived, fact
from ...structures.kernel_map import KernelMap, Offsets


class PairsOfRows(Derived[tuple]):
    """(indptr, offsets, inputs) of the pairs of each output, by offset."""

    def compute(self, kernel_map: KernelMap) -> tuple[Tensor, Tensor, Tensor]:
        order = torch.argsort(kernel_map.outputs, stable=True)
        ends = torch.bincount(kernel_map.outputs, minlength=kernel_map.shape[0]).cumsum(0)
        index = kernel_map.indptr.dtype
        indptr = torch.nn.functional.pad(ends, (1, 0)).to(index)
        return indptr, kernel_map.derived(Offsets())[order], kernel_map.inputs[order]


@fact
def pairs_before(kernel_map: KernelMap) -> np.ndarray:
    """(rows + 1,) how many pairs the outputs before each have."""
    return _indptr(np.bincount(kernel_map.outputs.numpy(), minlength=kernel_map.shape[0]))


@dataclass(frozen=True)
class RowRanges(Derived[np.ndarray]):
    """(ranges + 1,) where ranges of rows of about equal cost begin. None has more than twice as many rows as they have
    on average, and one."""

    ranges: int

    def compute(self, kernel_map: KernelMap) -> np.ndarray:
        return _cuts(pairs_before(kernel_map), self.ranges)


@dataclass(frozen=True)
class Panels(Derived[tuple]):
    """The pairs of each offset in each range of rows: (where the ranges begin, panels of each range, and of each panel
    its offset, its first pair, the one behind its last, and its blocks). block: rows of a block."""

    ranges: int
    block: int

    def compute(self, kernel_map: KernelMap) -> tuple[np.ndarray, ...]:
        cuts, outputs = kernel_map.derived(RowRanges(self.ranges)), kernel_map.outputs.numpy()
        wanted, bounds = cuts.astype(outputs.dtype), kernel_map.indptr.tolist()
        at = np.empty((self.ranges + 1, kernel_map.num_offsets), np.int64)
        for offset, (begin, end) in enumerate(itertools.pairwise(bounds)):
            at[:, offset] = np.searchsorted(outputs[begin:end], wanted)
        at += bounds[:-1]
        start, stop = at[:-1], at[1:]
        some = stop > start
        offset = np.broadcast_to(np.arange(kernel_map.num_offsets), some.shape)[some]
        start, stop = start[some], stop[some]
        return cuts, some.sum(1), offset, start, stop, -(-(stop - start) // self.block)


@dataclass(frozen=True)
class OffsetTasks(Derived[tuple]):
    """The tasks of `conv_offsets`: (sizes, index arrays, pairs of all blocks). ranges: of rows. splits: ranges of
    column tiles. tiles: column tiles. block: rows of a block. OFFSET: the array of offsets."""

    OFFSET: ClassVar[int] = 6
    ranges: int
    splits: int
    tiles: int
    block: int

    def compute(self, kernel_map: KernelMap) -> tuple:
        several = self.splits
        cuts, panels, offset, start, stop, blocks = kernel_map.derived(Panels(self.ranges, self.block))
        total = int(blocks.sum())
        columns = np.arange(several + 1) * self.tiles // several
        arrays = (
            _indptr(np.tile(np.diff(columns), self.ranges)),
            _indptr(np.repeat(panels, several)),
            _indptr(_several(blocks, panels, several)),
            _indptr(np.repeat(np.diff(cuts), several)),
            np.tile(columns[:-1], self.ranges),
            np.repeat(cuts[:-1], several),
            *(_several(a, panels, several) for a in (offset, start, stop - 1)),
        )
        sizes = self.ranges * several, self.ranges * self.tiles, offset.size * several, total * several
        return sizes, _tensors(kernel_map, arrays), total * self.block


@dataclass(frozen=True)
class RowBlocks(Derived[tuple]):
    """(slot_ptr, Offset, In, Row) of `conv_rows`: rows that meet the same offsets, in blocks of ``block`` rows. Rows
    without pairs are in blocks without slots."""

    block: int

    def compute(self, kernel_map: KernelMap) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        indptr, offset, inputs = (a.numpy() for a in kernel_map.derived(PairsOfRows()))
        rows = kernel_map.shape[0]
        if self.block == 1:
            return indptr, offset, inputs, np.arange(rows)
        order, sets = (a.numpy() for a in rows_by_set(kernel_map))
        begin = np.concatenate([[0], (sets[1:] != sets[:-1]).any(1).nonzero()[0] + 1])
        counts = np.diff(begin, append=rows)
        blocks = -(-counts // self.block)
        # the set of offsets of each block, and the first of its rows in order
        of_set = np.repeat(np.arange(blocks.size), blocks)
        within = np.arange(of_set.size) - _indptr(blocks)[of_set]
        ends = _indptr(counts)
        place = ends[of_set, None] + within[:, None] * self.block + np.arange(self.block)
        row = order[np.minimum(place, ends[of_set + 1, None] - 1)]
        length = np.diff(indptr)[row[:, 0]]
        slot_ptr = _indptr(length)
        of_block = np.repeat(np.arange(length.size), length)
        slot = np.arange(of_block.size) - slot_ptr[of_block]
        first = indptr[row[of_block]]
        return slot_ptr, offset[first[:, 0] + slot], inputs[first + slot[:, None]].ravel(), row.ravel()


@dataclass(frozen=True)
class RowTasks(Derived[tuple]):
    """The tasks of `conv_rows`: (sizes, index arrays). ranges: of blocks. splits: ranges of column tiles. tiles: column
    tiles. block: rows of a block. OFFSET: the array of offsets."""

    OFFSET: ClassVar[int] = 4
    ranges: int
    splits: int
    tiles: int
    block: int

    def compute(self, kernel_map: KernelMap) -> tuple:
        slot_ptr, offset, inputs, row = kernel_map.derived(RowBlocks(self.block))
        blocks, slots, several = slot_ptr.size - 1, offset.size, self.splits
        cuts = _cuts(slot_ptr, self.ranges)
        counts, of_ranges = np.diff(cuts), np.diff(slot_ptr[cuts])
        columns = np.arange(several + 1) * self.tiles // several
        arrays = (
            _indptr(np.tile(np.diff(columns), self.ranges)),
            _indptr(np.repeat(counts, several)),
            _indptr(_several(np.diff(slot_ptr), counts, several)),
            np.tile(columns[:-1], self.ranges),
            _several(offset, of_ranges, several),
            _several(inputs.reshape(-1, self.block), of_ranges, several),
            _several(row.reshape(-1, self.block), counts, several),
        )
        sizes = self.ranges * several, self.ranges * self.tiles, blocks * several, slots * several
        return sizes, _tensors(kernel_map, arrays)


@dataclass(frozen=True)
class Counts(Derived[ConvCounts]):
    """What the planner looks at, for blocks of ``block`` rows. Sets of offsets are looked at where a row has few."""

    block: int

    def compute(self, kernel_map: KernelMap) -> ConvCounts:
        rows, pairs = kernel_map.shape[0], kernel_map.num_pairs
        found = ConvCounts(rows, kernel_map.num_offsets, pairs, pairs, rows, pairs * self.block)
        per_offset = np.diff(kernel_map.indptr.numpy())
        found = replace(found, padded=int((-(-per_offset // self.block)).sum()) * self.block)
        if pairs <= FEW * rows:
            slot_ptr, _, inputs, _ = kernel_map.derived(RowBlocks(self.block))
            found = replace(found, row_blocks=(slot_ptr.size - 1) * self.block, row_padded=inputs.size)
        return found


@dataclass(frozen=True)
class Parts(Derived[tuple]):
    """Parts of the pairs, each of one offset, that ``shares`` shares have: (parts of each share, where each begins and
    the last one ends, the matrix of each, whether all offsets have pairs, the offset of each further matrix).

    The first part of an offset fills its matrix, the others one each, which is added to it: shares end with an offset
    where one ends near.
    """

    shares: int

    def compute(self, kernel_map: KernelMap) -> tuple:
        indptr, pairs = kernel_map.indptr.numpy().astype(np.int64), kernel_map.num_pairs
        cuts = np.arange(self.shares + 1) * pairs // self.shares
        after = np.searchsorted(indptr, cuts).clip(min=1)
        near = np.where(cuts - indptr[after - 1] < indptr[after] - cuts, indptr[after - 1], indptr[after])
        cuts = np.where(np.abs(near - cuts) * self.shares <= SNAP * pairs, near, cuts)
        bounds = np.unique(np.concatenate([cuts, indptr]))
        start = bounds[:-1]
        offset = np.searchsorted(indptr, start, side="right") - 1
        task = np.searchsorted(cuts, start, side="right") - 1
        again = np.zeros(offset.size, bool)
        again[1:] = offset[1:] == offset[:-1]
        slot = np.where(again, kernel_map.num_offsets + again.cumsum() - 1, offset)
        counts = np.bincount(task, minlength=self.shares)
        return counts, bounds, slot, bool((np.diff(indptr) > 0).all()), torch.from_numpy(offset[again])


@dataclass(frozen=True)
class Shares(Derived[tuple]):
    """The tasks of `depthwise_sums`: (sizes, index arrays), of `Parts`."""

    shares: int

    def compute(self, kernel_map: KernelMap) -> tuple:
        counts, bounds, slot, *_ = kernel_map.derived(Parts(self.shares))
        return (self.shares, slot.size), _tensors(kernel_map, (_indptr(counts), bounds, slot))


@dataclass(frozen=True)
class SumTasks(Derived[tuple]):
    """The tasks of `conv_sums`: (sizes, index arrays), of `Parts` in chunks. chunk: pairs of one. splits: ranges of
    column tiles. tiles: column tiles."""

    shares: int
    chunk: int
    splits: int
    tiles: int

    def compute(self, kernel_map: KernelMap) -> tuple:
        counts, bounds, slot, *_ = kernel_map.derived(Parts(self.shares))
        several = self.splits
        chunks = -(-np.diff(bounds) // self.chunk)
        before = _indptr(chunks)
        of_part = np.repeat(np.arange(chunks.size), chunks)
        start = bounds[of_part] + (np.arange(of_part.size) - before[of_part]) * self.chunk
        length = np.minimum(bounds[of_part + 1] - start, self.chunk)
        of_share = np.diff(before[_indptr(counts)])
        columns = np.arange(several + 1) * self.tiles // several
        arrays = (
            _indptr(np.tile(np.diff(columns), self.shares)),
            _indptr(np.repeat(counts, several)),
            _indptr(_several(chunks, counts, several)),
            _indptr(_several(length, of_share, several)),
            np.tile(columns[:-1], self.shares),
            _several(slot, counts, several),
            _several(start, of_share, several),
        )
        sizes = self.shares * several, self.shares * self.tiles, slot.size * several, start.size * several
        return (*sizes, kernel_map.num_pairs * several), _tensors(kernel_map, arrays)


FEW = 4
"""Pairs of a row up to which rows with the same offsets may be many."""
SNAP = 0.25
"""Part of its length by which a share may end sooner or later."""
_WORD = 62


def rows_by_set(kernel_map: KernelMap) -> tuple[Tensor, Tensor]:
    """The rows in the order of the sets of their offsets, and of each its set in bits, (rows, words) int64."""
    offset, rows = kernel_map.derived(Offsets()).long(), kernel_map.shape[0]
    sets = offset.new_zeros(rows, -(-kernel_map.num_offsets // _WORD) or 1)
    # a row meets an offset once at most, so that sums are sets
    at = kernel_map.outputs.long() * sets.shape[1] + offset // _WORD
    sets.view(-1).index_add_(0, at, torch.bitwise_left_shift(torch.ones_like(offset), offset % _WORD))
    order = torch.arange(rows, device=sets.device)
    for word in reversed(sets.unbind(1)):
        given = word[order]
        order = order[in_order(given, _WORD)[1] if devices.on_cpu(given.device) else given.argsort(stable=True)]
    return order, sets[order]


def _indptr(lengths: np.ndarray) -> np.ndarray:
    found = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=found[1:])
    return found


def _cuts(indptr: np.ndarray, parts: int) -> np.ndarray:
    """(parts + 1,) where rows with pairs from ``indptr`` are cut to equal costs, half of which are for the rows."""
    rows = indptr.size - 1
    cost = indptr / max(1, int(indptr[-1])) + np.arange(rows + 1) / max(1, rows)
    cuts = np.searchsorted(cost, cost[-1] * np.arange(parts + 1) / parts)
    cuts[-1] = rows
    return cuts


def _several(a: np.ndarray, lengths: np.ndarray, several: int) -> np.ndarray:
    """Cut ``a`` into stretches of these lengths, and repeat each ``several`` times."""
    if several == 1:
        return a
    parts = np.split(a, np.cumsum(lengths)[:-1])
    return np.concatenate([part for part in parts for _ in range(several)])


def _tensors(kernel_map: KernelMap, arrays: Sequence[np.ndarray]) -> tuple[Tensor, ...]:
    """Arrays as kernels take them, in the index type."""
    found = tuple(torch.empty(a.shape, dtype=kernel_map.indptr.dtype) for a in arrays)
    for tensor, a in zip(found, arrays):
        tensor.numpy()[...] = a
    return found
