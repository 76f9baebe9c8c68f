"""What a lowering knows at one point of the nest: TVM's handles for sizes, arrays and buffers, and the position of
every axis that is being visited."""

from __future__ import annotations

from dataclasses import field, replace

from ...deferred import tirx
from ...frozen import dataclass
from ..language.axes import Axis, Size, given
from ..language.expr import Expr, Var
from ..language.layout import first, offset

INDEX = "int64"


def index(value: tirx.Expr | int) -> tirx.Expr:
    """A Python integer as an int64 constant; anything else as it is."""
    return tirx.IntImm(INDEX, value) if isinstance(value, int) else value


def both(first: tirx.Expr | None, second: tirx.Expr | None) -> tirx.Expr | None:
    """A conjunction that evaluates `second` only where `first` holds; None stands for true."""
    if first is None or second is None:
        return first if second is None else second
    return tirx.if_then_else(first, second, tirx.const(False, "bool"))


@dataclass(frozen=True)
class Scope:
    sizes: dict[Size, tirx.Var]
    arrays: dict[str, tirx.Buffer]
    buffers: dict[str, tirx.Buffer]
    positions: dict[Axis, tirx.Expr]
    axis_of: dict[Var, Axis]
    # the condition under which the expression being lowered is wanted at all; None: always
    guard: tirx.Expr | None = None
    # the element of an axis at which a walk along it is: the coordinates that name it, its position, and its offset
    # where that is known without the positions above
    walks: dict[Axis, tuple[tuple[Expr, ...], tirx.Expr, tirx.Expr | None]] = field(default_factory=dict)
    # axes whose element was searched before, and is not there if its position is negative
    searched: frozenset[Axis] = frozenset()
    # whether the element of a walk is the one that is asked for
    met: dict[Axis, tirx.Expr] = field(default_factory=dict)
    # walks whose element can be read also where it is another one than is asked for
    readable: frozenset[Axis] = frozenset()
    # how often each name was given out: shared by all scopes of one lowering
    names: dict[str, int] = field(default_factory=dict)

    def fresh(self, name: str) -> str:
        """A block name that this lowering has not used yet."""
        count = self.names[name] = self.names.get(name, -1) + 1
        return f"{name}_{count}" if count else name

    def bind(self, axis: Axis, var: Var, position: tirx.Expr) -> Scope:
        return replace(self, positions={**self.positions, axis: position}, axis_of={**self.axis_of, var: axis})

    def walking(
        self,
        axis: Axis,
        indices: tuple[Expr, ...],
        position: tirx.Expr,
        offset: tirx.Expr,
        met: tirx.Expr | None = None,
        readable: bool = False,
    ) -> Scope:
        """Where the element of `axis` that `indices` name, along its chain, is the one at `position`; if `met`.

        offset: where that lies among all elements of the axis.
        readable: there is an element at `position` in any case.
        """
        conditions = self.met if met is None else {**self.met, axis: met}
        always = self.readable | {axis} if readable else self.readable
        walks = {**self.walks, axis: (indices, position, offset)}
        return replace(self, walks=walks, searched=self.searched - {axis}, met=conditions, readable=always)

    def found(self, axis: Axis, indices: tuple[Expr, ...], position: tirx.Expr) -> Scope:
        """Where the element that `indices` name was searched: it is at `position`, or nowhere if that is negative."""
        walks = {**self.walks, axis: (indices, position, None)}
        return replace(self, walks=walks, searched=self.searched | {axis})

    def walked(self, axis: Axis, indices: tuple[Expr, ...]) -> tirx.Expr | None:
        """The position of the element that `indices` name, if a walk along `axis` is just there."""
        at = self.walks.get(axis)
        return at[1] if at is not None and at[0] == indices else None

    def offset_of(self, axis: Axis, position: tirx.Expr) -> tirx.Expr | None:
        """Where the element at a position lies, if that is the one at which a walk along `axis` is."""
        at = self.walks.get(axis)
        return at[2] if at is not None and position.same_as(at[1]) else None

    def under(self, condition: tirx.Expr) -> Scope:
        """The scope of what is evaluated only where `condition` holds."""
        return replace(self, guard=both(self.guard, condition))

    def with_buffers(self, buffers: dict[str, tirx.Buffer]) -> Scope:
        return replace(self, buffers={**self.buffers, **buffers})

    def size(self, extent: int | Size) -> tirx.Expr:
        return self.sizes[extent] if isinstance(extent, Size) else index(extent)

    def load(self, array: str, at: tirx.Expr) -> tirx.Expr:
        """An element of an index array, widened to int64."""
        value = self.arrays[array][at]
        return value if str(value.ty.dtype) == INDEX else value.astype(INDEX)

    def indptr(self, axis: Axis, parent_offset: tirx.Expr) -> tirx.Expr:
        return self.load(given(axis.indptr), parent_offset)

    def offset(self, axis: Axis) -> tirx.Expr:
        """The offset of the element of `axis` that is being visited."""
        chain = axis.chain
        return offset(chain, [self.positions[a] for a in chain], self.indptr)

    def slots(self, axis: Axis, parent_offset: tirx.Expr | None = None) -> tuple[tirx.Expr, tirx.Expr]:
        """(first offset, count) of the elements of `axis` under a parent element (by default the one being visited)."""
        if axis.parent is None:
            return index(0), self.size(axis.length)
        if parent_offset is None:
            parent_offset = self.offset(axis.parent)
        start = first(axis, parent_offset, self.indptr) if axis.is_variable else parent_offset * self.size(axis.stored)
        if not axis.is_variable:
            return start, self.size(axis.stored)
        return start, self.indptr(axis, parent_offset + 1) - start

    def coordinate(self, axis: Axis) -> tirx.Expr:
        """The coordinate being visited along `axis` (decompression, equation 1)."""
        if not axis.is_sparse:
            return self.positions[axis]
        return self.load(given(axis.indices), self.offset(axis))
