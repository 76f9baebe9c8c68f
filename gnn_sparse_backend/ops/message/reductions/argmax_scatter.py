"""Gradients of maxima and minima that copy: what the result's numbers were taken from is known, and gets their shares.

On dense graphs this is less work than a pass over all edges that asks each whether it was chosen.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....compiler.cache.bounded import kept
from ....formats.structure import positions_of_rows, row_of_position
from ....planner.cpu.rows import RowPlan
from ....planner.cpu.spmm import serial_work
from ....runtime import devices
from ....runtime.memory import empty
from ....runtime.threads import planned_threads
from ....runtime.type_names import accumulator_of, type_name
from ...core.executable import Launch
from ...core.operands import check_dense
from ...core.operator import Operator
from ...core.traced import Traced
from ...core.transforms import differentiated_again
from ..message_op import MessageOp
from ..programs.aggregate import SEVERAL
from ..programs.message import arg
from ..schedules_cpu import choices_kernel

# Edges for each row from which it pays, and with a few features: whoever chose is then found in one line.
PAYS, NARROW_PAYS, NARROW = 16, 4, 4
# Edges that rows with several equal messages may have, as a part of all edges times features: each costs as much as
# some hundred in a pass over all of them.
FEW_TIES = 256


def kept_choice(form: MessageOp, graph, operands) -> str | None:
    """What an aggregation keeps of the chosen edges for its gradient: as in ``AggregateSpec``, or None for nothing."""
    if form.ties is None:
        return None
    copies = form.message == arg(0) and form.places == ("column",)
    pays = copies and devices.on_cpu(graph.device) and graph.num_edges >= _least(operands[0]) * graph.shape[0]
    if not form.shares:
        return "column" if pays else "number"
    if graph.listed is not None:  # where ties are, rows tell
        return None
    # among numbers of eight bits or eleven some are nearly always equal; `even_gradient` knows shares that add up
    known = form.ties != "even_if_positive" and operands[0].dtype in (torch.float32, torch.float64)
    return "unique" if pays and known else None


def _least(x: Tensor) -> int:
    return NARROW_PAYS if x[:1].numel() <= NARROW else PAYS


def copied_gradient(columns: Tensor, grad: Tensor, rows: int) -> Tensor:
    """(rows, ...): each number of ``grad``, (m, ...), added to the row that ``columns``, alike, has for it; none if
    that is negative.
    """
    return ARGMAX_SCATTER(None, (columns, grad), (rows,))


def _taken(nothing, attributes, saved, memo, needed, cotangent: Tensor) -> list[Tensor | None]:
    (columns,) = saved
    taken = cotangent.gather(0, columns.clamp(min=0).long())
    return [None, taken.masked_fill(columns < 0, 0)]


def _check(nothing, operands, attributes):
    columns, grad = operands
    check_dense("argmax_scatter", "grad", grad)
    if columns.shape != grad.shape or columns.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            f"argmax_scatter: columns {tuple(columns.shape)} of {columns.dtype} do not go with grad "
            f"{tuple(grad.shape)} of {grad.dtype}"
        )
    if columns.numel() and int(columns.max()) >= attributes[0]:
        raise ValueError(f"argmax_scatter: column {int(columns.max())} is none of {attributes[0]} rows of the result")
    return operands


ARGMAX_SCATTER = Operator(
    "argmax_scatter",
    lambda nothing, operands, attributes: _add(*operands, *attributes),
    _taken,
    operands="Tensor columns, Tensor grad",
    attributes="SymInt rows",
    like=lambda arguments, operands, attributes, transposed: operands[1].new_empty(
        (attributes[0], *operands[1].shape[1:])
    ),
    check=_check,
    saved=lambda attributes, operands, result: (operands[:1], None),
)
"""What flows back through a choice. Operands: (chosen columns, negative for none, the cotangent). Attributes: (rows of
the result,).
"""


@kept
def _launch(features: int, dtype: str, index_dtype: str, plan: RowPlan) -> Launch:
    """What adds up choices. dtype, index_dtype: of the cotangent and of the columns."""
    return Launch(choices_kernel(features, dtype, index_dtype, plan.groups > 1), plan)


def _add(columns: Tensor, grad: Tensor, rows: int) -> Tensor:
    count = columns.shape[0]
    features = columns[:1].numel()
    out = empty(grad, rows, *columns.shape[1:], dtype=accumulator_of(grad.dtype)).zero_()
    if columns.numel() and rows:
        plan = RowPlan(planned_threads() if columns.numel() >= serial_work() else 1)
        of_rows = columns.reshape(count, features), grad.contiguous().view(count, features)
        launch = _launch(features, type_name(grad.dtype), type_name(columns.dtype), plan)
        launch(count, rows, *of_rows, out.view(rows, features))
    return out.to(grad.dtype)


def even_gradient(of: MessageOp, graph, columns: Tensor, x: Tensor, result: Tensor, grad: Tensor) -> Tensor | None:
    """The gradient of x where equal messages share it; None if there are so many that a pass over all edges is faster.

    columns: what the aggregation kept, ``unique``.
    """
    if not columns.numel():
        return x.new_zeros(x.shape)
    if isinstance(graph, Traced):  # whose degrees nobody can read
        return None
    of_rows = columns.flatten(1) if columns.dim() > 1 else columns.unsqueeze(1)
    rows = (of_rows.amin(1) == SEVERAL).nonzero().flatten()
    among, feature = (of_rows[rows] == SEVERAL).nonzero(as_tuple=True)
    row = rows[among]
    if int(graph.in_degrees[row].sum()) * FEW_TIES > graph.num_edges * of_rows.shape[1]:
        return None
    halved = torch.where(result == 0, grad / 2, grad) if of.ties == "even_with_zero" else grad
    out = copied_gradient(columns, halved, graph.shape[1])
    return _with_shares(of, out, graph, row, feature, x, result, grad) if row.numel() else out


def _with_shares(
    of: MessageOp, out: Tensor, graph, row: Tensor, feature: Tensor, x: Tensor, result: Tensor, grad: Tensor
) -> Tensor:
    """``out`` with what the numbers at (row, feature) of the result send back, a share to each message that equals
    them.
    """
    x, result, grad = (t.reshape(t.shape[0], -1) for t in (x, result, grad))
    taken, position = positions_of_rows(graph.indptr.long(), row)
    number = row_of_position(taken, position.numel())
    column, feature_of = graph.indices[position].long(), feature[number]
    equal = (x.detach()[column, feature_of] == result.detach()[row, feature][number]).double()
    nobody = (result[row, feature] == 0) & (of.ties == "even_with_zero")
    count = nobody.double().index_add(0, number, equal)
    share = (grad[row, feature].double() / count)[number] * equal
    # an edge may be there many times: equal shares are rounded alike, so they are added up before they are rounded
    place, which = torch.unique(column * x.shape[1] + feature_of, return_inverse=True)
    sums = share.new_zeros(place.numel()).index_add(0, which, share).to(out.dtype)
    put = torch.index_put if differentiated_again() else torch.index_put_
    return put(out.view(-1), (place,), sums, accumulate=True).view(out.shape)
