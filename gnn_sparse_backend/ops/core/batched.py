"""Batches of tensors in the guise of one: a call for each element.

`torch.vmap` asks an operator for its rule. ``torch.autograd.functional.jacobian(vectorize=True)`` and
``grad(is_grads_batched=True)`` have tensors of the vmap that it replaced, for which PyTorch has no public way to give
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

_is_batch = torch._C._functorch.is_legacy_batchedtensor


def in_batch(tensors: Sequence[Any]) -> bool:
    """Whether one of them is a batch of the vmap that was replaced."""
    for x in tensors:
        if isinstance(x, Tensor) and _is_batch(x):  # a program that is traced has other operands
            return True
    return False


def for_each(function: Callable[..., Any], tensors: Sequence[Tensor | None]) -> Any:
    """What the function gives for each element of such a batch, as a batch again."""
    levels = [0 if x is None else _level(x) for x in tensors]
    level = max(levels)
    apart = [torch._remove_batch_dim(x, level, 0, 0) if at == level else x for x, at in zip(tensors, levels)]
    dims = [0 if at == level else None for at in levels]
    results, spec = tree_flatten(mapped(function, apart[dims.index(0)].shape[0], dims, apart))
    return tree_unflatten([x if x is None else torch._add_batch_dim(x, 0, level) for x in results], spec)


def mapped(function: Callable[..., Any], size: int, dims: Sequence[Any], arguments: Sequence[Any]) -> Any:
    """What the function gives for each of ``size`` elements of its arguments, stacked. dims: which dimension of each
    has them, None where all are alike.
    """
    values, spec = tree_flatten(list(arguments))
    which = _broadcast_to_and_flatten(list(dims), spec)
    found = []
    for at in range(max(size, 1)):  # where there is none, zeros tell the shapes
        of_one = [x if dim is None else _element(x, dim, at) for x, dim in zip(values, which)]
        found.append(tree_flatten(function(*tree_unflatten(of_one, spec))))
    results = [each[0] if each[0] is None else torch.stack(each)[:size] for each in zip(*(flat for flat, _ in found))]
    return tree_unflatten(results, found[0][1])


def _element(x: Tensor, dim: int, at: int) -> Tensor:
    return x.select(dim, at) if x.shape[dim] else x.new_zeros((*x.shape[:dim], *x.shape[dim + 1 :]))


def _level(x: Tensor) -> int:
    """Level of the innermost vmap that ``x`` is a batch of, counted from 1; 0 where it is none."""
    level = 0
    while _is_batch(x):
        level += 1
        x = torch._remove_batch_dim(x, level, 1, 0)
    return level
