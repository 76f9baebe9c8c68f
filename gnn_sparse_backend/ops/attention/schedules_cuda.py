"""Kernels of attention and of the softmax over edges for a GPU."""

from __future__ import annotations

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import Kernel
from ...compiler.language.program import Program, walk_iterations
from ...compiler.language.types import ACCUMULATOR, BYTES
from ...compiler.own_schedules import chosen, kept_by_schedules
from ...compiler.schedules.primitives.cuda.side_by_side import visit_side_by_side
from ...compiler.schedules.primitives.cuda.team_reduce import fold_across_lanes
from ...compiler.schedules.teams import team_schedule
from ...compiler.transforms.compact import compact_parameters
from ...compiler.transforms.dense_axes.select_entry import pick_entries
from ...compiler.transforms.dense_axes.share import share_sum
from ...compiler.transforms.dense_axes.tile import tile_axis
from ...planner.cuda.plan import CudaPlan, shares
from ..core import cuda_build
from ..message.schedules_cuda import share_features
from .programs.attention import AttentionSpec, attention
from .programs.attention_gradient import GradientSpec, attention_gradient
from .programs.edge_softmax import EdgeSoftmaxSpec, edge_softmax, edge_softmax_gradient
from .programs.softmax_merge import MergeSpec, softmax_merge
from .programs.sums import SumsSpec, sums


@kept_by_schedules
def attention_kernel(spec: AttentionSpec, plan: CudaPlan) -> Kernel:
    """The kernel of attention."""
    program, lanes = _attention(compact_parameters(attention(spec)), spec, {"dot": spec.terms})
    return cuda_build.build(program, chosen(spec, program, team_schedule(lanes), plan.arch), plan.arch)


@kept_by_schedules
def attention_gradient_kernel(gradient: GradientSpec, plan: CudaPlan) -> Kernel:
    """The kernel of what the gradients of attention need of every edge, with sums over rows along the way."""
    spec = gradient.attention
    width = spec.features // spec.scores
    program = compact_parameters(attention_gradient(gradient))
    program, lanes = _attention(program, spec, {"dot": spec.terms, "delta": width, "weight": width})
    for which, output in enumerate(gradient.outputs):
        program = share_features(program, f"O{which}_features", output.features, shares(output.features, 4), lanes)
    return cuda_build.build(program, chosen(gradient, program, team_schedule(lanes), plan.arch), plan.arch)


@kept_by_schedules
def sums_kernel(spec: SumsSpec, plan: CudaPlan) -> Kernel:
    """The kernel of several sums over the edges of each row."""
    lanes = max(shares(output.features, BYTES[output.dtype]).lanes for output in spec.outputs)
    program = compact_parameters(sums(spec, stage=False))
    for which, output in enumerate(spec.outputs):
        program = share_features(
            program, f"O{which}_features", output.features, shares(output.features, BYTES[output.dtype]), lanes
        )
    return cuda_build.build(program, chosen(spec, program, team_schedule(lanes), plan.arch), plan.arch)


@kept_by_schedules
def edge_softmax_kernel(spec: EdgeSoftmaxSpec, gradient: bool, arch: str, lanes: int = 0) -> Kernel:
    """The kernel of a softmax over edges, of its gradient, or of a stage of either. lanes: that share the edges of a
    row; 0 where they share its features."""
    program = compact_parameters(edge_softmax_gradient(spec) if gradient else edge_softmax(spec))
    if lanes:
        program = tile_axis(program, "K", ((spec.width,),))
        loops = {it.name: it for it in walk_iterations(program.iterations)}
        ways = {"out_tile_0": visit_side_by_side, "max_tile_0": fold_across_lanes, "sum_tile_0": fold_across_lanes}
        steps = [step(name, lanes) for name, step in ways.items() if name in loops]
        schedule = team_schedule(lanes, *steps)
    else:
        of = shares(spec.width, BYTES[spec.dtype])
        program, schedule = share_features(program, "K", spec.width, of), team_schedule(of.lanes)
    return cuda_build.build(program, chosen(spec, program, schedule, arch), arch)


@kept
def softmax_merge_kernel(spec: MergeSpec, arch: str) -> Kernel:
    """The kernel that makes the maxima and sums of the parts of rows those of the rows: features are shared out."""
    width = spec.features or spec.scores
    of = shares(width, BYTES[ACCUMULATOR[spec.dtype]])
    program = share_features(compact_parameters(softmax_merge(spec)), "K", width, of)
    if 1 < spec.scores < spec.features:
        program = pick_entries(program, "H")
    return cuda_build.build(program, team_schedule(of.lanes), arch)


def _attention(program: Program, spec: AttentionSpec, terms: dict[str, int]) -> tuple[Program, int]:
    """(program, lanes): features and the terms of scores are shared out; every lane has all scores."""
    itemsize = BYTES[spec.dtype]
    wide = shares(spec.features, itemsize)
    lanes = max([wide.lanes, *(shares(count, itemsize).lanes for count in terms.values() if count > 1)])
    for name, count in terms.items():
        if count > 1:
            program = share_sum(program, name, lanes, shares(count, itemsize).part)
    program = share_features(program, "K", spec.features, wide, lanes)
    return pick_entries(program, "H") if 1 < spec.scores < spec.features else program, lanes
