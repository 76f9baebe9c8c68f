"""The CUDA schedule: a block of threads per row, a thread per feature."""

from __future__ import annotations

from dataclasses import dataclass

from ..language.axes import Axis
from ..language.program import Iteration, Program
from ..position.function import PositionFunction
from ..transforms.dense_axes.hoist import hoist_axis
from ..transforms.reorder import sparse_reorder
from .cpu import decompose_reductions
from .primitives.cuda.bind import MAX_THREADS, bind_spatial


@dataclass(frozen=True)
class CudaSchedule:
    """Rows to blocks, features to threads; every thread sums its own feature in a register.

    `prepare` brings the feature axis out to where it can be bound; the compile driver runs it before lowering.

    Attributes:
        fuse: all iterations share one launch (`loops.horizontal`).
    """

    fuse: bool = False

    def prepare(self, program: Program) -> Program:
        for iteration in program.iterations:
            if any(isinstance(s, Iteration) for s in iteration.body):
                program = _hoist_features(program, iteration)
            else:
                program = _features_outward(program, iteration)
        return program

    def without_instructions(self) -> CudaSchedule:
        """Return the schedule with loops in the place of GPU-only instructions: itself, as it has none."""
        return self

    def apply(self, stage2: PositionFunction) -> PositionFunction:
        for iteration in stage2.program.iterations:
            stage2 = bind_spatial(stage2, iteration)
        stage2 = decompose_reductions(stage2)
        return stage2.with_function(stage2.function.with_attr("global_symbol", stage2.name))


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
