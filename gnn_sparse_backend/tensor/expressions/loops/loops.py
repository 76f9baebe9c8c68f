"""The loops that one variable stands for: over what operands store, over all coordinates, or counted; and what follows
once they are open."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, TypeAlias

from ....compiler import Axis, begin_of, both, equal, offset_of
from ....compiler.language.expr import Expr
from ....frozen import dataclass
from ...errors import ScheduleError
from .counters import varies
from .extents import ZERO, Extents, Space, plus
from .places import Env, Key, Places
from .provenance import Fuse, Graph, Pos, above, maker

Then: TypeAlias = Callable[[Env], None]
"""What writes what is inside of a loop."""
Between: TypeAlias = Callable[[Env, Then], None]
"""What writes what is between two loops that one variable stands for."""


@dataclass(frozen=True)
class Loop:
    """One loop. unit: what its elements run on, "" for one after the other. race: how they share what they write."""

    name: str
    unit: str = ""
    race: str = "none"

    def __str__(self) -> str:
        race = f", {self.race}" if self.race != "none" else ""
        return f"for {self.name}" + (f"  # {self.unit}{race}" if self.unit else "")


@dataclass(frozen=True)
class Loops:
    """The loops of one variable. What operands store at a coordinate is found in one of two ways: they are walked
    together (`Walk`), or one is visited and the others are searched (`Search`).

    Attributes:
        graph: where variables come from.
        inside: writes what is inside.
    """

    places: Places
    graph: Graph
    loop: Loop
    inside: Then

    def run(self, env: Env) -> None:
        """Emit the loops."""
        space = self.extents(env).space(self.loop.name, env.known)
        made = maker(self.graph, space.variable)
        if self.is_shuffled:
            self.counted(space, env)
        elif made is None:
            self.coordinates(space, env)
        elif isinstance(made, Pos):
            self.positions(space, made, env)
        elif isinstance(made, Fuse) and space.whole and not self.loop.unit:
            self.one_after_another(made, env)
        else:
            self.counted(space, env)

    @property
    def is_shuffled(self) -> bool:
        """Whether each thread has a sum, which is known by the number of the thread."""
        return self.loop.unit == "thread" and self.loop.race == "parallel_reduction"

    def extents(self, env: Env) -> Extents:
        return self.places.extents(self.graph, env)

    # What the two ways differ in.

    def coordinates(self, space: Space, env: Env) -> None:
        """A loop over the coordinates of an index: those that operands store, or all."""
        raise NotImplementedError

    def asked(self, env: Env) -> Sequence[Expr]:
        """Conditions on what is stored, once variables have become known."""
        return ()

    def followed(self, env: Env) -> None:
        """Write what is inside, once all that follows is known."""
        self.inside(env)

    def between(self, env: Env, then: Then) -> None:
        """Write what is between two loops that the variable stands for."""
        then(env)

    def kind(self, variable: str) -> str:
        """The kind of an iteration over a variable, or "" of one over what is above it."""
        return "R"

    # One loop.

    def iterate(
        self,
        axis: Axis,
        env: Env,
        then: Callable[[Env, Expr], None],
        bounds: tuple[Any, ...] | None = None,
        variable: str = "",
        equals: Expr | None = None,
        main: bool = False,
        merged: Collection[Axis] = (),
    ) -> None:
        """An iteration over one axis. main: it is that of the loop, and not one that finds what is above or beside."""
        loop, w, p = self.loop, self.places.w, self.places.p
        if env.alone:
            raise ScheduleError(
                f"parallelize({env.alone}, 'lanes'): under {env.alone} elements of {axis.name} are looked for, and "
                "only arithmetic runs in lanes; reorder the loops or take pos of the sparse operand"
            )
        if main and loop.unit == "block" and axis.is_sparse and bounds is not None:
            raise ScheduleError(
                f"parallelize({loop.name}, 'block'): where the elements of {loop.name} begin is searched for "
                "before the blocks of a GPU start; put them on a loop over parts, or over all elements"
            )
        if main and loop.unit == "unrolled" and (merged or env.together):
            raise ScheduleError(
                f"unroll({loop.name}): what operands store is walked along {loop.name} or around it, element by "
                "element; take pos(...) of an index and split it, under rows that are stored densely"
            )
        label = w.fresh(f"over_{loop.name if main else axis.name}")
        variable = variable or w.fresh(loop.name if main else axis.name.lower())
        limits = [] if bounds is None else [(axis, *bounds)]
        kind = self.kind(loop.name if main else "")
        with p.iterate(label, (axis,), kind, (variable,), merged=merged, bounds=limits) as (var,):
            if equals is not None:
                p.where(equal(var, equals))
            unit = loop.unit if main else ""
            if unit:
                self.places.units.append((label, unit))
            alone = loop.name if unit == "lanes" else env.alone
            together = env.together or bool(merged)
            inner = replace(env, inside=True, together=together, direct={**env.direct, axis: var}, alone=alone)
            then(inner, var)

    def positions(self, space: Space, made: Pos, env: Env) -> None:
        """A loop over the positions that an operand stores under the elements above."""
        key, level, _ = self.places.level(self.graph, made)
        axis, index = self.places.axes[key].levels[level], key[1][level]
        bounds = None if space.whole and space.most is None else (space.low, space.high, "position", space.most)

        def visit(inner: Env) -> None:
            visited = inner.visited.get(key, ())
            if self.places.depth(key, inner) != level:
                raise ScheduleError(
                    f"pos({made.of}, {made.position}, {made.access}): the loop over {self.loop.name} is not inside of "
                    f"those over {', '.join(key[1][:level])}, under which the positions of {made.of} lie; reorder the "
                    "loops"
                )

            def then(deeper: Env, var: Expr) -> None:
                at = offset_of(axis, *visited, var) - begin_of(axis, *visited)
                self.found(deeper.visiting(key, var), {**space.values(at), made.of: var, index: var})

            self.iterate(axis, inner, then, bounds, main=True)

        self.under(key, level, env, visit)

    def one_after_another(self, made: Fuse, env: Env) -> None:
        """The loops that were fused, each inside of the other, since nobody asks for the variable that they became."""
        inner = replace(self, loop=Loop(made.inner))
        outer = replace(self, loop=Loop(made.outer), inside=lambda found: self.between(found, inner.run))
        outer.run(env)

    def counted(self, space: Space, env: Env) -> None:
        """A loop that counts the values of a variable; where the element is, is found for each."""
        by_name = self.is_shuffled or isinstance(maker(self.graph, space.variable), Pos)
        of = self.loop.name if by_name else space.variable
        axis = self.places.counters.axis(self.extents(env), of)
        bounds: tuple[Any, ...] | None = (space.low, space.high, "position", space.most)
        if of != space.variable:  # elements of a part, from the first on
            bounds = (ZERO, space.high - space.base, "position", space.most)
        elif space.whole and not varies(plus(space.low, space.high)) and space.most in (None, axis.length):
            bounds = None

        def then(inner: Env, var: Expr) -> None:
            if of == space.variable:
                self.found(inner, space.values(var))
            else:
                self.found(inner, {**space.values(plus(space.base, var)), self.loop.name: var})

        self.iterate(axis, env, then, bounds, main=True)

    # What follows.

    def found(self, env: Env, values: Mapping[str, Expr]) -> None:
        """After variables have become known: what follows from them, only where there is such an element."""
        env = env.knowing(values)
        known, there = self.extents(env).resolved(env.known)
        env = replace(env, known=known)
        if there and self.loop.unit == "lanes":
            raise ScheduleError(
                f"parallelize({self.loop.name}, 'lanes'): the elements of {self.loop.name} do not lie side by side; "
                "only the inner part of a split, inside of the outer one, runs in lanes"
            )
        conditions = [*there.values(), *self.asked(env)]
        if conditions:
            self.places.p.where(reduce(both, conditions))
        for made in self.graph:
            if isinstance(made, Pos) and made.position in known and not set(above(self.graph, made.of)) <= set(known):
                at = known[made.position]
                one = replace(self, loop=Loop(made.position))
                one.positions(Space(made.position, at, at + 1, ZERO, False, 1), made, env)
                return
        self.followed(env)

    def under(self, key: Key, levels: int, env: Env, then: Then) -> None:
        """Visit the elements above a level of a structure, as far as it is known which."""
        at = self.places.depth(key, env)
        if at < 0 or (at < levels and key[1][at] in env.known):
            self.one(key, env, lambda inner: self.under(key, levels, inner, then))
        else:
            then(env)

    def one(self, key: Key, env: Env, then: Then) -> None:
        """Visit the next level of a structure, whose coordinate is known, so that what it stores is there: one element,
        or none."""
        axis, at = self.places.next(key, env), self.places.depth(key, env)

        def visit(inner: Env, var: Expr) -> None:
            then(inner.visiting(key, var))

        if at < 0:
            self.iterate(axis, env, visit)
            return
        coordinate = env.known[key[1][at]]
        if axis in env.direct or not any(level.is_sparse for level in self.places.axes[key].levels[at:]):
            then(env.visiting(key, env.direct.get(axis, coordinate)))
        elif axis.sorted and not axis.padded:
            self.iterate(axis, env, visit, (coordinate, coordinate + 1, "coordinate", 1))
        else:  # all are looked at
            self.iterate(axis, env, visit, equals=coordinate)
