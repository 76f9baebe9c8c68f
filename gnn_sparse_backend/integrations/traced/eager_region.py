"""Code that runs between traced programs, as in eager ones.

DGL's graphs are objects of C++, at whose first use a traced program ends. To go on tracing behind each such use cuts a
layer into a dozen programs, none of which sees an aggregation whole. So a program ends where such a package is called,
once, and the package runs as in eager programs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch._C._dynamo import eval_frame

from ...dynamo import DYNAMO, imported, not_traced, when_imported

_left: set[str] = set()
"""Folders of packages that Dynamo, once there is one, does not trace into."""


def leave(package: ModuleType) -> None:
    """Have a package's functions not traced into."""
    _left.add(_folder(package))
    if imported(DYNAMO) is not None:
        _leave_all()


def enter(package: ModuleType) -> None:
    """Take back what ``leave`` did."""
    _left.discard(folder := _folder(package))
    rules = _trace_rules()
    if rules is not None and folder in rules.SKIP_DIRS:
        rules.SKIP_DIRS.remove(folder)
        rules._recompile_re()


def eager_region(ours: Callable) -> Callable:
    """A function of ours under such a package, with all that it calls not traced into."""
    disabled = not_traced(ours)

    @functools.wraps(ours)
    def asking(*args, **kwargs):
        return (disabled if torch.compiler.is_compiling() else ours)(*args, **kwargs)

    return asking


def run_alone(*functions: Any, as_they_are: bool = True) -> None:
    """Have each of these functions, with all that it calls, run as in eager programs where it would be a program of its
    own; where a program calls it, it is traced as before. as_they_are: False takes that back. Nothing where PyTorch
    cannot be told.
    """
    strategy, action = (getattr(eval_frame, name, None) for name in ("_FrameExecStrategy", "_FrameAction"))
    if strategy is None or action is None or not hasattr(eval_frame, "set_code_exec_strategy"):
        return
    wanted = action.SKIP if as_they_are else action.DEFAULT
    for function in functions:
        eval_frame.set_code_exec_strategy(function.__code__, strategy(wanted, wanted))


def look_up_again() -> None:
    """Have PyTorch forget which functions its own names stood for: what it found while ours were there is ours, and it
    would end programs at its own.
    """
    rules = _trace_rules()
    if rules is not None:
        rules.get_torch_obj_rule_map.cache_clear()


def _leave_all() -> None:
    rules = _trace_rules()
    if new := _left.difference(rules.SKIP_DIRS):
        rules.SKIP_DIRS.extend(new)
        rules._recompile_re()


def _trace_rules() -> Any:
    """What Dynamo traces into, or None without a Dynamo."""
    return None if imported(DYNAMO) is None else imported(f"{DYNAMO}.trace_rules")


def _folder(package: ModuleType) -> str:
    return str(Path(package.__file__ or "").parent)


when_imported(DYNAMO, _leave_all)
