"""The loops that one variable stands for, where the elements of one operand are visited and those of others looked for,
as levels want it whose coordinates repeat or lie in no order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...compiler import Axis, begin_of, number, offset_of, owner_of
from ...compiler.language.expr import Expr
from ...frozen import dataclass
from ..errors import ScheduleError
from ..expressions.loops.extents import Space, plus
from ..expressions.loops.loops import Between, Loops, Then
from ..expressions.loops.places import Env, Key
from ..expressions.loops.provenance import Pos


@dataclass(frozen=True)
class Search(Loops):
    """The loops of one variable, along which one operand is visited and the others are searched.

    Attributes:
        keys: of all operands inside.
        partly: of these, what some products inside are not multiplied by: their elements are neither visited nor looked
            for here, which would leave those products out.
        settled: writes what is between two loops.
    """

    keys: Sequence[Key]
    partly: frozenset[Key]
    settled: Between

    def between(self, env: Env, then: Then) -> None:
        self.settled(env, then)

    def coordinates(self, space: Space, env: Env) -> None:
        key = self.leader(space.variable, env)
        if key is None:
            self.over(space, env, self.places.w.index_axes[space.variable])
        else:
            self.under(key, 0, env, lambda inner: self.over(space, inner, self.places.next(key, inner), key))

    def over(self, space: Space, env: Env, axis: Axis, key: Key | None = None) -> None:
        """A loop over all coordinates of an axis, or over those that a structure stores."""
        index = space.variable
        if key is not None and not space.whole and (axis.padded or not axis.sorted):
            raise ScheduleError(
                f"{self.loop.name} is a part of {index}, whose coordinates lie in no order; split positions: "
                f"pos({index}, ...)"
            )
        every = space.whole and space.most in (None, axis.length if key is None else None)
        bounds = None if every else (space.low, space.high, "coordinate", space.most)

        def then(inner: Env, var: Expr) -> None:
            inner = inner if key is None else inner.visiting(key, var)
            self.found(inner, {**space.values(var), index: var})

        self.iterate(axis, env, then, bounds, self.places.w.fresh(index), main=True)

    def leader(self, index: str, env: Env) -> Key | None:
        """The structure whose elements a loop over an index visits."""
        found = []
        for key in (each for each in self.keys if each not in self.partly):
            at = max(self.places.depth(key, env), 0)
            if at < len(key[1]) and key[1][at] == index and (axis := self.places.axes[key].levels[at]).is_sparse:
                found.append((axis.unique and axis.sorted and not axis.padded, key))
        return min(found, key=lambda each: each[0])[1] if found else None

    def positions(self, space: Space, made: Pos, env: Env) -> None:
        key, level, fused = self.places.level(self.graph, made)
        if not fused:
            super().positions(space, made, env)
        elif self.loop.unit in ("threads", "block", "warp", "thread", "lanes"):
            self.counted(space, env)
        else:
            self.chain(space, made, key, level, env)

    def chain(self, space: Space, made: Pos, key: Key, level: int, env: Env) -> None:
        """Loops over the axes of a tree, down to elements of the last between two offsets: the rows of the first and of
        the last element are searched for once, and those between follow."""
        if env.visited.get(key):
            raise ScheduleError(f"pos({made.of}, {made.position}, {made.access}): a loop over {key[1][0]} is around it")
        if not env.inside:
            with self.places.w.once(name="alone"):
                self.chain(space, made, key, level, replace(env, inside=True))
            return
        roots, axes = self.places.axes[key].roots, self.places.axes[key].first(level + 1)
        low, high = space.low, space.high
        limits = [(low, high)]
        for axis in axes[:0:-1]:
            first, last = (self.held(e) for e in (owner_of(axis, low), owner_of(axis, plus(high, number(-1)))))
            low, high = first, last + 1
            limits.insert(0, (low, high))

        def down(at: int, env: Env) -> None:
            axis, (low, high), visited = axes[at], limits[at], env.visited.get(key, ())
            last = at == len(axes) - 1
            if at:
                begin = begin_of(axis, *visited)
                low, high = low - begin, high - begin

            def then(inner: Env, var: Expr) -> None:
                inner, known = inner.visiting(key, var), {key[1][at - roots]: var} if at >= roots else {}
                if last:
                    self.found(inner, {**space.values(offset_of(axis, *visited, var)), **known})
                    return
                deeper = partial(self.between, then=partial(down, at + 1))
                self.catch_up(inner.knowing(known), deeper, but=key)

            self.iterate(axis, env, then, (low, high, "position", space.most if last else None), main=last)

        down(0, env)

    def held(self, expr: Expr) -> Expr:
        """The value of an expression, kept by the loop around."""
        w = self.places.w
        cell = self.places.p.local(w.fresh("At"), (w.one,), "int64")
        cell[0] = expr
        found: Expr = cell[0]
        return found

    def followed(self, env: Env) -> None:
        self.catch_up(env, self.inside)

    def catch_up(self, env: Env, then: Then, but: Key | None = None) -> None:
        """Visit levels whose coordinate is known, so that what they store is there: one element, or none."""
        for key in self.keys:
            at = self.places.depth(key, env)
            if key == but or at >= len(key[1]) or key[1][max(at, 0)] not in env.known:
                continue
            if key in self.partly and (at < 0 or self.places.axes[key].levels[at] not in env.direct):
                continue
            self.one(key, env, lambda inner: self.catch_up(inner, then, but))
            return
        then(env)
