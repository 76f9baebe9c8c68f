"""A schedule that says for each loop what it runs on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...deferred import tir_builder as T
from ...deferred import tirx
from ..language.axes import StageIError
from ..language.program import Program, walk_iterations
from ..position.function import PositionFunction
from .cpu import decompose_reductions
from .cuda_teams import LANE_REDUCTIONS
from .primitives.cuda.bind import bind_spatial
from .primitives.shared.atomic import add_atomically
from .primitives.shared.local_memory import locals_on_stack
from .primitives.shared.loops import rewrite_loop, set_loop_kind
from .primitives.shared.whole import KINDS, bind_part, most_of, whole_or_part

TAGS = {"block": "blockIdx.x", "warp": "threadIdx.y", "thread": "threadIdx.x"}
"""What units of a GPU are called there."""
UNITS = ("threads", *KINDS, *TAGS)


@dataclass(frozen=True)
class LoopSchedule:
    """Loops on units: what says the order of the loops is the program itself.

    Attributes:
        units: (iteration, unit) of iterations over one axis: "threads" of the CPU, "lanes" of a vector, "unrolled"; or
            "block", "warp" and "thread" of a GPU, where all other loops then run in one thread. That different elements
            do not write the same place, unless atomically, is for the writer of the program to see to. A reduction with
            an init over "thread" is one by shuffles, whose result every thread has.
        atomic: buffers to which several threads add at once: a store X[i] = X[i] + term becomes an atomic addition.
        fuse: all iterations share one outermost loop (`loops.horizontal`).
        instructions: threads wait for their warp before shuffles; without them loops run anywhere.
    """

    units: tuple[tuple[str, str], ...] = ()
    atomic: tuple[str, ...] = ()
    fuse: bool = False
    instructions: bool = True

    @property
    def on_gpu(self) -> bool:
        """Whether a loop is on a unit of a GPU."""
        return any(unit in TAGS for _, unit in self.units)

    def prepare(self, program: Program) -> Program:
        """What the schedule wants done in coordinate space: nothing. Raises StageIError for a unit that is none."""
        for name, unit in self.units:
            if unit not in UNITS:
                raise StageIError(f"iteration {name!r}: unit {unit!r} is not one of {', '.join(UNITS)}")
            if len(program.iteration(name).axes) != 1:
                raise StageIError(f"iteration {name!r} on {unit} is over several axes; give each an iteration")
        units = {name: unit for name, unit in self.units if unit in ("warp", "thread")}
        for top in program.iterations:  # of several sizes TVM takes one, without a word
            for unit in ("warp", "thread"):
                sizes = {most_of(it) for it in walk_iterations((top,)) if units.get(it.name) == unit}
                if len(sizes) > 1:
                    raise StageIError(
                        f"iteration {top.name!r}: loops on {unit} have {' and '.join(sorted(map(str, sizes)))} "
                        "elements; those of one block have the same number"
                    )
        return program

    def without_instructions(self) -> LoopSchedule:
        """Return the schedule for loops that run one after the other, which need no atomic additions."""
        return replace(self, atomic=(), instructions=False)

    def apply(self, stage2: PositionFunction) -> PositionFunction:
        for name in self.atomic:
            stage2 = add_atomically(stage2, name, self.on_gpu)
        for name, unit in self.units:
            if unit == "threads":
                stage2 = set_loop_kind(stage2, name, tirx.ForKind.PARALLEL)
            elif unit in TAGS:
                stage2 = bind_part(stage2, stage2.program.iteration(name), TAGS[unit])
        if self.on_gpu:
            bound = {name for name, unit in self.units if unit in TAGS}
            for iteration in stage2.program.iterations:
                if not bound & {it.name for it in walk_iterations((iteration,))}:
                    stage2 = bind_spatial(stage2, iteration)
        shuffled = {name for name, unit in self.units if unit == "thread" and stage2.program.iteration(name).init}
        stage2 = decompose_reductions(stage2, keep=shuffled)
        for name, unit in self.units:
            if unit in KINDS:
                stage2 = whole_or_part(stage2, stage2.program.iteration(name), unit)
        if not self.on_gpu:
            stage2 = locals_on_stack(stage2)
        for name in sorted(shuffled) if self.instructions else ():  # conditions have led threads of a warp apart
            stage2 = rewrite_loop(stage2, name, 0, lambda loop: tirx.SeqStmt([tirx.Evaluate(T.cuda.warp_sync()), loop]))
        function = stage2.function.with_attr("global_symbol", stage2.name)
        return stage2.with_function(function.with_attr(LANE_REDUCTIONS, len(shuffled)) if shuffled else function)
