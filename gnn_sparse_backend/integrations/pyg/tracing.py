"""Calls of PyG that ``torch.compile`` cannot trace: sizes that are not known before the program runs.

A traced program ends at such a call, PyG's own function runs, and another program begins behind it. In between our
function may as well run, as in eager programs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from ...dynamo import not_traced, skip_code
from ..exported.making import exporting


def between_programs(ours: Callable, original: Callable, breaks: Callable[..., bool]) -> Callable:
    """``ours``, and while a program is traced ``ours`` between two programs, or ``original`` within one.

    Into a package goes ``ours`` or, where that refuses what is traced, ``original``.

    breaks: of the arguments, whether a traced program would end at ``original``.
    """
    eager_region = not_traced(ours)

    @functools.wraps(original)
    def asking(*args, **kwargs):
        if exporting():
            return ours(*args, **kwargs)
        breaking = breaks(*args, **kwargs)
        if torch.compiler.is_compiling():
            return (eager_region if breaking and not traces_unknown_sizes() else original)(*args, **kwargs)
        # what PyTorch has given up to trace calls this outside of any program, and ours would be traced then
        return (eager_region if breaking else ours)(*args, **kwargs)

    # A program of this alone would be one for all that call it, whose views PyTorch (2.13) cannot tell apart.
    skip_code(asking.__code__)
    return asking


def always(*args, **kwargs) -> bool:
    """``breaks`` of what PyTorch never traces."""
    return True


def traces_unknown_sizes() -> bool:
    """Whether such calls are traced after all: where one program is wanted, or exported."""
    return torch._dynamo.config.capture_dynamic_output_shape_ops
