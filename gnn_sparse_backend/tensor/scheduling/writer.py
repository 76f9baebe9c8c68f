"""A scheduled statement as a program of stage I: each loop an iteration over one axis, with the bounds that follow from
the loops around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from ...compiler import equal, number
from ...compiler.language.builder import BufferHandle
from ...compiler.language.expr import Expr
from ..errors import ScheduleError
from ..expressions.declared import Declared, Written
from ..expressions.loops.extents import constant
from ..expressions.loops.loops import Loop, Then
from ..expressions.loops.places import Env, Places
from ..expressions.notation import Access
from ..expressions.terms import Term
from .nest import Assign, Nest, Where
from .search import Search

WARP = 32
"""Threads of a GPU that add up what each has by shuffles."""


Units: TypeAlias = tuple[tuple[str, str], ...]
"""(iteration, unit) of loops, as of `unit_schedule`."""


class LoopWriter(Declared):
    """The program of nests, and the units of its loops."""

    def run(self, nests: Sequence[Nest], terms: Sequence[Term]) -> tuple[Written, Units, tuple[str, ...]]:
        """The program, the units of its loops, and the buffers that several of them add to at once."""
        self.declare(tuple(terms), walked=True)
        self.places = Places(self, terms)
        self.begin_result(None if self.kept is None else self.places.axes[self.places.key(self.kept.access)])
        self.atomic: list[str] = []
        self.on_gpu = any(loop.unit in ("block", "warp", "thread") for nest in nests for loop in nest.loops)
        self.zeros(self.result, "" if self.on_gpu else "threads")
        for nest in nests:
            self.alone(nest)
        written = self.written({self.statement.result.name: ""})
        return written, tuple(self.places.units), tuple(dict.fromkeys(self.atomic))

    def zeros(self, buffer: BufferHandle, unit: str = "") -> None:
        """Set a whole buffer to zero, the elements of its outermost axis on a unit."""
        where = buffer.value.axes
        self.each(where or (self.one,), lambda at: buffer.__setitem__(at if where else (), self.constant(0)), unit)

    def each(self, axes: Sequence[Any], inside: Callable[[tuple[Expr, ...]], None], unit: str = "") -> None:
        """Loops over all elements of axes."""
        if not axes:
            inside(())
            return
        name = self.fresh("each")
        with self.p.iterate(name, axes[:1], "S", (self.fresh("z"),)) as (var,):
            if unit and not self.one_turn(axes[0]):
                self.places.units.append((name, unit))
                unit = ""
            self.each(axes[1:], lambda at: inside((var, *at)), unit)

    def one_turn(self, axis: Any) -> bool:
        return bool(axis.parent is None and axis.length == 1)

    # Nests.

    def alone(self, nest: Nest) -> None:
        """A nest that adds to the result, through a copy for each element of a loop whose race this settles."""
        parted = next((loop for loop in nest.loops if loop.race == "temporary"), None)
        result = self.result
        sinks: dict[str, Callable[[Env], tuple[Any, tuple[Expr, ...]]]] = {}
        name = self.statement.result.name
        if parted is None:
            sinks[name] = lambda env: (result, self.place(env))
            if any(loop.race == "atomics" for each in nest.nests() for loop in each.loops):
                self.atomic.append(name)
            self.loops(nest, nest.loops, Env(sinks=sinks))
            return
        axis = self.places.counters.axis(self.places.extents(nest.graph, Env()), parted.name)
        copies = self.p.temporary(self.fresh("Copies"), (axis, *result.value.axes), self.dtype)
        self.zeros(copies, "threads")
        sinks[name] = lambda env: (copies, (env.known[parted.name], *self.place(env)))
        self.loops(nest, nest.loops, Env(sinks=sinks))
        self.each(result.value.axes, lambda at: self.sum_of(copies, axis, result, at), "threads")

    def sum_of(self, copies: Any, axis: Any, result: Any, at: tuple[Expr, ...]) -> None:
        with self.p.iterate(self.fresh("copy"), (axis,), "R", (self.fresh("c"),)) as (c,):
            result[at] = result[at] + copies[(c, *at)]

    def place(self, env: Env) -> tuple[Expr, ...]:
        """Where an element of the result lies."""
        if self.kept is None:
            return tuple(env.known[index] for index in self.statement.result.indices)
        key = self.places.key(self.kept.access)
        depth = len(self.result.value.axes) - len(self.kept.dense)
        return (*env.visited[key][:depth], *(env.known[index] for index in self.kept.dense))

    def loops(self, nest: Nest, left: Sequence[Loop], env: Env) -> None:
        """The loops that are left of a nest, and what is inside."""
        if not left:
            self.body(nest, env)
            return
        self.settled(nest, left, env, lambda inner: self.loop(nest, left, inner))

    def loop(self, nest: Nest, left: Sequence[Loop], env: Env) -> None:
        first, *others = left

        def inside(inner: Env) -> None:
            if first.race == "parallel_reduction" and first.unit == "threads":
                inner = replace(inner, settled=False)
            self.loops(nest, others, inner)

        keys = {self.places.key(a) for each in nest.assigns() for a in each.term.accesses if self.places.is_sparse(a)}
        result = set()
        if self.kept is not None and any(each.target.name == self.statement.result.name for each in nest.assigns()):
            result.add(self.places.key(self.kept.access))
        keys |= result
        every = {self.places.key(a) for a in nest.everywhere() if self.places.is_sparse(a)}
        found = [key for key in self.places.axes if key in keys]
        partly = frozenset(key for key in found if key not in every | result)
        settled = partial(self.settled, nest, left)
        Search(self.places, nest.graph, first, inside, found, partly, settled).run(env)

    def body(self, nest: Nest, env: Env) -> None:
        if isinstance(nest.body, Where):
            self.where(nest, nest.body, env)
            return
        if not env.inside:  # there are no loops at all
            with self.once(name="alone"):
                self.body(nest, replace(env, inside=True))
            return
        term = nest.body.term
        self.add(nest.body.target.name, env, self.product(term, lambda access: self.element(access, env)))

    def element(self, access: Access, env: Env) -> Expr:
        """What an access reads."""
        if access.name in env.workspaces:
            read: Expr = env.workspaces[access.name][tuple(self.counted(env, index) for index in access.indices)]
            return read
        return self.places.element(access, env)

    def add(self, target: str, env: Env, value: Expr) -> None:
        buffer, at = env.sinks[target](env)
        buffer[at] = buffer[at] + value

    # Sums that are complete before they are added.

    def settled(self, nest: Nest, left: Sequence[Loop], env: Env, then: Then) -> None:
        """Sum in a register, or one for each lane or thread, where the place is known and loops are still to come."""
        if env.settled or not isinstance(nest.body, Assign) or not self.is_placed(nest.body, env):
            then(env)
            return
        first = next((loop for loop in left if loop.unit not in ("", "unrolled")), None)
        shared = first if first is not None and first.race == "parallel_reduction" else None
        if shared is None and first is not None:  # the sum is one of each of its elements
            then(env)
            return
        if not env.inside:
            with self.once(name="alone"):
                self.settled(nest, left, replace(env, inside=True), then)
            return
        if shared is None:
            self.in_register(nest.body.target.name, env, then)
        else:
            self.in_parts(nest, shared, nest.body.target.name, env, then)

    def is_placed(self, assign: Assign, env: Env) -> bool:
        """Whether it is known where an assignment adds to."""
        if any(index not in env.known for index in assign.target.indices):
            return False
        if self.kept is None or assign.target.name != self.statement.result.name:
            return True
        depth = len(self.result.value.axes) - len(self.kept.dense)
        return len(env.visited.get(self.places.key(self.kept.access), ())) >= depth

    def in_register(self, target: str, env: Env, then: Then) -> None:
        sum = self.p.local(self.fresh("Sum"), (self.one,), self.dtype)
        sum[0] = self.constant(0)
        then(replace(env, settled=True, sinks={**env.sinks, target: lambda inner: (sum, (number(0),))}))
        self.add(target, env, sum[0])

    def in_parts(self, nest: Nest, loop: Loop, target: str, env: Env, then: Then) -> None:
        """A sum for each element of a loop, added up. On a GPU each thread has its own, and the first one adds."""
        extents = self.places.extents(nest.graph, env)
        most = extents.space(loop.name, env.known).most if loop.unit != "threads" else None
        unit = loop.unit if loop.unit == "thread" else ""
        if unit and most != WARP:
            raise ScheduleError(
                f"parallelize({loop.name}, {unit!r}, {loop.race!r}): {WARP} threads, a warp, add up by shuffles, and "
                f"{loop.name} has {most or 'no number of elements that is known'}; split it by {WARP}"
            )
        axis = self.places.counters.axis(extents, loop.name, most)
        parts = self.p.local(self.fresh("Parts"), (axis,), self.dtype)
        self.zeros(parts, unit)
        then(replace(env, settled=True, sinks={**env.sinks, target: lambda inner: (parts, (inner.known[loop.name],))}))
        sum = self.p.local(self.fresh("Sum"), (self.one,), self.dtype)
        name = self.fresh("part")
        if not unit:  # an init is for shuffles: TVM does not part one from its loop beside every sparse result
            sum[0] = self.constant(0)
        with self.p.iterate(name, (axis,), "R", (self.fresh("c"),)) as (c,):
            if unit:
                with self.p.init():
                    sum[0] = self.constant(0)
            sum[0] = sum[0] + parts[c]
        if not unit:
            self.add(target, env, sum[0])
            return
        first = self.fresh("first")
        with self.p.iterate(first, (axis,), "S", (self.fresh("c"),)) as (c,):
            self.p.where(equal(c, 0))
            self.add(target, env, sum[0])
        self.places.units += [(name, unit), (first, unit)]

    # Workspaces.

    def where(self, nest: Nest, where: Where, env: Env) -> None:
        """Clear a workspace, fill it, and use it."""
        extents = self.places.extents(where.consumer.graph, env)
        name, indices = where.workspace.name, where.workspace.indices
        extents_known = [constant(extents.of(index)) for index in indices]
        if self.on_gpu and not (env.inside and all(known is not None for known in extents_known)):
            raise ScheduleError(
                f"on a GPU the workspace {name} is inside of a loop, and its extents are known at compile time; give "
                f"bound({', '.join(indices)}, ...)"
            )
        axes = [self.places.counters.axis(extents, *each) for each in zip(indices, extents_known)]
        make = self.p.local if env.inside else self.p.temporary
        buffer = make(self.fresh(name), tuple(axes), self.dtype)
        self.zeros(buffer)
        for producer in where.producers:
            filled = next(each for each in producer.assigns() if each.target.name == name).target.indices
            place = lambda inner, at=filled: (buffer, tuple(self.counted(inner, i) for i in at))
            self.loops(producer, producer.loops, replace(env, settled=False, sinks={**env.sinks, name: place}))
        consumer = replace(env, settled=False, workspaces={**env.workspaces, name: buffer})
        self.loops(where.consumer, where.consumer.loops, consumer)

    def counted(self, env: Env, index: str) -> Expr:
        """The value of an index of a workspace."""
        if index not in env.known:
            raise ScheduleError(f"a workspace has an element for each value of {index}, which these loops do not count")
        return env.known[index]
