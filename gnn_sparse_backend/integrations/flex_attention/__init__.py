"""PyTorch's FlexAttention on a CPU: ``torch.nn.attention.flex_attention.flex_attention``, forward and backward.

============  ==========================================================================================
module        what it holds
============  ==========================================================================================
``calls``     which calls are ours
``compiled``  those within a program of ``torch.compile``, which is not broken there
``dense``     what PyTorch does not compute on a CPU, and kernels cannot: gradients of any function of scores
============  ==========================================================================================

Counted by the name of the function. Other devices than CPUs are PyTorch's, traced by ``torch.compile`` as before. A
program that was compiled before goes on holding PyTorch's function: compile it after enabling. One ends where a call
has a mask of ``gsb.masks``, which is no `BlockMask` (``gsb.masks.to_block_mask`` makes one).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.compiler import is_dynamo_compiling
from torch.nn.attention import flex_attention as theirs

from ...structures.masks import Mask, Planes
from ..core.patch import Patches, globals_among, put_back
from ..core.refusal import Boundary
from . import calls, compiled, dense

NAME = "flex_attention"


class FlexHost(Boundary):
    name = NAME
    traced = False


HOST = FlexHost()
_patches = Patches()
_kernel = compiled.Kernel(NAME)


def activate() -> None:
    """Put ours under PyTorch's name, and in modules that have imported it."""
    original = theirs.flex_attention
    ours = _on_a_cpu(original, _kernel.put() and hasattr(theirs, "_validate_device"))
    _patches.set(theirs, NAME, ours)
    if hasattr(theirs, "_validate_device"):
        _patches.set(theirs, "_validate_device", _with_gradients(theirs._validate_device))
    for module, name, _ in globals_among({original}):
        _patches.set(module, name, ours)


def deactivate() -> None:
    """Put PyTorch's back, in modules that were imported since, too."""
    if len(_patches):
        ours = theirs.flex_attention
        _patches.undo()
        _kernel.take()
        put_back({ours: theirs.flex_attention})


def _with_gradients(original: Callable) -> Callable:
    """PyTorch's check of devices, which refuses gradients on a CPU, for programs that are traced."""

    @functools.wraps(original)
    def check(query, key, value):
        if not (is_dynamo_compiling() and query.device.type == "cpu"):
            original(query, key, value)

    return check


def _on_a_cpu(original: Callable, in_programs: bool) -> Callable:
    """Ours where queries are on a CPU, PyTorch's elsewhere. in_programs: whether Dynamo may trace it."""
    asking = HOST.admit(dense.completed(original), NAME, calls.run)

    @functools.wraps(original)
    def flex_attention(
        query,
        key,
        value,
        score_mod=None,
        block_mask=None,
        scale=None,
        enable_gqa=False,
        return_lse=False,
        kernel_options=None,
        **more,
    ):
        given = query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse
        if not (isinstance(query, torch.Tensor) and query.device.type == "cpu"):
            return original(*given, kernel_options, **more)
        if in_programs and is_dynamo_compiling() and not isinstance(block_mask, (Mask, Planes)):
            return original(*given, {**(kernel_options or {}), compiled.OURS: True}, **more)
        return asking(*given, kernel_options, **more)

    return flex_attention
