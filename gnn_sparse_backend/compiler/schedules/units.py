"""Schedules that say for each loop what it runs on."""

from __future__ import annotations

from ...deferred import tir_builder as T
from ...deferred import tirx
from ..language.axes import StageIError
from ..language.program import Iteration, Program, walk_iterations
from ..position.function import PositionFunction
from .primitives.cuda.bind import bind_spatial
from .primitives.shared.atomic import add_atomically
from .primitives.shared.decompose import decompose_reductions
from .primitives.shared.loops import rewrite_loop, set_loop_kind
from .primitives.shared.whole import KINDS, bind_part, most_of, whole_or_part
from .sequence import Schedule, Step, iteration_primitive, primitive

TAGS = {"block": "blockIdx.x", "warp": "threadIdx.y", "thread": "threadIdx.x"}
"""What units of a GPU are called there."""
UNITS = ("threads", *KINDS, *TAGS)


def unit_schedule(units: tuple[tuple[str, str], ...] = (), *steps: Step, atomic: tuple[str, ...] = ()) -> Schedule:
    """The schedule of loops on units: what says the order of the loops is the program itself.

    Args:
        units: (iteration, unit) of iterations over one axis: "threads" of the CPU, "lanes" of a vector, "unrolled"; or
            "block", "warp" and "thread" of a GPU, where all other loops then run in one thread. That different elements
            do not write the same place, unless atomically, is for the writer of the program to see to. A reduction with
            an init over "thread" is one by shuffles, whose result every thread has.
        steps: primitives to apply at the end.
        atomic: buffers to which several threads add at once: a store X[i] = X[i] + term becomes an atomic addition.

    Raises StageIError for a unit that is none, and when it is applied for what its primitives refuse.
    """
    for name, unit in units:
        if unit not in UNITS:
            raise StageIError(f"iteration {name!r}: unit {unit!r} is not one of {', '.join(UNITS)}")
    gpu = any(unit in TAGS for _, unit in units)
    bound = tuple(name for name, unit in units if unit in TAGS)
    return (
        check_units(units),
        *(add_atomically(name, gpu) for name in atomic),
        *(
            run_on_threads(name) if unit == "threads" else bind_part(name, TAGS[unit])
            for name, unit in units
            if unit not in KINDS
        ),
        *((bind_others(bound),) if gpu else ()),
        decompose_reductions(),
        *(whole_or_part(name, unit) for name, unit in units if unit in KINDS),
        *(wait_for_warp(name) for name, unit in sorted(units) if unit == "thread"),
        *steps,
    )


@primitive(stage=1)
def check_units(program: Program, units: tuple[tuple[str, str], ...]) -> Program:
    """Refuse iterations over several axes, and threads of a block of several sizes."""
    for name, unit in units:
        if len(program.iteration(name).axes) != 1:
            raise StageIError(f"iteration {name!r} on {unit} is over several axes; give each an iteration")
    of_block = {name: unit for name, unit in units if unit in ("warp", "thread")}
    for top in program.iterations:  # of several sizes TVM takes one, without a word
        for unit in ("warp", "thread"):
            sizes = {most_of(it) for it in walk_iterations((top,)) if of_block.get(it.name) == unit}
            if len(sizes) > 1:
                raise StageIError(
                    f"iteration {top.name!r}: loops on {unit} have {' and '.join(sorted(map(str, sizes)))} "
                    "elements; those of one block have the same number"
                )
    return program


@iteration_primitive()
def run_on_threads(stage2: PositionFunction, iteration: Iteration) -> PositionFunction:
    """Make the loop of `iteration` a parallel one, whatever its elements write to."""
    return set_loop_kind(stage2, iteration.name, tirx.ForKind.PARALLEL)


@primitive(on_gpu=True)
def bind_others(stage2: PositionFunction, bound: tuple[str, ...]) -> PositionFunction:
    """Bind the loops of every iteration of the outermost level that holds none of those that are bound already."""
    for iteration in stage2.program.iterations:
        if not {it.name for it in walk_iterations((iteration,))}.intersection(bound):
            stage2 = bind_spatial(iteration.name)(stage2)
    return stage2


@iteration_primitive(on_gpu=True, instructions=True)
def wait_for_warp(stage2: PositionFunction, iteration: Iteration, instructions: bool = True) -> PositionFunction:
    """Let threads wait for their warp before the reduction `iteration`: conditions have led them apart."""
    if not iteration.init or not instructions:
        return stage2

    def change(loop: tirx.For) -> tirx.Stmt:
        return tirx.SeqStmt([tirx.Evaluate(T.cuda.warp_sync()), loop])

    return rewrite_loop(stage2, iteration.name, 0, change)
