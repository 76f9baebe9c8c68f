"""Loops over several sparse operands: one for each index, along which the operands that have it are walked together,
or one for each variable that has come of an index.

Which elements count follows from the expression: of a product those that all factors store, of a sum those that a term
stores. The compiler finds the walks (`compiler/lowering/lattice.py`); here stands only the condition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from typing import Any

from ...compiler import Axis, begin_of, both, either, end_of, number, offset_of, select, stored
from ...compiler.language.builder import BufferHandle
from ...compiler.language.expr import Expr, Stored, Var
from ...compiler.language.traversal import walk
from ..errors import ScheduleError
from .assembled.order import order_of, sparse_accesses
from .axes import LevelAxes, axes
from .declared import Declared
from .loops.counters import Counters, elements_of, varies
from .loops.extents import Extents, Space, plus
from .loops.provenance import Fuse, Graph, Pos, above, maker
from .notation import Access, Call, Expression, Operation
from .terms import Term, along

At = Mapping[str, Expr]
"""What each index and variable is that is bound; and what visits a level of an access, by `_of_level`."""
Then = Callable[[At], None]
"""What writes what is inside of a loop."""
TRUE = number(1, "bool")


class Walks:
    """The loops of terms, in a program that is being written.

    Args:
        graph: where variables come from.
        unrolled: variables whose loops are written out.

    Attributes:
        units: the iterations of these.
    """

    def __init__(
        self, writer: Declared, terms: Sequence[Term], graph: Graph = (), unrolled: Sequence[str] = ()
    ) -> None:
        self.w, self.p, self.graph, self.unrolled = writer, writer.p, graph, unrolled
        self.units: list[str] = []
        self.counters = Counters(writer)
        self.together = False
        self.visited: dict[Axis, Expr] = {}
        self.axes: dict[Access, LevelAxes] = {}
        self.buffers: dict[Access, BufferHandle] = {}
        for access in sparse_accesses(terms, writer.operands):
            self._declare(access)

    def _declare(self, access: Access) -> None:
        """Axes of its own for each access: a walk is along one element above."""
        operand = self.w.operands[access.name]
        indices = along(access, operand.format)
        prefix = self.w.prefix(f"W{len(self.axes)}_")
        made = axes(
            self.p, prefix, operand.format, operand.index_dtype, (), lambda level: self.w.index_axes[indices[level]]
        )
        self.axes[access] = made
        self.w.take(operand.structure, made)
        if not operand.pattern:
            self.buffers[access] = self.w.buffer(access.name, made.all)

    # What is stored.

    def asked(self, term: Term, at: At) -> Expr | None:
        """The condition under which a product may not be zero; None where that is everywhere."""
        return _all(self._stores(factor.of, at) for factor in term.factors if not factor.inverse)

    def _stores(self, expression: Expression, at: At) -> Expr | None:
        match expression:
            case Access():
                return self._stored(expression, at)
            case Call():
                return self._stores(expression.argument, at)
            case Operation("*" | "&"):
                return _all(self._stores(part, at) for part in (expression.a, expression.b))
            case Operation("/"):
                return self._stores(expression.a, at)
            case Operation():
                return _any([self._stores(part, at) for part in (expression.a, expression.b)])
        return None

    def _stored(self, access: Access, at: At) -> Expr | None:
        """Whether an access stores what is bound of its indices, as far as its last level with an index among them."""
        if access not in self.axes:
            return None
        format = self.w.operands[access.name].format
        bound = 0
        for n, (kind, index) in enumerate(zip(format.levels, along(access, format)), 1):
            if index not in at:
                break
            bound = n if kind == "compressed" else bound
        return stored(self.axes[access].levels[bound - 1], *self._place(access, bound, at)) if bound else None

    def _place(self, access: Access, levels: int, at: At) -> tuple[Expr, ...]:
        """The coordinates of the first levels of an access."""
        root = () if self.axes[access].root is None else (at.get(_of_level(access, -1), number(0)),)
        indices = along(access, self.w.operands[access.name].format)[:levels]
        return (*root, *(at.get(_of_level(access, n), at[index]) for n, index in enumerate(indices)))

    # Loops.

    def nest(self, terms: Sequence[Term], loops: Sequence[str], at: At, inside: Then) -> None:
        """A loop for each of the variables, of what any of the terms stores; `inside` writes the body."""
        if not loops:
            inside(at)
            return
        variable, *rest = loops
        space = self.extents(at).space(variable, at)
        made = maker(self.graph, space.variable)

        def then(bound: At) -> None:
            self.nest(terms, rest, bound, inside)

        if made is None:
            self._coordinates(terms, variable, space, at, then)
        elif isinstance(made, Pos):
            self._positions(terms, variable, space, made, at, then)
        elif isinstance(made, Fuse) and space.whole and variable not in self.unrolled:
            self.nest(terms, (made.outer, made.inner, *rest), at, inside)
        else:
            self._counted(terms, variable, space, at, then)

    def parts(self, variable: str) -> set[str]:
        """The indices that a variable is a part of."""
        return set(above(self.graph, variable))

    def extents(self, at: At) -> Extents:
        """Extents of all variables, where some are bound."""
        return Extents(
            self.graph, lambda index: number(self.w.index_axes[index].length), lambda made: self._count(made, at)
        )

    def found(self, terms: Sequence[Term], known: At, then: Then) -> None:
        """After variables have become known: what follows from them, and only where there is such an element."""
        found, conditions = self.extents(known).resolved(known)
        asked = _any([self.asked(term, found) for term in terms])
        self._where([*conditions.values(), *([] if asked is None else [asked])])
        self._followed(terms, found, then)

    def _where(self, conditions: Sequence[Expr]) -> None:
        if conditions:
            self.p.where(reduce(both, conditions))

    def _followed(self, terms: Sequence[Term], known: At, then: Then) -> None:
        """Visit the positions that are known, so that their coordinates are."""
        for made in self.graph:
            if isinstance(made, Pos) and made.position in known and not self.parts(made.of) <= set(known):
                at = known[made.position]
                self._positions(terms, made.position, Space(made.position, at, at + 1, at, False, 1), made, known, then)
                return
        then(known)

    def _loop(
        self, variable: str, axis: Axis, name: str, bounds: Sequence[Any], merged: Collection[Axis] = ()
    ) -> AbstractContextManager[tuple[Var, ...]]:
        label = self.w.fresh(f"over_{variable}")
        if variable in self.unrolled:
            if merged or self.together:
                raise ScheduleError(
                    f"unroll({variable}): what operands store is walked along {variable} or around it, element by "
                    "element; take pos(...) of an index and split it, under rows that are stored densely"
                )
            self.units.append(label)
        kind = "S" if self.parts(variable) <= set(self.w.statement.result.indices) else "R"
        return self._visit(label, axis, kind, name, bounds, merged)

    @contextmanager
    def _visit(
        self, label: str, axis: Axis, kind: str, name: str, bounds: Sequence[Any], merged: Collection[Axis] = ()
    ) -> Iterator[tuple[Var, ...]]:
        """An iteration over an axis."""
        outside, self.together = (self.visited, self.together), self.together or bool(merged)
        with self.p.iterate(label, (axis,), kind, (name,), merged=merged, bounds=bounds) as found:
            self.visited = {**self.visited, axis: found[0]}
            yield found
        self.visited, self.together = outside

    def _coordinates(self, terms: Sequence[Term], variable: str, space: Space, at: At, then: Then) -> None:
        """A loop over the coordinates of an index: of operands that are walked together, or all."""
        index = space.variable
        var = Var(self.w.variable(index))
        bound, _ = self.extents(at).resolved({**at, **space.values(var)})
        where = _any([self.asked(term, bound) for term in terms])
        asked = [e for e in walk(where) if isinstance(e, Stored) and e.indices[-1] == var] if where is not None else []
        merged = dict.fromkeys(e.axis for e in asked if not any(var in walk(above) for above in e.indices[:-1]))
        axis = self.w.index_axes[index]
        every = space.whole and (merged or space.most in (None, axis.length))
        bounds = () if every else ((axis, space.low, space.high, "coordinate", space.most),)
        with self._loop(variable, axis, var.name, bounds, merged):
            if where is not None and asked:
                self.p.where(where)
            then(bound)

    def _positions(self, terms: Sequence[Term], variable: str, space: Space, made: Pos, at: At, then: Then) -> None:
        """A loop over the positions that an operand stores under the elements above."""
        level = self._level(made, at)
        index = along(made.access, self.w.operands[made.access.name].format)[level]

        def visit(inner: At) -> None:
            axis, above = self.axes[made.access].levels[level], self._place(made.access, level, inner)
            bounds = (
                () if space.whole and space.most is None else ((axis, space.low, space.high, "position", space.most),)
            )
            with self._loop(variable, axis, self.w.fresh(variable), bounds) as (var,):
                position = offset_of(axis, *above, var) - begin_of(axis, *above)
                self.found(terms, {**inner, **space.values(position), index: var}, then)

        self._under(made.access, level, at, visit)

    def _under(self, access: Access, levels: int, at: At, then: Then) -> None:
        """Visit the elements above a level, each of which is known."""
        every, indices = self.axes[access], along(access, self.w.operands[access.name].format)[:levels]
        left = [] if every.root is None else [(every.root, _of_level(access, -1), number(0))]
        left += [(axis, _of_level(access, n), at[index]) for n, (axis, index) in enumerate(zip(every.levels, indices))]
        self._each(left, at, then)

    def _each(self, left: Sequence[tuple[Axis, str, Expr]], at: At, then: Then) -> None:
        if not left:
            then(at)
            return
        (axis, name, where), *others = left
        if axis in self.visited:
            self._each(others, {**at, name: self.visited[axis]}, then)
            return
        bounds = ((axis, where, where + 1, "coordinate", 1),)
        with self._visit(self.w.fresh("above"), axis, "S", self.w.fresh("a"), bounds) as (var,):
            self._each(others, {**at, name: var}, then)

    def _level(self, made: Pos, at: At) -> int:
        """The level whose positions are meant, under elements that are known."""
        indices = along(made.access, self.w.operands[made.access.name].format)
        level = max(n for n, index in enumerate(indices) if index in self.parts(made.of))
        missing = [index for index in indices[:level] if index not in at]
        if missing:
            raise ScheduleError(
                f"pos({made.of}, {made.position}, {made.access}): the positions of {made.of} lie under "
                f"{', '.join(missing)}; reorder the loops so that those over {made.position} and its parts are inside"
            )
        return level

    def _count(self, made: Pos, at: At) -> Expr:
        """How many positions there are."""
        level = self._level(made, at)
        axis = self.axes[made.access].levels[level]
        if level == 0:
            return elements_of(axis)
        above = self._place(made.access, level, at)
        return end_of(axis, *above) - begin_of(axis, *above)

    def _counted(self, terms: Sequence[Term], variable: str, space: Space, at: At, then: Then) -> None:
        """A loop that counts the values of a variable; what is there is found for each."""
        axis = self.counters.axis(self.extents(at), space.variable)
        every = space.whole and not varies(plus(space.low, space.high)) and space.most in (None, axis.length)
        bounds = () if every else ((axis, space.low, space.high, "position", space.most),)
        with self._loop(variable, axis, self.w.fresh(variable), bounds) as (var,):
            self.found(terms, {**at, **space.values(var)}, then)

    def value(self, term: Term, at: At) -> Expr:
        """A product, of the elements that are bound."""
        return self.w.product(term, lambda access: self._element(access, at))

    def _element(self, access: Access, at: At) -> Expr:
        operand = self.w.operands[access.name]
        if operand.pattern:
            there = self._stored(access, at)
            return self.w.constant(1) if there is None else select(there, self.w.constant(1), self.w.constant(0))
        if access in self.axes:
            return self.buffers[access][self._place(access, len(operand.format.levels), at)]
        return self.w.buffers[access.name][tuple(at[index] for index in along(access, operand.format))]

    def sum(self, terms: Sequence[Term], at: At) -> Expr:
        """The sum of products, each where it is stored."""
        if len(terms) == 1:
            return self.value(terms[0], at)
        return reduce(self.w.semiring.add, (self._where_stored(term, at) for term in terms))

    def _where_stored(self, term: Term, at: At) -> Expr:
        asked, x = self.asked(term, at), self.value(term, at)
        return x if asked is None else select(asked, x, self.w.zero)

    def total(self, terms: Sequence[Term], order: Sequence[str], at: At, seen: Any = None) -> Expr:
        """The sum of products over what is not bound of their indices, in a local of the iteration being written.

        seen: a local that becomes 1 where an element of any product is stored.
        """
        sum = self.p.local(self.w.fresh("Sum"), (self.w.one,), self.w.dtype)
        sum[0] = self.w.zero
        for term in terms:
            left = [loop for loop in order if loop not in at and self.parts(loop) & set(term.indices)]

            def add(bound: At, term: Term = term, whole: bool = not left) -> None:
                self.w.accumulate(sum, 0, self._where_stored(term, bound) if whole else self.value(term, bound))
                if seen is not None:
                    asked = self.asked(term, bound) if whole else None
                    seen[0] = number(1) if asked is None else select(asked, number(1), seen[0])

            self.nest([term], left, at, add)
        return sum[0]

    def added(self, term: Term, result: Any, place: Sequence[str]) -> None:
        """Add a product, summed over what the result has not, to the buffer of the result."""
        order = order_of(self.w.statement, [term], self.w.operands, place)
        last = max((order.index(index) for index in place), default=-1) + 1
        outer, inner = order[:last], order[last:]

        def add(at: At) -> None:
            where = tuple(at[index] for index in place)
            self.w.accumulate(result, where, self.total([term], inner, at) if outer and inner else self.value(term, at))

        self.nest([term], outer or inner, {}, add)


def _of_level(access: Access, level: int) -> str:
    return f"{access}@{level}"


def _all(conditions: Iterable[Expr | None]) -> Expr | None:
    found = [condition for condition in conditions if condition is not None]
    return reduce(both, found) if found else None


def _any(conditions: Sequence[Expr | None]) -> Expr | None:
    """Everywhere, if one of them is; the others are asked all the same, so that what they are about is walked."""
    if all(condition is None for condition in conditions):
        return None
    return reduce(either, (TRUE if condition is None else condition for condition in conditions))
