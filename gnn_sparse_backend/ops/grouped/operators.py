"""Grouped products and sums as operators.

With at[n] the row of ``a`` that stands for row n (n itself where there is no index), the two are closed under
differentiation::

    mm(a, w, at)       out[n] = a[at[n]] w[r(n)]                      grad_a = at^T mm(g, w^T)   grad_w = sum(a, g, at)
    sum(a, g, at)      out[r] = sum over n in r of a[at[n]]^T g[n]    grad_a = at^T mm(g, h^T)   grad_g = mm(a, h, at)

In ``torch.library`` there is no ``at``, and

    gsb::order_by_segment   (offsets, order) of rows that belong to segments ``index``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...deferred import later
from ...runtime import devices
from ...structures.build import index_dtype
from ...structures.checks import check_range, plain_tensor
from ...structures.segment_rows import rows_graph
from ...structures.segments import Segments, check_segments
from ...structures.unsynchronised import order_in_range, segments_of_index, segments_of_offsets
from ..core.operands import check_dense
from ..core.operator import Operator, gradients_of
from ..core.traced import StructureKind, Traced
from ..message.message_op import message_op
from ..message.operators import AGGREGATE

if TYPE_CHECKING:
    from . import executables
else:
    executables = later(__name__, ".executables")


_ROWS = message_op("x0", ("edge",), "sum")


def grouped_mm(structure, a: Tensor, b: Tensor, at: Tensor | None = None) -> Tensor:
    """The product of operands that passed the checks."""
    return GROUPED_MM(structure, (a, b, at))


def grouped_sum(structure, a: Tensor, g: Tensor, at: Tensor | None = None) -> Tensor:
    """The sum of outer products over each segment, of operands that passed the checks."""
    return GROUPED_SUM(structure, (a, g, at))


def _order(nothing, operands, attributes) -> tuple[Tensor, Tensor]:
    (index,), (count,) = operands, attributes
    segments = segments_of_index(index, count, index.device)
    order = torch.arange(index.numel(), device=index.device) if segments.order is None else segments.order.long()
    return segments.offsets.long(), order


def _segments(arguments: tuple, operands) -> Segments:
    """Segments of the rows of the first operand, from (offsets, order)."""
    offsets, order = (x if x is None else plain_tensor(x) for x in arguments)
    rows = operands[0].shape[:1].numel()
    if order is not None and order.numel() != rows:
        raise ValueError(f"order must name each of {rows} rows, got {order.numel()}")
    if not devices.on_cpu(offsets.device):
        found = segments_of_offsets(offsets, rows, offsets.device)
        if order is None:
            return found
        return Segments(found.offsets, order_in_range(order).to(found.offsets.dtype), rows, unsynchronised=True)
    if order is None:
        return Segments.from_offsets(offsets, rows)
    check_segments(offsets, rows)
    check_range("order", order, rows, "rows")
    if bool((torch.bincount(order, minlength=rows) != 1).any()):
        raise ValueError("order must name every row once")
    dtype = index_dtype((offsets.numel(), 0), rows)
    return Segments(offsets.to(dtype), order.to(dtype), rows)


def traced_segments(segments: Segments) -> Traced:
    """What stands for segments."""
    return Traced((segments.offsets, segments.order))


SEGMENTS = StructureKind(("Tensor offsets", "Tensor? order"), traced_segments, _segments, last=True)


def _check_product(segments: Segments, operands, attributes):
    a, b, _ = operands
    check_dense("grouped_mm", "a", a)
    if a.dim() != 2 or b.dim() != 3 or a.shape[1] != b.shape[1] or a.dtype != b.dtype:
        raise ValueError(
            f"grouped_mm: a {tuple(a.shape)} of {a.dtype} does not go with b {tuple(b.shape)} of {b.dtype}"
        )
    if segments.num_segments != b.shape[0]:
        raise ValueError(
            f"grouped_mm: {b.shape[0]} matrices want {b.shape[0] + 1} offsets, got {segments.num_segments + 1}"
        )
    return operands


def _check_sum(segments: Segments, operands, attributes):
    a, g, _ = operands
    check_dense("grouped_sum", "a", a)
    if a.dim() != 2 or g.dim() != 2 or a.shape[0] != g.shape[0] or a.dtype != g.dtype:
        raise ValueError(
            f"grouped_sum: a {tuple(a.shape)} of {a.dtype} does not go with g {tuple(g.shape)} of {g.dtype}"
        )
    return operands


def _record(run):
    def record(segments, operands, attributes, needed):
        a, other, at = operands
        saved = a if needed[1] else None, other if needed[0] else None, at
        return run(segments, a, other, at), saved, a.shape[0]

    return record


_BY = {
    "a": lambda on, a, b, g, i, rows: _back_to_rows(grouped_mm(on, g, b.transpose(1, 2)), i, rows),
    "b": lambda on, a, b, g, i, rows: grouped_sum(on, a, g, i),
    "g": lambda on, a, b, g, i, rows: grouped_mm(on, a, b, i),
}
"""The sum over n of <a[i[n]] b[r(n)], g[n]>, of as many ``rows`` of a, differentiated by each of its operands."""


def _gradients(operands: str, by: str):
    return gradients_of(_BY, operands, by, lambda attributes, rows: {"rows": rows})


def _in_order(a: Tensor | None, other: Tensor | None, at: Tensor | None) -> list[Tensor | None]:
    """Operands, or gradients of them, without an index."""
    return [a if at is None or a is None else a.index_select(0, at), other]


def _back_to_rows(x: Tensor, at: Tensor | None, rows: int) -> Tensor:
    """``out[i] = sum of x[n] over all n with at[n] = i``, where one row of the operand stands for several."""
    if at is None:
        return x
    return AGGREGATE(rows_graph(segments_of_index(at, rows, at.device)), (x,), (_ROWS,))


_GROUPED = {
    "structure": SEGMENTS,
    # the rows of ``a`` have no index there
    "given": lambda attributes, tensors: [*tensors, None],
    "sent": lambda attributes, operands: _in_order(*operands),
}
GROUPED_MM = Operator(
    "grouped_mm",
    lambda segments, operands, attributes: executables.run_grouped_mm(segments, *operands),
    _gradients("abi", "g"),
    _record(lambda *given: executables.run_grouped_mm(*given)),
    operands="Tensor a, Tensor b",
    like=lambda arguments, operands, attributes, transposed: operands[0].new_empty(
        (operands[0].shape[0], operands[1].shape[2])
    ),
    check=_check_product,
    **_GROUPED,
)
"""Operands: (a, the matrices, at or None)."""
GROUPED_SUM = Operator(
    "grouped_sum",
    lambda segments, operands, attributes: executables.run_grouped_sum(segments, *operands),
    _gradients("agi", "b"),
    _record(lambda *given: executables.run_grouped_sum(*given)),
    operands="Tensor a, Tensor g",
    like=lambda arguments, operands, attributes, transposed: operands[0].new_empty(
        (arguments[0].shape[0] - 1, operands[0].shape[1], operands[1].shape[1])
    ),
    check=_check_sum,
    **_GROUPED,
)
"""Operands: (a, g, at or None)."""
ORDER_BY_SEGMENT = Operator(
    "order_by_segment",
    _order,
    operands="Tensor index",
    attributes="SymInt num_segments",
    results="(Tensor, Tensor)",
    like=lambda arguments, operands, attributes, transposed: (
        operands[0].new_empty(attributes[0] + 1, dtype=torch.int64),
        operands[0].new_empty(operands[0].shape, dtype=torch.int64),
    ),
)
"""Attributes: (number of segments,)."""
