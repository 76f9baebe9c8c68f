"""What the frames of a running program tell: who may still read a variable, and which modules are being called."""

from __future__ import annotations

import dis
import sys
from types import CodeType, FrameType

from torch.nn import Module

from ...compiler.cache.bounded import kept

_DEEPEST = 16
"""Calls between a layer and a function of PyTorch that it calls."""


def module_with_hooks(frame: FrameType | None) -> bool:
    """Whether a module that is being called, from this frame outwards, has hooks, or is wrapped: what it maps by may be
    freed, or changed, as soon as it has ended.
    """
    for _ in range(_DEEPEST):
        if frame is None:
            return False
        code = frame.f_code
        if code.co_name == "forward" and code.co_varnames[:1] == ("self",):
            module = frame.f_locals.get("self")
            if isinstance(module, Module) and has_hooks(module):
                return True
        frame = frame.f_back
    return False


def has_hooks(module: Module) -> bool:
    """Whether something runs before or behind a module, or in its place."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in vars(module)
    )


def is_forgotten(x, frame: FrameType, others: int) -> bool:
    """Whether ``x`` is held by variables of a frame alone, which nothing can read from here on.

    others: references beside, the caller's own.
    """
    read = _read_after(frame.f_code, frame.f_lasti)
    variables = frame.f_locals
    names = [name for name, held in variables.items() if held is x]
    copies = len(names) if type(variables) is dict else 0  # before Python 3.13 what was asked for is a copy
    beside = others + 2 + copies  # the argument, and what is asked below
    return bool(names) and read.isdisjoint(names) and sys.getrefcount(x) == beside + len(names)


@kept
def _read_after(code: CodeType, last: int) -> frozenset[str]:
    """The variables that instructions behind one may read.

    Instructions are taken in their order, from where the first jump back leads; that some of them cannot be reached
    from here is not looked at.
    """
    instructions, first = list(dis.get_instructions(code)), last
    while True:
        back = [
            each.argval
            for each in instructions
            if each.offset > first and each.opcode in dis.hasjrel + dis.hasjabs and each.argval < first
        ]
        if not back:
            break
        first = min(back)
    read = {*code.co_cellvars, *code.co_freevars}
    for each in instructions:
        if each.offset > first and "FAST" in each.opname and each.opname not in ("STORE_FAST", "DELETE_FAST"):
            read.update(each.argval if isinstance(each.argval, tuple) else (each.argval,))
    return frozenset(read)
