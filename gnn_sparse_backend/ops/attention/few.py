"""What layers of attention run on a few edges: a map to scores, a softmax, and a weighted sum, each a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import torch
from torch import Tensor

from ..core.prepared import Width
from ..message.flat import FLOATS, Flat, FlatAggregate, FlatMap
from ..message.message_op import message_op
from .flat import FlatSoftmax

_SUMMED = (False, True)
SCORES = {
    "attention": (("mul(mul(x0, x1), x2)", ("row", "column", "all"), ("F", "F", ()), _SUMMED),),
    "gat_attention": (
        ("leaky_relu(add(x0, x1), 0.2)", ("column", "row"), ("H", "H"), ()),
        ("add(x0, x1)", ("column", "row"), ("H1", "H1"), ()),
    ),
    "gatv2_attention": (
        ("mul(leaky_relu(add(x0, x1), 0.2), x2)", ("row", "column", "all"), ("F", "F", "F"), _SUMMED),
        ("add(x0, x1)", ("column", "row"), ("F", "F"), ()),
    ),
}
"""The maps that layers have, by operator: message, places, kinds of their features, and what is summed over."""


def few_of_attention(name: str, width: Width, dtype: torch.dtype) -> Iterator[Flat]:
    """What layers run in the place of an operator."""
    if dtype not in FLOATS or isinstance(width, int):
        return
    heads, features = width
    shapes = {"F": (heads, features), "H": (heads,), "H1": (heads, 1), (): ()}

    def like(shape: tuple[int, ...], whole: bool = False) -> Tensor:
        return torch.empty(shape if whole else (1, *shape), dtype=dtype)

    for message, places, kinds, summed in SCORES[name]:
        operands = [like(shapes[kind], place == "all") for kind, place in zip(kinds, places)]
        yield FlatMap(message_op(message, places), operands, summed)
    yield FlatSoftmax(like((heads,)))
    weighted = message_op("mul(x0, x1)", ("column", "edge"), "sum")
    yield FlatAggregate(weighted, [like((heads, features)), like((heads, 1))])


def few_of_softmax(heads: Width, dtype: torch.dtype) -> Iterator[Flat]:
    """The softmax by itself."""
    if dtype in FLOATS:
        yield FlatSoftmax(torch.empty((1, prod((heads,))), dtype=dtype))
