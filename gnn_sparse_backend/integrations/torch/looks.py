"""Where PyTorch takes tensors without announcing it: what is lazy is computed before."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from ...dynamo import imported
from ..core.patch import Patches
from ..lazy import materialise
from ..scopes import current


def install(patches: Patches) -> None:
    """Compute what is lazy before somebody asks for its gradient by ``backward``, or calls a program of TorchScript."""
    patches.set(torch.autograd, "backward", _of_inputs(torch.autograd.backward))
    patches.set(torch.Tensor, "set_", _writing(torch.Tensor.set_))
    for kind in (torch._C.ScriptFunction, torch._C.ScriptMethod):
        patches.set(kind, "__call__", _of_script(kind.__call__))


def install_in_dynamo(patches: Patches) -> None:
    """Compute what is lazy before somebody calls a compiled program. Nothing without a Dynamo."""
    eval_frame = imported("torch._dynamo.eval_frame")
    for name in ("_maybe_set_eval_frame", "set_eval_frame"):  # the latter before PyTorch 2.5
        if eval_frame is not None and hasattr(eval_frame, name):
            patches.set(eval_frame, name, _entering(getattr(eval_frame, name)))
            return


def _of_inputs(original: Callable) -> Callable:
    @functools.wraps(original)
    def backward(*args, **kwargs):
        inputs = args[5] if len(args) > 5 else kwargs.get("inputs")
        if inputs is not None:
            materialise(inputs if isinstance(inputs, (tuple, list)) else (inputs,), "its gradient is asked for")
        return original(*args, **kwargs)

    return backward


def _settle(reason: str) -> None:
    """Compute all that is lazy in this thread."""
    scope = current()
    while scope is not None:
        scope.settle(reason)
        scope = scope.outer


def _writing(original: Callable) -> Callable:
    @functools.wraps(original)
    def set_(self, *args, **kwargs):
        _settle("somebody writes to a tensor")
        return original(self, *args, **kwargs)

    return set_


def _of_script(original: Callable) -> Callable:
    def call(self, *args, **kwargs):
        _settle("a program of TorchScript is called")
        return original(self, *args, **kwargs)

    return call


def _entering(original: Callable) -> Callable:
    @functools.wraps(original)
    def set_eval_frame(callback):
        if callable(callback):
            _settle("a compiled program is called")
        return original(callback)

    return set_eval_frame
