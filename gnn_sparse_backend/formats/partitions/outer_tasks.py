"""Positions by segment, in chunks that are loaded together and tasks of bounded length."""

from __future__ import annotations

import torch
from torch import Tensor

from ...frozen import dataclass
from ..counts import prefix_sums
from ..structure import index_type
from .row_parts import ceil_div, most_parts, runs, split_rows


@dataclass(frozen=True, eq=False)
class OuterTasks:
    """Tasks of one segment each, chunks of a task, positions of a chunk; all in order.

    task_ptr: (tasks + 1,) chunks of each task. start, stop: (chunks,) positions start .. stop - 1 of each chunk; chunks
    beyond the last of the last task have none. slot: (tasks,) where the result of a task goes: to its own place, which
    is its segment where each has one task. segment_ptr: else (segments + 1,) the tasks of each segment, whose results
    are to be added up; None otherwise. A segment has a task at least, which may have no chunk. Tasks beyond the last of
    the last segment have none.
    most: tasks of a segment at most.
    """

    task_ptr: Tensor
    start: Tensor
    stop: Tensor
    slot: Tensor
    segment_ptr: Tensor | None
    most: int

    @property
    def tasks(self) -> int:
        return self.slot.numel()

    @property
    def chunks(self) -> int:
        return self.start.numel()

    def rows_of_parts(self, rows: int) -> tuple[Tensor, Tensor]:
        """(indptr, indices) of the sums of results, row by row: row s * rows + i of the sums is that of rows t * rows +
        i for all tasks t of segment s. rows: of a result. Indices are one for each row of each task; those of tasks of
        no segment come last."""
        counts = self.segment_ptr.diff().long()
        each = counts.repeat_interleave(rows)
        indptr = prefix_sums(each)
        row, within = runs(each, most=self.tasks * rows)
        segment = row // rows
        task = (self.segment_ptr.long().index_select(0, segment) + within).clamp_(max=self.tasks - 1)
        dtype = index_type(self.slot.dtype, self.tasks * rows, counts.numel() * rows)
        return indptr.to(dtype), (task * rows + row % rows).to(dtype)


def outer_tasks(offsets: Tensor, positions: int, chunk: int, longest: int, unread: bool = False) -> OuterTasks:
    """The tasks of segments with positions offsets[s] .. offsets[s + 1] - 1, (segments + 1,) from 0, int32 or int64.

    positions: of all segments together, or more. chunk: positions of a chunk at most. longest: of a task, in whole
    chunks; at least one. unread: nothing is read; there are then as many tasks as sizes allow at most. Otherwise a GPU
    is waited for once.
    """
    lengths = offsets.diff().long()
    segments, of_task = lengths.numel(), max(1, longest // chunk)
    _, start, length = split_rows(lengths, chunk, most=most_parts(positions, segments, chunk))
    chunks = ceil_div(lengths, chunk)
    ends = chunks.cumsum(0)
    counts = ceil_div(chunks, of_task).clamp_(min=1)
    # a segment of n positions has 1 + n // longest tasks at most
    tasks = segments + positions // (of_task * chunk) if unread else int(counts.sum())
    segment, place = runs(counts, most=tasks)
    first = torch.minimum((ends - chunks).index_select(0, segment) + place * of_task, ends.index_select(0, segment))
    task_ptr = torch.cat([first, ends[-1:]])
    segment_ptr = None if tasks == segments else prefix_sums(counts)
    slot = torch.arange(tasks, device=offsets.device)
    arrays = (task_ptr, start, start + length, slot, segment_ptr)
    return OuterTasks(*(None if a is None else a.to(offsets.dtype) for a in arrays), 1 + positions // (of_task * chunk))
