"""Aggregations of few features on a GPU over chunks of 32 non-zeros, each a warp's work, whatever rows they belong to.

The program is that of rows in groups: a row is a piece of a row, a group a chunk. Its schedule adds a chunk up by one
segmented scan (`compiler.schedules.primitives.cuda.segments`). A second pass adds up the pieces of each row: nothing
is added atomically, and results are the same bits at every run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ....compiler.cache.kernel import Kernel
from ....formats.partitions.chunks import chunk_rows
from ....frozen import dataclass
from ....planner.cuda.chunks import ChunkPlan
from ....planner.cuda.plan import WARP
from ....structures.derived import fact
from ....structures.pieces import Piece
from ...core.arguments import structured_arguments
from ...core.executable import build, builds
from ...core.last_run import note
from ..programs.aggregate import AggregateSpec
from ..schedules_cuda import segment_kernel
from .aggregation import at_parts, refuses_sums
from .parts_cuda import OnTeams


@dataclass(frozen=True, eq=False)
class Segments:
    """The rows of a graph, cut where chunks end (`formats.partitions.chunks`).

    chunk_ptr: (chunks + 1,). starts: (pieces + 1,). row_of_piece: (pieces,). sums: (rows, pieces), which adds the
        pieces of a row up.
    """

    chunk_ptr: Tensor
    starts: Tensor
    row_of_piece: Tensor
    sums: Piece


@fact
def warp_chunks(graph) -> Segments:
    """The rows of a graph, cut where chunks end; it waits once for the GPU, for the number of pieces."""
    rows = graph.shape[0]
    chunk_ptr, starts, row_of_piece = chunk_rows(graph.indptr, graph.num_edges, WARP)
    numbers = torch.arange(rows + 1, dtype=starts.dtype, device=starts.device)
    first = torch.searchsorted(row_of_piece, numbers).to(starts.dtype)
    order = torch.arange(row_of_piece.numel(), dtype=starts.dtype, device=starts.device)
    return Segments(chunk_ptr, starts, row_of_piece, Piece((rows, order.numel()), first, order, None))


@builds(AggregateSpec, ChunkPlan)
class TeamsOfChunks(OnTeams):
    """Over pieces of rows, whose results are kept in the type of sums, and then added up."""

    refuses = staticmethod(refuses_sums)

    def __init__(self, spec: AggregateSpec, plan: ChunkPlan):
        super().__init__(spec, plan)
        first, second = self.spec.in_parts()
        self.kept = getattr(torch, first.dtype)
        self._kernels["chunks"] = segment_kernel(first, plan.arch)
        self.second: Any = build(second, plan.rest)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return super().kernels + self.second.kernels

    def __call__(self, graph, operands: list[Tensor | None], results: list[Tensor]) -> None:
        (out,) = results
        segments = warp_chunks(graph)
        pieces, features = segments.row_of_piece.numel(), out.shape[1]
        sums = out.new_empty((pieces, features), dtype=self.kept)
        of_pieces = at_parts(self.places, operands, segments.row_of_piece)
        sizes = segments.chunk_ptr.numel() - 1, pieces, graph.shape[1], graph.num_edges
        arrays = segments.chunk_ptr, segments.starts, graph.indices
        note(self, "")
        self._kernels["chunks"].entry(
            *structured_arguments(sizes, arrays, self.places, self.widths, of_pieces, self.numbers(graph), True), sums
        )
        self.second.run(segments.sums, [sums], results, None, self.degrees(graph))
