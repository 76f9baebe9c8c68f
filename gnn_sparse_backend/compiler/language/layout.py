"""Where the value of an element lies: offsets by the axis tree (SparseTIR, section 3.4.1, equations 6 to 8).

A buffer's axes are grouped by tree, in the order in which the trees appear. Each tree contributes one dimension to
the stored array, indexed by the offset of its leaf; so a buffer on (I, J, H), with J under I and H a root, is stored
with shape (elements of J, H). Strides between trees are the array's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .axes import Axis, Size, StageIError


def chains(axes: tuple[Axis, ...]) -> tuple[tuple[Axis, ...], ...]:
    """The axes grouped by tree, root first in each group.

    Raises StageIError where an axis stands before its parent, twice, or beside a sibling: then the buffer has no
    layout.
    """
    groups: list[list[Axis]] = []
    seen: set[Axis] = set()
    for axis in axes:
        if axis in seen:
            raise StageIError(f"axis {axis.name!r} occurs twice")
        seen.add(axis)
        if axis.parent is None:
            groups.append([axis])
            continue
        for group in groups:
            if group[-1] == axis.parent:
                group.append(axis)
                break
        else:
            why = "before its parent" if axis.parent not in seen else "beside another child of its parent"
            raise StageIError(f"axis {axis.name!r} stands {why} {axis.parent.name!r}")
    return tuple(tuple(group) for group in groups)


def offset(chain: tuple[Axis, ...], positions: Sequence[Any], indptr: Callable[[Axis, Any], Any]) -> Any:
    """The offset of an element: `positions` along a chain, relative to their parents, made absolute.

    indptr(axis, offset) gives the first element of `axis` under the parent element at that offset. Works on anything
    that can be added and multiplied: integers, NumPy arrays, TVM expressions.
    """
    at = None
    for axis, position in zip(chain, positions, strict=True):
        at = position if axis.parent is None else first(axis, at, indptr) + position
    return at


def first(axis: Axis, parent_offset: Any, indptr: Callable[[Axis, Any], Any]) -> Any:
    """The offset of the first element of `axis` under the parent element at `parent_offset`."""
    if axis.is_variable:
        return indptr(axis, parent_offset)
    return parent_offset * axis.stored


def elements(axis: Axis, size: Callable[[int | Size], Any] = lambda s: s) -> Any:
    """How many elements `axis` stores in all; size(s) turns a static or run-time size into a value."""
    if axis.parent is None:
        return size(axis.length)
    if axis.is_variable:
        return size(axis.stored)
    return elements(axis.parent, size) * size(axis.stored)


def slots(axis: Axis) -> int | Size:
    """The largest number of positions under one parent element."""
    if axis.kind == "sparse_fixed":
        return axis.stored
    # where coordinates repeat, a parent may have more elements than there are coordinates
    return axis.length if axis.unique else axis.stored
