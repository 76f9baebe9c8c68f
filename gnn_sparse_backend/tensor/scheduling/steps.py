"""The loops that one variable stands for: over what an operand stores, over all coordinates, or counted; and what
follows once they are open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from ...compiler import Axis, begin_of, both, equal, number, offset_of, owner_of
from ...compiler.language.expr import Expr
from ..errors import ScheduleError
from ..expressions.loops.counters import varies
from ..expressions.loops.extents import ZERO, Extents, Space, plus
from ..expressions.loops.provenance import Fuse, Graph, Pos, above, maker
from .nest import Loop
from .places import Between, Env, Key, Places, Then


@dataclass(frozen=True)
class Steps:
    """keys: of all operands inside. partly: of these, what some products inside are not multiplied by: their elements
    are neither visited nor looked for here, which would leave those products out."""

    places: Places
    graph: Graph
    extents: Extents
    loop: Loop
    keys: Sequence[Key]
    partly: frozenset[Key]
    inside: Then
    between: Between

    def run(self, env: Env) -> None:
        """Emit the loops."""
        space = self.extents.space(self.loop.name, env.known)
        made = maker(self.graph, space.variable)
        if self.is_shuffled:
            self.counted(space, env)
        elif made is None:
            self.coordinates(space, env)
        elif isinstance(made, Pos):
            self.positions(space, made, env)
        elif isinstance(made, Fuse) and space.whole and not self.loop.unit and self.is_stored(made):
            self.one_after_another(made, env)
        else:
            self.counted(space, env)

    @property
    def is_shuffled(self) -> bool:
        """Whether each thread has a sum, which is known by the number of the thread."""
        return self.loop.unit == "thread" and self.loop.race == "parallel_reduction"

    # One loop.

    def iterate(
        self,
        axis: Axis,
        env: Env,
        then: Callable[[Env, Expr], None],
        bounds: tuple[Any, ...] | None = None,
        name: str = "",
        equals: Expr | None = None,
        main: bool = False,
    ) -> None:
        if env.alone:
            raise ScheduleError(
                f"parallelize({env.alone}, 'lanes'): under {env.alone} elements of {axis.name} are looked for, and "
                "only arithmetic runs in lanes; reorder the loops or take pos of the sparse operand"
            )
        if main and self.loop.unit == "block" and axis.is_sparse and bounds is not None:
            raise ScheduleError(
                f"parallelize({self.loop.name}, 'block'): where the elements of {self.loop.name} begin is searched for "
                "before the blocks of a GPU start; put them on a loop over parts, or over all elements"
            )
        label = self.places.w.fresh(f"over_{name or axis.name}")
        p = self.places.p
        limits = [] if bounds is None else [(axis, *bounds)]
        variable = self.places.w.fresh(name or axis.name.lower())
        with p.iterate(label, (axis,), "R", (variable,), bounds=limits) as (var,):
            if equals is not None:
                p.where(equal(var, equals))
            unit = self.loop.unit if main else ""
            if unit:
                self.places.units.append((label, unit))
            alone = self.loop.name if unit == "lanes" else env.alone
            then(env.replaced(inside=True, direct={**env.direct, axis: var}, alone=alone), var)

    def coordinates(self, space: Space, env: Env) -> None:
        """A loop over the coordinates of an index: those that an operand stores, or all."""
        index = space.variable
        key = self.leader(index, env)
        bounds = None if space.whole else (space.low, space.high, "coordinate", space.most)
        if key is None:
            axis = self.places.w.index_axes[index]
            if bounds is None and space.most is not None and axis.length != space.most:
                bounds = space.low, space.high, "coordinate", space.most
            self.iterate(
                axis, env, lambda inner, var: self.done(space, inner, {index: var}, var), bounds, index, main=True
            )
            return

        def visit(inner: Env) -> None:
            visited = inner.visited.get(key, ())
            axis = self.places.axes[key].all[len(visited)]
            if bounds is not None and (axis.padded or not axis.sorted):
                raise ScheduleError(
                    f"{self.loop.name} is a part of {index}, whose coordinates lie in no order; split positions: "
                    f"pos({index}, ...)"
                )

            def then(deeper: Env, var: Expr) -> None:
                deeper = deeper.replaced(visited={**deeper.visited, key: (*visited, var)})
                self.done(space, deeper, {index: var}, var)

            whole = bounds
            if whole is None and space.most is not None:
                whole = ZERO, number(axis.length), "coordinate", space.most
            self.iterate(axis, inner, then, whole, index, main=True)

        self.rooted(key, env, visit)

    def leader(self, index: str, env: Env) -> Key | None:
        """The structure whose elements a loop over an index visits."""
        found = []
        for key in (each for each in self.keys if each not in self.partly):
            every = self.places.axes[key]
            at = max(len(env.visited.get(key, ())) - (len(every.all) - len(every.levels)), 0)
            if at < len(key[1]) and key[1][at] == index and every.levels[at].is_sparse:
                found.append((every.levels[at].unique and every.levels[at].sorted and not every.levels[at].padded, key))
        return min(found, key=lambda each: each[0])[1] if found else None

    def rooted(self, key: Key, env: Env, then: Then) -> None:
        """Visit the axis above the first level, where there is one."""
        root = self.places.axes[key].root
        if root is None or key in env.visited:
            then(env)
            return
        self.iterate(root, env, lambda inner, var: then(inner.replaced(visited={**inner.visited, key: (var,)})))

    def positions(self, space: Space, made: Pos, env: Env) -> None:
        key, level, fused = self.places.level(self.graph, made)
        every = self.places.axes[key]
        if fused and self.loop.unit in ("threads", "block", "warp", "thread", "lanes"):
            self.counted(space, env)
            return
        if fused:
            self.chain(space, made, key, level, env)
            return

        def visit(inner: Env) -> None:
            visited = inner.visited.get(key, ())
            if len(visited) != level:
                outer = ", ".join(key[1][: level - len(every.all) + len(every.levels)])
                raise ScheduleError(
                    f"pos({made.of}, {made.position}, {made.access}): the loop over {self.loop.name} is not inside of "
                    f"those over {outer}, under which the positions of {made.of} lie; reorder the loops"
                )
            axis = every.all[level]
            bounds = None if space.whole and space.most is None else (space.low, space.high, "position", space.most)

            def then(deeper: Env, var: Expr) -> None:
                deeper = deeper.replaced(visited={**deeper.visited, key: (*visited, var)})
                at = offset_of(axis, *visited, var) - begin_of(axis, *visited)
                self.done(space, deeper, {made.of: var}, at)

            self.iterate(axis, inner, then, bounds, self.loop.name, main=True)

        self.rooted(key, env, visit)

    def chain(self, space: Space, made: Pos, key: Key, level: int, env: Env) -> None:
        """Loops over the axes of a tree, down to elements of the last between two offsets: the rows of the first and of
        the last element are searched for once, and those between follow."""
        chain = self.places.axes[key].all[: level + 1]
        if env.visited.get(key):
            raise ScheduleError(f"pos({made.of}, {made.position}, {made.access}): a loop over {key[1][0]} is around it")
        held: list[tuple[Expr, Expr]] = [(space.low, space.high)]

        def hold(inner: Env, at: int) -> None:
            if at == 0:
                self.down(space, made, key, chain, held[::-1], 0, inner)
                return
            low, high = held[-1]
            axis = chain[at]
            first, last = (self.held(e) for e in (owner_of(axis, low), owner_of(axis, plus(high, number(-1)))))
            held.append((first, last + 1))
            hold(inner, at - 1)

        if env.inside:
            hold(env, level)
            return
        with self.places.w.once(name="alone"):
            hold(env.replaced(inside=True), level)

    def held(self, expr: Expr) -> Expr:
        """The value of an expression, kept by the loop around."""
        w = self.places.w
        cell = self.places.p.local(w.fresh("At"), (w.one,), "int64")
        cell[0] = expr
        found: Expr = cell[0]
        return found

    def down(
        self,
        space: Space,
        made: Pos,
        key: Key,
        chain: tuple[Axis, ...],
        held: list[tuple[Expr, Expr]],
        at: int,
        env: Env,
    ) -> None:
        axis, (low, high) = chain[at], held[at]
        visited = env.visited.get(key, ())
        begin = begin_of(axis, *visited) if at else ZERO
        most = space.most if at == len(chain) - 1 else None
        bounds = (low - begin, high - begin, "position", most) if at else (low, high, "position", most)
        last = at == len(chain) - 1

        def then(inner: Env, var: Expr) -> None:
            inner = inner.replaced(visited={**inner.visited, key: (*visited, var)})
            index = at - (len(self.places.axes[key].all) - len(self.places.axes[key].levels))
            known = {key[1][index]: var} if index >= 0 else {}
            if last:
                self.done(space, inner, known, offset_of(axis, *visited, var))
                return
            found = inner.knowing(known)
            self.catch_up(
                found,
                lambda deeper: self.between(
                    deeper, lambda settled: self.down(space, made, key, chain, held, at + 1, settled)
                ),
                but=key,
            )

        self.iterate(axis, env, then, bounds, self.loop.name if last else "", main=last)

    def is_stored(self, made: Fuse) -> bool:
        """Whether an operand stores the elements of two indices one under the other."""
        indices = set(above(self.graph, made.fused))
        both = [(self.places.axes[key].levels, key[1], i) for key in self.keys for i in indices if i in key[1]]
        return any(levels[along.index(index)].is_sparse for levels, along, index in both)

    def one_after_another(self, made: Fuse, env: Env) -> None:
        """The loops that were fused, each inside of the other, since nobody asks for the variable that they became."""
        inner = replace(self, loop=Loop(made.inner))
        outer = replace(self, loop=Loop(made.outer), inside=lambda found: self.between(found, inner.run))
        outer.run(env)

    def counted(self, space: Space, env: Env) -> None:
        """A loop that counts the values of a variable; where the element is, is found for each."""
        p = self.places
        differs = varies(plus(space.low, space.high))
        by_name = self.is_shuffled or isinstance(maker(self.graph, space.variable), Pos)
        of = self.loop.name if by_name else space.variable
        axis = p.counters.axis(self.extents, of)
        if of != space.variable:  # elements of a part, from the first on
            bounds = (ZERO, space.high - space.base, "position", space.most)
        elif space.whole and not differs and space.most in (None, axis.length):
            bounds = None
        else:
            bounds = (space.low, space.high, "position", space.most)
        known = dict(env.known)
        label = p.w.fresh(f"over_{self.loop.name}")
        limits = [] if bounds is None else [(axis, *bounds)]
        if env.alone:
            raise ScheduleError(f"parallelize({env.alone}, 'lanes'): the loop over {self.loop.name} is inside of it")
        with p.p.iterate(label, (axis,), "R", (p.w.fresh(self.loop.name),), bounds=limits) as (var,):
            known |= space.values(var if of == space.variable else plus(space.base, var))
            if of != space.variable:
                known[self.loop.name] = var
            known, found = self.extents.resolved(known)
            conditions = [each for variable, each in found.items() if variable not in dict(space.parts)]
            if conditions:
                if self.loop.unit == "lanes":
                    raise ScheduleError(
                        f"parallelize({self.loop.name}, 'lanes'): the elements of {self.loop.name} do not lie side by "
                        f"side; only the inner part of a split, inside of the outer one, runs in lanes"
                    )
                p.p.where(reduce(both, conditions))
            if self.loop.unit:
                p.units.append((label, self.loop.unit))
            alone = self.loop.name if self.loop.unit == "lanes" else ""
            self.found(env.replaced(inside=True, direct={**env.direct, axis: var}, known=known, alone=alone))

    # What follows.

    def done(self, space: Space, env: Env, known: Mapping[str, Expr], at: Expr) -> None:
        """After the loop: known are the indices that it visits; at: the value of the space's variable."""
        found, _ = self.extents.resolved({**env.known, **space.values(at), **known})
        self.found(env.replaced(known=found))

    def found(self, env: Env) -> None:
        """Visit the positions that are known now, and what operands store at coordinates that are known."""
        for made in self.graph:
            if (
                isinstance(made, Pos)
                and made.position in env.known
                and not set(above(self.graph, made.of)) <= set(env.known)
            ):
                self.at_position(made, env)
                return
        self.catch_up(env, self.inside)

    def at_position(self, made: Pos, env: Env) -> None:
        key, level, fused = self.places.level(self.graph, made)
        at = env.known[made.position]
        space = Space(made.position, at, at + 1, ZERO, False, 1)
        one = replace(self, loop=Loop(made.position))
        if fused:
            one.chain(space, made, key, level, env)
        else:
            one.positions(space, made, env)

    def catch_up(self, env: Env, then: Then, but: Key | None = None) -> None:
        """Visit levels whose coordinate is known, so that what they store is there: one element, or none."""
        for key in self.keys:
            every = self.places.axes[key]
            visited = env.visited.get(key, ())
            at = len(visited) - (len(every.all) - len(every.levels))
            if key == but or max(at, 0) >= len(every.levels) or key[1][max(at, 0)] not in env.known:
                continue
            axis, coordinate = every.levels[max(at, 0)], env.known[key[1][max(at, 0)]]
            if key in self.partly and (at < 0 or axis not in env.direct):
                continue
            if at < 0:
                self.rooted(key, env, lambda inner: self.catch_up(inner, then, but))
                return
            if axis in env.direct or not any(level.is_sparse for level in every.levels[at:]):
                place = env.direct.get(axis, coordinate)
                self.catch_up(env.replaced(visited={**env.visited, key: (*visited, place)}), then, but)
                return

            def visit(inner: Env, var: Expr, key: Key = key, visited: tuple[Expr, ...] = visited) -> None:
                self.catch_up(inner.replaced(visited={**inner.visited, key: (*visited, var)}), then, but)

            if axis.sorted and not axis.padded:
                self.iterate(axis, env, visit, (coordinate, coordinate + 1, "coordinate", 1))
            else:  # all are looked at
                self.iterate(axis, env, visit, equals=coordinate)
            return
        then(env)
