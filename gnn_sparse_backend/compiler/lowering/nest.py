"""Pass 1: the loop nest of a sparse iteration and where its blocks begin (SparseTIR, section 3.3.2).

A loop whose extent depends on another loop of the iteration cannot stand in one block with it: the outer one is
closed in a block, whose variables then determine the extent. What comes out is data; `emit` turns it into loops.
"""

from __future__ import annotations

from ...frozen import dataclass
from ..language.axes import Axis
from ..language.program import Iteration


@dataclass(frozen=True)
class Loop:
    """One loop: an axis, or several axes of one tree visited by one loop over the elements of the last."""

    axes: tuple[Axis, ...]
    kind: str

    @property
    def fused(self) -> bool:
        return len(self.axes) > 1


@dataclass(frozen=True)
class Nest:
    """segments: loops, outermost first, one block closing each segment. init_segment: the block that holds init."""

    segments: tuple[tuple[Loop, ...], ...]
    init_segment: int | None


def plan_nest(iteration: Iteration) -> Nest:
    loops = _loops(iteration)
    segments: list[list[Loop]] = [[]]
    for loop in loops:
        bound_here = {axis for other in segments[-1] for axis in other.axes}
        after_search = any(other.fused for other in segments[-1])
        if loop.axes[0].parent in bound_here or after_search:
            segments.append([])
        segments[-1].append(loop)
    init_segment = None
    if iteration.init:
        init_segment = next(n for n, segment in enumerate(segments) if any(loop.kind == "R" for loop in segment))
    return Nest(tuple(tuple(segment) for segment in segments), init_segment)


def _loops(iteration: Iteration) -> list[Loop]:
    group_of = {axis: group for group in iteration.fused for axis in group}
    loops: list[Loop] = []
    for axis, kind in zip(iteration.axes, iteration.kinds):
        group = group_of.get(axis)
        if group is None:
            loops.append(Loop((axis,), kind))
        elif axis == group[0]:
            kinds = {k for a, k in zip(iteration.axes, iteration.kinds) if a in group}
            loops.append(Loop(group, "R" if "R" in kinds else "S"))
    return loops


def block_name(iteration: Iteration, segment: int) -> str:
    """The block that closes a segment of the iteration's nest: the last one has the iteration's name."""
    last = segment == len(plan_nest(iteration).segments) - 1
    return iteration.name if last else f"{iteration.name}_{segment}"
