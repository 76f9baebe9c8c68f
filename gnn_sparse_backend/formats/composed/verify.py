"""Whether the arrays that a user's ``infer`` gives are those of the rule: each slot's coordinate is worked out again.

Kernels trust what they read, so whatever could make them read elsewhere is refused here, before one runs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...compiler.language.axes import Axis
from ...compiler.language.expr import Binary, Cast, Const, Expr, Load, Select, SizeOf, Var
from ...compiler.language.layout import chains
from ...compiler.transforms.place_rule import base_name
from ...compiler.transforms.rule_shape import coordinates
from ..structure import check_slots
from .indices import Indices, NonZeros
from .layout import Layout, unraveled
from .spec import FormatSpec

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    "min": torch.minimum,
    "max": torch.maximum,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "and": operator.and_,
    "or": operator.or_,
}


def verified(spec: FormatSpec, found: Indices, matrix: NonZeros, positions: Tensor) -> Indices:
    """What was found, with slots in int64, if it agrees with the rule and the matrix.

    Raises:
        TypeError, ValueError: quoting the array, slot or non-zero that does not.
    """
    return _Verifier(spec, found, matrix, positions).run()


class _Verifier:
    def __init__(self, spec: FormatSpec, found: Indices, matrix: NonZeros, positions: Tensor) -> None:
        self.where = f"format {str(spec)!r}"
        self.spec, self.found, self.matrix, self.positions = spec, found, matrix, positions
        self.rule = spec.rule
        if not isinstance(found.arrays, Mapping):
            raise TypeError(f"{self.where}: arrays must be a dict by the names of the rule, got {found.arrays!r}")
        self.layout = Layout(self.rule, found.arrays, matrix.shape)
        self.device = matrix.rows.device

    def run(self) -> Indices:
        self._sizes()
        self._axes()
        self._arrays()
        stored = self.layout.values
        count = 1
        for extent in stored:
            count *= extent
        check_slots(count, self.matrix.nnz, None, self.where)
        slots = self._slots(count)
        self._coordinates(slots, stored, count)
        return replace(self.found, slots=slots)

    def _sizes(self) -> None:
        wanted = {base_name(self.rule, size.name) for size in self.rule.sizes}
        wanted |= {base_name(self.rule, n) for a in self.rule.axes for n in (a.indptr, a.indices) if n}
        wanted |= {base_name(self.rule, array.name) for array in self.rule.arrays}
        for what, names in (("lack", wanted - set(self.layout.arrays)), ("have", set(self.layout.arrays) - wanted)):
            if names:
                verb = f"{what} {', '.join(sorted(names))}"
                raise ValueError(f"{self.where}: the arrays {verb}; the rule names {', '.join(sorted(wanted))}")
        for size in self.rule.sizes:
            value = self.layout.array(size.name)
            if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < 0:
                raise ValueError(f"{self.where}: size {size.name} must be a whole number, at least 0, got {value!r}")
        root = self.layout.axes[self.spec.shape.root]
        rows = -(-self.matrix.shape[0] // self.spec.shape.height)
        if not self.spec.lists_rows and self.layout.size(root.length) != rows:
            raise ValueError(
                f"{self.where}: axis {root.name} stands for {self.spec.shape.height} rows each, so that {rows} are "
                f"wanted of {self.matrix.shape[0]} rows, got {self.layout.size(root.length)}"
            )

    def _given(self, name: str, count: int) -> Tensor:
        """An array of integers, of ``count`` entries, in int64."""
        array = self.layout.array(name)
        if not isinstance(array, Tensor) or array.dtype.is_floating_point or array.dtype == torch.bool:
            got = array.dtype if isinstance(array, Tensor) else type(array).__name__
            raise TypeError(f"{self.where}: {name} must be a tensor of integers, got {got}")
        if array.numel() != count:
            raise ValueError(f"{self.where}: {name} must have {count} entries, got shape {tuple(array.shape)}")
        if array.device != self.device:
            raise ValueError(f"{self.where}: {name} is on {array.device}, and the matrix on {self.device}")
        return array.reshape(-1).long()

    def _axes(self) -> None:
        for axis in self.rule.axes:
            if axis.indptr is not None and axis.parent is not None:
                total = self.layout.elements(axis)
                offsets = self._given(axis.indptr, self.layout.elements(axis.parent) + 1)
                if int(offsets[0]) or int(offsets[-1]) != total or bool((offsets.diff() < 0).any()):
                    raise ValueError(
                        f"{self.where}: {axis.indptr} must ascend from 0 to {total}, the elements of axis {axis.name}, "
                        f"got {_few(offsets)}"
                    )
                if axis.kind == "dense_variable":
                    self._within(axis.indptr, offsets.diff(), 0, self.layout.size(axis.length) + 1, "lengths in ")
            if axis.indices is not None:
                least = -1 if axis.padded else 0
                self._within(
                    axis.indices,
                    self._given(axis.indices, self.layout.elements(axis)),
                    least,
                    self.layout.size(axis.length),
                )

    def _within(self, name: str, values: Tensor, least: int, end: int, what: str = "") -> None:
        wrong = ((values < least) | (values >= end)).nonzero()
        if wrong.numel():
            at = int(wrong[0])
            raise ValueError(f"{self.where}: {what}{name} must lie in [{least}, {end}), got {int(values[at])} at {at}")

    def _arrays(self) -> None:
        for array in self.rule.arrays:
            count = 1
            for extent in self.layout.stored(array.axes):
                count *= extent
            values = self._given(array.name, count)
            if array.name == self.spec.shape.listed:
                rows = -(-self.matrix.shape[0] // self.spec.shape.height)
                self._within(array.name, values, 0, rows)
                once = self.spec.shape.height > 1
                if bool((values.diff() < once).any()):
                    how = "ascend, each once" if once else "ascend"
                    raise ValueError(f"{self.where}: rows in {array.name} must {how}, got {_few(values)}")
            if array.dtype == "uint8":
                self._within(array.name, values, 0, 256)

    def _slots(self, count: int) -> Tensor:
        slots = self.found.slots
        if not isinstance(slots, Tensor) or slots.dtype.is_floating_point or slots.dim() != 1:
            raise TypeError(f"{self.where}: slots must be a tensor of integers of one dimension, got {slots!r}")
        slots = slots.long()
        if slots.numel() != self.positions.numel():
            raise ValueError(
                f"{self.where}: there are {slots.numel()} slots for {self.positions.numel()} non-zeros that are taken"
            )
        self._within("slots", slots, 0, count)
        places = torch.bincount(slots, minlength=count)
        if bool((places > 1).any()):
            slot = int((places > 1).nonzero()[0])
            raise ValueError(f"{self.where}: {int(places[slot])} non-zeros have the slot {slot}")
        return slots

    def _coordinates(self, slots: Tensor, stored: tuple[int, ...], count: int) -> None:
        every = torch.arange(count, device=self.device)
        where = _Where(self, unraveled(every, stored))
        row, column = (where.value(e) for e in coordinates(self.rule))
        wanted = self.matrix.rows[self.positions], self.matrix.columns[self.positions]
        off = ((row[slots] != wanted[0]) | (column[slots] != wanted[1])).nonzero()
        if off.numel():
            at = int(off[0])
            slot = int(slots[at])
            raise ValueError(
                f"{self.where}: infer puts the non-zero at {int(wanted[0][at]), int(wanted[1][at])} into slot {slot}, "
                f"which by the rule is at {int(row[slot]), int(column[slot])}"
            )
        padding = torch.ones(count, dtype=torch.bool, device=self.device)
        padding[slots] = False
        padding &= ~where.absent
        if not bool(padding.any()):
            return
        slot = int(padding.nonzero()[0])
        if not self.rule.masked:
            raise ValueError(
                f"{self.where}: slot {slot} has no non-zero; a rule that stores padding says masked=True, or marks its "
                "columns with -1 on an axis that is padded"
            )
        shape, least = self.spec.shape, -1 if self.spec.shape.named else 0
        end = -(-self.matrix.shape[1] // shape.unit[1]) * shape.unit[1]
        outside = padding & ((column < least) | (column >= end))
        if not shape.shifted and bool(outside.any()):
            slot = int(outside.nonzero()[0])
            raise ValueError(
                f"{self.where}: the padding in slot {slot} must name a column in [{least}, {end}), as it meets an "
                f"operand there, got {int(column[slot])}"
            )


class _Where:
    """Coordinates of slots, by the place of each in every dimension of the values."""

    def __init__(self, of: _Verifier, places: list[Tensor]) -> None:
        self.of = of
        self.element: dict[Axis, Tensor] = {}
        self.coordinate: dict[str, Tensor] = {}
        self.count = places[0]
        self.absent = torch.zeros_like(places[0], dtype=torch.bool)
        for chain, place in zip(chains(of.layout.after), places):
            self._walk(chain[-1], place)

    def _walk(self, axis: Axis, element: Tensor) -> None:
        """Note where an element of an axis is, and what stands above it."""
        layout = self.of.layout
        self.element[axis] = element
        if axis.parent is None:
            self.coordinate[axis.name] = element
            return
        if axis.is_variable:
            offsets = layout.array(axis.indptr or "").reshape(-1).long()
            above = torch.searchsorted(offsets, element, right=True) - 1
            within = element - offsets[above]
        else:
            above = element // layout.size(axis.stored)
            within = element % layout.size(axis.stored)
        found = within if axis.indices is None else layout.array(axis.indices).reshape(-1).long()[element]
        self.coordinate[axis.name] = found
        self.absent |= found < 0
        self._walk(axis.parent, above)

    def value(self, expr: Expr) -> Tensor:
        """An expression at every slot."""
        match expr:
            case Const():
                return torch.full_like(self.count, int(expr.value))
            case SizeOf():
                return torch.full_like(self.count, self.of.layout.size(expr.size))
            case Var():
                return self.coordinate[expr.name]
            case Load():
                return self._load(expr)
            case Binary() if expr.op in _OPERATIONS:
                return _OPERATIONS[expr.op](self.value(expr.a), self.value(expr.b))
            case Select():
                return torch.where(self.value(expr.condition), self.value(expr.then), self.value(expr.otherwise))
            case Cast():
                return self.value(expr.value)
        raise ValueError(f"{self.of.where}: inverse_index_map is not made of integers and arrays: {expr!r}")

    def _load(self, load: Load) -> Tensor:
        array, layout = load.buffer, self.of.layout
        if array not in self.of.rule.arrays:
            raise ValueError(f"{self.of.where}: inverse_index_map reads {array.name}, which is none of the arrays")
        at = torch.zeros_like(self.count)
        own = dict(zip(array.axes, load.indices))
        for chain, extent in zip(chains(array.axes), layout.stored(array.axes)):
            if all(own[axis] == Var(axis.name) and axis in self.element for axis in chain):
                place = self.element[chain[-1]]
            elif len(chain) == 1:
                place = self.value(own[chain[0]])
                self.of._within(f"the index of {array.name} along {chain[0].name}", place, 0, extent)
            else:
                raise ValueError(
                    f"{self.of.where}: {array.name} must be read by the iterators of {', '.join(map(str, chain))}"
                )
            at = at * extent + place
        values = layout.array(array.name).reshape(-1).long()
        return values[at] if values.numel() else at


def _few(values: Tensor) -> str:
    """The first entries, in words."""
    listed = values[:8].tolist()
    return f"[{', '.join(map(str, listed))}{', ...' if values.numel() > len(listed) else ''}]"
