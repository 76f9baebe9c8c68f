"""A choice between two tensors, element by element."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .array import Array
from .elementwise import Operand, elementwise, is_zero, operand
from .storage.values import Values, is_tensor


def where(condition: Any, a: Any, b: Any) -> Array:
    """`a` where a condition holds, `b` elsewhere, with NumPy's broadcasting.

    Args:
        condition: an `Array` of truth values, or whatever `array` takes; numbers hold where they are not zero.
        a, b: `Array`s, what `array` takes, or numbers.

    The result is sparse where `b` is sparse, or the number 0, and `condition` or `a` is too, so that it is zero where
    nothing is stored. Otherwise it is an ordinary array. Its type is that of `a` and `b`, promoted as NumPy does, of
    PyTorch where a tensor of it is among them; gradients flow back to both. Raises TypeError for what is no array, and
    ValueError for shapes that do not broadcast.
    """
    given: list[Operand] = []
    for name, x in (("condition", condition), ("a", a), ("b", b)):
        found = operand(x)
        if found is None:
            raise TypeError(f"{name} is no array and no number: {x!r:.60}")
        given.append(found)
    holds, one, other = map(is_zero, given)
    stored = elementwise(_chosen, *given, sparse=other and (holds or one))
    return Array(stored.structure, stored.values)


def _chosen(condition: Values, a: Values, b: Values) -> Values:
    library: Any = sys.modules["torch"] if any(map(is_tensor, (condition, a, b))) else np
    truth = condition != 0
    return library.where(truth if is_tensor(truth) or library is np else library.tensor(bool(truth)), a, b)
