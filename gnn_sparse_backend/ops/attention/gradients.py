"""The backward pass of attention: gradients of all operands in two passes over the edges where they allow it.

One pass over the rows stores the weights of edges and the cotangents of their scores, and sums up the gradients of
the score's operands at the rows. One over the transpose sums up the gradients of all operands at the columns. What is
left, as gradients of edge operands, are edge maps and aggregations of their own.

Where the gradients at the rows want less of the columns than scores and values are, the pass over the transpose is the
only one over wide features: it computes the weights again, and stores the cotangents of the scores alone.

Where one variable stands for several operands, as a layer's only projection for query, key and value, its gradient is
summed up in one tensor, and that of all its operands at the columns by one sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from ...compiler.cache.bounded import KernelCache
from ...planner.cpu.rows import RowPlan
from ...planner.decisions import listeners
from ...runtime.memory import empty
from ...runtime.threads import planned_threads
from ...runtime.type_names import accumulator_of, type_name
from ..core.executable import build, kept_by_plan
from ..core.plans import new_plan
from ..message.calls import feature_shapes, run_aggregate, run_edge_map
from ..message.gradients import NO_GRADIENT, GradientPlan, fit_gradient, gradient_plan
from ..message.programs.message import renumber
from ..message.programs.operands import Operand, broadcast_features, collapse
from .calls import AttentionForm, attention_plan, call_of, run_attention_gradient
from .decisions import problem_of_pass, tell
from .programs.attention_gradient import COTANGENT, GRADIENT, WEIGHTS
from .programs.sums import Output, SumsSpec
from .schedules_cpu import plan_sums

# Features of sums that one pass keeps at most: beyond it accumulators crowd each other out of the registers.
TOGETHER = 512


@dataclass(slots=True)
class _Task:
    """The gradient of one operand, or of several that are one variable.

    number: of the operand. plan: how it comes from the cotangent of a score, or of the result. sources: what it reads:
    numbers of operands, ``weights``, ``scores`` (their cotangents) or ``grad``. places, shapes: of these; the latter
    have the rank of dims, the feature shape of what the form gives. output: the form as a sum, whose sources count in
    ``sources``.
    """

    number: int
    plan: GradientPlan
    place: str
    sources: tuple
    places: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dims: tuple[int, ...]
    output: Output


@dataclass(slots=True)
class _Plan:
    """Tasks by how they run. none: operands whose gradient is zero. together: on the transpose, in one pass; which is
    also that of the scores where ``once``.
    """

    none: list[int]
    rows: list[_Task]
    together: list[_Task]
    apart: list[_Task]
    outputs: tuple[Output, ...]
    once: bool
    spec: SumsSpec | None
    shared: list
    kernels: KernelCache


def attention_gradients(
    of: AttentionForm, graph, operands, results, grad: Tensor, needed, same: tuple[int, ...] | None = None
) -> list[Tensor | None]:
    """The gradients of the operands marked in ``needed``. results: what ``run_attention`` gave; grad: of the first.

    same: for each operand the first that is the same variable, which gets the gradient of both; None: all differ.
    """
    same = same or tuple(range(len(operands)))
    call = call_of(of, graph, operands, graph.edge_ids is not None)
    columns = any(wanted and place == "column" for wanted, place in zip(needed, of.places))
    numbered = columns and graph.transpose().edge_ids is not None
    alike = tuple([x.data_ptr() for x in operands].index(x.data_ptr()) for x in operands)
    on_cpu = graph.num_edges > 0 and isinstance(attention_plan(graph, call), RowPlan)
    key = ("gradients", needed, numbered, alike, on_cpu, same)
    plan = call.kernels.get(key)
    if plan is None:
        index_dtype = type_name(graph.indices.dtype)
        plan = call.kernels.keep(key, _prepare(of, operands, call.heads, *key[1:], index_dtype))
    at_edges, sums = run_attention_gradient(of, graph, operands, results, grad, plan.outputs, plan.once)
    found: list[Tensor | None] = [None] * len(operands)
    given = {**at_edges, "grad": grad}

    def source(s):
        return operands[s] if type(s) is int else given[s]

    def keep(task: _Task, out: Tensor) -> None:
        x, first = operands[task.number], same[task.number]
        gradient = fit_gradient(task.plan, out, task.place, x.shape).to(x.dtype)
        before = found[first]
        if before is None:
            found[first] = gradient
        else:  # all of these were made here; one that is broadcast along features has no memory for each
            found[first] = before.add_(gradient) if before.is_contiguous() else before + gradient

    for task, out in zip(plan.together if plan.once else plan.rows, sums):
        keep(task, out.view(out.shape[0], *task.dims))
    if plan.together and not plan.once:
        for task, out in zip(plan.together, _run_sums(plan, graph.transpose(), [source(s) for s in plan.shared])):
            keep(task, out.view(out.shape[0], *task.dims))
    for task in plan.apart:
        parts = [source(s) for s in task.sources]
        if task.place == "edge":
            keep(task, run_edge_map(task.plan.form, graph, parts, task.plan.reduced))
        else:
            keep(task, run_aggregate(task.plan.form, graph.transpose() if task.plan.transposed else graph, parts))
    for number in plan.none:
        if found[same[number]] is None:
            found[same[number]] = torch.zeros_like(operands[number])
    return found


def _run_sums(plan: _Plan, graph, operands: list[Tensor]) -> list[Tensor]:
    """Several sums over the edges of each row of ``graph``."""
    spec, rows = plan.spec, graph.shape[0]
    out = [empty(operands[0].new_empty(0, dtype=getattr(torch, o.dtype)), rows, o.features) for o in spec.outputs]
    if graph.num_edges == 0:
        for x in out:
            x.zero_()
        return out
    threads = planned_threads()

    def rule() -> RowPlan:
        return plan_sums(*graph.shape, graph.num_edges, spec, threads)

    how = graph.plans.get((spec, threads))
    if how is None:
        how = new_plan(graph, (spec, threads), problem_of_pass(spec, graph, threads), rule, "gradients of attention")
    executable = plan.kernels.get(how)
    if executable is None:
        executable = plan.kernels.keep(how, build(spec, how))
    executable(graph, operands, out)
    if listeners.told is not None:
        tell(spec, how, rule(), graph, operands, out)
    return out


def _prepare(
    of: AttentionForm, operands, heads: tuple[int, ...], needed, numbered, alike, on_cpu: bool, same, index_dtype: str
) -> _Plan:
    """numbered: of the transpose. alike, same: for each operand the first that has the same memory, and that is the
    same variable.
    """
    score, value = of.take_apart(operands)
    found = _Plan([], [], [], [], (), False, None, [], kept_by_plan())
    dims = broadcast_features([heads, *feature_shapes(of.value, value)])
    shapes = {"weights": heads, "scores": heads, "grad": dims}
    shapes |= dict(enumerate(feature_shapes(of.score, score) + feature_shapes(of.value, value)))
    count = len(score)
    for number, (x, wanted) in enumerate(zip(operands, needed)):
        if not wanted:
            continue
        if number < count:
            form, at, cotangent, names = of.score, number, "scores", list(range(count))
        else:
            form, at, cotangent = of.weighted, number - count + 1, "grad"
            names = ["weights", *range(count, len(operands))]
        plan = gradient_plan(form, at, tuple(shapes[s] for s in names), shapes[cotangent])
        sources = () if plan is NO_GRADIENT else tuple(names[s] if type(s) is int else cotangent for s in plan.sources)
        if not sources or any(0 in shapes[s] for s in sources):
            found.none.append(number)
            continue
        task = _task(number, plan, form.places[at], sources, shapes, x.dtype)
        if form is of.score and task.place in ("row", "all"):
            found.rows.append(task)
        elif plan.transposed:
            found.together.append(task)
        else:
            found.apart.append(task)
    columns = found.together
    found.together = _merged(columns, same)
    found.once = on_cpu and _gathers_less(of, found, operands, shapes, alike)
    if found.once:
        names = {"scores": COTANGENT, "weights": WEIGHTS, "grad": GRADIENT}
        found.outputs = tuple(_sourced(task, [names.get(s, s) for s in task.sources]) for task in found.together)
        found.apart += found.rows
        return found
    if len(columns) < 2 or sum(task.output.features for task in found.together) > TOGETHER:
        found.apart += columns
        found.together = []
    found.outputs = tuple(
        _sourced(task, [COTANGENT if s == "scores" else s for s in task.sources]) for task in found.rows
    )
    if found.together:
        _share(found, operands, value[0].dtype, shapes, index_dtype, numbered)
    return found


def _gathers_less(of: AttentionForm, found: _Plan, operands, shapes: dict, alike: tuple[int, ...]) -> bool:
    """Whether the pass over the transpose is to be the only one over wide features."""
    if not found.together or sum(task.output.features for task in found.together) > TOGETHER:
        return False
    if any("weights" in task.sources for task in found.apart):
        return False

    def features(numbers) -> int:
        return sum(prod(shapes[n]) for n in {alike[n] for n in numbers if of.places[n] == "column"})

    # for each gradient of the score at the rows, what it reads of the columns beside the cotangents
    scores = prod(shapes["scores"])
    apart = sum(features(s for s in task.sources if type(s) is int) + scores for task in found.rows)
    # two passes write the weights of edges and read them again
    return apart < features(range(len(operands))) + 2 * scores


def _task(number: int, plan: GradientPlan, place: str, sources: tuple, shapes: dict, dtype: torch.dtype) -> _Task:
    own = [shapes[s] for s in sources]
    dims = broadcast_features(own)
    padded = [(1,) * (len(dims) - len(s)) + tuple(s) for s in own]
    merged, *extents = collapse((dims, *padded)) if dims else ((1,),) * (1 + len(own))
    if not plan.plain:
        dtype = accumulator_of(dtype)  # it will be summed once more
    output = Output(plan.form.message, (), tuple(extents), merged, type_name(dtype))
    return _Task(number, plan, place, sources, plan.form.places, tuple(padded), dims, output)


def _merged(tasks: list[_Task], same: tuple[int, ...]) -> list[_Task]:
    """Sums of one variable as one sum, where both have its very shape."""
    found: dict[tuple, _Task] = {}
    for task in tasks:
        key = (same[task.number], task.dims, task.output.dtype) if task.plan.plain else (task.number,)
        if key in found:
            task = _both(found[key], task)
        found[key] = task
    return list(found.values())


def _both(first: _Task, second: _Task) -> _Task:
    """The sum of both, of the same dims."""
    one, other, count = first.output, second.output, len(first.sources)
    message = one.message + renumber(other.message, {at: at + count for at in range(len(second.sources))})
    sources, shapes = first.sources + second.sources, first.shapes + second.shapes
    merged, *extents = collapse((first.dims, *shapes)) if first.dims else ((1,),) * (1 + len(shapes))
    output = Output(message, (), tuple(extents), merged, one.dtype)
    return replace(first, sources=sources, places=first.places + second.places, shapes=shapes, output=output)


def _sourced(task: _Task, sources: list[int]) -> Output:
    o = task.output
    return Output(o.message, tuple(sources), o.shapes, o.dims, o.dtype)


def _share(found: _Plan, operands, value: torch.dtype, shapes: dict, index_dtype: str, numbered: bool) -> None:
    """One list of operands for the sums that run together. value: the type of the result, and so of its cotangent."""
    described: dict = {}
    for task in found.together:
        for source, place in zip(task.sources, task.places):
            described.setdefault(source, place)
    found.shared = list(described)
    wide = accumulator_of(value)
    types = {"weights": wide, "scores": wide, "grad": value}
    listed = tuple(
        Operand(place, (prod(shapes[s]),), type_name(types[s] if type(s) is str else operands[s].dtype))
        for s, place in described.items()
    )
    outputs = tuple(_sourced(task, [found.shared.index(s) for s in task.sources]) for task in found.together)
    found.spec = SumsSpec(listed, outputs, index_dtype, numbered)
