"""``Segments``: rows that belong to relations, in the order of the relations, and how kernels share them out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..compiler.cache.bounded import KernelCache
from ..formats.counts import prefix_sums
from ..formats.partitions.outer_tasks import OuterTasks, outer_tasks
from ..formats.partitions.row_groups import balanced_row_groups
from ..formats.partitions.row_parts import ceil_div, most_parts, runs, split_rows
from ..formats.structure import check_offsets
from ..planner.cpu.grouped import SUM_BLOCK, chunk_rows, panel_heights, panel_rows, parts
from ..runtime.memory import check_memory
from .build import compress, index_dtype
from .checks import IndexArray, as_index_vector, check_count, check_range
from .derived import Keeper, Keeps, fact


class Segments(Keeps):
    """An immutable assignment of rows to relations: the rows of a relation are neighbours, in order.

    Make one with ``from_lengths``, ``from_offsets`` or ``from_index``, and use it for every product over the same rows:
    rows are then ordered once. The arrays belong to the object and must not be written to.

    Attributes:
        num_rows, num_segments: sizes.
        offsets: (num_segments + 1,) segment s has positions offsets[s] .. offsets[s + 1] - 1.
        order: (num_rows,) the row at each position; None if that is the position itself.
        unsynchronised: whether nothing of the arrays may be read, so that nobody waits for the GPU that they are on
            (``unsynchronised.py``).
        facts: what was derived from them (`derived`). calls: what is ready to run.
    """

    __slots__ = ("calls", "facts", "num_rows", "num_segments", "offsets", "order", "unsynchronised")

    num_rows: int
    num_segments: int
    offsets: Tensor
    order: Tensor | None
    unsynchronised: bool
    facts: dict[Any, Any]
    calls: KernelCache[Any, Any]

    def __init__(self, offsets: Tensor, order: Tensor | None, num_rows: int, unsynchronised: bool = False) -> None:
        """Make segments of arrays that are known to be right, in one index type."""
        self.offsets, self.order, self.num_rows = offsets, order, num_rows
        self.unsynchronised = unsynchronised
        self.num_segments = offsets.numel() - 1
        self.facts, self.calls = {}, KernelCache("calls of segments", MOST_CALLS)

    @property
    def device(self) -> torch.device:
        """Where the arrays are."""
        return self.offsets.device

    @classmethod
    def from_lengths(cls, lengths: IndexArray, num_rows: int | None = None) -> Segments:
        """Segments of these (segments,) lengths, one after the other. Raises ValueError unless they sum to
        ``num_rows``.
        """
        lengths = as_index_vector("lengths", lengths)
        if num_rows is not None:
            num_rows = check_count("num_rows", num_rows)
        if lengths.numel() and int(lengths.min()) < 0:
            at = int((lengths < 0).nonzero()[0])
            raise ValueError(f"lengths must not be negative, but lengths[{at}] = {int(lengths[at])}")
        offsets = prefix_sums(lengths)
        if bool((offsets[1:] < offsets[:-1]).any()):
            raise ValueError(f"lengths must sum to less than 2**63, the largest of them is {int(lengths.max())}")
        total = int(offsets[-1])
        if num_rows is not None and total != num_rows:
            raise ValueError(f"lengths must sum to the number of rows {num_rows}, but they sum to {total}")
        return cls(offsets.to(index_dtype((lengths.numel(), 0), total)), None, total)

    @classmethod
    def from_offsets(cls, offsets: IndexArray, num_rows: int | None = None) -> Segments:
        """Segment s has rows offsets[s] .. offsets[s + 1] - 1: (segments + 1,), from 0 to ``num_rows``, not
        decreasing.
        """
        offsets = as_index_vector("offsets", offsets)
        if num_rows is not None:
            num_rows = check_count("num_rows", num_rows)
        check_segments(offsets, num_rows)
        total = int(offsets[-1])
        return cls(offsets.to(index_dtype((offsets.numel(), 0), total)).contiguous(), None, total)

    @classmethod
    def from_index(cls, index: IndexArray, num_segments: int) -> Segments:
        """Row n belongs to segment index[n]: (rows,), in any order; ordered by a stable sort in linear time."""
        index = as_index_vector("index", index)
        num_segments = check_count("num_segments", num_segments)
        check_range("index", index, num_segments, "segments")
        check_memory("an array of offsets", (num_segments + 1,), 8)
        dtype = index_dtype((num_segments, 0), index.numel())
        return cls(*order_by_segment(index.to(dtype), num_segments), index.numel())

    def to(self, device: torch.device | str | int) -> Segments:
        """These segments on ``device``: themselves if they are there already. From the CPU without waiting for a
        GPU.
        """
        device = torch.empty(0, device=device).device
        if device == self.offsets.device:
            return self
        arrays = (None if x is None else x.to(device, non_blocking=x.is_cpu) for x in (self.offsets, self.order))
        return Segments(*arrays, self.num_rows, self.unsynchronised)

    def rows_of(self, index: Tensor | None) -> Tensor | None:
        """The row at each position, or where ``index`` says which row of another array stands for each: that one."""
        if index is None or self.order is None:
            return self.order if index is None else index
        return index.index_select(0, self.order)

    def panels(self, work: int, threads: int) -> tuple[int, list[Any]]:
        """(rows of a panel, leading arguments of a grouped product of ``work`` multiply-adds a row)."""
        return panels_in(self, parts(self.num_rows * work, threads))

    def panels_apart(self, rows: int) -> list[Any]:
        """Leading arguments of a grouped product in panels of ``rows`` rows, each a group of its own.

        Unsynchronised segments have as many groups as there may be panels; those beyond the last panel are empty.
        """
        return panels_in(self, self.num_rows, rows)[1]

    def units(self, in_features: int, out_features: int, itemsize: int, threads: int) -> list[Any]:
        """Leading arguments of a grouped sum over matrices (in_features, out_features)."""
        groups = parts(self.num_rows * in_features * out_features, threads)
        return units_in(self, groups, _blocks(in_features), chunk_rows(out_features, itemsize))

    def units_apart(self, in_features: int) -> list[Any]:
        """Leading arguments of a grouped sum over matrices with ``in_features`` rows, each block of a matrix a group
        and a unit of its own.
        """
        return blocks_apart(self, _blocks(in_features))

    @fact
    def outer_tasks(self, chunk: int, longest: int) -> OuterTasks:
        """Positions in chunks and tasks of bounded length (``formats.partitions.outer_tasks``)."""
        return outer_tasks(self.offsets, self.num_rows, chunk, longest, self.unsynchronised)

    def keepers(self) -> Iterator[Keeper]:
        """Themselves."""
        yield Keeper("segments", self, (self.offsets, self.order))

    def __repr__(self) -> str:
        order = "stored" if self.order is None else "given"
        return f"Segments({self.num_rows} rows, {self.num_segments} segments, {order} order)"


MOST_CALLS = 64
"""Calls that segments keep ready."""


@fact
def panels_in(segments: Segments, groups: int, rows: int | None = None) -> tuple[int, list[Any]]:
    """(rows of a panel, leading arguments of a grouped product) in ``groups`` groups. rows: None to choose them."""
    lengths = segments.offsets.diff().long()
    if rows is None:
        rows = panel_rows({rows: int(ceil_div(lengths, rows).sum()) for rows in panel_heights()})
    unsynchronised = segments.unsynchronised
    most = most_parts(segments.num_rows, segments.num_segments, rows) if unsynchronised else None
    segment, start, length = split_rows(lengths, rows, most=most)
    count = segment.numel()
    groups = max(1, min(groups, count))
    group_ptr = torch.arange(groups + 1, device=start.device) * count // groups
    if unsynchronised:
        group_ptr = torch.minimum(group_ptr, ceil_div(lengths, rows).sum())
    dtype = index_dtype((count, segments.num_segments), segments.num_rows)
    return rows, [groups, count, *(x.to(dtype) for x in (group_ptr, start, start + length, segment))]


@fact
def units_in(segments: Segments, groups: int, blocks: int, chunk: int) -> list[Any]:
    """Leading arguments of a grouped sum: blocks of matrices, and chunks of rows, in ``groups`` groups."""
    offsets = segments.offsets
    lengths = offsets.diff().long()
    chunks = ceil_div(lengths, chunk)
    # a long segment is shared out by blocks of its matrix, about one part in ``groups`` of all rows each
    sharers = (
        ceil_div(lengths * groups, max(1, segments.num_rows)).clamp(1, blocks)
        if groups > 1
        else torch.ones_like(lengths)
    )
    width = ceil_div(blocks, sharers)
    segment, unit = runs(chunks * blocks)
    # units of one segment go by sharer, then by chunk, then by block
    sharer = unit // (chunks * width).clamp(min=1)[segment]
    first = sharer * width[segment]
    unit = unit - first * chunks[segment]
    own = torch.minimum(width[segment], blocks - first)
    at, block = unit // own, first + unit % own
    start = offsets[segment] + at * chunk
    rows = torch.minimum(offsets[segment + 1] - start, start.new_full((), chunk))
    work_ptr = prefix_sums(rows)
    # units of one sharer add to the same rows of a matrix, so they stay in one group
    begins = torch.cat(
        [segment.new_ones(1, dtype=torch.bool), (segment[1:] != segment[:-1]) | (sharer[1:] != sharer[:-1])]
    )
    task_ptr = torch.cat([begins.nonzero().flatten(), segment.new_full((1,), segment.numel())])
    groups = max(1, min(groups, task_ptr.numel() - 1))
    group_ptr = task_ptr[balanced_row_groups(work_ptr[task_ptr], groups, cost_per_row=SUM_BLOCK)]
    dtype = index_dtype((segment.numel(), segments.num_segments), max(int(work_ptr[-1]), blocks * SUM_BLOCK))
    return [
        groups,
        segment.numel(),
        int(work_ptr[-1]),
        *(x.to(dtype) for x in (group_ptr, work_ptr, start, block * SUM_BLOCK, segment)),
    ]


@fact
def blocks_apart(segments: Segments, blocks: int) -> list[Any]:
    """Leading arguments of a grouped sum, each block of a matrix a group and a unit of its own."""
    offsets = segments.offsets
    count, work = segments.num_segments * blocks, segments.num_rows * blocks
    dtype = index_dtype((count, work), blocks * SUM_BLOCK)
    number = torch.arange(count + 1, device=offsets.device)
    segment, block = number[:-1] // blocks, number[:-1] % blocks
    rows = offsets.diff().long().index_select(0, segment)
    work_ptr = prefix_sums(rows)
    start = offsets.index_select(0, segment)
    return [count, count, work, *(x.to(dtype) for x in (number, work_ptr, start, block * SUM_BLOCK, segment))]


def check_segments(offsets: Tensor, num_rows: int | None) -> None:
    """``offsets`` goes from 0 to ``num_rows`` and does not decrease."""
    if not offsets.numel():
        raise ValueError("offsets must have segments + 1 entries, got none")
    check_offsets("offsets", offsets, num_rows, "rows")


def order_by_segment(index: Tensor, num_segments: int) -> tuple[Tensor, Tensor | None]:
    """(offsets, order) of rows that belong to segments ``index``; order is None where they are in order already."""
    if index.numel() == 0 or bool((index[1:] >= index[:-1]).all()):
        return compress(index, num_segments), None
    in_order, order = torch.sort(index, stable=True)
    return compress(in_order, num_segments), order.to(index.dtype)


def _blocks(in_features: int) -> int:
    """Blocks of rows that a sum adds to, of a matrix with ``in_features`` rows."""
    return -(-in_features // min(SUM_BLOCK, in_features))
