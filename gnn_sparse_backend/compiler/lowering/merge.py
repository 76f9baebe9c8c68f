"""The loops of a merged iteration: its sparse axes are walked together, each from its first element on.

For A + B of two rows, whose elements, as far as their coordinates are visited, lie in [at_A, end_A) and [at_B, end_B):

    while at_A < end_A and at_B < end_B:
        j = min(JA[at_A], JB[at_B])
        if JA[at_A] == j: (both, or A alone)   else: (B alone)      or without a branch (`Point.joint`)
        at_A += JA[at_A] == j; at_B += JB[at_B] == j
    for p in range(at_A, end_A): (A alone)
    for p in range(at_B, end_B): (B alone)

Where many are added, there is one walk, whose body asks at each coordinate who stores it (`Point.once`):

    while at_A < end_A or at_B < end_B or ...:
        j = min(JA[at_A] if at_A < end_A, JB[at_B] if at_B < end_B, ...)
        (all)
        at_A += JA[at_A] == j; ...
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import reduce

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from ...frozen import dataclass
from ..language.axes import Axis, given
from ..language.expr import Binary, Const, Expr, Load, Stored
from ..language.operands import operands
from ..language.program import Bounds, Case, Iteration, Point, Store, stores_in
from ..language.traversal import walk
from .scope import INDEX, Scope, index
from .translate import locate, parent_offset, scalar, value, visited

NOWHERE, BEHIND = -1, (1 << 63) - 1
"""Coordinates at which no walk is, below and above all others."""
Body = Callable[[tuple["Store | Iteration", ...], Scope], None]
"""What emits the statements of a case."""


@dataclass(frozen=True)
class _Cursor:
    """Where the walk along an axis is: offsets of the element it is at and of the end, in cells; and of the first that
    there is under the element above."""

    axis: Axis
    first: tirx.Expr
    at: tirx.Buffer
    end: tirx.Buffer
    coordinate: tirx.Buffer

    @property
    def more(self) -> tirx.Expr:
        return self.at[index(0)] < self.end[index(0)]

    @property
    def here(self) -> tirx.Expr:
        return self.coordinate[index(0)]

    @property
    def element(self) -> tuple[tirx.Expr, tirx.Expr]:
        """(position under the element above, offset) of the element that it is at."""
        return self.at[index(0)] - self.first, self.at[index(0)]


def emit_merged(it: Iteration, scope: Scope, body: Body) -> None:
    """Emit the walks of an iteration: none where its condition never holds."""
    walk = _Walk(it, scope, body)
    with T.sblock(it.name):
        walk.begin()
        for point in it.points:
            walk.point(point)


class _Walk:
    def __init__(self, it: Iteration, scope: Scope, body: Body) -> None:
        self.it, self.scope, self.body = it, scope, body
        self.operands = operands(it)
        together = [
            axis for point in it.points if len(point.axes) > 1 or point.every or point.once for axis in point.axes
        ]
        # the cells belong to the block around this one, as those of a search do
        self.cells = {
            a: [scalar(f"{a.name}_{part}") for part in ("at", "end", "here")] for a in dict.fromkeys(together)
        }
        self.coordinate = scalar(f"{it.variables[0].name}_here")
        asked = walk(given(it.where)) if any(point.once for point in it.points) else ()
        self.flags = [scalar(f"{it.variables[0].name}_is") for e in asked if e.dtype == "bool"]
        self.bounds = it.bounds_of(it.axes[0])
        self.stored = {store.buffer for store in stores_in([it])}
        self.ranges = {a: self._range(a) for a in dict.fromkeys(a for point in it.points for a in point.axes)}

    def _range(self, axis: Axis) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr]:
        """(first offset under the element above, how many are passed over, count) of the elements that are walked."""
        above, indices = axis.chain[:-1], self.operands[axis].indices[:-1]
        positions, found = locate(above, indices, self.scope)
        self._remember(above, indices, positions)
        start, count = self.scope.slots(axis, parent_offset(axis, positions, self.scope))
        if found is not None:
            start, count = tirx.if_then_else(found, start, index(0)), tirx.if_then_else(found, count, index(0))
        if self.bounds is None:
            return start, index(0), count
        # positions of the dense axis are the coordinates of the others
        bounds = Bounds(axis, self.bounds.low, self.bounds.high, "coordinate")
        return start, *visited(axis, bounds, self.scope, (start, count))

    def _remember(self, above: tuple[Axis, ...], indices: tuple[Expr, ...], positions: dict[Axis, tirx.Expr]) -> None:
        """Let what is inside know what has been searched, unless it changes what was searched for."""
        for n, axis in enumerate(above, 1):
            names, position = indices[:n], positions[axis]
            visits = axis in self.scope.positions and position.same_as(self.scope.positions[axis])
            if not axis.is_sparse or visits or self.scope.walked(axis, names) is not None:
                continue
            if not any(isinstance(e, Load) and e.buffer in self.stored for name in names for e in walk(name)):
                self.scope = self.scope.found(axis, names, position)

    def begin(self) -> None:
        for axis, (at, end, _) in self.cells.items():
            start, passed, count = self.ranges[axis]
            T.buffer_store(at, start + passed, [index(0)])
            T.buffer_store(end, start + passed + count, [index(0)])

    def point(self, point: Point) -> None:
        cursors = [_Cursor(a, self.ranges[a][0], *self.cells[a]) for a in point.axes if a in self.cells]
        if point.every:
            self._every(point, cursors)
        elif point.once:
            self._any(point, cursors)
        elif len(point.axes) == 1:
            self._alone(point.axes[0], point)
        else:
            self._together(point, cursors)

    def _alone(self, axis: Axis, point: Point) -> None:
        first, passed, count = self.ranges[axis]
        if axis in self.cells:
            at, end, _ = self.cells[axis]
            passed, count = at[index(0)] - first, end[index(0)] - at[index(0)]
        with T.serial(0, count) as step:
            ir_builder.IRBuilder.name(axis.name.lower(), step)
            coordinate = self.scope.load(given(axis.indices), first + (passed + step))
            self._case(point.cases[0], coordinate, {axis: (passed + step, first + (passed + step))})

    def _together(self, point: Point, cursors: list[_Cursor]) -> None:
        with T.While(tirx.all(*(cursor.more for cursor in cursors))):
            for cursor in cursors:
                T.buffer_store(cursor.coordinate, self._at(cursor), [index(0)])
            least = reduce(tirx.min, (cursor.here for cursor in cursors))
            if point.joint:
                self._jointly(point, cursors, least)
            else:
                self._visit(point, cursors, least)

    def _every(self, point: Point, cursors: list[_Cursor]) -> None:
        dense = self.it.axes[0]
        first, count = index(0), self.scope.size(dense.length)
        if self.bounds is not None:
            first, count = visited(dense, self.bounds, self.scope)
        with T.serial(0, count) as step:
            ir_builder.IRBuilder.name(dense.name.lower(), step)
            self._look(cursors, index(NOWHERE))
            self._visit(point, cursors, first + step)

    def _any(self, point: Point, cursors: list[_Cursor]) -> None:
        self._next(cursors)
        with T.While(tirx.all(self.coordinate[index(0)] < index(BEHIND), self.flags[0][index(0)] > 0)):
            self._run(point, cursors)
            self._next(cursors)

    def _next(self, cursors: list[_Cursor]) -> None:
        """Find the least coordinate, and whether the condition may hold at any to come.

        One after the other: an expression of them all takes TVM's passes a time that doubles with each.
        """
        self._look(cursors, index(BEHIND))
        T.buffer_store(self.coordinate, index(BEHIND), [index(0)])
        for cursor in cursors:
            T.buffer_store(self.coordinate, tirx.min(self.coordinate[index(0)], cursor.here), [index(0)])
        ahead = {cursor.axis: cursor.here < index(BEHIND) for cursor in cursors}
        true = tirx.const(True, "bool")
        self._flag(given(self.it.where), lambda e: ahead.get(e.axis, true) if isinstance(e, Stored) else true)

    def _flag(self, where: Expr, leaf: Callable[[Expr], tirx.Expr], at: int = 0) -> int:
        """Find out whether a condition holds, its parts first, each in a flag from `at` on; gives the next flag."""
        match where:
            case Binary(op="and" | "or" as op, a=a, b=b) if _asks_only(where):
                second = self._flag(a, leaf, at + 1)
                end = self._flag(b, leaf, second)
                join = tirx.min if op == "and" else tirx.max
                found = join(self.flags[at + 1][index(0)], self.flags[second][index(0)])
            case _:
                end, found = at + 1, leaf(where).astype(INDEX)
        T.buffer_store(self.flags[at], found, [index(0)])
        return end

    def _look(self, cursors: list[_Cursor], ended: tirx.Expr) -> None:
        """Read where the cursors are."""
        for cursor in cursors:
            here = tirx.if_then_else(cursor.more, self._at(cursor), ended)
            T.buffer_store(cursor.coordinate, here, [index(0)])

    def _at(self, cursor: _Cursor) -> tirx.Expr:
        return self.scope.load(given(cursor.axis.indices), cursor.at[index(0)])

    def _visit(self, point: Point, cursors: list[_Cursor], coordinate: tirx.Expr) -> None:
        """Run the case of a coordinate, and go past it."""
        T.buffer_store(self.coordinate, coordinate, [index(0)])
        self._run(point, cursors)

    def _run(self, point: Point, cursors: list[_Cursor]) -> None:
        if point.once:
            scope = self._asking(cursors)
            self._flag(given(self.it.where), lambda e: value(e, scope))
            with T.If(self.flags[0][index(0)] > 0), T.Then():
                self.body(point.cases[0].body, scope)
        else:
            self._decide(point, cursors, ())
        self._pass(cursors)

    def _jointly(self, point: Point, cursors: list[_Cursor], coordinate: tirx.Expr) -> None:
        """Run what does for all cases, and go past the coordinate."""
        T.buffer_store(self.coordinate, coordinate, [index(0)])
        self.body(point.joint, self._asking(cursors, readable=True))
        self._pass(cursors)

    def _asking(self, cursors: list[_Cursor], readable: bool = False) -> Scope:
        """Where any of the cursors may be at the coordinate."""
        scope = self.scope.bind(self.it.axes[0], self.it.variables[0], self.coordinate[index(0)])
        for c in cursors:
            here = c.here.equal(self.coordinate[index(0)])
            scope = scope.walking(c.axis, self.operands[c.axis].indices, *c.element, here, readable)
        return scope

    def _pass(self, cursors: list[_Cursor]) -> None:
        for cursor in cursors:
            passed = cursor.here.equal(self.coordinate[index(0)]).astype("int64")
            T.buffer_store(cursor.at, cursor.at[index(0)] + passed, [index(0)])

    def _decide(self, point: Point, cursors: list[_Cursor], present: tuple[_Cursor, ...]) -> None:
        """Ask of one axis after the other whether it is at the coordinate, as far as a case depends on it."""
        known = [cursor.axis for cursor in present]
        absent = set(point.axes) - {cursor.axis for cursor in cursors} - set(known)
        cases = [c for c in point.cases if c.body and set(known) <= set(c.present) and not absent & set(c.present)]
        if not cases:
            return
        if not cursors:
            self._case(cases[0], self.coordinate[index(0)], {c.axis: c.element for c in present})
            return
        asked, *others = cursors
        if not (others or present or point.every):  # the least coordinate is somebody's
            self._decide(point, others, (asked,))
            return
        here = asked.here.equal(self.coordinate[index(0)])
        if not any(asked.axis in case.present for case in cases):
            with T.If(tirx.Not(here)), T.Then():
                self._decide(point, others, present)
            return
        with T.If(here):
            with T.Then():
                self._decide(point, others, (*present, asked))
            if any(asked.axis not in case.present for case in cases):
                with T.Else():
                    self._decide(point, others, present)

    def _case(self, case: Case, coordinate: tirx.Expr, elements: dict[Axis, tuple[tirx.Expr, tirx.Expr]]) -> None:
        scope = self.scope.bind(self.it.axes[0], self.it.variables[0], coordinate)
        for axis, (position, offset) in elements.items():
            scope = scope.walking(axis, self.operands[axis].indices, position, offset)
        with ExitStack() as frames:
            if case.where is not None:
                frames.enter_context(T.If(value(case.where, scope)))
                frames.enter_context(T.Then())
            self.body(case.body, scope)


def _asks_only(where: Expr) -> bool:
    """Whether a condition is of nothing but what axes store, so that all of its parts can be evaluated."""
    if isinstance(where, Binary):
        return where.op in ("and", "or") and _asks_only(where.a) and _asks_only(where.b)
    return isinstance(where, (Stored, Const))
