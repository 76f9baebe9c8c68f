"""The plain schedule for a GPU: a block of threads for each row, a thread for each feature."""

from __future__ import annotations

from ..language.axes import Axis
from ..language.program import Iteration, Program
from ..position.function import PositionFunction
from ..transforms.dense_axes.hoist import hoist_axis
from ..transforms.reorder import sparse_reorder
from .primitives.cuda.bind import MAX_THREADS, bind_spatial
from .primitives.shared.decompose import decompose_reductions
from .sequence import Schedule, Step, primitive


def gpu_schedule(*steps: Step) -> Schedule:
    """The schedule of rows on blocks and features on threads, each of which sums its own feature in a register."""
    return features_outward(), bind_all(), decompose_reductions(), *steps


@primitive(on_gpu=True)
def bind_all(stage2: PositionFunction) -> PositionFunction:
    """Bind the loops of every iteration of the outermost level, by `bind_spatial`."""
    for iteration in stage2.program.iterations:
        stage2 = bind_spatial(iteration.name)(stage2)
    return stage2


@primitive(stage=1)
def features_outward(program: Program) -> Program:
    """Bring the axis of features of each iteration out to where its loop can be bound to threads."""
    for iteration in program.iterations:
        if any(isinstance(s, Iteration) for s in iteration.body):
            program = _hoist_features(program, iteration)
        else:
            program = _features_outward(program, iteration)
    return program


def _is_feature(axis: Axis) -> bool:
    return axis.kind == "dense_fixed" and isinstance(axis.length, int) and axis.length <= MAX_THREADS


def _hoist_features(program: Program, iteration: Iteration) -> Program:
    """Hoist the axis that every statement of the iteration visits spatially, if there is one."""
    common = None
    for statement in iteration.body:
        found = set(statement.spatial) if isinstance(statement, Iteration) else set()
        common = found if common is None else common & found
    for axis in sorted(common or (), key=lambda a: a.name):
        if _is_feature(axis):
            return hoist_axis(program, axis.name)
    return program


def _features_outward(program: Program, iteration: Iteration) -> Program:
    """Put static spatial axes directly behind the outermost axis, so that they share its segment."""
    if iteration.fused or len(iteration.axes) < 2:
        return program
    head, rest = iteration.axes[0], iteration.axes[1:]
    features = [a for a in rest if _is_feature(a) and a in iteration.spatial]
    others = [a for a in rest if a not in features]
    return sparse_reorder(program, iteration.name, tuple(a.name for a in (head, *features, *others)))
