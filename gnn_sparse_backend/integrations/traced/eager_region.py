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
from torch._dynamo import trace_rules


def leave(package: ModuleType) -> None:
    """Have a package's functions not traced into."""
    if (folder := _folder(package)) not in trace_rules.SKIP_DIRS:
        trace_rules.SKIP_DIRS.append(folder)
        trace_rules._recompile_re()


def enter(package: ModuleType) -> None:
    """Take back what ``leave`` did."""
    if (folder := _folder(package)) in trace_rules.SKIP_DIRS:
        trace_rules.SKIP_DIRS.remove(folder)
        trace_rules._recompile_re()


def eager_region(ours: Callable) -> Callable:
    """A function of ours under such a package, with all that it calls not traced into."""
    disabled = torch.compiler.disable(ours)

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
    trace_rules.get_torch_obj_rule_map.cache_clear()


def _folder(package: ModuleType) -> str:
    return str(Path(package.__file__ or "").parent)
