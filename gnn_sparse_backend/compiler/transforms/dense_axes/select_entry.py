"""Pick an entry of a small local array by comparisons, where which one depends on the lane.

A local array lies in registers only if every index is known when the code is made; else it lies in memory, and so does
every store to it. What every lane keeps whole (the scores of a few heads) and reads at an index of its own is therefore
picked:

    add (K_lane): Acc[l] += P[l // 8] * ...   ->   add (K_lane): Acc[l] += select(l // 8 == 0, P[0], select(l // 8 == 1,
    P[1], ...)) * ...
"""

from __future__ import annotations

from dataclasses import replace

from ...language.axes import StageIError
from ...language.expr import Const, Expr, Load, Var, equal, select
from ...language.program import Iteration, Program, Store, map_iterations
from ...language.traversal import rewrite
from ...language.validate import changed

MOST = 16
"""Entries that are picked from at most: as many instructions as going to memory takes time, about."""


def pick_entries(program: Program, axis_name: str) -> Program:
    """Pick what is read of local buffers over this axis alone at anything but an iterator or a constant. Buffers of
    more than `MOST` entries stay as they are.

    Refuses (StageIError) an axis that is not static dense.
    """
    axis = program.axis(axis_name)
    if axis.kind != "dense_fixed" or not isinstance(axis.length, int):
        raise StageIError(f"pick_entries: axis {axis_name!r} is not dense-fixed with a static length")
    if axis.static_length > MOST:
        return program

    def picked(e: Expr) -> Expr | None:
        if (
            not isinstance(e, Load)
            or e.buffer.scope != "local"
            or e.buffer.axes != (axis,)
            or isinstance(e.indices[0], (Var, Const))
        ):
            return None
        entries = [e.buffer[Const(n, "int64")] for n in range(axis.static_length)]
        found: Expr = entries[-1]
        for n in reversed(range(axis.static_length - 1)):
            found = select(equal(e.indices[0], Const(n, "int64")), entries[n], found)
        return found

    def store(s: Store) -> Store:
        return Store(s.buffer, tuple(rewrite(i, picked) for i in s.indices), rewrite(s.value, picked))

    def visit(it: Iteration) -> tuple[Iteration]:
        body = tuple(store(s) if isinstance(s, Store) else s for s in it.body)
        where = None if it.where is None else rewrite(it.where, picked)
        return (replace(it, init=tuple(map(store, it.init)), body=body, where=where),)

    return changed(program, f"pick_entries({axis_name})", iterations=map_iterations(program.iterations, visit))
