"""The boundary to the kernels of aggregations and edge maps: forward only, no autograd, operands already validated.

What a caller guarantees: all tensors on ``graph.device``; operands with one row per row, column or edge of the graph
as the form says, whose features broadcast as in NumPy; floating operands of one type, but for scales, which have the
accumulation type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from ...planner.cuda.plan import CudaPlan
from ...planner.plan import Plan
from ...runtime.memory import check_memory, empty
from ...runtime.type_names import type_name
from ...structures.facts import ColumnsAscend
from ..core.arguments import aggregation_plan, edge_map_plan, kernel_arguments
from ..core.plans import entry_of
from . import schedules_cuda
from .message_op import Form
from .programs.aggregate import AggregateSpec
from .programs.edge_map import EdgeMapSpec
from .programs.operands import Operand, collapse
from .schedules_cpu import edge_map_kernel, in_words, supported
from .variants.blocks_cuda import run_blocks
from .variants.one_pass import OnePass, order_of
from .variants.parts_cuda import TwoPasses, parts_of
from .variants.passes import run_passes
from .variants.scattered import Scattered
from .variants.segments_cuda import InSegments

_NEUTRAL = {"sum": 0.0, "mean": 0.0, "max": float("-inf"), "min": float("inf")}


@dataclass(slots=True)
class _Call:
    """What is known of a call from its shapes and types.

    kernels: by how it runs, on words of two features ``of_words``. words: which of the operands can be given so.
    """

    widths: tuple[int, ...]
    dims: tuple[int, ...]
    features: int
    spec: AggregateSpec | EdgeMapSpec
    kernels: dict
    of_words: dict
    words: tuple[int, ...] = ()


def run_aggregate(form: Form, graph, operands: list[Tensor | None], chosen: tuple[str, ...] = (), nobody: int = 0):
    """The aggregation over the edges into each row: (rows, ...), with the broadcast features of the operands.

    chosen: with max and min, also ``number``, ``column`` or ``unique`` of the chosen edges, in the index type; then a
    list.
    nobody: what stands there where no message was chosen.
    """
    edge_ids = _edge_ids(graph, form, "number" in chosen)
    key = call_key(operands, form.places, graph, edge_ids is not None, (chosen, nobody))
    call = form.calls.get(key)
    if call is None:
        call = form.calls[key] = _prepare_aggregate(form, graph, operands, edge_ids is not None, chosen, nobody)
    rows = graph.shape[0]
    first = operands[0]
    if graph.num_edges == 0 or call.features == 0:
        value = 0.0 if form.ties == "even" else _NEUTRAL[form.reduce]
        out = empty(first, rows, *call.dims).fill_(value)
        return [out, *(graph.indices.new_full(out.shape, nobody) for _ in chosen)] if chosen else out
    plan = aggregation_plan(graph, call.features, first.dtype, form.kind)
    if type(plan) is CudaPlan and plan.blocks and (found := run_blocks(form, graph, operands, plan.arch)) is not None:
        return found
    if (
        chosen
        and type(plan) is Plan
        and plan.partitions > 1
        and "unique" not in chosen
        and not graph.derived(ColumnsAscend())
    ):
        plan = replace(plan, partitions=1)  # "the last" is in the order of the non-zeros
    words = bool(call.words) and type(plan) is Plan and not any(operands[which].data_ptr() % 4 for which in call.words)
    kernels = call.of_words if words else call.kernels
    kernel = kernels.get(plan)
    if kernel is None:
        check_memory("a result", (rows, *call.dims), first.itemsize)
        kernel = kernels[plan] = _kernel(in_words(call.spec) if words else call.spec, plan)
    order = order_of(graph, call.features, "edge" in form.places) if type(kernel) in (Scattered, OnePass) else None
    if order is not None and type(kernel) is Scattered:
        kernel = kernel.in_order
    if type(kernel) in (Scattered, TwoPasses, InSegments):
        out = empty(first, rows, *call.dims)
        kernel.run(graph, form.places, operands, edge_ids, flat(out, rows, call.features))
        return out
    if type(kernel) is Plan:  # of several passes
        results = _results(graph, call, first, chosen)
        run_passes(
            graph, kernel, call.spec, form.places, operands, edge_ids, [flat(x, rows, call.features) for x in results]
        )
        return results if chosen else results[0]
    if type(kernel) is OnePass:
        kernel, arguments = kernel.bind(graph, form.places, operands, edge_ids, order)
    else:
        degrees = (graph.in_degrees,) if call.spec.degrees else ()
        arguments = kernel_arguments(
            graph, plan.groups, form.places, call.widths, operands, edge_ids, plan.balance, degrees
        )
    results = _results(graph, call, first, chosen)
    flattened = [flat(x, rows, call.features) for x in results]
    if words:
        flattened = [flattened[0].view(torch.uint32)]
        for which in call.words:
            at = which - len(operands)  # they come last
            arguments[at] = arguments[at].view(torch.uint32)
    kernel(*arguments, *flattened)
    return results if chosen else results[0]


def one_launch(form: Form, graph, operands: Sequence[Tensor]) -> tuple[Callable[..., None], list] | None:
    """(kernel, its arguments before the operands) of what `run_aggregate` makes on a GPU in one launch; None where it
    takes several, or may go by a format of the plan's, or there is nothing to launch."""
    edge_ids = _edge_ids(graph, form, False)
    call = _prepare_aggregate(form, graph, operands, edge_ids is not None, (), 0)
    plan = aggregation_plan(graph, call.features, operands[0].dtype, form.kind)
    if type(plan) is not CudaPlan or plan.blocks or graph.num_edges == 0 or call.features == 0:
        return None
    kernel = _kernel(call.spec, plan)
    if type(kernel) in (TwoPasses, InSegments):
        return None
    return kernel, kernel_arguments(graph, plan.groups, form.places, call.widths, operands, edge_ids, plan.balance)[
        : -len(operands)
    ]


def _results(graph, call: _Call, first: Tensor, chosen) -> list[Tensor]:
    """Room for the result, and for what is stored of the chosen edges."""
    shape = (graph.shape[0], *call.dims)
    return [empty(first, *shape), *(empty(graph.indices, *shape) for _ in chosen)]


def run_edge_map(form: Form, graph, operands: list[Tensor | None], reduced: tuple[bool, ...] = ()) -> Tensor:
    """The message of every edge, in the user's edge order: (edges, ...).

    reduced: for each feature dimension of the broadcast operands, whether to sum over it, which leaves extent 1;
    () for none.
    """
    edge_ids = _edge_ids(graph, form, True) if graph.edge_ids is not None else None
    if "number" in form.places:
        edge_ids = graph.edge_numbers
    key = call_key(operands, form.places, graph, edge_ids is not None, reduced)
    call = form.calls.get(key)
    if call is None:
        call = form.calls[key] = _prepare_edge_map(form, graph, operands, edge_ids is not None, reduced)
    edges = graph.num_edges
    first = operands[0]
    if edges == 0 or call.features == 0 or call.spec.terms == 0:
        return empty(first, edges, *call.dims).zero_()
    plan = edge_map_plan(graph, call.features * call.spec.terms, first.dtype, form.kind)
    structure = graph
    if plan.longest_part:  # on a GPU; edges are the same in parts of rows
        parts = parts_of(graph, plan.longest_part)
        structure, operands = parts.whole, parts.operands(form.places, operands)
    arguments = kernel_arguments(structure, plan.groups, form.places, call.widths, operands, edge_ids, plan.balance)
    kernel = call.kernels.get(plan)
    if kernel is None:
        check_memory("a result", (edges, *call.dims), first.itemsize)
        spec = _compact(call.spec) if type(plan) is CudaPlan else call.spec
        kernel = call.kernels[plan] = entry_of(plan, edge_map_kernel, schedules_cuda.edge_map_kernel, spec)
    out = empty(first, edges, *call.dims)
    kernel(*arguments, flat(out, edges, call.features))
    return out


def _kernel(spec: AggregateSpec, plan: Plan):
    """The entry of the kernel that a plan runs, or a plan of several passes; what the aggregation does not support is
    left out.
    """
    if type(plan) is CudaPlan:
        spec = _compact(spec)
        plan = schedules_cuda.supported(replace(plan, blocks=False), spec)
        if plan.segments:
            return InSegments(spec, plan)
        return TwoPasses(spec, plan) if plan.longest_part else schedules_cuda.aggregate_kernel(spec, plan).entry
    plan = supported(plan, spec)
    if plan.partitions > 1 or plan.longest_part:
        return plan
    if plan.reduction == "scattered":
        # in order the ends of rows cost less than additions in memory; bits are the same
        return Scattered(spec, plan, OnePass(spec, replace(plan, reduction="sequential")))
    return OnePass(spec, plan)


def _compact(spec):
    """The same without strides: what kernels of teams are given has none (`operand_arguments`), so that one serves
    all.
    """
    return replace(spec, operands=tuple(replace(operand, strided=False) for operand in spec.operands))


def flat(out: Tensor, count: int, features: int) -> Tensor:
    """A contiguous result as kernels write it: (count, features)."""
    return out if out.dim() == 2 else out.view(count, features)


def _edge_ids(graph, form: Form, wanted: bool) -> Tensor | None:
    """Numbers of the non-zeros where the kernel has to know them; None where they count up or do not matter."""
    if wanted or "number" in form.places:
        return graph.edge_numbers
    return graph.edge_ids if form.reads_edges else None


def call_key(operands, places, graph, numbered: bool, extra) -> tuple:
    """The shapes, types and strides that a kernel depends on."""
    parts: list = [numbered, extra, graph.indices.dtype]
    for x, place in zip(operands, places):
        if x is not None:
            parts.append(x.shape if place == "all" else x.shape[1:])
            parts.append(x.dtype)
            parts.append(x.is_contiguous())
    return tuple(parts)


def feature_shapes(form: Form, operands) -> list[tuple[int, ...]]:
    """The feature shape of each operand."""
    return [
        () if x is None else tuple(x.shape) if place == "all" else tuple(x.shape[1:])
        for x, place in zip(operands, form.places)
    ]


def broadcast_features(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The common feature shape: NumPy's rules. Raises ValueError that quotes the shapes."""
    rank = max(map(len, shapes))
    dims = [1] * rank
    for shape in shapes:
        for at, extent in enumerate(shape, rank - len(shape)):
            if extent != 1:
                if dims[at] not in (1, extent):
                    raise ValueError(
                        f"feature shapes {', '.join(map(str, shapes))} do not broadcast: {dims[at]} against {extent}"
                    )
                dims[at] = extent
    return tuple(dims)


def _collapsed(form: Form, operands, reduced=()):
    shapes = feature_shapes(form, operands)
    dims = broadcast_features(shapes)
    padded = [(1,) * (len(dims) - len(s)) + s for s in shapes]
    kept = tuple(1 if gone else e for e, gone in zip(dims, reduced or (False,) * len(dims)))
    merged, kept_merged, *own = collapse((dims, kept, *padded)) if dims else ((1,),) * (2 + len(padded))
    described = tuple(
        Operand(place, o, "int64") if x is None else Operand(place, o, type_name(x.dtype), not x.is_contiguous())
        for place, o, x in zip(form.places, own, operands)
    )
    return dims, kept, merged, kept_merged, described


def _prepare_aggregate(form: Form, graph, operands, numbered: bool, chosen, nobody: int) -> _Call:
    dims, _, merged, _, described = _collapsed(form, operands)
    choice = form.reduce in ("max", "min")
    spec = AggregateSpec(
        form.message,
        described,
        merged,
        described[0].dtype,
        type_name(graph.indices.dtype),
        numbered,
        form.reduce,
        chosen,
        nobody,
        choice and form.ties == "even",
        choice and form.ties == "even",
        choice and form.ties == "first",
    )
    words = in_words(spec)
    return _Call(tuple(o.width for o in described), dims, prod(dims), spec, {}, {}, words.packed if words else ())


def _prepare_edge_map(form: Form, graph, operands, numbered: bool, reduced) -> _Call:
    _, kept, merged, kept_merged, described = _collapsed(form, operands, reduced)
    gone = tuple(k == 1 and e != 1 for e, k in zip(merged, kept_merged))
    spec = EdgeMapSpec(
        form.message, described, merged, gone, described[0].dtype, type_name(graph.indices.dtype), numbered
    )
    return _Call(tuple(o.width for o in described), kept, prod(kept), spec, {}, {})
