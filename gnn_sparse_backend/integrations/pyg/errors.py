"""Errors of gathers that wait, as PyG's layers have them.

PyG gathers a message before it aggregates, and its user sees the error of the gather. A message that waits is gathered
inside the aggregation, whose own error may come first, and whose ``__call__`` raises a ``ValueError`` in the place of
an ``IndexError``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ..scopes import current


def errors_of_gathers(original: Callable) -> Callable:
    """``Aggregation.__call__``, which itself is ``original``: where it fails in a layer, what waits is computed, and an
    error of that is the one that is raised."""

    @functools.wraps(original)
    def __call__(self, x, *args, **kwargs):
        scope = current()
        if scope is None:
            return original(self, x, *args, **kwargs)
        try:
            return original(self, x, *args, **kwargs)
        except (IndexError, RuntimeError, ValueError) as error:
            failed = error
        scope.settle("its reduction")
        raise failed

    return __call__
