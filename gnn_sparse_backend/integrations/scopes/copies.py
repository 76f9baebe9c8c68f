"""Copies of tensors that a user may write to, which nobody can write to; and whether one holds what the tensor holds.

PyTorch is not told of all writes: NumPy arrays and other libraries share memory with tensors. So numbers are compared,
which is one pass over them, where an operator gathers them for every edge.
"""

from __future__ import annotations

import weakref

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.utils.weak import WeakIdKeyDictionary

from .modes import transformed

_ORIGINALS = WeakIdKeyDictionary()
"""Copies, and of each a weak reference to the tensor that was copied."""
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def copied(x: Tensor) -> Tensor:
    """A copy of a tensor, behind it in the graph of gradients; the tensor itself if it is one of these."""
    if x in _ORIGINALS:
        return x
    copy = x.clone()
    _ORIGINALS[copy] = weakref.ref(x)
    return copy


def copy_among(x: Tensor, others: tuple[Tensor, ...]) -> Tensor:
    """A copy of a tensor on the CPU, among others, that still can stand for it; the tensor itself if there is none."""
    if not len(_ORIGINALS) or any(x is each for each in others):
        return x
    for each in others:
        original = _ORIGINALS.get(each)
        if original is not None and original() is x and _stands_for(each, x):
            return each
    return x


def _stands_for(copy: Tensor, x: Tensor) -> bool:
    """Whether a copy of a tensor has its numbers, and its place in the graph of gradients, as they are now."""
    if not x.is_cpu or transformed() is not None:  # a GPU would have to be waited for
        return False
    if copy.is_inference() and not torch.is_inference_mode_enabled():
        return False
    if copy.requires_grad is not (x.requires_grad and torch.is_grad_enabled()):
        return False
    if copy.requires_grad and copy.grad_fn.next_functions[0] != tuple(get_gradient_edge(x))[:2]:
        return False
    bits = _BITS[x.element_size()]
    return torch.equal(x.detach().view(bits), copy.detach().view(bits))
