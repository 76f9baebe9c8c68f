"""Aggregations, edge maps, and what their gradients are made of beside these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...formats.structure import row_of_position
from ...runtime.type_names import accumulator_of
from ...runtime.without_kernels import defines, defines_in_programs
from ..message.calls import feature_shapes, result_features
from ..message.message_op import CHOOSING, SHARING, MessageOp
from ..message.products import dot_of, product_of
from ..message.programs.message import Message


def ends_of(graph: Any) -> tuple[Tensor, Tensor]:
    """(edges,) the row and the column of each edge, in the user's order."""
    row, column = row_of_position(graph.indptr, graph.num_edges).long(), graph.indices.long()
    if graph.edge_ids is None:
        return row, column
    at = graph.edge_ids.long()
    return torch.empty_like(row).index_copy_(0, at, row), torch.empty_like(column).index_copy_(0, at, column)


def messages_of(of: MessageOp, graph: Any, operands: Sequence[Tensor | None]) -> Tensor:
    """(edges, ...) the message of each edge, in the user's order and the type that results are computed in."""
    first = operands[0]
    assert first is not None
    wide = wide_of(first)
    ends = dict(zip(("row", "column"), ends_of(graph)))
    shapes = feature_shapes(of, operands)
    dims, rank = result_features(of, shapes), max(map(len, shapes))
    given = []
    for x, place, shape in zip(operands, of.places, shapes):
        if x is None:
            x = torch.arange(graph.num_edges, device=first.device)
        elif place in ends:
            x = x.index_select(0, ends[place])
        elif place == "all":
            x = x.unsqueeze(0)
        x = x.reshape(x.shape[0], *(1,) * (rank - len(shape)), *shape)
        given.append(x.to(wide) if x.is_floating_point() else x)
    found = _evaluate(of.message, given, first.dtype)
    return found.expand(graph.num_edges, *(1,) * (rank - len(dims)), *dims).reshape(graph.num_edges, *dims)


def wide_of(x: Tensor) -> torch.dtype:
    """The type that values of a tensor's are added up in; integers in their own."""
    return accumulator_of(x.dtype) if x.is_floating_point() else x.dtype


def added(rows: int, row: Tensor, x: Tensor) -> Tensor:
    """(rows, ...) the sum of those of ``x``, (n, ...), that ``row``, (n,), gives to each row."""
    return x.new_zeros((rows, *x.shape[1:])).index_add(0, row, x)


def along(row: Tensor, x: Tensor) -> Tensor:
    """A number for each row of x, (n,), in the shape of x, as scatters take it."""
    return row.view(-1, *(1,) * (x.dim() - 1)).expand_as(x)


def _unbroadcast(x: Tensor, like: Tensor) -> Tensor:
    return x.sum(-1, keepdim=True) if x.shape[-1] != 1 and like.shape[-1] == 1 else x


_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "neg": torch.neg,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "relu_grad": lambda g, x: torch.where(x <= 0, 0, g),
    "leaky_relu": lambda x, slope: torch.where(x > 0, x, x * slope),
    "leaky_relu_grad": lambda g, x, slope: torch.where(x > 0, g, g * slope),
    "abs": torch.abs,
    "sign": torch.sign,
    "sum": lambda x: x.sum(-1, keepdim=True),
    "broadcast": lambda x, like: x.expand(torch.broadcast_shapes(x.shape, like.shape)),
    "unbroadcast": _unbroadcast,
    "same": lambda x, y: (x == y).to(x.dtype),
    "alike": lambda x, y: ((x == y) | x.isnan()).to(x.dtype),
    "chosen": lambda g, edge, other: torch.where(edge == other, g, 0),
}
"""What each operator of messages does, feature by feature but for sums."""


def _evaluate(message: Message, operands: list[Tensor], stored: torch.dtype) -> Tensor:
    """The message of operands that have a row for each edge, or one for all. stored: the type of results."""
    if message.op == "arg":
        which: int = message.parts[0]
        return operands[which]
    if message.op == "const":
        return operands[0].new_tensor(message.parts[0])
    parts = [_evaluate(part, operands, stored) if isinstance(part, Message) else part for part in message.parts]
    if message.op == "stored":
        return parts[0].to(stored).to(parts[0].dtype)
    return _FUNCTIONS[message.op](*parts)


@defines("aggregate")
def aggregate(graph: Any, operands: Sequence[Tensor | None], attributes: Sequence[Any]) -> Tensor:
    """(rows, ...) the messages of each row, reduced."""
    of: MessageOp = attributes[0]
    first = operands[0]
    assert first is not None
    x, (row, _), rows = messages_of(of, graph, operands), ends_of(graph), graph.shape[0]
    if of.reduce in ("sum", "mean"):
        found = added(rows, row, x)
        if of.reduce == "mean":
            count = torch.bincount(row, minlength=rows).clamp(min=1)
            found = found / count.view(-1, *(1,) * (x.dim() - 1)).to(x.dtype)
        return found.to(first.dtype)
    index = along(row, x)
    if of.reduce == "prod":
        return x.new_ones((rows, *x.shape[1:])).scatter_reduce(0, index, x, "prod").to(first.dtype)
    return _extreme(of, x.to(first.dtype), index, row, rows)


@defines_in_programs("aggregate")
def aggregate_with_choice(
    graph: Any, operands: Sequence[Tensor | None], attributes: Sequence[Any]
) -> tuple[Tensor, Tensor]:
    """The aggregation, and the number of the edge that each maximum or minimum is of, -1 for none."""
    of: MessageOp = attributes[0]
    found = aggregate(graph, operands, attributes)
    if of.ties not in CHOOSING:
        return found, found.new_empty(0, dtype=torch.int32)
    x, row = messages_of(of, graph, operands).to(found.dtype), ends_of(graph)[0]
    place = torch.arange(graph.num_edges, device=row.device)  # in the order of the non-zeros
    edges = place if graph.edge_ids is None else graph.edge_ids.long()
    if graph.edge_ids is not None:
        place = torch.empty_like(place).index_copy_(0, edges, place)
    nothing = -1 if of.ties == "last" else graph.num_edges
    wanted = x == found[row]
    if of.ties == "first":
        wanted &= x != float("-inf" if of.reduce == "max" else "inf")  # where it begins, and no choice
    place = torch.where(wanted, along(place, x), nothing)
    index = along(row, x)
    last = "amax" if of.ties == "last" else "amin"
    chosen = place.new_full(found.shape, nothing).scatter_reduce(0, index, place, last)
    edges = torch.cat([edges, edges.new_full((1,), -1)])
    return found, edges[torch.where(chosen == nothing, graph.num_edges, chosen)].to(graph.indices.dtype)


def _extreme(of: MessageOp, x: Tensor, index: Tensor, row: Tensor, rows: int) -> Tensor:
    """The maximum or minimum of messages in the type of results. Equal ones share the gradient, as the kinds of ties
    that share say; of the others there is none here.
    """
    reduce = {"max": "amax", "min": "amin"}[of.reduce or ""]
    shape = (rows, *x.shape[1:])
    if of.ties not in SHARING:
        none = float("-inf" if of.reduce == "max" else "inf")
        x = torch.where(x.isnan(), none, x.detach())  # which is never chosen
        return x.new_full(shape, none).scatter_reduce(0, index, x, reduce)
    if of.ties == "even_with_zero" or not x.is_floating_point():
        return x.new_zeros(shape).scatter_reduce(0, index, x, reduce, include_self=False)
    found = x.new_full(shape, float("nan")).scatter_reduce(0, index, x, reduce, include_self=False)
    empty = torch.bincount(row, minlength=rows) == 0
    return torch.where(empty.view(-1, *(1,) * (x.dim() - 1)), 0, found)


@defines("edge_map")
def edge_map(graph: Any, operands: Sequence[Tensor | None], attributes: Sequence[Any]) -> Tensor:
    """(edges, ...) the messages, summed over the dimensions that are named."""
    of, reduced = attributes
    x, first = messages_of(of, graph, operands), operands[0]
    assert first is not None
    over = [dim for dim, gone in enumerate(reduced, 1) if gone]
    return (x.sum(over, keepdim=True) if over else x).to(first.dtype)


@defines("shared_maps")
def shared_maps(graph: Any, operands: Sequence[Tensor], attributes: Sequence[Any]) -> tuple[Tensor, ...]:
    """One map of rows for each vector."""
    x, *vectors = operands
    return tuple(edge_map(graph, (x, vector), attributes) for vector in vectors)


@defines("spmm")
def spmm(graph: Any, operands: Sequence[Tensor | None], attributes: Sequence[Any]) -> Tensor:
    """The product with a matrix, an aggregation."""
    of, given = product_of(graph, operands, attributes)
    return aggregate(graph, given, (of,))


@defines("sddmm")
def sddmm(graph: Any, operands: Sequence[Tensor], attributes: Sequence[Any]) -> Tensor:
    """Dot products at the edges, an edge map."""
    return edge_map(graph, *dot_of(graph, operands, attributes)).squeeze(-1)


@defines("argmax_scatter")
def argmax_scatter(nothing: None, operands: Sequence[Tensor], attributes: Sequence[Any]) -> Tensor:
    """(rows, ...) each number of the cotangent added to the row that was chosen; a negative one is none."""
    (columns, grad), (rows,) = operands, attributes
    taken = grad.to(wide_of(grad)).masked_fill(columns < 0, 0)
    found = taken.new_zeros((rows, *grad.shape[1:]))
    return found.scatter_add(0, columns.clamp(min=0).long(), taken).to(grad.dtype) if rows else found.to(grad.dtype)


@defines("recurrence")
def recurrence(graph: Any, operands: Sequence[Tensor | None], attributes: Sequence[Any]) -> Tensor:
    """(edges, ...) what a linear recurrence along each row has before each edge: the n-th edges of all rows at once."""
    (factor, plus), (backwards,) = operands, attributes
    assert factor is not None
    indptr = graph.indptr.long()
    row = row_of_position(indptr, graph.num_edges)
    here = torch.arange(graph.num_edges, device=row.device)
    place = indptr[row + 1] - 1 - here if backwards else here - indptr[row]
    order = place.argsort(stable=True)
    edge = order if graph.edge_ids is None else graph.edge_ids.long()[order]
    state = factor.new_full((graph.shape[0], *factor.shape[1:]), 1.0 if plus is None else 0.0)
    before = []
    for edges, rows in zip(*(x.split(torch.bincount(place).tolist()) for x in (edge, row[order]))):
        before.append(state[rows])
        after = factor[edges] * before[-1]
        state = state.index_copy(0, rows, after if plus is None else after + plus[edges])
    return torch.cat(before)[edge.argsort()] if before else torch.zeros_like(factor)
