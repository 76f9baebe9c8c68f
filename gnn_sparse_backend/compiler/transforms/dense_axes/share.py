"""Share the elements of a static dense axis out to lanes, the threads of a GPU that work on one row together.

Element k of an axis K of width F is k = turn * (lanes * part) + lane * part + p: in each turn neighbouring lanes hold
neighbouring parts, so that what they load together is one stretch of memory, and a part is one vector load.

    rows (I):                                rows (I):
      sum_tile_0 (J):                          sum_tile_0 (J):
        sum_0 (K): S[k] += A * B[j,k]   ->       sum_0 (K_turn, K_lane, K_part):
                                                   S[lane, turn, p] += A * B[j, turn * 128 + lane * 4 + p]

A local buffer that is only ever indexed by the iterator of the axis is shared out with it: each lane keeps its own
elements in registers. Any other one is kept whole by every lane, and what fills it is computed by every lane alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

from ....frozen import dataclass
from ...language.axes import Axis, StageIError, dense_fixed, given
from ...language.expr import Binary, Const, Expr, Load, Var
from ...language.program import (
    Buffer,
    Iteration,
    Program,
    Store,
    loads_in,
    map_iterations,
    map_store,
    stores_in,
    walk_iterations,
)
from ...language.traversal import map_children, rewrite
from ...language.validate import changed
from .dependence import indexed_otherwise
from .lanes import check_sum


def share_axis(program: Program, axis_name: str, lanes: int, part: int = 1, exchanged: tuple[str, ...] = ()) -> Program:
    """Share the axis out wherever it is visited alone, spatially, and by nothing but stores (as `tile_axis` leaves it).

    exchanged: local buffers through which lanes pass values on, which the schedule has to put where all lanes see them.
    The new axes are called ``<axis>_turn``, ``<axis>_lane`` and ``<axis>_part``; what has one element is left out, but
    for the lanes. Refuses (StageIError) an axis that is not static dense, lanes or parts below 1, and a visit that is
    not as above.
    """
    axis = program.axis(axis_name)
    if axis.kind != "dense_fixed" or not isinstance(axis.length, int):
        raise StageIError(f"share_axis: axis {axis_name!r} is not dense-fixed with a static length")
    split = Split.of(axis, lanes, part, "share_axis")
    visits = [it for it in walk_iterations(program.iterations) if axis in it.axes]
    for it in visits:
        if len(it.axes) != 1 or it.kinds != "S" or it.locals or any(isinstance(s, Iteration) for s in it.body):
            raise StageIError(
                f"share_axis: iteration {it.name!r} does not visit axis {axis_name!r} alone, spatially, "
                "with stores only"
            )
    shared, owned = _shared(program, axis, visits, exchanged)
    new = {b: replace(b, axes=tuple(x for a in b.axes for x in (split.stored if a == axis else (a,)))) for b in owned}

    def visit(it: Iteration) -> tuple[Iteration, ...]:
        if it not in shared:
            return (replace(it, locals=tuple(new.get(b, b) for b in it.locals)),)
        return (_share(it, axis, split, new),)

    at = program.axes.index(axis) + 1
    axes = program.axes[:at] + split.axes + program.axes[at:]
    iterations = map_iterations(program.iterations, visit)
    return changed(program, f"share_axis({axis_name}, {lanes}, {part})", axes=axes, iterations=iterations)


@dataclass(frozen=True)
class Split:
    """An axis in turns, lanes and parts. turn and part are None where there is one."""

    axis: Axis
    turn: Axis | None
    lane: Axis
    part: Axis | None
    exact: bool

    @classmethod
    def of(cls, axis: Axis, lanes: int, part: int, what: str) -> Split:
        if lanes < 1 or part < 1:
            raise StageIError(f"{what}: {lanes} lanes with parts of {part} hold nothing")
        turns = -(-axis.static_length // (lanes * part))
        return cls(
            axis,
            dense_fixed(f"{axis.name}_turn", turns, "turn") if turns > 1 else None,
            dense_fixed(f"{axis.name}_lane", lanes, "lane"),
            dense_fixed(f"{axis.name}_part", part, "part") if part > 1 else None,
            turns * lanes * part == axis.length,
        )

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Axes in the order in which they are visited."""
        return tuple(a for a in (self.turn, self.lane, self.part) if a is not None)

    @property
    def stored(self) -> tuple[Axis, ...]:
        """Axes in the order in which what belongs to them is stored: all of a lane together."""
        return tuple(a for a in (self.lane, self.turn, self.part) if a is not None)

    def variables(self, of: Var) -> dict[Axis, Var]:
        """Iterators, named after the one of the axis."""
        return {a: Var(f"{of.name}_{a.role}") for a in self.axes}

    def element(self, at: Mapping[Axis, Expr]) -> Expr:
        """The element of the axis that the iterators stand for."""
        part = self.part.static_length if self.part else 1
        terms = [(self.turn, self.lane.static_length * part), (self.lane, part), (self.part, 1)]
        found: Expr | None = None
        for axis, width in terms:
            if axis is None:
                continue
            term = at[axis] if width == 1 else Binary("*", at[axis], Const(width, "int64"))
            found = term if found is None else Binary("+", found, term)
        return given(found)

    def inside(self, at: dict[Axis, Var]) -> Expr | None:
        """The condition that there is such an element, None where there always is. It is the same for all of a part,
        where parts are all full, so that a vector loop over the part stays one."""
        if self.exact:
            return None
        whole = self.part is not None and self.axis.static_length % self.part.static_length == 0
        element = self.element({a: Const(0, "int64") if whole and a == self.part else v for a, v in at.items()})
        return Binary("<", element, Const(self.axis.static_length, "int64"))


def _shared(
    program: Program, axis: Axis, visits: list[Iteration], exchanged: tuple[str, ...]
) -> tuple[list[Iteration], set[Buffer]]:
    """The iterations that lanes share, and the local buffers that they share with them."""
    locals_ = {
        b for it in walk_iterations(program.iterations) for b in it.locals if axis in b.axes and b.name not in exchanged
    }
    otherwise = indexed_otherwise(program.iterations, axis, None)
    whole = {b for b in locals_ if b.axes.count(axis) > 1 or b in otherwise}
    shared = list(visits)
    while True:
        alike = [
            it
            for it in shared
            if any(
                s.buffer.scope == "local" and s.buffer not in locals_ - whole and s.buffer.name not in exchanged
                for s in it.stores
            )
        ]
        if not alike:
            return shared, locals_ - whole
        shared = [it for it in shared if it not in alike]
        for it in alike:
            touched = {store.buffer for store in stores_in((it,))} | {load.buffer for load in loads_in((it,))}
            whole |= touched & locals_


def _share(it: Iteration, axis: Axis, split: Split, new: dict[Buffer, Buffer]) -> Iteration:
    old = it.variables[0]
    at = split.variables(old)
    element = split.element(at)
    own = tuple(at[a] for a in split.stored)

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.buffer in new:
            indices = [i for a, e in zip(expr.buffer.axes, expr.indices) for i in (own if a == axis else (change(e),))]
            return Load(new[expr.buffer], tuple(indices))
        if expr == old:
            return element
        return map_children(expr, change)

    conditions = [c for c in (None if it.where is None else change(it.where), split.inside(at)) if c is not None]
    where = (
        conditions[0] if len(conditions) == 1 else Binary("and", conditions[1], conditions[0]) if conditions else None
    )
    return replace(
        it,
        axes=split.axes,
        kinds="S" * len(split.axes),
        variables=tuple(at[a] for a in split.axes),
        body=tuple(map_store(s, change) for s in it.stores),
        where=where,
    )


def share_sum(program: Program, iteration_name: str, lanes: int, part: int = 1) -> Program:
    """Share a sum over a static dense axis out to lanes: each adds up its own elements, then the lanes are added up.

    (rfactor: the two-stage reduction of SparseTIR, section 4.2.2.)

        dot (T): init D[] = 0; D[] += u[t] * v[t]
      ->
        dot_zero (T_lane, T_part):          P[l, p] = 0
        dot_main (T_turn, T_lane, T_part):  P[l, p] += u[turn * 128 + l * 4 + p] * v[...]
        dot_fold (T_lane):                  Q[l] = P[l, 0] + P[l, 1] + ...
        dot (T_lane):                       init D[] = 0; D[] += Q[l]

    Refuses (StageIError) anything but an iteration nested in another, over one static dense reduction axis, without a
    condition, that starts one element from zero and adds terms to it which do not depend on it.
    """
    it = program.iteration(iteration_name)
    store, value = check_sum(f"share_sum: iteration {it.name!r}", program, it)
    dtype = store.buffer.dtype
    old = it.variables[0]
    axis = it.axes[0]
    split = Split.of(axis, lanes, part, "share_sum")
    kept = tuple(a for a in (split.lane, split.part) if a is not None)
    partial = Buffer(f"{it.name}_partial", kept, dtype, "local")
    locals_ = [partial]
    stages: list[Iteration] = []

    def stage(
        suffix: str,
        over: tuple[Axis, ...],
        kinds: str,
        make: Callable[[dict[Axis, Var]], Store],
        where: Callable[[dict[Axis, Var]], Expr | None] | None = None,
        init: tuple[Store, ...] = (),
    ) -> None:
        at = {a: Var(f"{it.name}{suffix}_{a.name.rpartition('_')[2]}") for a in over}
        variables = tuple(at[a] for a in over)
        stages.append(Iteration(it.name + suffix, over, kinds, variables, init, (make(at),), where=where and where(at)))

    def here(at: dict[Axis, Var]) -> tuple[Var, ...]:
        return tuple(at[a] for a in kept)

    def add(at: dict[Axis, Var]) -> Store:
        element = split.element(at)
        term = rewrite(value.b, lambda e: element if e == old else None)
        return Store(partial, here(at), Binary("+", partial[here(at)], term))

    stage("_zero", kept, "S" * len(kept), lambda at: Store(partial, here(at), it.init[0].value))
    stage("_main", split.axes, ("R" if split.turn else "") + "S" * len(kept), add, split.inside)
    if split.part:
        folded = Buffer(f"{it.name}_folded", (split.lane,), dtype, "local")
        locals_.append(folded)

        def fold(at: dict[Axis, Var]) -> Store:
            parts: list[Expr] = [partial[at[split.lane], Const(p, "int64")] for p in range(part)]
            return Store(folded, (at[split.lane],), functools.reduce(lambda a, b: Binary("+", a, b), parts))

        stage("_fold", (split.lane,), "S", fold)
        partial = folded

    def total(at: dict[Axis, Var]) -> Store:
        return Store(store.buffer, store.indices, Binary("+", value.a, partial[at[split.lane]]))

    stage("", (split.lane,), "R", total, init=it.init)

    def visit(found: Iteration) -> tuple[Iteration, ...]:
        if found.name == it.name and found not in stages:
            return tuple(stages)
        if any(s is it or s in stages for s in found.body):
            return (replace(found, locals=found.locals + tuple(locals_)),)
        return (found,)

    return changed(
        program,
        f"share_sum({iteration_name}, {lanes}, {part})",
        axes=program.axes + split.axes,
        iterations=map_iterations(program.iterations, visit),
    )
