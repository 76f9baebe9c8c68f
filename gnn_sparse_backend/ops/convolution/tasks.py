"""What threads share of a kernel map: ranges of rows by offsets, blocks of rows, and shares of the pairs."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ...frozen import dataclass
from ...planner.cpu.convolution import ConvCounts
from ...structures.derived import Derived
from ...structures.kernel_map import KernelMap, Offsets


class PairsOfRows(Derived[tuple]):
    """(indptr, offsets, inputs) of the pairs of each output, by offset."""

    def compute(self, kernel_map: KernelMap) -> tuple[Tensor, Tensor, Tensor]:
        order = torch.argsort(kernel_map.outputs, stable=True)
        ends = _indptr(torch.bincount(kernel_map.outputs, minlength=kernel_map.shape[0]))
        index = kernel_map.indptr.dtype
        return ends.to(index), kernel_map.derived(Offsets())[order], kernel_map.inputs[order]


@dataclass(frozen=True)
class RowRanges(Derived[Tensor]):
    """(ranges + 1,) where ranges of rows of about equal cost begin. None has more than twice as many rows as they have
    on average, and one."""

    ranges: int

    def compute(self, kernel_map: KernelMap) -> Tensor:
        return _cuts(_indptr(torch.bincount(kernel_map.outputs, minlength=kernel_map.shape[0])), self.ranges)


@dataclass(frozen=True)
class Panels(Derived[tuple]):
    """The pairs of each offset in each range of rows: (where the ranges begin, panels of each range, and of each panel
    its offset, its first pair, the one behind its last, and its blocks). block: rows of a block."""

    ranges: int
    block: int

    def compute(self, kernel_map: KernelMap) -> tuple[Tensor, ...]:
        rows, offsets = kernel_map.shape[0], kernel_map.num_offsets
        cuts = kernel_map.derived(RowRanges(self.ranges))
        keys = kernel_map.derived(Offsets()).long() * rows + kernel_map.outputs
        wanted = torch.arange(offsets)[:, None] * rows + cuts
        at = torch.searchsorted(keys, wanted.flatten()).view(offsets, -1).t()  # (ranges + 1, offsets)
        start, stop = at[:-1].contiguous(), at[1:].contiguous()
        some = stop > start
        offset = torch.arange(offsets).expand_as(some)[some]
        start, stop = start[some], stop[some]
        return cuts, some.sum(1), offset, start, stop, -(-(stop - start) // self.block)


@dataclass(frozen=True)
class OffsetTasks(Derived[tuple]):
    """The tasks of `conv_offsets`: (sizes, index arrays, pairs of all blocks). ranges: of rows. splits: ranges of
    column tiles. tiles: column tiles. block: rows of a block."""

    ranges: int
    splits: int
    tiles: int
    block: int

    def compute(self, kernel_map: KernelMap) -> tuple:
        index, several = kernel_map.indptr.dtype, self.splits
        cuts, panels, offset, start, stop, blocks = kernel_map.derived(Panels(self.ranges, self.block))
        total = int(blocks.sum())
        columns = torch.arange(several + 1) * self.tiles // several
        arrays = (
            _indptr(columns.diff().repeat(self.ranges)),
            _indptr(_each(panels, several)),
            _indptr(_several(blocks, panels, several)),
            _indptr(_each(cuts.diff(), several)),
            columns[:-1].repeat(self.ranges),
            _each(cuts[:-1], several),
            *(_several(a, panels, several) for a in (offset, start, stop - 1)),
        )
        sizes = self.ranges * several, self.ranges * self.tiles, offset.numel() * several, total * several
        return sizes, tuple(a.to(index) for a in arrays), total * self.block


@dataclass(frozen=True)
class RowBlocks(Derived[tuple]):
    """(slot_ptr, Offset, In, Row) of `conv_rows`: rows that meet the same offsets, in blocks of ``block`` rows. Rows
    without pairs are in blocks without slots."""

    block: int

    def compute(self, kernel_map: KernelMap) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        indptr, offset, inputs = kernel_map.derived(PairsOfRows())
        index, rows = indptr.dtype, kernel_map.shape[0]
        if self.block == 1:
            return indptr, offset, inputs, torch.arange(rows, dtype=index)
        order, sets = rows_by_set(kernel_map)
        begin = torch.nn.functional.pad((sets[1:] != sets[:-1]).any(1).nonzero().squeeze(1) + 1, (1, 0))
        counts = torch.nn.functional.pad(begin, (0, 1), value=rows).diff()
        blocks = -(-counts // self.block)
        # the set of offsets of each block, and the first of its rows in order
        of_set = torch.repeat_interleave(blocks)
        within = torch.arange(of_set.numel()) - _indptr(blocks)[of_set]
        ends = _indptr(counts)
        place = ends[of_set, None] + within[:, None] * self.block + torch.arange(self.block)
        row = order[torch.minimum(place, ends[of_set + 1, None] - 1)]
        length = indptr.long().diff()[row[:, 0]]
        slot_ptr = _indptr(length)
        of_block = torch.repeat_interleave(length)
        slot = torch.arange(of_block.numel()) - slot_ptr[of_block]
        first = indptr.long()[row[of_block]]
        found = offset[first[:, 0] + slot], inputs[first + slot[:, None]].flatten(), row.flatten()
        return slot_ptr.to(index), *(a.to(index) for a in found)


@dataclass(frozen=True)
class RowTasks(Derived[tuple]):
    """The tasks of `conv_rows`: (sizes, index arrays). ranges: of blocks. splits: ranges of column tiles. tiles: column
    tiles. block: rows of a block."""

    ranges: int
    splits: int
    tiles: int
    block: int

    def compute(self, kernel_map: KernelMap) -> tuple:
        slot_ptr, offset, inputs, row = kernel_map.derived(RowBlocks(self.block))
        blocks, slots, several, index = slot_ptr.numel() - 1, offset.numel(), self.splits, slot_ptr.dtype
        counts = _cuts(slot_ptr, self.ranges).diff()
        columns = torch.arange(several + 1) * self.tiles // several
        of_block = slot_ptr.long().diff()

        def repeated(a: Tensor, of_slots: bool) -> Tensor:
            lengths = counts if not of_slots else torch.stack([part.sum() for part in of_block.split(counts.tolist())])
            return _several(a, lengths, several)

        arrays = (
            _indptr(columns.diff().repeat(self.ranges)),
            _indptr(_each(counts, several)),
            _indptr(repeated(of_block, False)),
            columns[:-1].repeat(self.ranges),
            repeated(offset, True),
            repeated(inputs.view(-1, self.block), True),
            repeated(row.view(-1, self.block), False),
        )
        sizes = self.ranges * several, self.ranges * self.tiles, blocks * several, slots * several
        return sizes, tuple(a.to(index) for a in arrays)


@dataclass(frozen=True)
class Counts(Derived[ConvCounts]):
    """What the planner looks at, for blocks of ``block`` rows. Sets of offsets are looked at where a row has few."""

    block: int

    def compute(self, kernel_map: KernelMap) -> ConvCounts:
        rows, pairs = kernel_map.shape[0], kernel_map.num_pairs
        found = ConvCounts(rows, kernel_map.num_offsets, pairs, pairs, rows, pairs * self.block)
        per_offset = kernel_map.indptr.long().diff()
        found = replace(found, padded=int((-(-per_offset // self.block)).sum()) * self.block)
        if pairs <= FEW * rows:
            slot_ptr, _, inputs, _ = kernel_map.derived(RowBlocks(self.block))
            found = replace(found, row_blocks=(slot_ptr.numel() - 1) * self.block, row_padded=inputs.numel())
        return found


@dataclass(frozen=True)
class Shares(Derived[tuple]):
    """The tasks of `depthwise_sums`: (sizes, index arrays, whether all offsets have pairs, the offset of each further
    matrix), for ``shares`` shares of the pairs.

    The first part of an offset fills its matrix, the others one each, which is added to it: shares end with an offset
    where one ends near.
    """

    shares: int

    def compute(self, kernel_map: KernelMap) -> tuple:
        indptr, pairs, index = kernel_map.indptr.long(), kernel_map.num_pairs, kernel_map.indptr.dtype
        cuts = torch.arange(self.shares + 1) * pairs // self.shares
        after = torch.searchsorted(indptr, cuts).clamp(min=1)
        near = torch.where(cuts - indptr[after - 1] < indptr[after] - cuts, indptr[after - 1], indptr[after])
        cuts = torch.where((near - cuts).abs() * self.shares <= SNAP * pairs, near, cuts)
        bounds = torch.cat([cuts, indptr]).unique()
        start = bounds[:-1]
        offset = torch.searchsorted(indptr, start, right=True) - 1
        task = torch.searchsorted(cuts, start, right=True) - 1
        again = torch.zeros_like(offset, dtype=torch.bool)
        again[1:] = offset[1:] == offset[:-1]
        slot = torch.where(again, kernel_map.num_offsets + again.cumsum(0) - 1, offset)
        arrays = _indptr(torch.bincount(task, minlength=self.shares)), bounds, slot
        sizes = self.shares, start.numel()
        return sizes, tuple(a.to(index) for a in arrays), bool((indptr.diff() > 0).all()), offset[again]


@dataclass(frozen=True)
class SumTasks(Derived[tuple]):
    """The tasks of `conv_sums`: (sizes, index arrays), of `Shares` in chunks. chunk: pairs of one. splits: ranges of
    column tiles. tiles: column tiles."""

    shares: int
    chunk: int
    splits: int
    tiles: int

    def compute(self, kernel_map: KernelMap) -> tuple:
        (_, parts), (part_ptr, bounds, slot), _, _ = kernel_map.derived(Shares(self.shares))
        index, several, bounds = part_ptr.dtype, self.splits, bounds.long()
        chunks = -(-bounds.diff() // self.chunk)
        of_part = torch.repeat_interleave(chunks)
        start = bounds[of_part] + (torch.arange(of_part.numel()) - _indptr(chunks)[of_part]) * self.chunk
        length = (bounds[of_part + 1] - start).clamp(max=self.chunk)
        counts = part_ptr.long().diff()
        of_share = _indptr(chunks)[part_ptr.long()].diff()
        columns = torch.arange(several + 1) * self.tiles // several
        arrays = (
            _indptr(columns.diff().repeat(self.shares)),
            _indptr(_each(counts, several)),
            _indptr(_several(chunks, counts, several)),
            _indptr(_several(length, of_share, several)),
            columns[:-1].repeat(self.shares),
            _several(slot, counts, several),
            _several(start, of_share, several),
        )
        sizes = self.shares * several, self.shares * self.tiles, parts * several, start.numel() * several
        return (*sizes, kernel_map.num_pairs * several), tuple(a.to(index) for a in arrays)


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
        order = order[word[order].argsort(stable=True)]
    return order, sets[order]


def _indptr(lengths: Tensor) -> Tensor:
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))


def _cuts(indptr: Tensor, parts: int) -> Tensor:
    """(parts + 1,) where rows with pairs from ``indptr`` are cut to equal costs, half of which are for the rows."""
    rows = indptr.numel() - 1
    cost = indptr.double() / max(1, int(indptr[-1])) + torch.arange(rows + 1) / max(1, rows)
    cuts = torch.searchsorted(cost, cost[-1] * torch.arange(parts + 1, dtype=torch.float64) / parts)
    cuts[-1] = rows
    return cuts


def _each(a: Tensor, several: int) -> Tensor:
    """Repeat each element ``several`` times."""
    return a.repeat_interleave(several) if several > 1 else a


def _several(a: Tensor, lengths: Tensor, several: int) -> Tensor:
    """Cut ``a`` into stretches of these lengths, and repeat each ``several`` times."""
    if several == 1:
        return a
    return torch.cat([part for part in a.split(lengths.tolist()) for _ in range(several)])
