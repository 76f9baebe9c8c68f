"""Merged iterations to the points of a merge lattice.

An iteration of every coordinate j with a condition on which sparse axes store j becomes a walk along these axes alone
(Kjolstad et al., "The Tensor Algebra Compiler", OOPSLA 2017, section 4.2). Each set of axes that may still have
elements has a point, if the condition can hold while the others have ended; each set of axes that store one coordinate
has a case: the body with what is then known put in. What an absent element reads as, and a store to it, follow from the
meaning of stage I, so that a case is the body and nothing else.

Where many axes are walked together there is one point, whose case is the body with nothing put in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations

from ...frozen import dataclass
from ..language.axes import Axis
from ..language.expr import Binary, Const, Expr, Load, Present, Select, Stored, as_expr
from ..language.operands import names_element, operands
from ..language.program import (
    Buffer,
    Case,
    Iteration,
    Point,
    Program,
    Store,
    expressions_in,
    map_expressions,
    map_iterations,
    map_store,
    stores_in,
    walk_iterations,
)
from ..language.traversal import map_children, rewrite, walk

MOST_SETS = 3
"""Most axes each of whose sets has code of its own; beyond, the body stands once, as sets double with each axis."""
_FALSE, _TRUE = Const(0, "bool"), Const(1, "bool")


def merge_lattices(program: Program) -> Program:
    """The program with the points of every merged iteration in the place of its condition and body."""
    if not any(it.merged for it in walk_iterations(program.iterations)):
        return program
    lattices = _Lattices(set(program.names))
    return replace(program, iterations=tuple(map(lattices.walked, program.iterations)))


class _Lattices:
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def walked(self, it: Iteration) -> Iteration:
        if not it.merged:
            return replace(it, body=self._inner(it.body))
        asked = operands(it)
        if len(it.merged) > MOST_SETS:
            once = Case((), self._inner(it.body), it.where)
            everywhere = _known(it, asked, ()).where != _FALSE
            return replace(it, body=(), points=(Point(it.merged, (once,), everywhere, once=True),))
        if _known(it, asked, ()).where != _FALSE:  # also where nothing is stored
            every = Point(it.merged, self._cases(it, asked, (*_subsets(it.merged), ())), every=True)
            return replace(it, body=(), points=(every,))
        points = []
        for axes in _subsets(it.merged):
            left = _known(it, asked, axes, asking=True)
            if left.where == _FALSE or set(axes) - _mentioned(left):
                continue  # nothing to do, or what a smaller point does
            cases = self._cases(it, asked, _subsets(axes))
            points.append(Point(axes, cases, joint=_joint(left, cases) if len(axes) > 1 else ()))
        return replace(it, body=(), points=tuple(points))

    def _cases(self, it: Iteration, asked: dict[Axis, Stored], sets: Iterable[tuple[Axis, ...]]) -> tuple[Case, ...]:
        """One for each set of axes that store the coordinate."""
        cases = []
        for present in sets:
            known = _known(it, asked, present)
            if known.where == _FALSE:
                cases.append(Case(present, ()))
            else:
                cases.append(Case(present, self._inner(self._named(known.body)), known.where))
        return tuple(cases)

    def _inner(self, body: tuple[Store | Iteration, ...]) -> tuple[Store | Iteration, ...]:
        return tuple(self.walked(s) if isinstance(s, Iteration) else s for s in body)

    def _named(self, body: tuple[Store | Iteration, ...]) -> tuple[Store | Iteration, ...]:
        """The body with names of its own for its iterations and their buffers: it stands in several cases."""
        locals_ = [b for it in walk_iterations(body) for b in it.locals]
        renamed = {b: replace(b, name=self._fresh(b.name)) for b in locals_}

        def change(expr: Expr) -> Expr:
            return rewrite(expr, lambda e: _moved(e, renamed))

        def visit(it: Iteration) -> tuple[Iteration, ...]:
            buffers = tuple(renamed[b] for b in it.locals)
            return (map_expressions(replace(it, name=self._fresh(it.name), locals=buffers), change),)

        return map_iterations(tuple(map_store(s, change) if isinstance(s, Store) else s for s in body), visit)

    def _fresh(self, name: str) -> str:
        number = next(n for n in range(len(self.names) + 1) if f"{name}_case{n}" not in self.names)
        self.names.add(f"{name}_case{number}")
        return f"{name}_case{number}"


def _moved(expr: Expr, renamed: dict[Buffer, Buffer]) -> Expr | None:
    if isinstance(expr, Load) and expr.buffer in renamed:
        return Load(renamed[expr.buffer], expr.indices)
    return None


def _joint(left: Iteration, cases: tuple[Case, ...]) -> tuple[Store, ...]:
    """Stores that do what each of the cases does. They ask as they go who stores the coordinate, which takes no branch:
    nobody could foretell it. left: the iteration with what the axes of the point alone may store.
    """
    if not all(isinstance(s, Store) for s in left.body) or any(case.where is not None for case in cases):
        return ()
    if all(case.body for case in cases):
        return left.stores
    if left.where is None or not all(map(_is_own, left.stores)):
        return ()  # to leave what is there as it is, it has to be nobody else's, and in a place that is known anyway
    return tuple(replace(s, value=Select(left.where, s.value, Load(s.buffer, s.indices))) for s in left.stores)


def _is_own(store: Store) -> bool:
    """Whether it goes to one place of a local buffer."""
    return store.buffer.scope == "local" and all(isinstance(index, Const) for index in store.indices)


def _subsets(axes: tuple[Axis, ...]) -> Iterator[tuple[Axis, ...]]:
    """The subsets that are not empty, larger ones first."""
    for count in range(len(axes), 0, -1):
        yield from combinations(axes, count)


def _mentioned(it: Iteration) -> set[Axis]:
    """The axes that what runs reads or asks for."""
    found: set[Axis] = set()
    for expr in expressions_in((it,)):
        found.update(
            expr.buffer.axes if isinstance(expr, Load) else expr.axis.chain if isinstance(expr, Stored) else ()
        )
    return found.union(*(store.buffer.axes for store in stores_in((it,))))


def _known(it: Iteration, asked: dict[Axis, Stored], axes: tuple[Axis, ...], asking: bool = False) -> Iteration:
    """The iteration where of the merged axes exactly `axes` store the coordinate; if `asking`, at most these do."""
    present = frozenset(() if asking else (asked[axis] for axis in axes))
    return _Known(asked, frozenset(axes), present).iteration(it)


@dataclass(frozen=True)
class _Known:
    asked: dict[Axis, Stored]
    axes: frozenset[Axis]
    present: frozenset[Stored]

    def iteration(self, it: Iteration) -> Iteration:
        where = None if it.where is None else self.value(it.where)
        body = () if where == _FALSE else tuple(self.statements(it.body))
        kept = () if where is None else tuple(a for a in it.merged if any(_asks(e, a) for e in walk(where)))
        init = tuple(map_store(s, self.value) for s in it.init)
        return replace(it, init=init, body=body, where=None if where == _TRUE else where, merged=kept)

    def statements(self, body: tuple[Store | Iteration, ...]) -> Iterator[Store | Iteration]:
        for statement in body:
            if isinstance(statement, Store):
                if not self.absent(statement.buffer.axes, statement.indices):
                    yield map_store(statement, self.value)
                continue
            inner = self.iteration(statement)
            if inner.init or inner.body:
                yield inner

    def absent(self, axes: tuple[Axis, ...], indices: tuple[Expr, ...]) -> bool:
        """Whether an element is surely not stored."""
        return any(names_element(a, indices, axes, o) for a, o in self.asked.items() if a not in self.axes)

    def value(self, expr: Expr) -> Expr:
        match expr:
            case Stored() if expr in self.present:
                return _TRUE
            case Stored() if self.absent(expr.axis.chain, expr.indices):
                return _FALSE
            case Present() if self.absent(expr.load.buffer.axes, expr.load.indices):
                return _FALSE
            case Load() if self.absent(expr.buffer.axes, expr.indices):
                return as_expr(0, expr.dtype)
        return _folded(map_children(expr, self.value))


def _asks(expr: Expr, axis: Axis) -> bool:
    return isinstance(expr, Stored) and expr.axis == axis


def _folded(expr: Expr) -> Expr:
    """The expression where conditions that are known decide; arithmetic stays as it is."""
    match expr:
        case Binary(op="and" | "or" as op, a=a, b=b):
            decides, passes = (_FALSE, _TRUE) if op == "and" else (_TRUE, _FALSE)
            if decides in (a, b):
                return decides
            return b if a == passes else a if b == passes else expr
        case Binary(op="==" | "!=" as op, a=Const(dtype="bool") as a, b=Const(dtype="bool") as b):
            return _TRUE if (a == b) == (op == "==") else _FALSE
        case Select(condition=Const() as decided):
            return expr.then if decided == _TRUE else expr.otherwise
    return expr
