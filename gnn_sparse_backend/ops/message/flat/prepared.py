"""What layers run on a few edges in the place of reductions of copies and of weighted copies (`FlatAggregate`)."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ....compiler.language.reduction import REDUCTIONS
from ...core.prepared import Width
from ..message_op import message_op
from .operators import FLOATS, Flat, FlatAggregate


def few_of_reduction(
    message: str, places: tuple[str, ...], reduce: str, width: Width, dtype: torch.dtype
) -> Iterator[Flat]:
    """The reduction of features of one kind, with the gradients of all operands."""
    of = message_op(message, places, reduce, "even_with_zero" if REDUCTIONS[reduce].chooses else None)
    likes = [torch.empty(1, width if at == 0 else 1, dtype=dtype) for at in range(len(places))]
    if dtype in FLOATS and FlatAggregate.serves(of, likes):
        yield FlatAggregate(of, likes)
