"""Which indices products of NumPy's names have: those of both operands, and of the result, for two shapes."""

from __future__ import annotations

from typing import Any, TypeAlias

from .storage.values import integer, integers

Shape: TypeAlias = tuple[int, ...]
Indices: TypeAlias = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Indices of the two operands and of the result."""


def matmul_indices(a: Shape, b: Shape) -> Indices:
    """The last two modes are those of matrices, all before them are broadcast. Raises ValueError."""
    if not a or not b:
        raise ValueError(f"@ is of arrays with modes, and these have the shapes {a} and {b}; use * for numbers")
    _check_summed("@", a, len(a) - 1, b, max(len(b) - 2, 0))
    left, right = ("i", "j")[-len(a) :], ("j", "k")[: len(b)]
    one, other, both = _broadcast(a[:-2], b[:-2])
    result = *both, *(index for index in (*left, *right) if index != "j")
    return (*one, *left), (*other, *right), result


def _broadcast(a: Shape, b: Shape) -> Indices:
    """Modes that are aligned at the last; one of the extent 1 beside another extent has an index of its own, a sum over
    its one coordinate.
    """
    count = max(len(a), len(b))
    first, second = ([1] * (count - len(x)) + list(x) for x in (a, b))
    for m, n in zip(first, second):
        if m != n and 1 not in (m, n):
            raise ValueError(f"modes {a} and {b} before those of the matrices do not broadcast: {m} is not {n}")
    both = tuple(f"b{n}" for n in range(count))
    one = tuple(f"{x}_a" if m == 1 != n else x for x, m, n in zip(both, first, second))
    other = tuple(f"{x}_b" if n == 1 != m else x for x, m, n in zip(both, first, second))
    return one[count - len(a) :], other[count - len(b) :], both


def dot_indices(a: Shape, b: Shape) -> Indices:
    """A sum over the last mode of a and the last but one of b, or its only one. Raises ValueError."""
    if not a or not b:
        return _summed(a, (), b, ())
    second = max(len(b) - 2, 0)
    _check_summed("dot", a, len(a) - 1, b, second)
    return _summed(a, (len(a) - 1,), b, (second,))


def tensordot_indices(a: Shape, b: Shape, axes: Any) -> Indices:
    """A sum over the last modes of a and the first of b, of an integer; or over those that are named of each.

    Raises TypeError and ValueError.
    """
    count = integer(axes)
    if count is not None:
        if not 0 <= count <= min(len(a), len(b)):
            raise ValueError(f"axes {count} is not a number of modes that both shapes {a} and {b} have")
        pairs = tuple(range(len(a) - count, len(a))), tuple(range(count))
    elif isinstance(axes, (tuple, list)) and len(axes) == 2:
        pairs = _modes(axes[0], a), _modes(axes[1], b)
    else:
        raise TypeError(f"axes {axes!r:.60} is not a number of modes, nor (modes of a, modes of b)")
    if len(pairs[0]) != len(pairs[1]):
        raise ValueError(f"axes {axes!r:.60} names {len(pairs[0])} modes of a and {len(pairs[1])} of b")
    for m, n in zip(*pairs):
        _check_summed("tensordot", a, m, b, n)
    return _summed(a, pairs[0], b, pairs[1])


def _modes(axes: Any, shape: Shape) -> tuple[int, ...]:
    one = integer(axes)
    given = integers(axes, "axes") if one is None else (one,)
    for axis in given:
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"axis {axis} is not one of the {len(shape)} modes of the shape {shape}")
    found = tuple(axis % len(shape) for axis in given)
    if len(set(found)) < len(found):
        raise ValueError(f"axes {axes!r:.60} names a mode of the shape {shape} twice")
    return found


def _check_summed(name: str, a: Shape, m: int, b: Shape, n: int) -> None:
    if a[m] != b[n]:
        raise ValueError(f"{name} of the shapes {a} and {b}: {a[m]} is not {b[n]}")


def _summed(a: Shape, first: tuple[int, ...], b: Shape, second: tuple[int, ...]) -> Indices:
    """All modes of both but those that are summed over."""
    one = tuple(f"s{first.index(mode)}" if mode in first else f"i{mode}" for mode in range(len(a)))
    other = tuple(f"s{second.index(mode)}" if mode in second else f"j{mode}" for mode in range(len(b)))
    return one, other, tuple(index for index in (*one, *other) if index[0] != "s")
