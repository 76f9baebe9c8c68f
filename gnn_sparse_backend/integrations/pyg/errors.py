"""Errors of gathers that wait, as PyG's layers have them.

PyG gathers a message before it aggregates, and its user sees the error of the gather. A message that waits is gathered
inside the aggregation, whose own error may come first, and whose ``__call__`` raises a ``ValueError`` in the place of
an ``IndexError``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ..lazy import LazyTensor, materialise


def errors_of_gathers(original: Callable) -> Callable:
    """``Aggregation.__call__``, which itself is ``original``: where it fails on a message that waits, that is computed,
    and an error of it is the one that is raised."""

    @functools.wraps(original)
    def __call__(self, x, *args, **kwargs):
        if type(x) is not LazyTensor:
            return original(self, x, *args, **kwargs)
        try:
            return original(self, x, *args, **kwargs)
        except (IndexError, RuntimeError, ValueError) as error:
            failed = error
        materialise(x, "its reduction")
        raise failed

    return __call__
