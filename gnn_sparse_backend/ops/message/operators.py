"""Aggregations and edge maps as operators.

The gradient of either is an aggregation or an edge map again (`message_op.Gradient`), so gradients of any order are the
same two operators.

    gsb::aggregate   transposed: over the edges out of each source, the places being those of the transpose;
                     the second result: with ties ``last`` or ``first`` the numbers of the chosen edges, else empty
    gsb::edge_map    reduced: for each feature dimension whether to sum over it; empty for none

A message enters ``torch.library`` as text, so that one operator of each kind serves every message; operands that are
the number of the edge have no tensor, and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...compiler.language.reduction import REDUCTIONS
from ...planner.cpu.spmm import keeps_sums
from ...structures.segment_rows import edges_in_one_row
from ..core.operands import check_dense
from ..core.operator import Operator
from ..core.traced import GRAPH, Traced
from ..core.transforms import pulled_back
from .calls import AT_EDGES, feature_shapes, result_features, run_aggregate, run_edge_map
from .checks import check_choice, check_message_rows, checked_message
from .gradients import NO_GRADIENT, GradientPlan, fit_gradient, gradient_plan
from .message_op import CHOOSING, SHARING, MessageOp, as_map, as_sum, in_stages, message_op, ties_count
from .prepared_call import PreparedAggregate
from .reductions.argmax_scatter import copied_gradient, even_gradient, kept_choice
from .reductions.means import divided_first, inverse_degrees
from .reductions.recurrence import products_of_others

_SWAPPED = {"row": "column", "column": "row"}
_KEPT = torch.float32, torch.float64


@dataclass(slots=True)
class Memo:
    """What of a call its gradient wants beside tensors.

    shapes: feature shapes of the operands. likes: shape and type of each. choice: what was kept of the chosen edges, as
    in ``run_aggregate``.
    """

    shapes: tuple[tuple[int, ...], ...]
    likes: list
    choice: str | None = None


def memo_of(of: MessageOp, operands, choice: str | None = None) -> Memo:
    """What gradients know of the operands without holding them."""
    likes = [None if x is None else (x.shape, x.dtype) for x in operands]
    return Memo(tuple(feature_shapes(of, operands)), likes, choice)


def _read_again(of: MessageOp, operands, needed) -> list[Tensor | None]:
    """What the gradients will read of the operands, and nothing else: the rest may be written to, and freed."""
    used = of.saved(tuple(needed))
    return [x if at in used else None for at, x in enumerate(operands)]


def _run_aggregate(graph, operands, attributes):
    run = attributes[-1]
    return run_aggregate(run, graph, operands) if isinstance(run, MessageOp) else run(graph, operands)


def _record_aggregate(graph, operands, attributes, needed):
    of, prepared = attributes[0], attributes[-1]
    if prepared is of:
        prepared = PreparedAggregate(of)
    if prepared.recorded is None:
        choice = kept_choice(of, graph, operands)
        prepared.recorded = (
            memo_of(of, operands, choice),
            None if choice is None else PreparedAggregate(of, (choice,), -1),
        )
    memo, choosing = prepared.recorded
    out, kept = (prepared(graph, operands), None) if choosing is None else choosing(graph, operands)
    saved = kept, out if of.reads_result else None, *_read_again(of, operands, needed)
    return out, saved, memo


def _aggregate_in_library(graph, operands, attributes):
    (of,) = attributes
    if of.ties in CHOOSING:
        return tuple(run_aggregate(of, graph, operands, ("number",), -1))
    return run_aggregate(of, graph, operands), operands[0].new_empty(0, dtype=torch.int32)


def _saved_of_library(attributes, operands, results):
    (of,), (out, kept) = attributes, results
    choosing = of.ties in CHOOSING
    saved = kept if choosing else None, out if of.reads_result else None, *operands
    return saved, memo_of(of, operands, "number" if choosing else None)


def _gradients_of_aggregate(structure, attributes, saved, memo: Memo, needed, grad: Tensor, *_):
    of, (kept, result, *operands) = attributes[0], saved
    if memo.choice == "column":
        return [copied_gradient(kept, grad, memo.likes[0][0][0])]
    if memo.choice == "unique" and (found := even_gradient(of, structure, kept, *operands, result, grad)) is not None:
        return [found]
    if of.shares and not of.same_everywhere:
        return pulled_back(lambda given: _in_two(structure, of, given), operands, needed, grad)
    if of.shares:
        counted, sources = ties_count(of)
        given = [result if s == "result" else operands[s] for s in sources]
        count = AGGREGATE(structure, [x.detach() for x in given], (counted,))
        # rows without edges: nobody reads their share, but its derivative would be NaN
        count = torch.where(_without_edges(structure, count, result), 1, count)
        shared = grad / (count + (result == 0) if of.ties == "even_with_zero" else count)
        grad = torch.where(grad < 0, grad, shared) if of.ties == "even_if_positive" else shared
    if REDUCTIONS[of.reduce].divides and (divided := divided_first(structure, grad)) is not None:
        of, grad = as_sum(of), divided
    extra = {"cotangent": grad, "chosen": kept, "result": result, "number": None}
    return _gradients(structure, of, operands, memo, extra, needed)


def _in_two(structure, of: MessageOp, operands) -> Tensor:
    """The aggregation of messages that are computed first: then equal ones are equal bits."""
    messages = EDGE_MAP(structure, operands, (as_map(of), ()))
    return AGGREGATE(structure, (messages,), (message_op("x0", ("edge",), of.reduce, of.ties),))


def _without_edges(structure, count: Tensor, result: Tensor) -> Tensor:
    """Where a maximum or minimum, to which ``count`` messages are equal, is that of no edge."""
    if isinstance(structure, Traced):
        return (count == 0) & (result == 0)
    return (structure.in_degrees == 0).view(-1, *(1,) * (count.dim() - 1))


def _gradients(structure, of: MessageOp, operands, memo: Memo, extra: dict, needed) -> list[Tensor | None]:
    """The gradient of each operand that needs one; ``operands`` holds what was saved of them."""
    found: list[Tensor | None] = []
    for number, wanted in enumerate(needed):
        if not wanted:
            found.append(None)
            continue
        shape, dtype = memo.likes[number]
        # the cotangent's features too: an edge map may have summed over some
        plan = _plan(structure, of, number, memo.shapes, tuple(extra["cotangent"].shape[1:]))
        if plan is NO_GRADIENT:
            found.append(extra["cotangent"].new_zeros(shape, dtype=dtype))
            continue
        if "scale" in plan.sources and "scale" not in extra:
            extra["scale"] = inverse_degrees(structure, dtype)
        if "others" in plan.sources and "others" not in extra:
            extra["others"] = products_of_others(structure, _messages(structure, of, operands))
        parts = [operands[s] if type(s) is int else extra[s] for s in plan.sources]
        if of.places[number] == "edge":
            out = parts[0] if plan.passes else EDGE_MAP(structure, parts, (plan.form, plan.reduced))
        elif of.places[number] == "all" and not isinstance(structure, Traced) and AT_EDGES.issuperset(plan.form.places):
            out = AGGREGATE(edges_in_one_row(structure), parts, (plan.form,))
        else:
            out = AGGREGATE(structure.transpose() if plan.transposed else structure, parts, (plan.form,))
        found.append(fit_gradient(plan, out, of.places[number], shape))
    return found


def _messages(structure, of: MessageOp, operands) -> Tensor:
    """The messages themselves, (edges, ...), in the type that they are reduced in."""
    wide = [x.float() if x is not None and x.dtype in (torch.bfloat16, torch.float16) else x for x in operands]
    return EDGE_MAP(structure, wide, (as_map(of), ()))


def _plan(structure, of: MessageOp, number: int, shapes, cotangent: tuple) -> GradientPlan:
    """`gradient_plan`, kept; not while a program is traced, whose sizes may be symbols."""
    return (gradient_plan if isinstance(structure, Traced) else _kept_plan)(of, number, shapes, cotangent)


_kept_plan = kept(gradient_plan)


def _encode_aggregate(attributes, transposed: bool):
    of = attributes[0]
    return str(of.message), ",".join(of.places), of.reduce, of.ties or "", transposed


def _decode_aggregate(message: str, places: str, reduce: str, ties: str, transposed: bool):
    check_choice("aggregate", "reduce", reduce, tuple(REDUCTIONS))
    reduction = REDUCTIONS[reduce]
    check_choice("aggregate", "ties", ties, (*SHARING, *CHOOSING) if reduction.chooses else ("", ""))
    if transposed and reduction.divides:
        raise ValueError("aggregate: a mean of the transpose is not an operator: scale a sum")
    return (checked_message("aggregate", message, tuple(places.split(",")), reduce, ties or None),), transposed


def _fake_aggregate(arguments, operands, attributes, transposed: bool):
    (of,), (indptr, indices, _, num_sources) = attributes, arguments
    rows = num_sources if transposed else indptr.shape[0] - 1
    shape = (rows, *result_features(of, feature_shapes(of, operands)))
    # beside operands on the meta device the structure may be on another
    kept = (shape, indices.dtype) if of.ties in CHOOSING else ((0,), torch.int32)
    return operands[0].new_empty(shape), operands[0].new_empty(kept[0], dtype=kept[1])


def _given(attributes, tensors) -> list:
    """The operands with None where a message has the number of the edge."""
    places = attributes[0].places
    count = sum(place != "number" for place in places)
    if len(tensors) != count:
        raise ValueError(f"the places {places} want {count} operands, got {len(tensors)}")
    given = iter(tensors)
    return [None if place == "number" else next(given) for place in places]


def _sent(attributes, operands) -> list:
    """The reverse of `_given`."""
    return [x for x, place in zip(operands, attributes[0].places) if place != "number"]


def _check(name: str):
    def check(graph, operands, attributes) -> list[Tensor | None]:
        """The operands fit the graph; only the first must be floating: others may number edges."""
        names = [f"x{number}" for number in range(len(operands))]
        check_dense(name, "x0", operands[0])
        check_message_rows(name, graph, names, attributes[0].places, operands)
        if name == "edge_map":
            of, reduced = attributes
            dims = len(result_features(of, feature_shapes(of, operands)))
            if len(reduced) not in (0, dims):
                raise ValueError(
                    f"edge_map: reduced must say of each of {dims} feature dimensions whether to sum over it, got "
                    f"{list(reduced)}"
                )
            if of.sums and reduced[-1:] == (True,):
                raise ValueError(f"edge_map: write the sum over the last dimension in the message: 'sum({of.message})'")
        return operands

    return check


AGGREGATE = Operator(
    "aggregate",
    _run_aggregate,
    _gradients_of_aggregate,
    _record_aggregate,
    GRAPH,
    "Tensor[] operands",
    "str message, str places, str reduce, str ties, bool transposed",
    "(Tensor, Tensor)",
    encode=_encode_aggregate,
    decode=_decode_aggregate,
    like=_fake_aggregate,
    check=_check("aggregate"),
    library=_aggregate_in_library,
    saved=_saved_of_library,
    given=_given,
    sent=_sent,
)
"""Attributes: (message,), with its places and reduction; and what is ready to run it on such operands, if somebody has
that (`aggregate_like`).
"""


def _record_edge_map(graph, operands, attributes, needed):
    of, reduced = attributes
    return (
        run_edge_map(of, graph, operands, reduced),
        _read_again(of, operands, needed),
        memo_of(of, operands),
    )


def _encode_edge_map(attributes, transposed: bool):
    of, reduced = attributes
    # the result is in the user's edge order either way
    places = [_SWAPPED.get(place, place) for place in of.places] if transposed else of.places
    return str(of.message), ",".join(places), list(reduced)


def _fake_edge_map(arguments, operands, attributes, transposed: bool):
    of, reduced = attributes
    dims = result_features(of, feature_shapes(of, operands))
    kept = tuple(1 if gone else extent for extent, gone in zip(dims, reduced)) if reduced else dims
    return operands[0].new_empty((arguments[1].shape[0], *kept))


EDGE_MAP = Operator(
    "edge_map",
    lambda graph, operands, attributes: run_edge_map(attributes[0], graph, operands, attributes[1]),
    lambda structure, attributes, saved, memo, needed, grad: _gradients(
        structure, attributes[0], saved, memo, {"cotangent": grad}, needed
    ),
    _record_edge_map,
    GRAPH,
    "Tensor[] operands",
    "str message, str places, bool[] reduced",
    encode=_encode_edge_map,
    decode=lambda message, places, reduced: (
        (checked_message("edge_map", message, tuple(places.split(",")), None, None), tuple(reduced)),
        False,
    ),
    like=_fake_edge_map,
    check=_check("edge_map"),
    saved=lambda attributes, operands, results: (operands, memo_of(attributes[0], operands)),
    given=_given,
    sent=_sent,
)
"""Attributes: (message, for each feature dimension whether to sum over it)."""


def aggregate(of: MessageOp, graph, *operands: Tensor | None) -> Tensor:
    """The aggregation of operands that passed the checks."""
    return (
        _aggregate_in_stages(of, graph, operands) if keeps(of, graph, operands) else AGGREGATE(graph, operands, (of,))
    )


def aggregate_like(of: MessageOp, graph, operands: Sequence[Tensor], signature: tuple | None) -> Tensor:
    """The aggregation, remembered for the next call of this signature (`known_aggregate`)."""
    if keeps(of, graph, operands):
        return _aggregate_in_stages(of, graph, operands)
    prepared = PreparedAggregate(of)
    if signature is not None:
        graph.calls.keep(signature, prepared)
    return AGGREGATE(graph, operands, (of, prepared))


def keeps(of: MessageOp, graph, operands: Sequence[Tensor | None]) -> bool:
    """Whether gradients are wanted, and the planner has the sums of messages kept for them. Half types are not kept,
    which would round them.
    """
    if not of.sums or not torch.is_grad_enabled() or operands[0].dtype not in _KEPT or not operands[0].is_cpu:
        return False
    if not any(x is not None and x.requires_grad for x in operands):
        return False
    heads = max(prod(shape[:-1]) for shape in feature_shapes(of, operands))
    in_order = graph.listed is None and graph.edge_ids is None
    return keeps_sums(graph.num_edges * heads * operands[0].itemsize, in_order)


def _aggregate_in_stages(of: MessageOp, graph, operands: Sequence[Tensor | None]) -> Tensor:
    given = list(operands)
    *values, last = in_stages(of, tuple(feature_shapes(of, operands)))
    for form, sources, reduced in values:
        given.append(EDGE_MAP(graph, [given[i] for i in sources], (form, reduced)))
    return AGGREGATE(graph, [given[i] for i in last.sources], (last.form,))


def edge_map(of: MessageOp, graph, reduced: tuple[bool, ...], *operands: Tensor | None) -> Tensor:
    """The edge map of operands that passed the checks."""
    return EDGE_MAP(graph, operands, (of, reduced))
