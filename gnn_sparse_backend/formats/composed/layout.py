"""Arrays of a format for a matrix whose rows are padded to whole blocks of all pieces: sizes, shapes, and slots.

A buffer has a dimension for each tree of its axes (`compiler.language.layout`), of as many elements as its leaf has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...compiler.language.axes import Axis, Extent, Size
from ...compiler.language.layout import chains, elements
from ...compiler.transforms.place_rule import base_name
from ...compiler.transforms.rewrite_rule import FormatRewriteRule
from ...compiler.transforms.rule_shape import HEIGHT, WIDTH, axes_of
from .spec import FormatSpec


class Layout:
    """Where a rule of a matrix stores what, for numbers in the place of its run-time sizes.

    arrays: sizes and index arrays by the names of the rule, with or without its own at the end. shape: of the matrix.
    """

    def __init__(self, rule: FormatRewriteRule, arrays: Mapping[str, Any], shape: tuple[int, int]) -> None:
        self.rule, self.shape = rule, shape
        self.arrays = {base_name(rule, name): value for name, value in arrays.items()}
        self.axes = axes_of(rule)
        self.after = tuple(self.axes[name] for name in rule.axes_after)

    def size(self, extent: Extent) -> int:
        """A size as a number."""
        if not isinstance(extent, Size):
            return extent
        if extent in (HEIGHT, WIDTH):
            return self.shape[extent == WIDTH]
        return int(self.arrays[base_name(self.rule, extent.name)])

    def array(self, name: str) -> Any:
        """An index array by its name in the rule."""
        return self.arrays[base_name(self.rule, name)]

    def elements(self, axis: Axis) -> int:
        """How many elements an axis stores."""
        return int(elements(axis, self.size))

    @property
    def values(self) -> tuple[int, ...]:
        """The shape of the values."""
        return self.stored(self.after)

    def stored(self, axes: tuple[Axis, ...]) -> tuple[int, ...]:
        """The shape of what stands on axes."""
        return tuple(self.elements(chain[-1]) for chain in chains(axes))


def fitted(
    spec: FormatSpec,
    arrays: Mapping[str, Any],
    slots: Tensor,
    shape: tuple[int, int],
    rows: int,
    dtype: torch.dtype,
) -> tuple[dict[str, Any], Tensor, tuple[int, ...]]:
    """(arrays, slots, shape of the values) of a format that was inferred of a matrix, for one of ``rows`` rows.

    Rows that are added have no elements, or padding where each has as many. Index arrays get the type ``dtype``.
    """
    rule = spec.rule
    before = Layout(rule, arrays, shape)
    root = before.axes[spec.shape.root]
    grown = dict(before.arrays)
    if not spec.lists_rows and isinstance(root.length, Size) and root.length != HEIGHT:
        grown[base_name(rule, root.length.name)] = rows // spec.shape.height
    after = Layout(rule, grown, (rows, shape[1]))
    for axis in rule.axes:
        for name, count in ((axis.indptr, _offsets), (axis.indices, Layout.elements)):
            if name is not None:
                array, missing = before.array(name).reshape(-1), count(after, axis) - count(before, axis)
                fill = array[-1:].expand(missing) if name == axis.indptr else array.new_full((missing,), _nothing(axis))
                grown[base_name(rule, name)] = _joined(array, fill, 0).to(dtype)
    for array in rule.arrays:
        name, own = base_name(rule, array.name), before.stored(array.axes)
        value = before.array(array.name).reshape(own)
        for at, (old, new) in enumerate(zip(own, after.stored(array.axes))):
            if new != old:
                value = _joined(value, value.new_zeros((*value.shape[:at], new - old, *value.shape[at + 1 :])), at)
        grown[name] = value.to(dtype if array.dtype in ("int32", "int64") else getattr(torch, array.dtype)).contiguous()
    old, new = before.values, after.values
    if old[1:] != new[1:]:
        slots = _raveled(unraveled(slots, old), new)
    return grown, slots, new


def _offsets(layout: Layout, axis: Axis) -> int:
    assert axis.parent is not None
    return layout.elements(axis.parent) + 1


def _nothing(axis: Axis) -> int:
    """The coordinate of a slot without an element."""
    return -1 if axis.padded else 0


def _joined(first: Tensor, second: Tensor, dim: int) -> Tensor:
    return torch.cat([first, second], dim) if second.numel() else first


def unraveled(slots: Tensor, shape: tuple[int, ...]) -> list[Tensor]:
    """The place of flat slots in each dimension."""
    found = []
    for extent in reversed(shape):
        found.append(slots % max(extent, 1))
        slots = slots // max(extent, 1)
    return found[::-1]


def _raveled(places: list[Tensor], shape: tuple[int, ...]) -> Tensor:
    slots = torch.zeros_like(places[0])
    for place, extent in zip(places, shape):
        slots = slots * extent + place
    return slots
