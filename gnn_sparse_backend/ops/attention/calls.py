"""The boundary to the kernels of attention: forward only, no autograd, operands already validated."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import field, replace
from math import prod

import torch
from torch import Tensor

from ...compiler.cache.bounded import KernelCache, kept, shared
from ...frozen import dataclass
from ...planner.decisions import listeners
from ...planner.plan import Plan
from ...runtime.memory import empty
from ...runtime.threads import planned_threads
from ...runtime.type_names import accumulator_of, type_name
from ...structures.derived import fact
from ...structures.graph import Graph
from ..core.executable import build, kept_by_plan
from ..core.plans import new_plan
from ..message.calls import call_key, feature_shapes, flat, run_edge_map
from ..message.message_op import MessageOp, message_op
from ..message.programs.message import arg, renumber
from ..message.programs.operands import Operand, broadcast_features, collapse
from . import executables as _built  # noqa: F401  (with it plans have builders)
from .decisions import problem_of_pass, tell
from .programs.attention import AttentionSpec, Attribute
from .programs.attention_gradient import GradientSpec
from .programs.sums import Output
from .schedules_cpu import plan_attention


@dataclass(frozen=True, eq=False)
class AttentionForm:
    """The forms of score and value, and whether scores are summed over their last feature dimension.

    They compare by identity: make them with ``attention_form``.
    """

    score: MessageOp
    value: MessageOp
    reduced: bool

    @functools.cached_property
    def places(self) -> tuple[str, ...]:
        """Where the operands stand, those of the score first."""
        return self.score.places + self.value.places

    @functools.cached_property
    def weighted(self) -> MessageOp:
        """The sum of weighted values: operand 0 is the weight of an edge, the others are those of the value."""
        count = len(self.value.places)
        value = renumber(self.value.message, {number: number + 1 for number in range(count)})
        return message_op(arg(0) * value, ("edge", *self.value.places), "sum")

    def take_apart(self, operands) -> tuple[tuple, tuple]:
        """The operands of the score, and those of the value."""
        count = len(self.score.places)
        return tuple(operands[:count]), tuple(operands[count:])


@kept
def attention_form(score: MessageOp, value: MessageOp, reduced: bool) -> AttentionForm:
    """The one attention of these forms."""
    return AttentionForm(score, value, reduced)


@dataclasses.dataclass(slots=True, eq=False)
class Call:
    """What is known of a call from its shapes and types. Compared by identity: a graph keeps its plans by call.

    heads: feature shape of the scores. dims: that of the result. kernels: executables by plan, and other things that
    depend on no more.
    """

    spec: AttentionSpec
    heads: tuple[int, ...]
    dims: tuple[int, ...]
    kernels: KernelCache = field(default_factory=kept_by_plan)


_calls: KernelCache[tuple, Call] = shared("calls of attention")


def has_no_terms(of: AttentionForm, operands) -> bool:
    """Whether scores are sums of nothing, which the kernels do not know."""
    return of.reduced and any(
        x.dim() > (place != "all") and x.shape[-1] == 0 for x, place in zip(operands, of.score.places)
    )


def result_shapes(of: AttentionForm, operands) -> tuple[tuple[int, ...], int]:
    """The feature shape of the result, and the number of scores of an edge."""
    score, value = of.take_apart(operands)
    before = broadcast_features(feature_shapes(of.score, score))
    heads = (*before[:-1], 1) if of.reduced else before
    return broadcast_features([heads, *feature_shapes(of.value, value)]), prod(heads)


def run_attention(of: AttentionForm, graph, operands, call: Call | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The result (rows, ...), and for each row a maximum and the inverse of its sum of exp(score - maximum).

    The latter two are flat, (rows, scores), in the accumulation type. call: what is known of it (`prepared`), so that
    operands may lack feature dimensions of extent 1.
    """
    if call is None:
        call = prepared(of, graph, operands)
    rows = graph.shape[0]
    first = operands[len(of.score.places)]
    wide = accumulator_of(first.dtype)
    out = empty(first, rows, *call.dims)
    maximum, inverse = (empty(first, rows, call.spec.scores, dtype=wide) for _ in range(2))
    if graph.num_edges == 0 or out.numel() == 0:
        out.zero_()
        maximum.fill_(-torch.inf)
        inverse.zero_()
    else:
        plan = attention_plan(graph, call)
        executable = call.kernels.get(plan)
        if executable is None:
            executable = call.kernels.keep(plan, build(call.spec, plan))
        filled = [flat(out, rows, call.spec.features), maximum, inverse]
        executable(graph, operands, filled)
        if listeners.told is not None:
            tell(call.spec, plan, _rule(graph, call), graph, operands, filled)
    return out, maximum, inverse


def prepared(of: AttentionForm, graph, operands) -> Call:
    """What `run_attention` looks up of operands like these."""
    return call_of(of, graph, operands, "edge" in of.places and graph.edge_ids is not None)


def run_attention_gradient(
    of: AttentionForm, graph, operands, results, grad: Tensor, outputs: tuple[Output, ...], by_columns: bool = False
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """({"weights": of edges, "scores": the cotangents of the scores}, sums): what ``attention_gradient`` computes.

    The former (edges, ...) are in the user's edge order and the accumulation type; sums, one (rows, features) for each
    of ``outputs``, in their own. results: what ``run_attention`` gave. grad: the cotangent of the first. by_columns: on
    a CPU, in a pass over the transpose that keeps no weights, with sums (columns, features).
    """
    call = call_of(of, graph, operands, graph.edge_ids is not None)
    structure = graph.transpose() if by_columns else graph
    of_softmax = (*results[1:], _delta(graph, call, results[0], grad)) if by_columns else results
    return gradient_pass(structure, call, (*operands, *of_softmax, grad), results[1], outputs, by_columns)


def gradient_pass(
    structure, call: Call, given, like: Tensor, outputs: tuple[Output, ...], by_columns: bool
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """`run_attention_gradient` over the rows of a structure, which are columns of the attention where ``by_columns``.
    given: the operands of ``attention_gradient``. like: a tensor of the accumulation type.
    """
    edges, rows = structure.num_edges, structure.shape[0]
    names = ("scores",) if by_columns else ("weights", "scores")
    at_edges = {name: empty(like, edges, call.spec.scores) for name in names}
    sums = [empty(like, rows, o.features, dtype=getattr(torch, o.dtype)) for o in outputs]
    filled = [*at_edges.values(), *sums]
    if edges == 0 or call.spec.features == 0:
        for x in filled:
            x.zero_()
    else:
        numbered = structure.edge_ids is not None
        gradient = outputs, by_columns, numbered
        plan = attention_plan(structure, call, gradient)
        executable = call.kernels.get((*gradient, plan))
        if executable is None:
            executable = call.kernels.keep((*gradient, plan), build(_gradient_spec(call, *gradient), plan))
        executable(structure, given, filled)
        if listeners.told is not None:
            tell(_gradient_spec(call, *gradient), plan, _rule(structure, call), structure, given, filled)
    return {name: x.view(edges, *call.heads) for name, x in at_edges.items()}, sums


_SWAPPED = {"row": "column", "column": "row"}
_PRODUCT = message_op("mul(x0, x1)", ("edge", "edge"))


def _of_transpose(spec: AttentionSpec, numbered: bool) -> AttentionSpec:
    """The attention with its operands where they stand in the transpose."""
    score, value = (
        replace(each, operands=tuple(replace(x, at=_SWAPPED.get(x.at, x.at)) for x in each.operands))
        for each in (spec.score, spec.value)
    )
    return replace(spec, score=score, value=value, numbered=numbered)


def _delta(graph, call: Call, result: Tensor, grad: Tensor) -> Tensor:
    """(rows, heads): the sum over each head of result * grad, in the accumulation type."""
    rank = len(call.dims)
    heads = (1,) * (rank - len(call.heads)) + call.heads
    over = tuple(own == 1 and extent > 1 for own, extent in zip(heads, call.dims))
    wide = grad.to(accumulator_of(grad.dtype))
    return run_edge_map(_PRODUCT, loops_of_rows(graph), [wide, result], over if any(over) else ())


@fact
def loops_of_rows(graph) -> Graph:
    """A loop at each row of a graph: what arithmetic on rows alone runs on."""
    return Graph._of_loops(graph.shape[0], graph.device)


def attention_plan(graph, call: Call, gradient: tuple[tuple[Output, ...], bool, bool] | None = None) -> Plan:
    """The plan, kept with the graph. gradient: outputs, whether by columns, and whether these are numbered, of a pass
    of the gradient.
    """
    key = call, gradient, torch.get_num_threads()
    plan = graph.plans.get(key)
    if plan is None:
        spec = call.spec if gradient is None else _gradient_spec(call, *gradient)
        problem = problem_of_pass(spec, graph, planned_threads())
        plan = new_plan(graph, key, problem, lambda: _rule(graph, call), "attention")
    return plan


def _rule(graph, call: Call) -> Plan:
    """The plan of the rules on a CPU, forward and backward."""
    return plan_attention(*graph.shape, graph.num_edges, call.spec, planned_threads())


def _gradient_spec(call: Call, outputs: tuple[Output, ...], by_columns: bool, numbered: bool) -> GradientSpec:
    """What is static in a pass of the gradient. numbered: of the structure that it goes over."""
    return GradientSpec(_of_transpose(call.spec, numbered) if by_columns else call.spec, outputs, by_columns)


def call_of(of: AttentionForm, graph, operands, numbered: bool) -> Call:
    """What is known of a call; numbered: edge arrays are in an order of their own."""
    key = call_key(of, operands, graph, numbered, None)
    call = _calls.get(key)
    return _calls.keep(key, _prepare(of, graph, operands, numbered)) if call is None else call


def _prepare(of: AttentionForm, graph, operands, numbered: bool) -> Call:
    score, value = of.take_apart(operands)
    score_shapes, value_shapes = feature_shapes(of.score, score), feature_shapes(of.value, value)
    before = broadcast_features(score_shapes)
    heads = (*before[:-1], 1) if of.reduced else before
    dims = broadcast_features([heads, *value_shapes])
    scored, kept, *score_own = _collapsed(before, heads, *score_shapes)
    result, own_heads, *value_own = _collapsed(dims, heads, *value_shapes)
    dtype = type_name(value[0].dtype)
    spec = AttentionSpec(
        Attribute(of.score.message, _described(of.score, score, score_own), scored),
        tuple(k == 1 and e > 1 for e, k in zip(scored, kept)),
        Attribute(of.value.message, _described(of.value, value, value_own), result),
        own_heads,
        dtype,
        type_name(graph.indices.dtype),
        numbered,
    )
    return Call(spec, heads, dims)


def _collapsed(dims: tuple[int, ...], *shapes: tuple[int, ...]) -> tuple:
    padded = [(1,) * (len(dims) - len(s)) + tuple(s) for s in shapes]
    return collapse((dims, *padded)) if dims else ((1,),) * (1 + len(shapes))


def _described(of: MessageOp, operands, shapes) -> tuple[Operand, ...]:
    return tuple(Operand(place, shape, type_name(x.dtype)) for place, shape, x in zip(of.places, shapes, operands))
