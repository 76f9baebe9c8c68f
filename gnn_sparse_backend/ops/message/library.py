"""Aggregations and edge maps in ``torch.library``, for ``torch.compile``, fake tensors and tensor subclasses.

As in ``library``, a structure enters an operator as its tensors, and the live graph that owns them is found again at
run time. A form enters as text, so that one operator of each kind serves every message; ``number`` operands, which have
no tensor, are left out of ``operands``.

    gsb::aggregate   transposed: over the edges out of each source, the places being those of the transpose;
                     the second result: with ties ``last`` or ``first`` the numbers of the chosen edges, else empty
    gsb::edge_map    reduced: for each feature dimension whether to sum over it; empty for none
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...structures.checks import plain_tensor
from ...structures.graph import Graph
from ..core.operands import check_dense
from .calls import broadcast_features, feature_shapes, run_aggregate, run_edge_map
from .checks import check_choice, check_message_rows, checked_form
from .gradients import NO_GRADIENT, fit_gradient, gradient_plan
from .message_op import MessageOp, ties_count

_CHOOSING = ("last", "first")
_SWAPPED = {"row": "column", "column": "row"}

torch.library.define(
    "gsb::aggregate",
    "(Tensor indptr, Tensor indices, Tensor? edge_ids, SymInt num_sources, Tensor[] operands, "
    "str message, str places, str reduce, str ties, bool transposed) -> (Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)
torch.library.define(
    "gsb::edge_map",
    "(Tensor indptr, Tensor indices, Tensor? edge_ids, SymInt num_sources, Tensor[] operands, "
    "str message, str places, bool[] reduced) -> Tensor",
    tags=torch.Tag.pt2_compliant_tag,
)


def aggregate_operator(graph: Graph, message: str, places, operands, reduce: str, ties: str | None) -> Tensor:
    """``gsb::aggregate`` on the arrays of ``graph``."""
    return aggregate_of_arrays(_arrays(graph), message, places, operands, reduce, ties)


def aggregate_of_arrays(arrays: tuple, message: str, places, operands, reduce: str, ties: str | None) -> Tensor:
    """``gsb::aggregate`` on (indptr, indices, edge_ids, number of sources)."""
    return torch.ops.gsb.aggregate(*arrays, operands, message, ",".join(places), reduce, ties or "", False)[0]


def edge_map_operator(graph: Graph, message: str, places, operands, reduced) -> Tensor:
    """``gsb::edge_map`` on the arrays of ``graph``."""
    return torch.ops.gsb.edge_map(*_arrays(graph), operands, message, ",".join(places), reduced)


def _arrays(graph: Graph) -> tuple:
    return graph.indptr, graph.indices, graph.edge_ids, graph.shape[1]


@torch.library.impl("gsb::aggregate", "default")
def _aggregate(indptr, indices, edge_ids, num_sources, operands, message, places, reduce, ties, transposed):
    if transposed and reduce == "mean":
        raise ValueError("aggregate: a mean of the transpose is not an operator: scale a sum")
    graph = Graph._of_arrays(indptr, indices, edge_ids, num_sources)
    graph = graph.transpose() if transposed else graph
    of = _aggregation(message, places, reduce, ties)
    operands = _checked_operands("aggregate", of, graph, operands)
    if ties in _CHOOSING:
        return tuple(run_aggregate(of, graph, operands, ("number",), -1))
    return run_aggregate(of, graph, operands), indices.new_empty(0)


@torch.library.impl("gsb::edge_map", "default")
def _edge_map(indptr, indices, edge_ids, num_sources, operands, message, places, reduced):
    graph = Graph._of_arrays(indptr, indices, edge_ids, num_sources)
    of = _map(message, places)
    operands = _checked_operands("edge_map", of, graph, operands)
    dims = len(broadcast_features(feature_shapes(of, operands)))
    if len(reduced) not in (0, dims):
        raise ValueError(
            f"edge_map: reduced must say of each of {dims} feature dimensions whether to sum over it, got {reduced}"
        )
    return run_edge_map(of, graph, operands, tuple(reduced))


def _aggregation(message: str, places: str, reduce: str, ties: str) -> MessageOp:
    check_choice("aggregate", "reduce", reduce, ("sum", "mean", "max", "min"))
    check_choice("aggregate", "ties", ties, ("even", *_CHOOSING) if reduce in ("max", "min") else ("", ""))
    return checked_form("aggregate", message, tuple(places.split(",")), reduce, ties or None)


def _map(message: str, places: str) -> MessageOp:
    return checked_form("edge_map", message, tuple(places.split(",")), None, None)


def _with_numbers(of: MessageOp, operands) -> list[Tensor | None]:
    """The operands with None where a form has the number of the edge."""
    count = sum(place != "number" for place in of.places)
    if len(operands) != count:
        raise ValueError(f"the places {of.places} want {count} operands, got {len(operands)}")
    given = iter(operands)
    return [None if place == "number" else next(given) for place in of.places]


def _checked_operands(operator: str, of: MessageOp, graph: Graph, operands) -> list[Tensor | None]:
    """The operands as plain tensors that fit the graph; only the first must be floating: others may number edges."""
    operands = [None if x is None else plain_tensor(x) for x in _with_numbers(of, operands)]
    names = [f"x{number}" for number in range(len(operands))]
    check_dense(operator, "x0", operands[0])
    check_message_rows(operator, graph, names, of.places, operands)
    return operands


@torch.library.register_fake("gsb::aggregate")
def _aggregate_fake(indptr, indices, edge_ids, num_sources, operands, message, places, reduce, ties, transposed):
    of = _aggregation(message, places, reduce, ties)
    operands = _with_numbers(of, operands)
    rows = num_sources if transposed else indptr.shape[0] - 1
    shape = (rows, *broadcast_features(feature_shapes(of, operands)))
    # beside operands on the meta device the structure may be on another
    chosen = operands[0].new_empty(shape if ties in _CHOOSING else (0,), dtype=indices.dtype)
    return operands[0].new_empty(shape), chosen


@torch.library.register_fake("gsb::edge_map")
def _edge_map_fake(indptr, indices, edge_ids, num_sources, operands, message, places, reduced):
    of = _map(message, places)
    operands = _with_numbers(of, operands)
    dims = broadcast_features(feature_shapes(of, operands))
    return operands[0].new_empty((indices.shape[0], *_kept(dims, reduced)))


def _kept(dims, reduced) -> tuple:
    return tuple(1 if gone else extent for extent, gone in zip(dims, reduced)) if reduced else dims


def _save_aggregate(ctx, inputs, output):
    indptr, indices, edge_ids, ctx.num_sources, operands, message, places, reduce, ties, ctx.transposed = inputs
    ctx.form, ctx.count = _aggregation(message, places, reduce, ties), len(operands)
    out, kept = output
    ctx.save_for_backward(
        indptr, indices, edge_ids, out if ties == "even" else None, kept if ties in _CHOOSING else None, *operands
    )


def _aggregate_backward(ctx, grad, _):
    indptr, indices, edge_ids, result, kept, *operands = ctx.saved_tensors
    of, arrays = ctx.form, (indptr, indices, edge_ids, ctx.num_sources)
    extra = {"cotangent": grad, "chosen": kept, "result": result}
    given = _with_numbers(of, operands)
    if of.ties == "even":
        counted, sources = ties_count(of)
        count = _run(counted, arrays, ctx.transposed, (), [result if s == "result" else given[s] for s in sources])
        # rows without edges: nobody reads their share, but its derivative would be NaN
        extra["cotangent"] = grad / torch.where((count == 0) & (result == 0), 1, count)
    elif of.reduce == "mean":
        wide = torch.float64 if given[0].dtype == torch.float64 else torch.float32
        extra["scale"] = indptr.diff().clamp(min=1).to(wide).reciprocal().unsqueeze(1)
    gradients = _gradients(of, arrays, ctx.transposed, given, extra, ctx.needs_input_grad[4])
    return None, None, None, None, gradients, None, None, None, None, None


def _save_edge_map(ctx, inputs, output):
    indptr, indices, edge_ids, ctx.num_sources, operands, message, places, reduced = inputs
    ctx.form = _map(message, places)
    ctx.no_gradient = None if reduced else []  # an empty list passes for one of tensors
    ctx.save_for_backward(indptr, indices, edge_ids, *operands)


def _edge_map_backward(ctx, grad):
    indptr, indices, edge_ids, *operands = ctx.saved_tensors
    of, arrays = ctx.form, (indptr, indices, edge_ids, ctx.num_sources)
    given = _with_numbers(of, operands)
    gradients = _gradients(of, arrays, False, given, {"cotangent": grad}, ctx.needs_input_grad[4])
    return None, None, None, None, gradients, None, None, ctx.no_gradient


def _gradients(of: MessageOp, arrays, transposed: bool, operands, extra: dict, needed) -> list[Tensor | None]:
    """The gradient of each tensor among the operands that needs one."""
    shapes = tuple(feature_shapes(of, operands))
    found: list[Tensor | None] = []
    needed = iter(needed)
    for number, (x, place) in enumerate(zip(operands, of.places)):
        if x is None:
            continue
        if not next(needed):
            found.append(None)
            continue
        plan = gradient_plan(of, number, shapes, tuple(extra["cotangent"].shape[1:]))
        if plan is NO_GRADIENT:
            found.append(torch.zeros_like(x))
            continue
        parts = [operands[s] if type(s) is int else extra.get(s) for s in plan.sources]
        out = _run(plan.form, arrays, transposed != plan.transposed, plan.reduced, parts)
        found.append(fit_gradient(plan, out, place, x.shape))
    return found


def _run(of: MessageOp, arrays, transposed: bool, reduced, parts) -> Tensor:
    """One more call of an operator."""
    places, operands = of.places, [x for x in parts if x is not None]
    if of.reduce is not None:
        return torch.ops.gsb.aggregate(
            *arrays, operands, str(of.message), ",".join(places), of.reduce, of.ties or "", transposed
        )[0]
    if transposed:  # the result is in the user's edge order either way
        places = [_SWAPPED.get(place, place) for place in places]
    return torch.ops.gsb.edge_map(*arrays, operands, str(of.message), ",".join(places), list(reduced))


torch.library.register_autograd("gsb::aggregate", _aggregate_backward, setup_context=_save_aggregate)
torch.library.register_autograd("gsb::edge_map", _edge_map_backward, setup_context=_save_edge_map)
