"""Products by the names that NumPy has for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .array import Array, array
from .product_indices import Indices, Shape, dot_indices, matmul_indices, tensordot_indices


def matmul(a: Any, b: Any) -> Array:
    """Multiply matrices and vectors as `a @ b` does, and stacks of matrices, whose modes before the last two are
    broadcast as NumPy does.

    Args:
        a: whatever `array` takes, with one mode or more.
        b: likewise.

    Formats, types and errors are those of `einsum`; ValueError for shapes that do not fit.
    """
    return _product(matmul_indices, a, b)


def dot(a: Any, b: Any) -> Array:
    """Sum over the last mode of a and the last but one of b, or its only one; multiply by a number.

    Args:
        a: whatever `array` takes.
        b: likewise.

    The result has the other modes of a, then those of b. Formats, types and errors are those of `einsum`; ValueError
    for shapes that do not fit.
    """
    return _product(dot_indices, a, b)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Array:
    """Sum over modes of a and modes of b together.

    Args:
        a: whatever `array` takes.
        b: likewise.
        axes: how many modes, the last ones of a and the first ones of b; or (modes of a, modes of b), each an integer
            or several.

    The result has the other modes of a, then those of b. Formats, types and errors are those of `einsum`; TypeError and
    ValueError for axes that the shapes have not.
    """
    return _product(partial(tensordot_indices, axes=axes), a, b)


def _product(indices: Callable[[Shape, Shape], Indices], a: Any, b: Any) -> Array:
    a = a if isinstance(a, Array) or isinstance(b, Array) else array(a)
    found = (a if isinstance(a, Array) else b).multiplied(indices, a, b)
    if found is NotImplemented:
        raise TypeError(f"{b if isinstance(a, Array) else a!r:.60} is not an array, nor what `array` takes")
    return found
