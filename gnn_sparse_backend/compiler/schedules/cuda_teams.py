"""The CUDA schedule of teams: a few threads of one warp work on one element of the outermost axis, several teams a
block.

What a program does for a row stays one sequential program. Loops over the lanes of a shared axis
(`transforms.dense_axes.share`) are the threads of the team; a reduction over lanes is a reduction among threads, by
shuffles, whose result every lane has; everything else is computed by all lanes alike. As a team is part of one warp,
no barrier is needed, but where lanes pass values on through shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...deferred import tirx
from ..codegen.nodes import nodes
from ..language.axes import StageIError
from ..language.program import Iteration, Program, loads_in, walk_iterations
from ..position.function import PositionFunction
from .cpu import decompose_reductions
from .primitives.cuda.bind import bind_teams
from .primitives.cuda.cache_row import cache_row
from .primitives.cuda.mma import multiply_fragments
from .primitives.cuda.segments import scan_segments
from .primitives.cuda.side_by_side import visit_side_by_side
from .primitives.cuda.team_reduce import fold_across_lanes
from .primitives.shared.local_memory import in_shared_memory
from .primitives.shared.loops import bind_loop, set_loop_kind

WARP = 32
LANE_REDUCTIONS = "gsb.lane_reductions"
"""Attribute of a function: how many reductions among lanes it has, at least."""


@dataclass(frozen=True)
class CudaTeams:
    """A team of lanes of one warp for each row, several teams in a block.

    Axes called ``<axis>_lane`` have as many elements as there are lanes. Those called ``<axis>_part`` become vectors,
    and those called ``<axis>_turn`` are unrolled, so that what a lane keeps of a shared axis stays in registers.
    ``<axis>_warp`` has an element for each warp of a block of one element, and ``<axis>_grid`` is a second dimension of
    the grid.

    Attributes:
        lanes: threads of a team, a power of two of at most 32.
        teams: of a block.
        turns: of a top-level iteration, by name, elements that a team has one after the other; one each where it is
            not named.
        team_reduced: reductions over a run-time number of elements that the lanes share
            (`primitives.cuda.team_reduce`).
        side_by_side: spatial iterations over a run-time number of elements, of which each lane has its own.
        cached: iterations over a run-time number of elements, of which each lane loads what it takes to know one for
            all lanes (`primitives.cuda.cache_row`).
        segmented: reductions over the non-zeros of rows in groups of at most 32 of them, which are one scan for the
            group (`primitives.cuda.segments`).
        shared: local buffers through which the lanes of a team pass values on; then a block has one team.
        mma: iterations that are one instruction of the Tensor Cores each (`primitives.cuda.mma`).
        fuse: the grids of all iterations lie side by side in one launch, and store apart to the parameters ``apart``
            (`loops.horizontal.fuse_grids`).
        shuffles: what is cached, scanned or folded is handed on by shuffles; without them by loops, which run anywhere.
    """

    lanes: int = WARP
    teams: int = 4
    turns: tuple[tuple[str, int], ...] = ()
    team_reduced: tuple[str, ...] = ()
    side_by_side: tuple[str, ...] = ()
    cached: tuple[str, ...] = ()
    segmented: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    mma: tuple[str, ...] = ()
    fuse: bool = False
    apart: tuple[str, ...] = ()
    shuffles: bool = True

    def prepare(self, program: Program) -> Program:
        """What the schedule wants done in coordinate space: nothing, the planner has shared the axes out."""
        return program

    def without_instructions(self) -> CudaTeams:
        """Return the schedule with loops in the place of GPU-only instructions."""
        return replace(self, mma=(), shuffles=False)

    def apply(self, stage2: PositionFunction) -> PositionFunction:
        """Raises StageIError where all lanes would add to a parameter, one on top of the other."""
        if self.lanes > 1:
            _check_repeatable(stage2.program, self.side_by_side)
        among_lanes = set()
        for it in walk_iterations(stage2.program.iterations):
            for level, (axis, kind) in enumerate(zip(reversed(it.axes), reversed(it.kinds))):
                if axis.name.endswith("_lane"):
                    if self.lanes == 1:  # then teams are known by threadIdx.x
                        continue
                    stage2 = bind_loop(stage2, it.name, "threadIdx.x", level)
                    if kind == "R":
                        among_lanes.add(it.name)
                elif axis.name.endswith("_warp"):
                    stage2 = bind_loop(stage2, it.name, "threadIdx.y", level)
                elif axis.name.endswith("_grid"):
                    stage2 = bind_loop(stage2, it.name, "blockIdx.y", level)
                elif axis.name.endswith("_part"):
                    stage2 = set_loop_kind(stage2, it.name, tirx.ForKind.VECTORIZED, level)
                elif axis.name.endswith("_turn"):
                    stage2 = set_loop_kind(stage2, it.name, tirx.ForKind.UNROLLED, level)
        turns = dict(self.turns)
        for it in stage2.program.iterations:
            stage2 = bind_teams(stage2, it, self.lanes, self.teams, turns.get(it.name, 1))
        if self.shared:
            if self.teams != 1 or turns:
                who = "several turns of a team" if turns else f"{self.teams} teams of a block"
                raise StageIError(f"CudaTeams: {who} would wait for each other at {self.shared}")
            stage2 = in_shared_memory(stage2, self.shared)
        stage2 = decompose_reductions(stage2, keep=among_lanes)
        for name in self.side_by_side:
            stage2 = visit_side_by_side(stage2, stage2.program.iteration(name), self.lanes)
        for name in self.team_reduced:
            stage2 = fold_across_lanes(stage2, stage2.program.iteration(name), self.lanes, self.shuffles)
        for name in self.cached:
            stage2 = cache_row(stage2, stage2.program.iteration(name), self.lanes, self.shuffles)
        for name in self.segmented:
            stage2 = scan_segments(stage2, stage2.program.iteration(name), self.lanes, self.shuffles)
        for name in self.mma:
            stage2 = multiply_fragments(stage2, stage2.program.iteration(name))
        _check_threads(stage2, self.lanes)
        count = len(among_lanes)
        function = stage2.function.with_attr("global_symbol", stage2.name)
        return stage2.with_function(function.with_attr(LANE_REDUCTIONS, count) if count else function)


def _check_threads(stage2: PositionFunction, lanes: int) -> None:
    """A dimension of the threads of a block has one size: of several TVM takes one, without a word."""
    found: dict[str, set[int]] = {"threadIdx.x": {lanes}} if lanes > 1 else {}
    for loop in nodes(stage2.function.body, tirx.For):
        tag = "" if loop.thread_binding is None else str(loop.thread_binding.thread_tag)
        if tag.startswith("threadIdx"):
            found.setdefault(tag, set()).add(int(loop.extent))
    for tag, sizes in found.items():
        if len(sizes) > 1:
            raise StageIError(
                f"CudaTeams: {tag} of {stage2.name} has {' and '.join(map(str, sorted(sizes)))} elements; teams have "
                f"{lanes} lanes"
            )


def _check_repeatable(program: Program, side_by_side: tuple[str, ...]) -> None:
    """What all lanes do alike may store to a parameter, the same value by all, but not to one that is also read."""
    loaded = {load.buffer for load in loads_in(program.iterations)}

    def visit(it: Iteration, shared: bool) -> None:
        shared = shared or it.name in side_by_side or any(axis.name.endswith("_lane") for axis in it.axes)
        for statement in (*it.init, *it.body):
            if isinstance(statement, Iteration):
                visit(statement, shared)
            elif not shared and statement.buffer.scope != "local" and statement.buffer in loaded:
                raise StageIError(
                    f"CudaTeams: all lanes would store to {statement.buffer.name!r} in iteration {it.name!r}, and read "
                    f"what "
                    "others have stored; share an axis of it out"
                )

    for it in program.iterations:
        visit(it, False)
