"""Aggregations and edge maps without autograd, of operands that passed the checks.

What a caller guarantees: all tensors on ``graph.device``; operands with one row per row, column or edge of the graph
as the message operator says, whose features broadcast as in NumPy; floating operands of one type, but for scales,
which have the accumulation type; or on a CPU int64 alone, of edges, for a reduction that is no mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from ...compiler.cache.bounded import KernelCache, shared
from ...compiler.language.reduction import REDUCTIONS
from ...compiler.language.types import FLOATS
from ...compiler.own_schedules import in_force
from ...planner.decisions import listeners
from ...planner.plan import Plan
from ...runtime.memory import check_memory, empty
from ...runtime.type_names import type_name
from ...structures.segment_rows import edges_in_one_row
from ..core.executable import Executable, build, executable_of, kept_by_plan, settle_list
from ..core.plans import plan_of
from .executables import final_plan
from .executables.decisions import tell
from .executables.listed import MessagesOnList
from .message_op import MessageOp
from .programs.aggregate import AggregateSpec
from .programs.edge_map import EdgeMapSpec
from .programs.inner import Inner, extents, merged, take_apart
from .programs.message import Message, arg, commuted, operands_of
from .programs.operands import Operand, broadcast_features, collapse
from .thin import gathered, is_thin

MOST_CALLS = 4096
"""Messages, shapes and types of operands that kernels are known for."""


@dataclass(slots=True)
class Call:
    """What is known of a call from its shapes and types.

    of: its message. dims: feature shape of the result. in_order: whether the result depends on the order of the
    non-zeros of a row. executables: by the planner's plan. work: what the planner counts for an edge.
    """

    of: MessageOp
    dims: tuple[int, ...]
    features: int
    spec: AggregateSpec | EdgeMapSpec
    in_order: bool
    executables: KernelCache[Plan | None, Executable] = field(default_factory=kept_by_plan)
    work: int = field(init=False)

    def __post_init__(self) -> None:
        self.work = self.spec.work

    def executable(self, plan: Plan) -> Executable:
        """What runs by a plan of the planner's."""
        found = self.executables.get(plan)
        if found is None:
            found = self.executables.keep(plan, build(self.spec, final_plan(plan, self.spec)))
        return found

    @property
    def on_list(self) -> Executable:
        """What runs on a graph that is not converted."""
        found = self.executables.get(None)
        return self.executables.keep(None, MessagesOnList(self.spec)) if found is None else found


AT_EDGES = frozenset(("edge", "all"))
"""Places that no end of an edge is read at."""
_PLANNED = {torch.int64: torch.float64}
"""For integers the floating type of their size, which the planner knows."""
_calls: KernelCache[tuple, Call] = shared("calls of messages", MOST_CALLS)


def run_aggregate(of: MessageOp, graph, operands: Sequence[Tensor | None], keep: tuple[str, ...] = (), fill: int = 0):
    """The aggregation over the edges into each row: (rows, ...), with the broadcast features of the operands.

    keep: with max and min, also ``number``, ``column`` or ``unique`` of the chosen edges, in the index type; then a
    list. fill: what stands there where no message was chosen.
    """
    if is_thin(graph) and not keep and (found := gathered(graph, of.places, operands)) is not None:
        graph, operands = found
    if graph.listed is not None:
        settle_list(graph, operands)
    return run_call(aggregation_of(of, graph, operands, keep, fill), graph, operands)


def aggregation_of(of: MessageOp, graph, operands: Sequence[Tensor | None], keep: tuple[str, ...], fill: int) -> Call:
    """What is known of `run_aggregate` of such operands."""
    numbered = graph.listed is None and (
        "number" in keep or "number" in of.places or (of.reads_edges and graph.edge_ids is not None)
    )
    key = call_key(of, operands, graph, numbered, (keep, fill))
    call = _calls.get(key)
    return _calls.keep(key, _aggregation(of, graph, operands, numbered, keep, fill)) if call is None else call


def run_call(call: Call, graph, operands: Sequence[Tensor | None]):
    """`run_aggregate` of a call that is known."""
    of, keep, fill = call.of, call.spec.keep, call.spec.fill
    rows, first, features = graph.shape[0], operands[0], call.features
    if graph.num_edges == 0 or features == 0:
        value = 0.0 if of.shares else REDUCTIONS[of.reduce].identity
        out = empty(first, rows, *call.dims).fill_(value)
        return [out, *(graph.some_index.new_full(out.shape, fill) for _ in keep)] if keep else out
    if graph.listed is not None:
        executable = call.on_list
    else:
        plan = plan_of(graph, of.kind, call.work, _PLANNED.get(first.dtype, first.dtype), call.in_order)
        executable = call.executables.get(plan)
        if executable is None:
            check_memory("a result", (rows, *call.dims), first.itemsize)
            executable = call.executable(plan)
    out = empty(first, rows, *call.dims)
    results = [out, *(empty(graph.some_index, rows, *call.dims) for _ in keep)] if keep else [out]
    executable(graph, operands, [flat(x, rows, features) for x in results] if keep else [flat(out, rows, features)])
    if listeners.told is not None and graph.listed is None:
        tell(listeners.told, call, plan, graph, operands, results)
    return results if keep else out


def variants_of(
    of: MessageOp, graph, operands: Sequence[Tensor | None], plan: Plan, reduced: tuple[bool, ...] = ()
) -> Mapping[str, str]:
    """The variants of what runs by a plan of the planner's. Reads shapes and types of operands alone, and compiles
    nothing.
    """
    if of.reduce is None:
        spec = _edge_map(of, graph, operands, graph.edge_ids is not None or "number" in of.places, reduced).spec
    else:
        numbered = "number" in of.places or (of.reads_edges and graph.edge_ids is not None)
        spec = _aggregation(of, graph, operands, numbered, (), 0).spec
    plan = final_plan(plan, spec)
    found: Mapping[str, str] = executable_of(spec, plan).possible(spec, plan, graph)
    return found


def run_edge_map(of: MessageOp, graph, operands: list[Tensor | None], reduced: tuple[bool, ...] = ()) -> Tensor:
    """The message of every edge, in the user's edge order: (edges, ...).

    reduced: for each feature dimension of the broadcast operands, whether to sum over it, which leaves extent 1;
    () for none.
    """
    if is_thin(graph) and (found := gathered(graph, of.places, operands)) is not None:
        graph, operands = found
    if graph.listed is not None:
        settle_list(graph, operands)
    elif graph.edge_ids is not None and AT_EDGES.issuperset(of.places):
        graph = edges_in_one_row(graph)  # as they come, not in the order of the non-zeros
    numbered = graph.listed is None and (graph.edge_ids is not None or "number" in of.places)
    key = call_key(of, operands, graph, numbered, reduced)
    call = _calls.get(key)
    if call is None:
        call = _calls.keep(key, _edge_map(of, graph, operands, numbered, reduced))
    edges, first, terms = graph.num_edges, operands[0], call.spec.terms
    if edges == 0 or call.features == 0 or terms == 0:
        return empty(first, edges, *call.dims).zero_()
    if graph.listed is not None:
        executable = call.on_list
    else:
        plan = plan_of(graph, of.kind, call.work, first.dtype)
        executable = call.executables.get(plan)
        if executable is None:
            check_memory("a result", (edges, *call.dims), first.itemsize)
            executable = call.executable(plan)
    out = empty(first, edges, *call.dims)
    executable(graph, operands, [flat(out, edges, call.features)])
    if listeners.told is not None and graph.listed is None:
        tell(listeners.told, call, plan, graph, operands, [out])
    return out


def flat(out: Tensor, count: int, features: int) -> Tensor:
    """A contiguous result as kernels write it: (count, features)."""
    return out if out.dim() == 2 else out.view(count, features)


def call_key(of: Any, operands, graph, numbered: bool, extra) -> tuple:
    """What a kernel depends on: the message or attention, and the shapes, types and strides of its operands."""
    parts: list = [of, numbered, extra, graph.some_index.dtype, in_force.generation]
    for x, place in zip(operands, of.places):
        if x is not None:
            parts.append(x.shape if place == "all" else x.shape[1:])
            parts.append(x.dtype)
            parts.append(x.is_contiguous())
    return tuple(parts)


def feature_shapes(of: MessageOp, operands) -> list[tuple[int, ...]]:
    """The feature shape of each operand."""
    return [
        () if x is None else tuple(x.shape) if place == "all" else tuple(x.shape[1:])
        for x, place in zip(operands, of.places)
    ]


def result_features(of: MessageOp, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The feature shape of a message of operands with these. Raises ValueError that quotes the shapes."""
    return extents(of.message, shapes) if of.sums else broadcast_features(list(shapes))


@dataclass(slots=True)
class _Collapsed:
    """A call whose dimensions are merged.

    message: over operands and inner values. dims, kept: feature shape of it, and with extent 1 where it is summed over.
    merged, gone: both, with dimensions merged. operands, inner: as in a spec.
    """

    message: Message
    dims: tuple[int, ...]
    kept: tuple[int, ...]
    merged: tuple[int, ...]
    gone: tuple[bool, ...]
    operands: tuple[Operand, ...]
    inner: tuple[Inner, ...]


def _collapsed(of: MessageOp, operands, reduced: tuple[bool, ...] = ()) -> _Collapsed:
    shapes = feature_shapes(of, operands)
    message, values = of.message, ()
    if of.sums:
        message, dims, values = take_apart(of.message, shapes)
        if of.reduce is None and values and message == arg(len(shapes) + len(values) - 1) and values[-1].summed:
            *values, last = values  # a map is summed over as it is written
            message, dims = last.message, last.dims
            reduced = (*(reduced or (False,) * len(dims))[:-1], True)
        shapes = [*shapes, *(value.kept for value in values)]
    else:
        dims = broadcast_features(shapes)
    kept = tuple(1 if gone else e for e, gone in zip(dims, reduced or (False,) * len(dims)))
    read = operands_of(message) if of.sums else range(len(shapes))
    padded = [(1,) * (len(dims) - len(shapes[which])) + shapes[which] for which in read]
    together, kept_together, *own = collapse((dims, kept, *padded)) if dims else ((1,),) * (2 + len(padded))
    at = dict(zip(read, own))
    described = tuple(
        Operand(place, at.get(which, (prod(shape),)), "int64")
        if x is None
        else Operand(place, at.get(which, (prod(shape),)), type_name(x.dtype), not x.is_contiguous())
        for which, (place, x, shape) in enumerate(zip(of.places, operands, shapes))
    )
    outer = [at.get(which, ()) for which in range(len(operands), len(shapes))]
    gone = tuple(k == 1 and e != 1 for e, k in zip(together, kept_together))
    return _Collapsed(message, dims, kept, together, gone, described, merged(values, shapes, outer))


def _aggregation(of: MessageOp, graph, operands, numbered: bool, keep, fill: int) -> Call:
    spec, dims = _spec_of_aggregate(of, operands, type_name(graph.some_index.dtype), numbered, keep, fill)
    # "the last" and "the first" are in the order of the non-zeros
    return Call(of, dims, prod(dims), spec, bool(keep) and "unique" not in keep)


def _spec_of_aggregate(of: MessageOp, operands, index_dtype: str, numbered: bool, keep, fill: int) -> tuple:
    found = _collapsed(of, operands)
    choice = REDUCTIONS[of.reduce].chooses
    types = found.operands[0].dtype, index_dtype
    ties = choice and of.shares and types[0] in FLOATS, choice and of.shares, choice and of.ties == "first"
    spec = AggregateSpec(
        found.message, found.operands, found.merged, *types, numbered, of.reduce, keep, fill, *ties, inner=found.inner
    )
    return spec, found.dims


def spec_of_aggregate(of: MessageOp, operands, index_dtype: str, keep: tuple[str, ...] = ()) -> AggregateSpec:
    """What is static in an aggregation of such operands over listed edges."""
    spec, _ = _spec_of_aggregate(of, operands, index_dtype, False, keep, 0)
    return replace(spec, message=commuted(spec.message))  # so that frameworks share kernels


def _edge_map(of: MessageOp, graph, operands, numbered: bool, reduced) -> Call:
    spec, kept = _spec_of_edge_map(of, operands, type_name(graph.some_index.dtype), numbered, reduced)
    return Call(of, kept, prod(kept), spec, False)


def _spec_of_edge_map(of: MessageOp, operands, index_dtype: str, numbered: bool, reduced) -> tuple:
    found = _collapsed(of, operands, reduced)
    types = found.operands[0].dtype, index_dtype
    spec = EdgeMapSpec(found.message, found.operands, found.merged, found.gone, *types, numbered, found.inner)
    return spec, found.kept


def spec_of_edge_map(of: MessageOp, operands, index_dtype: str, reduced: tuple[bool, ...]) -> EdgeMapSpec:
    """What is static in an edge map of such operands over listed edges."""
    spec, _ = _spec_of_edge_map(of, operands, index_dtype, False, reduced)
    return replace(spec, message=commuted(spec.message))
