"""Aggregations on a GPU over rows in buckets of equal length: hyb(c, k) (Ye et al., SparseTIR, section 4.2.1).

All buckets are one launch. Where no row is in two of them, as without column partitions and with no row longer than the
widest bucket, its results are the rows'. Elsewhere they are those of parts of rows, and a second pass adds up the parts
of each row in the order of its buckets: nothing is added atomically, and results are the same bits at every run.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import ClassVar

import torch
from torch import Tensor

from ....compiler.cache.kernel import Kernel, constant_argument
from ....formats.hyb import HybFormat
from ....frozen import dataclass
from ....planner.cuda.buckets import BucketPlan, bucket_widths
from ....planner.cuda.rows import TeamPlan
from ....structures.derived import fact
from ....structures.pieces import Piece
from ...core.arguments import kernel_arguments, operand_arguments
from ...core.executable import builds
from ...core.last_run import note
from ..programs.aggregate import AggregateSpec
from ..schedules_cuda import aggregate_kernel, bucket_kernel
from .aggregation import at_parts, refuses_sums
from .parts_cuda import OnTeams


@dataclass(frozen=True, eq=False)
class Buckets:
    """The rows of a graph in buckets, the widest first.

    counts: rows of each. indices, positions: (count * width,) columns and CSR positions, -1 at slots that hold no edge.
        rows: (count,) what a bucket row's result is stored at: its row, or its part where there are ``sums``.
    row_of_part: (parts,). sums: (rows, parts), which adds the parts of a row up; both None where every row is in one
    bucket or none.
    """

    shape: tuple[int, int]
    counts: tuple[int, ...]
    indices: tuple[Tensor, ...]
    positions: tuple[Tensor, ...]
    rows: tuple[Tensor, ...]
    row_of_part: Tensor | None
    sums: Piece | None
    given: dict = field(default_factory=dict)

    def arguments(self, numbers: Tensor | None) -> tuple[list, list]:
        """What a kernel is given of all buckets: the columns of each; the rows of each, and after those of a bucket
        (count * width,) the entries of ``numbers``, one for each CSR position, -1 at slots that hold no edge. Converted
        once: there are some thirty.
        """
        found = self.given.get(numbers is None)
        if found is None or found[0] is not numbers:
            by_bucket = [[rows] for rows in self.rows]
            if numbers is not None:
                for own, at in zip(by_bucket, self.positions):
                    own.append(numbers.index_select(0, at.clamp(min=0)).masked_fill_(at < 0, -1))
            of_rows = [constant_argument(array) for own in by_bucket for array in own]
            found = self.given[numbers is None] = numbers, ([constant_argument(x) for x in self.indices], of_rows)
        return found[1]


@fact
def row_buckets(graph, widest: int, partitions: int) -> Buckets:
    """The rows of a graph in buckets; it waits once for the GPU, for their sizes."""
    rows, cols = graph.shape
    hyb = HybFormat.from_csr(
        graph.indptr, graph.indices, graph.shape, partitions, widest.bit_length() - 1, keep_empty=True, check=False
    )
    dtype = graph.indices.dtype
    of_width: dict[int, list] = {width: [] for width in bucket_widths(widest)}
    for bucket in hyb.buckets:
        of_width[bucket.width].append(bucket)

    def joined(name: str) -> list[Tensor]:
        return [
            torch.cat([getattr(bucket, name).flatten() for bucket in pieces]).to(dtype) for pieces in of_width.values()
        ]

    indices, positions, at = joined("indices"), joined("value_position"), joined("row_indices")
    counts = [x.numel() for x in at]
    row_of_part = sums = None
    if not hyb.disjoint:
        row_of_part, order = torch.sort(torch.cat(at), stable=True)
        numbers = torch.arange(order.numel(), dtype=dtype, device=order.device)
        first = torch.searchsorted(row_of_part, torch.arange(rows + 1, dtype=dtype, device=order.device)).to(dtype)
        at = torch.empty_like(numbers).index_copy_(0, order, numbers).split(counts)
        sums = Piece((rows, order.numel()), first, numbers, None)
    return Buckets((rows, cols), *(tuple(x) for x in (counts, indices, positions, at)), row_of_part, sums)


@builds(AggregateSpec, BucketPlan)
class TeamsOfBuckets(OnTeams):
    """Over rows in buckets. Kernels are made when a graph wants them."""

    variants: ClassVar = {
        "rows": "where every row is in one bucket",
        "parts of rows": "where one is in several, whose results are added up",
    }
    refuses = staticmethod(refuses_sums)

    def __init__(self, spec: AggregateSpec, plan: BucketPlan):
        numbered = any(operand.at in ("edge", "number") for operand in spec.operands)
        super().__init__(replace(spec, numbered=numbered), plan)
        self.parts, self.sums = self.spec.in_parts()
        self.kept = getattr(torch, self.parts.dtype)

    def __call__(self, graph, operands: list[Tensor | None], results: list[Tensor]) -> None:
        (out,), plan = results, self.plan
        buckets, degrees = row_buckets(graph, plan.widest, plan.partitions), self.degrees(graph)
        if buckets.sums is None:
            note(self, "rows")
            out.zero_()  # a row without edges is in no bucket
            kernel = self.kernel("rows", lambda: bucket_kernel(self.spec, plan))
            self._run(kernel, graph, buckets, degrees, operands, out)
            return
        note(self, "parts of rows")
        of_parts = at_parts(self.places, operands, buckets.row_of_part)
        sums = out.new_empty((buckets.row_of_part.numel(), out.shape[1]), dtype=self.kept)
        self._run(self.kernel("parts", lambda: bucket_kernel(self.parts, plan)), graph, buckets, (), of_parts, sums)
        self.kernel("sums", lambda: aggregate_kernel(self.sums, TeamPlan(plan.arch))).entry(
            *kernel_arguments(buckets.sums, 1, ("column",), [out.shape[1]], [sums], None, plan.balance, degrees), out
        )

    def _run(self, kernel: Kernel, graph, buckets: Buckets, degrees, operands, result: Tensor) -> None:
        """Fill ``result``, of rows or of parts of rows."""
        edges = [x.shape[0] for x, place in zip(operands, self.places) if place == "edge"][:1]
        columns, rows = buckets.arguments(graph.edge_numbers if self.spec.numbered else None)
        sizes = result.shape[0], buckets.shape[1], *edges, *buckets.counts
        given = operand_arguments(self.places, self.widths, operands, True)
        kernel.entry(*sizes, *columns, *degrees, *given, result, *rows)
