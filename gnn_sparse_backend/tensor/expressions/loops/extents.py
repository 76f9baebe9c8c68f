"""How many values a variable has, which of them a loop visits, and what follows from those that are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....compiler import minimum, number
from ....compiler.language.expr import Binary, Const, Expr
from ....frozen import dataclass
from .provenance import Bound, Coord, Divide, Fuse, Graph, Pos, Split, maker

Known = Mapping[str, Expr]
ZERO = number(0)


@dataclass(frozen=True)
class Space:
    """What a loop over a variable visits.

    Attributes:
        variable: the one whose values are visited: the loop's own, or the one that it is the inner part of.
        low, high: of that variable; high is no value of it.
        base: what the loop's variable counts from: low, before it is cut to what there is.
        whole: the loop visits every value of the variable.
        most: high - low is no more; None where that is not known at compile time.
        parts: the variables from the loop's own up to this one, all of which are within their extents; and where each
            begins in the one that follows.
    """

    variable: str
    low: Expr
    high: Expr
    base: Expr
    whole: bool
    most: int | None
    parts: tuple[tuple[str, Expr], ...] = ()

    def values(self, at: Expr) -> dict[str, Expr]:
        """The variables where the last of them has a value."""
        found: dict[str, Expr] = {}
        for variable, start in reversed(self.parts):
            at = at if start == ZERO else at - start
            found[variable] = at
        return found


@dataclass(frozen=True)
class Extents:
    """Extents of the variables of a graph.

    Args:
        length: the extent of an index of the expression.
        count: the number of positions that a relation speaks of.
    """

    graph: Graph
    length: Callable[[str], Expr]
    count: Callable[[Pos], Expr]

    def of(self, variable: str) -> Expr:
        """How many values a variable has."""
        match maker(self.graph, variable):
            case None:
                return self.length(variable)
            case Split() as made:
                return number(made.size) if variable == made.inner else ceiling(self.of(made.of), made.size)
            case Divide() as made:
                return number(made.parts) if variable == made.outer else self.size(made)
            case Fuse() as made:
                return times(self.of(made.outer), self.of(made.inner))
            case Pos() as made:
                return self.count(made)
            case Coord() as made:
                return self.of(self.coordinates(made))
            case Bound() as made:
                return number(made.extent) if made.kind == "exact" else self.of(made.of)
        raise AssertionError(variable)

    def size(self, made: Split | Divide) -> Expr:
        """Values of the inner variable to one of the outer."""
        return number(made.size) if isinstance(made, Split) else ceiling(self.of(made.of), made.parts)

    def coordinates(self, made: Coord) -> str:
        """The variable whose values a coordinate has again."""
        positions = maker(self.graph, made.of)
        assert isinstance(positions, Pos)
        return positions.of

    def space(self, variable: str, known: Known) -> Space:
        """What a loop over a variable visits, where others are known."""
        extent = self.of(variable)
        low, high, base, whole, most = ZERO, extent, ZERO, True, constant(extent)
        parts: list[tuple[str, Expr]] = []
        while True:
            made, start = maker(self.graph, variable), ZERO
            last = variable
            if isinstance(made, (Split, Divide)) and variable == made.inner and made.outer in known:
                size = self.size(made)
                start = times(known[made.outer], size)
                low, base, whole = plus(start, low), plus(start, base), False
                high = least(plus(start, high), self.of(made.of))
                variable = made.of
            elif isinstance(made, Bound):
                if made.kind != "same":
                    most = made.extent if most is None else min(most, made.extent)
                variable = made.of
            elif isinstance(made, Coord):
                variable = self.coordinates(made)
            else:
                return Space(variable, low, high, base, whole, most, (*parts, (variable, ZERO)))
            parts.append((last, start))

    def resolved(self, known: Known) -> tuple[dict[str, Expr], dict[str, Expr]]:
        """(what is known, with what follows from it; for what was put together, the condition that there is such a
        value)."""
        found: dict[str, Expr] = dict(known)
        conditions: dict[str, Expr] = {}
        changed = True
        while changed:
            changed = False
            for made in reversed(self.graph):
                match made:
                    case Split() | Divide() if made.outer in found and made.inner in found and made.of not in found:
                        found[made.of] = plus(times(found[made.outer], self.size(made)), found[made.inner])
                        if not isinstance(maker(self.graph, made.of), Pos):  # one that is not there is not visited
                            conditions[made.of] = found[made.of] < self.of(made.of)
                    case Bound() if made.bounded in found and made.of not in found:
                        found[made.of] = found[made.bounded]
                    case Bound() if made.of in found and made.bounded not in found:
                        found[made.bounded] = found[made.of]
                    case Fuse() if made.outer in found and made.inner in found and made.fused not in found:
                        found[made.fused] = plus(times(found[made.outer], self.of(made.inner)), found[made.inner])
                    case Coord() if made.coordinate in found and self.coordinates(made) not in found:
                        found[self.coordinates(made)] = found[made.coordinate]
                    case Fuse() if made.fused in found and made.outer not in found:
                        inner = self.of(made.inner)
                        found[made.outer] = found[made.fused] // inner
                        found[made.inner] = found[made.fused] % inner
                    case _:
                        continue
                changed = True
        return found, conditions


def constant(expr: Expr) -> int | None:
    """The number that an expression is at compile time, or None."""
    return int(expr.value) if isinstance(expr, Const) else None


def plus(a: Expr, b: Expr) -> Expr:
    """a + b, where both are no constants as an expression."""
    if a == ZERO or b == ZERO:
        return b if a == ZERO else a
    if isinstance(b, Binary) and b.op == "-" and b.b == a:
        return b.a
    return number(int(a.value) + int(b.value)) if isinstance(a, Const) and isinstance(b, Const) else a + b


def times(a: Expr, b: Expr) -> Expr:
    """a * b."""
    if isinstance(a, Const) and isinstance(b, Const):
        return number(int(a.value) * int(b.value))
    return ZERO if ZERO in (a, b) else a if b == number(1) else b if a == number(1) else a * b


def least(a: Expr, b: Expr) -> Expr:
    """The lesser of both."""
    if isinstance(a, Const) and isinstance(b, Const):
        return number(min(int(a.value), int(b.value)))
    return a if a == b else minimum(a, b)


def ceiling(a: Expr, parts: int) -> Expr:
    """a / parts, rounded up."""
    if isinstance(a, Const):
        return number(-(-int(a.value) // parts))
    return a if parts == 1 else (a + (parts - 1)) // parts
