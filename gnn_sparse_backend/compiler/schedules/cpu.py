"""Schedules for a CPU: one parallel loop over independent rows, vectors over static features."""

from __future__ import annotations

from collections.abc import Collection

from ..position.function import PositionFunction
from .primitives.cpu import parallelize, vectorize
from .primitives.shared.decompose import decompose_reductions
from .sequence import Schedule, Step, primitive


def cpu_schedule(
    *steps: Step,
    ahead: tuple[Step, ...] = (),
    parallel: bool = True,
    vectorize: bool = True,
    alone: tuple[str, ...] = (),
) -> Schedule:
    """The schedule of rows on threads and features in vectors, and what is to be done beside that.

    Args:
        steps: primitives for loops whose inits have nests of their own.
        ahead: primitives for loops that have not: gathers to run ahead of.
        parallel: run the outermost loop of every iteration on the thread pool where its elements are independent.
        vectorize: a spatial iteration over one static dense axis runs as a vector loop.
        alone: iterations that one thread runs nevertheless: they take less time than waking the others.
    """
    vectors = (vectorize_all(),) if vectorize else ()
    threads = (parallelize_all(alone),) if parallel else ()
    return *vectors, *threads, *ahead, decompose_reductions(), *steps


@primitive()
def vectorize_all(stage2: PositionFunction) -> PositionFunction:
    """Make a vector loop of every iteration of several elements that `vectorize_spatial` does not refuse."""
    return vectorize.vectorize_each(stage2)


@primitive()
def parallelize_all(stage2: PositionFunction, alone: Collection[str] = ()) -> PositionFunction:
    """Make a parallel loop of the outermost one of every iteration that `parallelize_spatial` does not refuse.

    alone: names of iterations that stay as they are.
    """
    for iteration in stage2.program.iterations:
        if iteration.name not in alone and parallelize.refuses(stage2, iteration) is None:
            stage2 = parallelize.parallelize_spatial(iteration.name)(stage2)
    return stage2
