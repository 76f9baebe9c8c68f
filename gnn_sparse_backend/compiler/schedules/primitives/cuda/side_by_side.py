"""Visit the elements of a run-time number side by side, one for each thread of a team."""

from __future__ import annotations

from .....deferred import tirx
from ....codegen.nodes import int64, substitute
from ....language.axes import StageIError, refuse
from ....language.program import Iteration, Program, stores_in, walk_iterations
from ....position.function import PositionFunction
from ...sequence import iteration_primitive
from ..shared.loops import bound_loop, rewrite_loop


@iteration_primitive(on_gpu=True, lanes_apart=True)
def visit_side_by_side(stage2: PositionFunction, iteration: Iteration, lanes: int) -> PositionFunction:
    """Give the elements of `iteration` to `lanes` threads (threadIdx.x) in turns.

    Neighbouring elements lie side by side in memory, and so do what is loaded and stored of them.

        for j in range(n):                 for turn in range(ceil(n / 32)):
            with block("edges"): ...   ->      for l in threads(32):
                                                   if turn * 32 + l < n:
                                                       with block("edges"): ...

    Preconditions, each refused with a StageIError: what `refuses` names; at least two lanes.
    """
    where = f"visit_side_by_side: iteration {iteration.name!r}"
    if lanes < 2:
        raise StageIError(f"{where}: {lanes} lanes have no sides")
    refuse(where, refuses(stage2.program, iteration))

    def change(loop: tirx.For) -> tirx.Stmt:
        turn, lane = tirx.Var("turn", "int64"), tirx.Var("lane", "int64")
        count = int64(lanes)
        at = turn * count + lane
        body = substitute(loop.body, {loop.loop_var: at})
        threads = bound_loop(lane, count, tirx.IfThenElse(at < loop.extent, body, None), "threadIdx.x")
        turns = tirx.floordiv(loop.extent + (lanes - 1), count)
        return tirx.For(turn, int64(0), turns, tirx.ForKind.SERIAL, threads)

    return rewrite_loop(stage2, iteration.name, 0, change)


def refuses(program: Program, iteration: Iteration) -> str | None:
    """Why the elements of `iteration` cannot be visited side by side, or None."""
    if len(iteration.axes) != 1 or iteration.kinds != "S":
        return "is not over one spatial axis"
    if any(axis.role == "lane" for it in walk_iterations((iteration,)) for axis in it.axes):
        return "holds an axis that lanes share"
    return outlives(iteration)


def outlives(iteration: Iteration) -> str | None:
    """Why the elements of `iteration` are not independent of each other, in the words of `refuses`, or None."""
    own = {b for it in walk_iterations((iteration,)) for b in it.locals}
    stored = {store.buffer for store in stores_in((iteration,))}
    outer = [b.name for b in stored if b.scope == "local" and b not in own]
    return f"stores to {outer[0]!r}, which outlives an element" if outer else None
