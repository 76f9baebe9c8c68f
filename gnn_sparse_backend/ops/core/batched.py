"""Cotangents in a batch, as ``torch.autograd.functional.jacobian(vectorize=True)`` and ``grad(is_grads_batched=True)``
have them: one backward pass for each element.

PyTorch has no public way to say so of an operator: these tensors come from the vmap that ``torch.func`` replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Gradients = Callable[..., Sequence[Tensor | None]]


def in_batch(cotangents: Sequence[Tensor | None]) -> bool:
    """Whether one of them is a batch of tensors in the guise of one."""
    return any(x is not None and torch._C._functorch.is_legacy_batchedtensor(x) for x in cotangents)


def for_each(gradients: Gradients, cotangents: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The gradients of each element of the batch, as a batch again."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    batches = [x if x is None else _elements(x, level) for x in cotangents]
    size = next(x.shape[0] for x, y in zip(batches, cotangents) if y is not None and in_batch([y]))
    found = [
        gradients(*(x if y is None or not in_batch([y]) else x.select(0, at) for x, y in zip(batches, cotangents)))
        for at in range(size)
    ]
    return [
        None if each[0] is None else torch._add_batch_dim(torch.stack(list(each)), 0, level) for each in zip(*found)
    ]


def _elements(x: Tensor, level: int) -> Tensor:
    """The batch with a leading dimension; anything else as it is."""
    return torch._remove_batch_dim(x, level, 0, 0) if in_batch([x]) else x
