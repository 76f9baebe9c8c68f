"""Products of all messages of a row but one, without division: what the gradient of a product is made of.

The product of the others is that of the messages before times that of those behind (exclusive scans; Blelloch, 1990,
section 1.4). Either is a linear recurrence along the row, and so is what flows back through it, in the opposite
direction, so that gradients of any order are recurrences again: nothing is divided, and zeros are numbers like others.

    gsb::recurrence   out[e] = y, then y = factor[e] * y + added[e]; from the last edge of a row on where ``reversed``
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from ....compiler.cache.bounded import kept
from ....compiler.codegen import host_target
from ....compiler.language.types import BYTES
from ....compiler.schedules.cpu import cpu_schedule
from ....compiler.transforms.dense_axes.tile import tile_axis
from ....formats.structure import row_of_position
from ....planner.cpu.rows import RowPlan
from ....planner.cpu.spmm import group_count
from ....planner.cpu.tiling import register_tiles
from ....planner.plan import Plan
from ....runtime import devices
from ....runtime.devices import check_kernels
from ....runtime.layout import compact
from ....runtime.memory import empty
from ....runtime.threads import planned_threads
from ....runtime.type_names import type_name
from ....structures.derived import fact
from ....structures.pieces import Piece
from ...core.arguments import edge_arguments
from ...core.executable import Launch, build, builds, compiled
from ...core.library import TRANSPOSED
from ...core.operands import check_dense, check_rows
from ...core.operator import Operator
from ...core.traced import GRAPH
from ..programs.recurrence import RecurrenceSpec, recurrence


def products_of_others(structure, messages: Tensor) -> Tensor:
    """(edges, ...): for each edge the product of the messages of the other edges of its row, in the type of
    ``messages``, float32 or float64.
    """
    return RECURRENCE(structure, (messages, None), (False,)) * RECURRENCE(structure, (messages, None), (True,))


@fact
def rows_reversed(graph) -> Piece:
    """The structure with the non-zeros of each row in the opposite order."""
    indptr, edges = graph.indptr.long(), graph.num_edges
    row = row_of_position(graph.indptr, edges).long()
    here = torch.arange(edges, device=indptr.device)
    positions = indptr[row] + indptr[row + 1] - 1 - here
    return Piece(graph.shape, graph.indptr, graph.indices[positions], positions.to(graph.indices.dtype))


@builds(RecurrenceSpec, RowPlan)
def _on_rows(spec: RecurrenceSpec, plan: RowPlan) -> Launch:
    program = tile_axis(recurrence(spec), "K", register_tiles(spec.width, BYTES[spec.dtype], host_target()))
    return compiled(program, cpu_schedule(parallel=plan.groups > 1), plan)


_launch = kept(build)


def _plan(graph, edges: int, width: int) -> Plan:
    arch = devices.arch_of(graph.device)
    if not arch:
        return RowPlan(group_count(edges, graph.shape[0], width, planned_threads()))
    from ....planner.cuda.rows import TeamPlan

    return TeamPlan(arch)


def _run(graph, operands, attributes) -> Tensor:
    factor, (backwards,) = operands[0], attributes
    edges, width = factor.shape[0], prod(factor.shape[1:])
    out = empty(factor, *factor.shape)
    if edges == 0 or width == 0:
        return out
    structure, numbers = graph, graph.edge_ids
    if backwards:
        structure = rows_reversed(graph)
        numbers = structure.edge_numbers(graph.edge_numbers)
    plan = _plan(graph, edges, width)
    spec = RecurrenceSpec(
        width, type_name(factor.dtype), type_name(graph.indices.dtype), numbers is not None, operands[1] is not None
    )
    given = [compact(x).reshape(edges, width) for x in operands if x is not None]
    _launch(spec, plan)(*edge_arguments(structure, plan, numbers, edges), *given, out.view(edges, width))
    return out


def _record(graph, operands, attributes, needed):
    out = _run(graph, operands, attributes)
    # the gradient reads, of the rest of the row, what comes back, and of this edge what there was before it
    return out, (operands[0], out if needed[0] else None), None


def _gradients(structure, attributes, saved, memo, needed, grad: Tensor) -> list[Tensor | None]:
    (factor, out), (backwards,) = saved, attributes
    back = RECURRENCE(structure, (factor, grad), (not backwards,))
    return [back * out if needed[0] else None, back if needed[1] else None]


def _check(graph, operands, attributes):
    factor, added = operands
    for name, x in (("factor", factor), ("added", added)):
        if x is not None:
            check_dense("recurrence", name, x)
            check_rows("recurrence", name, x, graph.num_edges, "edge", graph)
            if x.dtype not in (torch.float32, torch.float64):
                raise TypeError(f"recurrence: {name} must be float32 or float64, got {x.dtype}")
            if x.shape != factor.shape or x.dtype != factor.dtype:
                raise ValueError(
                    f"recurrence: added {tuple(x.shape)} of {x.dtype} does not go with factor {tuple(factor.shape)} of "
                    f"{factor.dtype}"
                )
    check_kernels("recurrence", graph.device)
    return operands


RECURRENCE = Operator(
    "recurrence",
    _run,
    _gradients,
    _record,
    structure=GRAPH,
    operands="Tensor factor, Tensor? added",
    attributes="bool reversed, bool transposed",
    **TRANSPOSED,
    check=_check,
    saved=lambda attributes, operands, result: ((operands[0], result), None),
)
"""Attributes: (whether it goes from the last edge of each row to the first,)."""
