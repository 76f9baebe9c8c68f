"""The softmax over the edges of each row, and attention."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from ...runtime.without_kernels import defines, defines_in_programs
from ..attention.calls import AttentionForm
from ..core.transforms import pulled_back
from .messages import added, aggregate, along, ends_of, messages_of, wide_of


def softmax(graph: Any, operands: Sequence[Tensor], attributes: Sequence[Any], finite: bool = False) -> Tensor:
    """(edges, ...) the scores of each row as weights that sum to 1. finite: an infinite maximum is taken for 0, and
    what sums to 0 stays 0.
    """
    (scores,) = operands
    row, rows = ends_of(graph)[0], graph.shape[0]
    x = scores.to(wide_of(scores))
    most = x.new_full((rows, *x.shape[1:]), float("-inf"))
    most = most.scatter_reduce(0, along(row, x), x.detach(), "amax")
    most = torch.where(most.isinf(), 0, most) if finite else most
    exponential = (x - most[row]).exp()
    total = added(rows, row, exponential)
    total = torch.where(total == 0, 1, total) if finite else total
    return (exponential / total[row]).to(scores.dtype)


defines("edge_softmax")(softmax)
defines("segment_softmax")(partial(softmax, finite=True))


@defines("edge_softmax_backward")
def softmax_backward(graph: Any, operands: Sequence[Tensor], attributes: Sequence[Any]) -> Tensor:
    """(edges, ...) the gradient of the scores, from the weights and their cotangent."""
    weights, grad = (x.to(wide_of(x)) for x in operands)
    row, weighted = ends_of(graph)[0], weights * grad
    return (weighted - weights * added(graph.shape[0], row, weighted)[row]).to(operands[0].dtype)


@defines("attend")
def attend(graph: Any, operands: Sequence[Tensor], attributes: Sequence[Any]) -> Tensor:
    """(rows, ...) the values of each row, weighted by the softmax of its scores."""
    of: AttentionForm = attributes[0]
    return _weighted(of, graph, operands, softmax(graph, (_scores(of, graph, operands),), ()))


def _weighted(of: AttentionForm, graph: Any, operands: Sequence[Tensor], weights: Tensor) -> Tensor:
    value = of.take_apart(operands)[1]
    return aggregate(graph, (weights, *value), (of.weighted,)).to(value[0].dtype)


def _scores(of: AttentionForm, graph: Any, operands: Sequence[Tensor]) -> Tensor:
    scores = messages_of(of.score, graph, of.take_apart(operands)[0])
    return scores.sum(-1, keepdim=True) if of.reduced else scores


@defines_in_programs("attend")
def attend_with_sums(graph: Any, operands: Sequence[Tensor], attributes: Sequence[Any]) -> tuple[Tensor, ...]:
    """The attention, and for each row and score the maximum and the inverse of the sum of exp(score - maximum)."""
    of, rows, row = attributes[0], graph.shape[0], ends_of(graph)[0]
    by_head = _scores(of, graph, operands)
    scores = by_head.reshape(graph.num_edges, prod(by_head.shape[1:]))
    most = scores.new_full((rows, scores.shape[1]), float("-inf"))
    most = most.scatter_reduce(0, along(row, scores), scores, "amax")
    exponential = (scores - most[row]).exp()
    total = added(rows, row, exponential)
    inverse = torch.where(total == 0, 0, 1 / total)  # of rows without edges
    weights = (exponential * inverse[row]).view_as(by_head)
    return _weighted(of, graph, operands, weights), most, inverse


@defines("attend_backward")
def attend_backward(graph: Any, operands: Sequence[Tensor], attributes: Sequence[Any]) -> list[Tensor]:
    """The gradients that are needed; operands that are one variable share the first one's."""
    of, _, grad, needed, *same = attributes
    first = same[0] if same else range(len(operands))
    gradients = pulled_back(lambda given: attend(graph, given, (of,)), operands, needed, grad)
    found: dict[int, Tensor] = {}
    for at, gradient in zip(first, gradients):
        if gradient is not None:
            found[at] = found[at] + gradient if at in found else gradient
    return [found[at] for at in sorted(found)]
