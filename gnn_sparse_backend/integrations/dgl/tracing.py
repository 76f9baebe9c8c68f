"""``torch.compile`` of programs with DGL: DGL's own code, and ours under it, runs between traced programs.

DGL's graphs are objects of C++, at whose first use a traced program ends. To go on tracing behind each such use cuts a
layer into a dozen programs, none of which sees an aggregation whole. So a program ends where DGL is called, once, and
DGL runs as in eager programs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import dgl
import torch
from torch._dynamo import trace_rules

_FOLDER = str(Path(dgl.__file__).parent)


def leave() -> None:
    """Have DGL's functions not traced into."""
    if _FOLDER not in trace_rules.SKIP_DIRS:
        trace_rules.SKIP_DIRS.append(_FOLDER)
        trace_rules._recompile_re()


def enter() -> None:
    """Take back what ``leave`` did."""
    if _FOLDER in trace_rules.SKIP_DIRS:
        trace_rules.SKIP_DIRS.remove(_FOLDER)
        trace_rules._recompile_re()


def apart(ours: Callable) -> Callable:
    """A function of ours under DGL, with all that it calls not traced into."""
    disabled = torch.compiler.disable(ours)

    @functools.wraps(ours)
    def asking(*args, **kwargs):
        return (disabled if torch.compiler.is_compiling() else ours)(*args, **kwargs)

    return asking
