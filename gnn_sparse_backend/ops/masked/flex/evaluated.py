"""A `Node` of many pairs at once, by PyTorch: what the gradients of captured tensors are differentiated as."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..programs.modifier import CONDITION, INTEGER, NUMBER, Node

COMPUTED: dict[str, Callable[..., Tensor]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floor_div": operator.floordiv,
    "mod": operator.mod,
    "neg": operator.neg,
    "min": torch.minimum,
    "max": torch.maximum,
    "less": operator.lt,
    "less_equal": operator.le,
    "equal": operator.eq,
    "differ": operator.ne,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "where": torch.where,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "abs": torch.abs,
    "sin": torch.sin,
    "cos": torch.cos,
}
"""The operations of a `Node` as PyTorch has them."""


def evaluate(node: Node, leaves: dict[str, Tensor], tensors: Sequence[Tensor]) -> Tensor:
    """The node of many pairs at once, by PyTorch. leaves: score and places, which broadcast. Indices that a tensor has
    not find an element that it has, as in kernels.
    """
    score = leaves["score"]

    def of(each: Node) -> Tensor:
        if each.op in leaves:
            return leaves[each.op]
        if each.op == "const":
            dtype = {NUMBER: score.dtype, INTEGER: torch.int64, CONDITION: torch.bool}[each.kind]
            return torch.tensor(each.parts[0], dtype=dtype)
        if each.op == "load":
            which, *at = each.parts
            x, indices = tensors[which], []
            for index, size in zip(map(of, at), x.shape):
                indices.append(torch.where(index < 0, index + size, index).clamp(0, size - 1))
            found = x[tuple(torch.broadcast_tensors(*indices))] if indices else x
            return found.to(score.dtype) if each.kind == NUMBER else found
        if each.op == "to":
            return of(each.parts[0]).to({NUMBER: score.dtype, INTEGER: torch.int64, CONDITION: torch.bool}[each.kind])
        return COMPUTED[each.op](*map(of, each.parts))

    return of(node)
