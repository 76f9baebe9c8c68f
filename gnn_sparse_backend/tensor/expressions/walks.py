"""Loops over several sparse operands: one for each index, along which the operands that have it are walked together,
or one for each variable that has come of an index.

Which elements count follows from the expression: of a product those that all factors store, of a sum those that a term
stores. The compiler finds the walks (`compiler/lowering/lattice.py`); here stands only the condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from ...compiler import both, either, number, select, stored
from ...compiler.language.expr import Expr, Stored, Var
from ...compiler.language.traversal import walk
from ...frozen import dataclass
from .assembled.order import order_of
from .declared import Declared
from .loops.extents import Space
from .loops.loops import Loop, Loops, Then
from .loops.places import Env, Places
from .loops.provenance import Graph, above
from .notation import Access, Call, Expression, Operation
from .terms import Term

TRUE = number(1, "bool")


class Walks(Places):
    """The loops of terms, in a program that is being written.

    Args:
        graph: where variables come from.
        unrolled: variables whose loops are written out.
    """

    def __init__(
        self, writer: Declared, terms: Sequence[Term], graph: Graph = (), unrolled: Sequence[str] = ()
    ) -> None:
        super().__init__(writer, terms)
        self.graph, self.unrolled = graph, unrolled

    # What is stored.

    def asked(self, term: Term, env: Env) -> Expr | None:
        """The condition under which a product may not be zero; None where that is everywhere."""
        return _all(self._stores(factor.of, env) for factor in term.factors if not factor.inverse)

    def _stores(self, expression: Expression, env: Env) -> Expr | None:
        match expression:
            case Access():
                return self._stored(expression, env)
            case Call():
                return self._stores(expression.argument, env)
            case Operation("*" | "&"):
                return _all(self._stores(part, env) for part in (expression.a, expression.b))
            case Operation("/"):
                return self._stores(expression.a, env)
            case Operation():
                return _any([self._stores(part, env) for part in (expression.a, expression.b)])
        return None

    def _stored(self, access: Access, env: Env) -> Expr | None:
        """Whether an access stores what is known of its indices, as far as its last level with an index among them."""
        if not self.is_sparse(access):
            return None
        key, bound = self.key(access), 0
        for n, (kind, index) in enumerate(zip(self.w.operands[access.name].format.levels, key[1]), 1):
            if index not in env.known:
                break
            bound = n if kind == "compressed" else bound
        return stored(self.axes[key].levels[bound - 1], *self.place(key, bound, env)) if bound else None

    def stored_by_any(self, terms: Sequence[Term], env: Env) -> Expr | None:
        """The condition under which not all of the products are zero; None where that is everywhere."""
        return _any([self.asked(term, env) for term in terms])

    # Loops.

    def walk(self, terms: Sequence[Term], variable: str, inside: Then) -> Walk:
        """The loops of a variable over what any of the terms stores."""
        loop = Loop(variable, "unrolled" if variable in self.unrolled else "")
        return Walk(self, self.graph, loop, inside, terms)

    def nest(self, terms: Sequence[Term], loops: Sequence[str], env: Env, inside: Then) -> None:
        """A loop for each of the variables, of what any of the terms stores; `inside` writes the body."""
        if not loops:
            inside(env)
            return
        variable, *rest = loops
        self.walk(terms, variable, lambda inner: self.nest(terms, rest, inner, inside)).run(env)

    def parts(self, variable: str) -> set[str]:
        """The indices that a variable is a part of."""
        return set(above(self.graph, variable))

    # Values.

    def value(self, term: Term, env: Env) -> Expr:
        """A product, of the elements that are known."""
        return self.w.product(term, lambda access: self.element(access, env))

    def element(self, access: Access, env: Env) -> Expr:
        if not self.w.operands[access.name].pattern:
            return super().element(access, env)
        there = self._stored(access, env)
        return self.w.constant(1) if there is None else select(there, self.w.constant(1), self.w.constant(0))

    def sum(self, terms: Sequence[Term], env: Env) -> Expr:
        """The sum of products, each where it is stored."""
        if len(terms) == 1:
            return self.value(terms[0], env)
        return reduce(self.w.semiring.add, (self._where_stored(term, env) for term in terms))

    def _where_stored(self, term: Term, env: Env) -> Expr:
        asked, x = self.asked(term, env), self.value(term, env)
        return x if asked is None else select(asked, x, self.w.zero)

    def total(self, terms: Sequence[Term], order: Sequence[str], env: Env, seen: Any = None) -> Expr:
        """The sum of products over what is not bound of their indices, in a local of the iteration being written.

        seen: a local that becomes 1 where an element of any product is stored.
        """
        sum = self.p.local(self.w.fresh("Sum"), (self.w.one,), self.w.dtype)
        sum[0] = self.w.zero
        for term in terms:
            left = [loop for loop in order if loop not in env.known and self.parts(loop) & set(term.indices)]

            def add(bound: Env, term: Term = term, whole: bool = not left) -> None:
                self.w.accumulate(sum, 0, self._where_stored(term, bound) if whole else self.value(term, bound))
                if seen is not None:
                    asked = self.asked(term, bound) if whole else None
                    seen[0] = number(1) if asked is None else select(asked, number(1), seen[0])

            self.nest([term], left, env, add)
        return sum[0]

    def added(self, term: Term, result: Any, place: Sequence[str]) -> None:
        """Add a product, summed over what the result has not, to the buffer of the result."""
        order = order_of(self.w.statement, [term], self.w.operands, place)
        last = max((order.index(index) for index in place), default=-1) + 1
        outer, inner = order[:last], order[last:]

        def add(env: Env) -> None:
            where = tuple(env.known[index] for index in place)
            self.w.accumulate(
                result, where, self.total([term], inner, env) if outer and inner else self.value(term, env)
            )

        self.nest([term], outer or inner, Env(), add)


@dataclass(frozen=True)
class Walk(Loops):
    """The loops of one variable, along which operands are walked together.

    Attributes:
        terms: products any of which are not zero where something is visited.
    """

    places: Walks
    terms: Sequence[Term]

    def coordinates(self, space: Space, env: Env) -> None:
        index, w = space.variable, self.places.w
        var = Var(w.variable(index))
        known, _ = self.extents(env).resolved({**env.known, **space.values(var)})
        where = self.places.stored_by_any(self.terms, replace(env, known=known))
        asked = [e for e in walk(where) if isinstance(e, Stored) and e.indices[-1] == var] if where is not None else []
        merged = dict.fromkeys(e.axis for e in asked if not any(var in walk(above) for above in e.indices[:-1]))
        axis = w.index_axes[index]
        every = space.whole and (merged or space.most in (None, axis.length))
        bounds = None if every else (space.low, space.high, "coordinate", space.most)

        def then(inner: Env, _: Expr) -> None:
            if where is not None and asked:
                self.places.p.where(where)
            self.inside(replace(inner, known=known))

        self.iterate(axis, env, then, bounds, var.name, main=True, merged=merged)

    def asked(self, env: Env) -> Sequence[Expr]:
        where = self.places.stored_by_any(self.terms, env)
        return () if where is None else (where,)

    def kind(self, variable: str) -> str:
        spatial = not variable or self.places.parts(variable) <= set(self.places.w.statement.result.indices)
        return "S" if spatial else "R"


def _all(conditions: Iterable[Expr | None]) -> Expr | None:
    found = dict.fromkeys(condition for condition in conditions if condition is not None)
    return reduce(both, found) if found else None


def _any(conditions: Sequence[Expr | None]) -> Expr | None:
    """Everywhere, if one of them is; the others are asked all the same, so that what they are about is walked."""
    if all(condition is None for condition in conditions):
        return None
    return reduce(either, dict.fromkeys(TRUE if condition is None else condition for condition in conditions))
