"""What ``precompile`` knows of groups: products by the matrix of each row's segment, and reductions of its rows."""

from __future__ import annotations

import torch

from ...compiler.language.reduction import REDUCTIONS
from ...compiler.own_schedules import describes
from ...structures.segments import Segments
from ..core.prepared import Kind, Prepared, Width, pair, prepares, structures
from ..message.operators import AGGREGATE
from .api import gather_mm, segment_mm
from .operators import GROUPED_MM
from .programs.grouped import GroupedSpec
from .segment_reduce import segment_reduce

structures(
    Kind(
        Segments,
        "a gsb.Segments",
        lambda segments: segments.num_rows,
        lambda segments: f"{segments.num_rows:,} rows in {segments.num_segments:,} segments",
        "segment_mm",
    )
)
_MATRICES = ("F_in", "F_out"), "F for both"
_PRODUCTS = "segment_mm", "gather_mm"


def _shapes(segments: Segments, width: Width) -> list[tuple[int, ...]]:
    f_in, f_out = pair(width)
    return [(segments.num_rows, f_in), (segments.num_segments, f_in, f_out)]


def _gathered(segments: Segments, a, b):
    # with the rows of a in their order, and in another one
    index = torch.arange(segments.num_rows - 1, -1, -1, device=a.device)
    return gather_mm(a, b, segments) + gather_mm(a, b, segments, index)


prepares(
    Prepared(
        "segment_mm",
        GROUPED_MM,
        Segments,
        *_MATRICES,
        _shapes,
        lambda s, a, b: segment_mm(a, b, s),
        scheduled=_PRODUCTS,
    ),
    Prepared("gather_mm", GROUPED_MM, Segments, *_MATRICES, _shapes, _gathered, scheduled=_PRODUCTS),
    *(
        Prepared(
            f"segment_{reduce}",
            AGGREGATE,
            Segments,
            ("F",),
            "",
            lambda s, f: [(s.num_rows, f)],
            lambda s, x, reduce=reduce: segment_reduce(x, s, reduce),
            scheduled=("aggregate",),
        )
        for reduce in REDUCTIONS
    ),
)


@describes(GroupedSpec, *_PRODUCTS)
def _grouped(spec: GroupedSpec) -> tuple[tuple[str, ...], str, tuple[int, int], str]:
    return _PRODUCTS, spec.dtype, (spec.in_features, spec.out_features), "sum"
