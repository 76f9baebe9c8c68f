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
    above = a[:-2], b[:-2]
    modes = broadcast(f"modes {above[0]} and {above[1]} before those of the matrices", *above)
    one, other = ([f"b{n}_{name}" if alone else f"b{n}" for n, alone in own] for name, own in zip("ab", modes))
    both = [f"b{n}" for n in range(max(map(len, above)))]
    return (*one, *left), (*other, *right), (*both, *(index for index in (*left, *right) if index != "j"))


def aligned(*shapes: Shape) -> list[list[tuple[int, bool]]]:
    """For each mode of each shape: which mode of the broadcast shape it is, aligned at the last; and whether it has one
    coordinate, over which is summed, beside another extent."""
    count = max(map(len, shapes))
    extents = [{shape[n - count] for shape in shapes if len(shape) >= count - n} for n in range(count)]
    return [[(n, m == 1 and extents[n] != {1}) for n, m in enumerate(shape, count - len(shape))] for shape in shapes]


def broadcast(what: str, a: Shape, b: Shape) -> list[list[tuple[int, bool]]]:
    """`aligned` of two shapes. Raises ValueError, which says what does not broadcast."""
    count = min(len(a), len(b))
    for m, n in zip(a[len(a) - count :], b[len(b) - count :]):
        if m != n and 1 not in (m, n):
            raise ValueError(f"{what} do not broadcast: {m} is not {n}")
    return aligned(a, b)


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
