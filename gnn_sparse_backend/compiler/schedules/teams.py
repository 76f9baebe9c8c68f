"""Schedules for a GPU by teams: a few threads of one warp work on one element of the outermost axis, several teams a
block.

What a program does for a row stays one sequential program. Loops over the lanes of a shared axis
(`transforms.dense_axes.share`) are the threads of the team; a reduction over lanes is a reduction among threads, by
shuffles, whose result every lane has; everything else is computed by all lanes alike. As a team is part of one warp,
no barrier is needed, but where lanes pass values on through shared memory."""

from __future__ import annotations

from ...deferred import tirx
from ..codegen.nodes import nodes
from ..language.axes import StageIError
from ..language.program import Iteration, Program, loads_in, walk_iterations
from ..position.function import PositionFunction
from .primitives.cuda import bind
from .primitives.shared.decompose import decompose_reductions
from .primitives.shared.local_memory import in_shared_memory
from .primitives.shared.loops import bind_loop, set_loop_kind
from .sequence import Schedule, Step, primitive

WARP = 32
BOUND = {"lane": "threadIdx.x", "warp": "threadIdx.y", "grid": "blockIdx.y"}
"""The index of a GPU that the loop over an axis of each role is bound to."""
KINDS = {"part": "VECTORIZED", "turn": "UNROLLED"}
"""TVM's name of what the loop over an axis of each other role becomes."""


def team_schedule(
    lanes: int,
    *steps: Step,
    teams: int = 0,
    turns: tuple[tuple[str, int], ...] = (),
    shared: tuple[str, ...] = (),
) -> Schedule:
    """The schedule of a team of lanes of one warp for each row, several teams in a block.

    Loops over axes with a role (`language.axes.ROLES`) go where it says: an axis of lanes has as many elements as there
    are lanes, so that what a lane keeps of a shared axis stays in registers.

    Args:
        lanes: threads of a team, a power of two of at most 32.
        steps: primitives for loops of teams.
        teams: of a block; 0 for as many as have `THREADS` threads.
        turns: of a top-level iteration, by name, elements that a team has one after the other; one each where it is
            not named.
        shared: local buffers through which the lanes of a team pass values on; then a block is one team.

    Raises StageIError where teams of a block would wait for each other, and when it is applied where all lanes would
    add to a parameter, one on top of the other.
    """
    teams = teams or (1 if shared else max(1, bind.THREADS // lanes))
    if shared and (teams != 1 or turns):
        who = "several turns of a team" if turns else f"{teams} teams of a block"
        raise StageIError(f"team_schedule: {who} would wait for each other at {shared}")
    own = tuple(step.arguments[0] for step in steps if step.lanes_apart)
    return (
        *((check_repeatable(own),) if lanes > 1 else ()),
        bind_roles(lanes),
        bind_teams(lanes, teams, turns),
        *((in_shared_memory(shared),) if shared else ()),
        decompose_reductions(),
        *steps,
        check_threads(lanes),
    )


@primitive(on_gpu=True)
def bind_roles(stage2: PositionFunction, lanes: int) -> PositionFunction:
    """Put the loop over every axis that has a role where the role says. Of one lane there is no loop to bind."""
    for it in walk_iterations(stage2.program.iterations):
        for level, axis in enumerate(reversed(it.axes)):
            if axis.role in KINDS:
                stage2 = set_loop_kind(stage2, it.name, getattr(tirx.ForKind, KINDS[axis.role]), level)
            elif axis.role and (axis.role != "lane" or lanes > 1):  # teams of one lane are known by threadIdx.x
                stage2 = bind_loop(stage2, it.name, BOUND[axis.role], level)
    return stage2


@primitive(on_gpu=True)
def bind_teams(
    stage2: PositionFunction, lanes: int, teams: int, turns: tuple[tuple[str, int], ...]
) -> PositionFunction:
    """Give the elements of every iteration of the outermost level to teams (`primitives.cuda.bind`)."""
    of_each = dict(turns)
    for it in stage2.program.iterations:
        stage2 = bind.bind_teams(it.name, lanes, teams, of_each.get(it.name, 1))(stage2)
    return stage2


@primitive()
def check_threads(stage2: PositionFunction, lanes: int) -> PositionFunction:
    """Refuse dimensions of the threads of a block that have several sizes, of which TVM takes one, without a word."""
    found: dict[str, set[int]] = {"threadIdx.x": {lanes}} if lanes > 1 else {}
    for loop in nodes(stage2.function.body, tirx.For):
        tag = "" if loop.thread_binding is None else str(loop.thread_binding.thread_tag)
        if tag.startswith("threadIdx"):
            found.setdefault(tag, set()).add(int(loop.extent))
    for tag, sizes in found.items():
        if len(sizes) > 1:
            raise StageIError(
                f"team_schedule: {tag} of {stage2.name} has {' and '.join(map(str, sorted(sizes)))} elements; teams "
                f"have {lanes} lanes"
            )
    return stage2


@primitive(stage=1)
def check_repeatable(program: Program, own: tuple[str, ...]) -> Program:
    """Refuse a store by all lanes to a parameter that is also read; the same value may be stored by all to another.

    own: iterations of whose elements each lane has its own.
    """
    loaded = {load.buffer for load in loads_in(program.iterations)}

    def visit(it: Iteration, shared: bool) -> None:
        shared = shared or it.name in own or any(axis.role == "lane" for axis in it.axes)
        for statement in (*it.init, *it.body):
            if isinstance(statement, Iteration):
                visit(statement, shared)
            elif not shared and statement.buffer.scope != "local" and statement.buffer in loaded:
                raise StageIError(
                    f"team_schedule: all lanes would store to {statement.buffer.name!r} in iteration {it.name!r}, and "
                    "read what others have stored; share an axis of it out"
                )

    for it in program.iterations:
        visit(it, False)
    return program
