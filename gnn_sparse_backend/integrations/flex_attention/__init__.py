"""PyTorch's FlexAttention on a CPU: ``torch.nn.attention.flex_attention.flex_attention``, forward and backward.

=========  ==========================================================================================
module     what it holds
=========  ==========================================================================================
``calls``  which calls are ours
``dense``  what PyTorch does not compute on a CPU, and kernels cannot: gradients of any function of scores
=========  ==========================================================================================

Counted by the name of the function. Other devices than CPUs are PyTorch's, traced by ``torch.compile`` as before; on a
CPU a program that is compiled ends where the function is called. One that was compiled before goes on holding PyTorch's
function: compile it after enabling.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.nn.attention import flex_attention as theirs

from ..core.patch import Patches, globals_among, put_back
from ..core.refusal import Boundary
from . import calls, dense

NAME = "flex_attention"


class FlexHost(Boundary):
    name = NAME
    traced = False


HOST = FlexHost()
_patches = Patches()


def activate() -> None:
    """Put ours under PyTorch's name, and in modules that have imported it."""
    original = theirs.flex_attention
    ours = _on_a_cpu(original)
    _patches.set(theirs, NAME, ours)
    for module, name, _ in globals_among({original}):
        _patches.set(module, name, ours)


def deactivate() -> None:
    """Put PyTorch's back, in modules that were imported since, too."""
    if len(_patches):
        ours = theirs.flex_attention
        _patches.undo()
        put_back({ours: theirs.flex_attention})


def _on_a_cpu(original: Callable) -> Callable:
    """Ours where queries are on a CPU, PyTorch's elsewhere."""
    asking = HOST.admit(dense.completed(original), NAME, calls.run)

    @functools.wraps(original)
    def flex_attention(query, *args, **kwargs):
        if isinstance(query, torch.Tensor) and query.device.type == "cpu":
            return asking(query, *args, **kwargs)
        return original(query, *args, **kwargs)

    return flex_attention
