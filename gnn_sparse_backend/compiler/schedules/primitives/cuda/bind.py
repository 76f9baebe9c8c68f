"""Bind the loops of a sparse iteration to the blocks and threads of a GPU."""

from __future__ import annotations

from .....deferred import tirx
from ....codegen.nodes import int64, substitute
from ....language.axes import StageIError, refuse
from ....language.program import Iteration
from ....lowering.nest import Loop, block_name, plan_nest
from ....position.function import PositionFunction
from ...sequence import iteration_primitive
from ..cpu import parallelize
from ..shared.loops import bind_loop, bound_loop, rewrite_block, rewrite_loop

MAX_THREADS = 1024
THREADS = 128


@iteration_primitive(on_gpu=True)
def bind_spatial(stage2: PositionFunction, iteration: Iteration) -> PositionFunction:
    """Bind the outermost loop of a top-level `iteration` to blocks, and one more loop of its first segment to threads.

    The thread loop is the last static, dense, spatial one, of at most 1024 elements. Where there is none, the
    outermost loop itself is cut into blocks of 128 threads. Where the outermost loop may not run in parallel,
    everything
    runs in one thread of one block: slow, and right.

        for i, k in grid(m, 64):           for i in thread_binding(m, "blockIdx.x"):
            with block("rows"): ...   ->       for k in thread_binding(64, "threadIdx.x"):
                                                   with block("rows"): ...

    Refuses (StageIError) an iteration that is nested in another.
    """
    if iteration not in stage2.program.iterations:
        raise StageIError(f"bind_spatial: iteration {iteration.name!r} is nested in another")
    if iteration.merged:  # its loops are inside of its block
        return rewrite_block(stage2, iteration.name, _in_one_thread)
    nest = plan_nest(iteration)
    first = nest.segments[0]
    block = block_name(iteration, 0)
    depth = len(first)
    if parallelize.refuses(stage2, iteration) is not None:
        return rewrite_loop(stage2, block, depth - 1, _in_one_thread)
    threads = [n for n, loop in enumerate(first) if n > 0 and _thread_axis(loop)]
    if threads:
        stage2 = bind_loop(stage2, block, "threadIdx.x", level=depth - 1 - threads[-1])
        return bind_loop(stage2, block, "blockIdx.x", level=depth - 1)
    return rewrite_loop(stage2, block, depth - 1, lambda loop: _blocks(loop, THREADS, "threadIdx.x"))


@iteration_primitive(on_gpu=True)
def bind_teams(
    stage2: PositionFunction, iteration: Iteration, lanes: int, teams: int, turns: int = 1
) -> PositionFunction:
    """Give every element of the outermost loop of a top-level `iteration` to a team of `lanes` threads, `teams` a
    block.

    The threads of a team are known by threadIdx.x, to which loops inside may be bound; teams by threadIdx.y. turns:
    elements that a team has, one after the other; those of the teams of a block lie side by side in each turn.

        for i in range(m): ...  ->  for io in blocks(ceil(m / 4)): for ii in threads_y(4): if io * 4 + ii < m: ...

    Refuses (StageIError) an iteration that is nested in another, and one whose outermost loop may not run in parallel.
    """
    refuse(f"bind_teams: iteration {iteration.name!r}", parallelize.refuses(stage2, iteration))
    depth = len(plan_nest(iteration).segments[0])
    if teams == turns == 1:  # without a condition around what may wait for the other threads of the block
        return bind_loop(stage2, block_name(iteration, 0), "blockIdx.x", depth - 1)
    return rewrite_loop(
        stage2,
        block_name(iteration, 0),
        depth - 1,
        lambda loop: _blocks(loop, teams, "threadIdx.y" if lanes > 1 else "threadIdx.x", turns),
    )


def _blocks(loop: tirx.For, threads: int, tag: str, turns: int = 1) -> tirx.Stmt:
    """for i in range(m)  ->  for io in blocks(ceil(m / 128)): for ii in threads(128): if io * 128 + ii < m

    With several turns: for io in blocks(...): for ii in threads(128): for it in range(turns): if (io * turns + it) *
    128 + ii < m
    """
    name, count = loop.loop_var.name, int64(threads)
    outer, inner, turn = (tirx.Var(f"{name}_{what}", "int64") for what in ("block", "thread", "turn"))
    at = (outer if turns == 1 else outer * turns + turn) * count + inner
    body = substitute(loop.body, {loop.loop_var: at})
    each = tirx.IfThenElse(at < loop.extent, body, None)
    if turns > 1:
        each = tirx.For(turn, int64(0), int64(turns), tirx.ForKind.SERIAL, each)
    team = bound_loop(inner, count, each, tag)
    of_block = int64(threads * turns)
    return bound_loop(outer, tirx.floordiv(loop.extent + of_block - 1, of_block), team, "blockIdx.x")


def _thread_axis(loop: Loop) -> bool:
    axis = loop.axes[0]
    if axis.kind != "dense_fixed" or not isinstance(axis.length, int):
        return False
    return loop.kind == "S" and not loop.fused and 1 < axis.length <= MAX_THREADS


def _in_one_thread(nest: tirx.Stmt) -> tirx.Stmt:
    """The nest in a loop over blocks and one over threads, of one element each."""
    for tag in ("threadIdx.x", "blockIdx.x"):
        nest = bound_loop(tirx.Var(tag.replace("Idx.", "_"), "int64"), int64(1), nest, tag)
    return nest
