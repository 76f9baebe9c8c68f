"""Reductions and softmaxes of what there is for each of a few edges, straight from a framework's tensors to kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...deferred import later
from ...ops.message.flat import Flat, FlatAggregate
from ...ops.message.message_op import message_op
from ...planner.cpu.listed import FEW
from ...structures.csr import EdgeList
from ..scopes import current
from ..scopes.modes import transformed
from .listed import is_list
from .operators import FLATS, is_plain, run

if TYPE_CHECKING:
    from ...ops.attention import flat
else:
    flat = later(__name__, "...ops.attention.flat")

TIES = {"max": "even_with_zero", "min": "even_with_zero"}
"""Who gets the gradient of equal messages, where a framework scatters into zeros by PyTorch."""


def reduced(x: Tensor, index: Tensor, size: int, reduce: str) -> Tensor | None:
    """The reduction of x (edges, ...) into ``size`` rows; None where it is not one of few edges, or an index is out of
    range. reduce: the name of a `Reduction`.
    """
    return _run((reduce, x.dtype, x.shape[1:]), _aggregate, x, index, size) if _is_flat(x, index, size) else None


def softmaxed(x: Tensor, index: Tensor, size: int) -> Tensor | None:
    """The softmax of x (edges, ...) over each row; None as above."""
    if not _is_flat(x, index, size):
        return None
    return _run(("softmax", x.dtype, x.shape[1:]), lambda like, _: flat.FlatSoftmax.made(like), x, index, size)


def is_left(x: Tensor, kind: str | None) -> bool:
    """Whether the framework's own reduction of x (edges, ...) takes no longer. kind: as in `Few.leaves`."""
    rows = x.shape[0] if x.dim() else 1
    return FEW.leaves(kind, rows, max(x.numel(), 1), x.requires_grad and torch.is_grad_enabled())


def _is_flat(x: Tensor, index: Tensor, size: int) -> bool:
    return (
        is_plain(x)
        and not torch.jit.is_tracing()
        and x.numel() <= FEW.features
        and size > 0
        and is_list(index, 1)
        and index.shape[0] == x.shape[0]
        and current() is None
        and transformed() is None
    )


def _run(key: tuple, make: Callable[[Tensor, str], Flat], x: Tensor, index: Tensor, size: int) -> Tensor | None:
    flat = FLATS.get(key)
    if flat is None:
        flat = FLATS.keep(key, make(x.detach()[:1], key[0]))
    end = index.detach()
    return run(flat, EdgeList(end, end, (size, size)), (x,))


def _aggregate(like: Tensor, reduce: str) -> Flat:
    return FlatAggregate.made(message_op("x0", ("edge",), reduce, TIES.get(reduce)), [like])
