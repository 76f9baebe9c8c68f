"""Positions by segment, in chunks that are loaded together and tasks of bounded length."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .row_parts import split_rows
from .structure import index_type


@dataclass(frozen=True, eq=False)
class OuterTasks:
    """Tasks of one segment each, chunks of a task, positions of a chunk; all in order.

    task_ptr: (tasks + 1,) chunks of each task. start, stop: (chunks,) positions start .. stop - 1 of each chunk.
    slot: (tasks,) where the result of a task goes: to its segment where no segment has several tasks, else to a place of
    its own. segment_ptr: then (segments + 1,) the tasks of each segment, whose results are to be added up; else None.
    """

    task_ptr: Tensor
    start: Tensor
    stop: Tensor
    slot: Tensor
    segment_ptr: Tensor | None

    @property
    def tasks(self) -> int:
        return self.slot.numel()

    @property
    def chunks(self) -> int:
        return self.start.numel()

    def rows_of_parts(self, rows: int) -> tuple[Tensor, Tensor]:
        """(indptr, indices) of the sums of results, row by row: row s * rows + i of the sums is that of rows t * rows + i for
        all tasks t of segment s. rows: of a result."""
        counts = self.segment_ptr.diff().long()
        device = counts.device
        each = counts.repeat_interleave(rows)
        indptr = torch.cat([each.new_zeros(1), each.cumsum(0)])
        row = torch.repeat_interleave(each)
        segment = torch.div(row, rows, rounding_mode="floor")
        within = torch.arange(row.numel(), device=device) - indptr[row]
        indices = (self.segment_ptr.long()[segment] + within) * rows + row % rows
        dtype = index_type(self.slot.dtype, self.tasks * rows, counts.numel() * rows)
        return indptr.to(dtype), indices.to(dtype)


def outer_tasks(offsets: Tensor, chunk: int, longest: int) -> OuterTasks:
    """The tasks of segments with positions offsets[s] .. offsets[s + 1] - 1, (segments + 1,) from 0, int32 or int64.

    chunk: positions of a chunk at most. longest: of a task, in whole chunks; at least one. Waits for the device as often as
    sizes have to be known.
    """
    lengths = offsets.diff().long()
    _, start, length = split_rows(lengths, chunk)
    chunks = torch.div(lengths + (chunk - 1), chunk, rounding_mode="floor")
    segment, first, _ = split_rows(chunks, max(1, longest // chunk))
    task_ptr = torch.cat([first, first.new_full((1,), start.numel())])
    slot, segment_ptr = segment, None
    if bool((segment[1:] == segment[:-1]).any()):
        slot = torch.arange(segment.numel(), device=segment.device)
        segment_ptr = torch.searchsorted(segment, torch.arange(lengths.numel() + 1, device=segment.device))
    arrays = (task_ptr, start, start + length, slot, segment_ptr)
    return OuterTasks(*(None if a is None else a.to(offsets.dtype) for a in arrays))


__all__ = ["OuterTasks", "outer_tasks"]
