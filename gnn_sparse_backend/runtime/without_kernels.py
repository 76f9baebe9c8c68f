"""Calls whose kernels cannot be had here, for want of room, of permission or of a compiler, and that are nobody else's.

A call of the forward pass is then left to whoever asked: a framework runs it itself. On the way back there is nobody to
leave it to, since the framework has recorded a call of ours, nor in a compiled program. So PyTorch's own functions
compute there what the operator would (`ops.eager`), at their speed, with a warning, and counted.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

from ..compiler.packs.errors import NoKernelWarning

Definition: TypeAlias = Callable[..., Any]
"""From a structure, operands and attributes, as an operator is called with, to its result or results. It records
itself for autograd by what it is made of."""

_definitions: dict[str, Definition] = {}
_in_programs: dict[str, Definition] = {}
_counts: dict[str, int] = {}
_lock = threading.Lock()


def defines(*operators: str) -> Callable[[Definition], Definition]:
    """Make a function what computes operators of these names where their kernels cannot be had."""

    def add(definition: Definition) -> Definition:
        _definitions.update(dict.fromkeys(operators, definition))
        return definition

    return add


def defines_in_programs(*operators: str) -> Callable[[Definition], Definition]:
    """`defines`, for operators that give more in a program than their result: a function of all that they give there.
    It records nothing.
    """

    def add(definition: Definition) -> Definition:
        _in_programs.update(dict.fromkeys(operators, definition))
        return definition

    return add


def definition_of(operator: str, counted: str, in_program: bool = False) -> Callable[..., Any] | None:
    """Return what computes an operator of a backward pass, or of a program, without kernels: a function of why there
    are none, the structure, operands and attributes. None where nothing else defines it.

    counted: the name that it is counted by. in_program: all that it gives in a program.
    """
    definition = _in_programs.get(operator) if in_program else None
    definition = definition or _definitions.get(operator)
    return None if definition is None else functools.partial(_run, definition, counted)


def _run(definition: Definition, counted: str, why: str, *given: Any) -> Any:
    warnings.warn(
        f"{why}. Until then PyTorch's own functions compute compiled programs, and the gradients of calls that ran "
        "on kernels",
        NoKernelWarning,
        stacklevel=3,
    )
    with _lock:
        _counts[counted] = _counts.get(counted, 0) + 1
    return definition(*given)


def counts() -> dict[str, int]:
    """How often each operator was computed so since `reset_counts`."""
    with _lock:
        return dict(_counts)


def reset_counts() -> None:
    """Set all of them to zero."""
    with _lock:
        _counts.clear()
