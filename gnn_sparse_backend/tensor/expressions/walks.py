"""Loops over several sparse operands: one for each index, along which the operands that have it are walked together.

Which elements count follows from the expression: of a product those that all factors store, of a sum those that a term
stores. The compiler finds the walks (`compiler/lowering/lattice.py`); here stands only the condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from ...compiler import both, either, number, select, stored
from ...compiler.language.builder import BufferHandle
from ...compiler.language.expr import Expr, Stored, Var
from ...compiler.language.traversal import walk
from .arithmetic import product
from .assembled.order import along, order_of, sparse_accesses
from .axes import LevelAxes, axes
from .declared import Declared
from .notation import Access, Call, Expression, Operation
from .terms import Term

At = Mapping[str, Expr]
"""What each index is that is bound."""
TRUE = number(1, "bool")


class Walks:
    """The loops of terms, in a program that is being written."""

    def __init__(self, writer: Declared, terms: Sequence[Term]) -> None:
        self.w, self.p = writer, writer.p
        self.axes: dict[Access, LevelAxes] = {}
        self.buffers: dict[Access, BufferHandle] = {}
        for access in sparse_accesses(terms, writer.operands):
            self._declare(access)

    def _declare(self, access: Access) -> None:
        """Axes of its own for each access: a walk is along one element above."""
        operand = self.w.operands[access.name]
        indices = along(access, operand.format)
        prefix = self.w.fresh(f"W{len(self.axes)}_")
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
            case Operation("*"):
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
        root = () if self.axes[access].root is None else (number(0),)
        return (*root, *(at[index] for index in along(access, self.w.operands[access.name].format)[:levels]))

    # Loops.

    def nest(self, terms: Sequence[Term], indices: Sequence[str], at: At, inside: Callable[[At], None]) -> None:
        """A loop for each of the indices, of what any of the terms stores; `inside` writes the body."""
        if not indices:
            inside(at)
            return
        index, *rest = indices
        var = Var(self.w.variable(index))
        bound = {**at, index: var}
        where = _any([self.asked(term, bound) for term in terms])
        asked = [e for e in walk(where) if isinstance(e, Stored) and e.indices[-1] == var] if where is not None else []
        merged = dict.fromkeys(e.axis for e in asked if not any(var in walk(above) for above in e.indices[:-1]))
        kind = "S" if index in self.w.statement.result.indices else "R"
        axis = self.w.index_axes[index]
        with self.p.iterate(self.w.fresh(f"over_{index}"), (axis,), kind, (var.name,), merged=merged):
            if where is not None and asked:
                self.p.where(where)
            self.nest(terms, rest, bound, inside)

    def value(self, term: Term, at: At) -> Expr:
        """A product, of the elements that are bound."""
        return product(term, self.w.dtype, lambda access: self._element(access, at))

    def _element(self, access: Access, at: At) -> Expr:
        operand = self.w.operands[access.name]
        if operand.pattern:
            there = self._stored(access, at)
            return self.w.constant(1) if there is None else select(there, self.w.constant(1), self.w.constant(0))
        if access in self.axes:
            return self.buffers[access][self._place(access, len(operand.format.levels), at)]
        return self.w.buffers[access.name][tuple(at[access.indices[mode]] for mode in operand.format.modes_in_order)]

    def sum(self, terms: Sequence[Term], at: At) -> Expr:
        """The sum of products, each where it is stored."""
        if len(terms) == 1:
            return self.value(terms[0], at)
        return reduce(lambda a, b: a + b, (self._where_stored(term, at) for term in terms))

    def _where_stored(self, term: Term, at: At) -> Expr:
        asked, x = self.asked(term, at), self.value(term, at)
        return x if asked is None else select(asked, x, self.w.constant(0))

    def total(self, terms: Sequence[Term], order: Sequence[str], at: At, seen: Any = None) -> Expr:
        """The sum of products over what is not bound of their indices, in a local of the iteration being written.

        seen: a local that becomes 1 where an element of any product is stored.
        """
        sum = self.p.local(self.w.fresh("Sum"), (self.w.one,), self.w.dtype)
        sum[0] = self.w.constant(0)
        for term in terms:
            left = [index for index in order if index in term.indices and index not in at]

            def add(bound: At, term: Term = term, whole: bool = not left) -> None:
                sum[0] = sum[0] + (self._where_stored(term, bound) if whole else self.value(term, bound))
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
            x = self.total([term], inner, at) if outer and inner else self.value(term, at)
            result[where] = result[where] + x

        self.nest([term], outer or inner, {}, add)


def _all(conditions: Iterable[Expr | None]) -> Expr | None:
    found = [condition for condition in conditions if condition is not None]
    return reduce(both, found) if found else None


def _any(conditions: Sequence[Expr | None]) -> Expr | None:
    """Everywhere, if one of them is; the others are asked all the same, so that what they are about is walked."""
    if all(condition is None for condition in conditions):
        return None
    return reduce(either, (TRUE if condition is None else condition for condition in conditions))
