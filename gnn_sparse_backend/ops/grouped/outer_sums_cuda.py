"""Sums of outer products by blocks of warps on a GPU: forward only, operands already validated.

Tasks of bounded length, whose partial results a second pass adds up in their order: the same bits at every run.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...formats.partitions.outer_tasks import OuterTasks
from ...runtime.precision import on_tensor_cores
from ...runtime.type_names import type_name
from ...structures.derived import fact
from ...structures.graph import Graph
from ...structures.segments import Segments
from ..message.calls import run_aggregate
from ..message.message_op import SUM_OF_COLUMNS
from .programs.outer_tiles import chunk_of
from .schedules_cuda import sum_length, sums_in_tiles


def takes_sum(in_features: int, out_features: int, dtype: torch.dtype, arch: str) -> bool:
    """Whether the sum of such outer products goes to blocks of warps, on Tensor Cores or in full precision."""
    return sums_in_tiles(in_features, out_features, type_name(dtype), arch, not on_tensor_cores(dtype))


@fact
def rows_of_tasks(segments: Segments, chunk: int, longest: int, rows: int) -> Graph:
    """(segments * rows, tasks * rows): which row of which task's result adds to which row of a segment's."""
    tasks = segments.outer_tasks(chunk, longest)
    indptr, indices = tasks.rows_of_parts(rows)
    shape = segments.num_segments * rows, tasks.tasks * rows
    if segments.unsynchronised:
        return Graph._unsynchronised(indptr, indices, None, shape, tasks.most)
    return Graph.from_csr(indptr, indices, shape, trusted=True)


class OuterSums:
    """The tasks of a sum over segments, which it does not hold, and where their results go. blocks: on the diagonal of
    a result, of F_in x F_out each. full: whether float32 is multiplied in full precision. sizes: what kernels begin
    with.
    """

    def __init__(
        self,
        segments: Segments,
        in_features: int,
        out_features: int,
        dtype: torch.dtype,
        left: int = 1,
        blocks: int = 1,
    ):
        self.shape = (segments.num_segments, blocks * in_features, out_features)
        name, self.full = type_name(dtype), not on_tensor_cores(dtype)
        self.key = (
            chunk_of(name),
            sum_length(segments.num_rows, in_features, out_features, name, left, blocks, self.full),
        )
        self.tasks: OuterTasks = segments.outer_tasks(*self.key)
        self.sizes = self.tasks.tasks, self.tasks.chunks, self.tasks.tasks

    def results(self, device: torch.device) -> Tensor:
        """(tasks, blocks * F_in, F_out) float32 for what the kernel leaves."""
        return torch.empty((self.tasks.tasks, *self.shape[1:]), dtype=torch.float32, device=device)

    def total(self, segments: Segments, results: Tensor) -> Tensor:
        """(segments, blocks * F_in, F_out): the results of each segment added up."""
        if self.tasks.segment_ptr is None:
            return results
        graph = rows_of_tasks(segments, *self.key, self.shape[1])
        return run_aggregate(SUM_OF_COLUMNS, graph, [results.flatten(0, 1)]).view(self.shape)
