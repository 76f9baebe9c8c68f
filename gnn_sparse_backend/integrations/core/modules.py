"""Whether a module does what its class says, so that another operator may stand in for its ``forward``."""

from __future__ import annotations

from torch.nn import Module
from torch.nn.modules import module as torch_module

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_untouched(*modules: Module) -> bool:
    """Whether calling these modules is calling the ``forward`` of their classes: nothing is hooked to them or to all
    modules, and none has a ``forward`` of its own."""
    return not any(getattr(torch_module, "_global" + hooks, None) for hooks in _HOOKS) and not any(
        "forward" in module.__dict__ or any(getattr(module, hooks, None) for hooks in _HOOKS) for module in modules
    )
