"""The state of PyTorch that an operation runs in, as far as it decides what the operation records."""

from __future__ import annotations

import contextlib
import threading

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import saved_tensors_hooks

from ..core.refusal import Refusal
from .torch_state import saving_hooks

_grad_enabled, _inference = torch.is_grad_enabled, torch.is_inference_mode_enabled
_transforms, _dispatch_modes = torch._C._are_functorch_transforms_active, torch._C._len_torch_dispatch_stack


class _Computing(threading.local):
    """on: whether this thread computes what was lazy: nothing in there is to become lazy again."""

    on = False


COMPUTING = _Computing()


@contextlib.contextmanager
def computing():
    """What runs inside computes what was lazy."""
    before, COMPUTING.on = COMPUTING.on, True
    try:
        yield
    finally:
        COMPUTING.on = before


def transformed() -> Refusal | None:
    """What makes the current operations more than plain eager execution, or None."""
    if torch.compiler.is_compiling():  # asked first: what traces a program goes no further
        return Refusal("torch.compile is tracing")
    if _transforms():
        return Refusal("a torch.func transform is active")
    if _dispatch_modes():
        return Refusal("a torch dispatch mode is active")
    if forward_ad._current_level >= 0:
        return Refusal("forward-mode differentiation is active")
    if torch.jit.is_tracing():
        return Refusal("torch.jit is tracing")
    return None


def mode() -> tuple:
    """(gradients are recorded, inference mode, hooks for saved tensors, something transforms operations).

    The hooks tell whether this is inside a checkpointed region or under an offload to another device.
    """
    return (
        _grad_enabled(),
        _inference(),
        saving_hooks(),
        _transforms() or _dispatch_modes() > 0 or forward_ad._current_level >= 0,
    )


def in_checkpoint() -> bool:
    """Whether hooks take what the gradients of operations keep: what runs may be computed again, and has to be what was
    computed at first, whatever was learnt in between.
    """
    return saving_hooks() is not None


@contextlib.contextmanager
def restored(before: tuple):
    """Run in a mode that ``mode`` returned, but for transformations, which cannot be restored."""
    grad, inference, hooks, _ = before
    same = hooks == saving_hooks()  # then this is the mode of what waits with it, too
    saving = contextlib.nullcontext() if same else saved_tensors_hooks(*hooks or (_same, _same))
    with torch.inference_mode(inference), torch.set_grad_enabled(grad), saving:
        yield


def _same(tensor):
    return tensor
