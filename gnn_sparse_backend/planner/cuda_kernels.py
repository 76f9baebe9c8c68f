"""Kernels for a GPU, by what is static in them: the programs of the operators, shared out among the lanes of a team."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from ..compiler.compile import compile_program
from ..compiler.coordinate.program import Program, walk_iterations
from ..compiler.kernels.kernel import Kernel
from ..compiler.programs.aggregate import AggregateSpec, aggregate
from ..compiler.programs.attention import AttentionSpec, attention
from ..compiler.programs.attention_gradient import attention_gradient
from ..compiler.programs.edge_map import EdgeMapSpec, edge_map
from ..compiler.programs.edge_softmax import EdgeSoftmaxSpec, edge_softmax, edge_softmax_gradient
from ..compiler.programs.operands import ACCUMULATOR
from ..compiler.programs.softmax_merge import MergeSpec, softmax_merge
from ..compiler.programs.sums import Output, SumsSpec, sums
from ..compiler.schedule.cuda_teams import CudaTeams
from ..compiler.target import cuda_target
from ..compiler.transform.buckets import bucket_rows
from ..compiler.transform.compact import compact_parameters
from ..compiler.transform.hold import hold_loads
from ..compiler.transform.pick import pick_entries
from ..compiler.transform.share import share_axis, share_sum
from ..compiler.transform.tile import tile_axis
from .cuda_plan import STRETCH, WARP, CudaPlan, Shares, bucket_widths, passes, shares, stretches, teams
from .kernels import supports as not_supported
from .plan import Plan
from .problem import STORED

# Heads whose scores a lane picks its own from by comparisons: as many instructions as going to memory takes time,
# about.
MOST_PICKED = 16


Entry: TypeAlias = Callable[..., Any]

_wrap: Callable[[Entry], Entry] | None = None


def wrap_entries(wrap: Callable[[Entry], Entry]) -> None:
    """From now on the entries of kernels are what ``wrap`` makes of TVM's: what a framework wants done around each
    launch.
    """
    global _wrap
    _wrap = wrap


def build(program: Program, schedule: CudaTeams, arch: str) -> Kernel:
    """The kernel of a program for one architecture: where kernels for a GPU come from, all of them."""
    kernel = compile_program(program, schedule, cuda_target(arch))
    return kernel if _wrap is None else replace(kernel, entry=_wrap(kernel.entry))


def supported(plan: CudaPlan, spec: AggregateSpec) -> CudaPlan:
    """The plan without what the aggregation does not support of it."""
    if (plan.longest_part or plan.segments) and not_supported(
        Plan(plan.groups, longest_part=plan.longest_part or WARP), spec
    ):
        plan = replace(plan, longest_part=0, buckets=False, segments=False, partitions=1)
    if plan.reduction == "parallel" and spec.chosen and not (spec.chosen == ("unique",) and spec.propagate):
        plan = replace(plan, reduction="sequential", lanes=0)  # in lanes nobody knows which of equal messages came last
    if (plan.buckets or plan.segments) and spec.reduce not in ("sum", "mean"):
        plan = replace(plan, buckets=False, segments=False, partitions=1)
    return plan


@functools.cache
def aggregate_kernel(spec: AggregateSpec, plan: CudaPlan) -> Kernel:
    """The kernel of an aggregation, a team for each row; ``plan`` as `supported` leaves it."""
    if plan.reduction == "parallel":
        program = tile_axis(compact_parameters(aggregate(spec, stage=False)), "K", ((spec.features,),))
        return build(program, CudaTeams(plan.lanes, teams(plan.lanes), across=("edges_tile_0",)), plan.arch)
    program, lanes, loops = _features_shared(spec, plan.team)
    return build(program, CudaTeams(lanes, teams(lanes), cached=stretches(plan, lanes, *loops)), plan.arch)


@functools.cache
def bucket_kernel(spec: AggregateSpec, plan: CudaPlan) -> Kernel:
    """The kernel of an aggregation over rows in buckets of 1 to ``plan.longest_part`` slots, in one launch, the widest
    first.

    A team takes 2**(k - i) rows of the bucket of 2**i slots, 2**k being the widest, so that all blocks have equally
    many slots (compile-time balance; SparseTIR, section 4.2.1).

    Parameters: (m, n, [num_edges], count, ..., indices, ..., Rows, [E], ..., [D], X0, X1, ..., C), where those of a
    bucket come from the widest on (`compiler.transform.buckets`).
    """
    program, lanes, loops = _features_shared(spec, plan.team)
    widths = bucket_widths(plan.longest_part)
    cached = [f"{loop}_w{width}" for width in widths if width >= STRETCH for loop in loops]
    program = bucket_rows(program, "J", widths)
    of_width = dict(zip(widths, program.iterations, strict=True))
    turns = tuple((of_width[width].name, plan.longest_part // width) for width in widths if width < plan.longest_part)
    schedule = CudaTeams(lanes, teams(lanes), turns, cached=stretches(plan, lanes, *cached), fuse=True, apart=("C",))
    return build(program, schedule, plan.arch)


@functools.cache
def segment_kernel(spec: AggregateSpec, arch: str) -> Kernel:
    """The kernel of an aggregation over rows in groups of 1 to 32 non-zeros, none of them empty: a lane for each
    non-zero.

    spec: of a sum or a mean. Parameters are those of `programs.aggregate.aggregate`.
    """
    program = tile_axis(compact_parameters(aggregate(spec, stage=False)), "K", ((spec.features,),))
    return build(program, CudaTeams(WARP, teams(WARP), segmented=("edges_tile_0",)), arch)


def _features_shared(spec: AggregateSpec, team: int) -> tuple[Program, int, tuple[str, ...]]:
    """(program, lanes, loops over edges) of an aggregation whose features are shared out to the lanes of a team."""
    of = shares(spec.features, STORED[spec.dtype], team or WARP)
    widths = passes(spec.features, of)
    program = tile_axis(compact_parameters(aggregate(spec, stage=False)), "K", tuple((width,) for width in widths))
    for number in range(len(widths)):
        program = share_axis(hold_loads(program, f"K_{number}"), f"K_{number}", of.lanes, of.part)
    return program, of.lanes, tuple(f"edges_tile_{number}" for number in range(len(widths)))


@functools.cache
def edge_map_kernel(spec: EdgeMapSpec, plan: CudaPlan) -> Kernel:
    """The kernel of an edge map: the features of an edge, or the terms of its sums, are shared out."""
    program = compact_parameters(edge_map(spec))
    if plan.lanes:
        return build(program, CudaTeams(plan.lanes, teams(plan.lanes), side_by_side=("edges",)), plan.arch)
    if spec.terms == 1:
        of = shares(spec.width, STORED[spec.dtype])
        program = _share(program, "H", spec.width, of)
    else:
        of = shares(spec.terms, STORED[spec.dtype])
        program = share_sum(program, "sum", of.lanes, of.part)
    return build(program, CudaTeams(of.lanes, teams(of.lanes)), plan.arch)


@functools.cache
def attention_kernel(spec: AttentionSpec, plan: CudaPlan) -> Kernel:
    """The kernel of attention."""
    program, lanes = _attention(compact_parameters(attention(spec)), spec, {"dot": spec.terms})
    return build(program, CudaTeams(lanes, teams(lanes)), plan.arch)


@functools.cache
def attention_gradient_kernel(spec: AttentionSpec, outputs: tuple[Output, ...], plan: CudaPlan) -> Kernel:
    """The kernel of what the gradients of attention need of every edge, with sums over rows along the way."""
    width = spec.features // spec.scores
    program = compact_parameters(attention_gradient(spec, outputs))
    program, lanes = _attention(program, spec, {"dot": spec.terms, "delta": width, "weight": width})
    for which, output in enumerate(outputs):
        program = _share(program, f"O{which}_features", output.features, shares(output.features, 4), lanes)
    return build(program, CudaTeams(lanes, teams(lanes)), plan.arch)


@functools.cache
def sums_kernel(spec: SumsSpec, plan: CudaPlan) -> Kernel:
    """The kernel of several sums over the edges of each row."""
    lanes = max(shares(output.features, STORED[output.dtype]).lanes for output in spec.outputs)
    program = compact_parameters(sums(spec, stage=False))
    for which, output in enumerate(spec.outputs):
        program = _share(
            program, f"O{which}_features", output.features, shares(output.features, STORED[output.dtype]), lanes
        )
    return build(program, CudaTeams(lanes, teams(lanes)), plan.arch)


@functools.cache
def edge_softmax_kernel(spec: EdgeSoftmaxSpec, gradient: bool, arch: str, lanes: int = 0) -> Kernel:
    """The kernel of a softmax over edges, of its gradient, or of a stage of either. lanes: that share the edges of a
    row; 0 where they share its features."""
    program = compact_parameters(edge_softmax_gradient(spec) if gradient else edge_softmax(spec))
    if lanes:
        program = tile_axis(program, "K", ((spec.width,),))
        loops = {it.name: it for it in walk_iterations(program.iterations)}
        folded = tuple(name for name in ("max_tile_0", "sum_tile_0") if name in loops)
        visited = tuple(name for name in ("out_tile_0",) if name in loops)
        return build(program, CudaTeams(lanes, teams(lanes), across=folded, side_by_side=visited), arch)
    of = shares(spec.width, STORED[spec.dtype])
    return build(_share(program, "K", spec.width, of), CudaTeams(of.lanes, teams(of.lanes)), arch)


@functools.cache
def softmax_merge_kernel(spec: MergeSpec, arch: str) -> Kernel:
    """The kernel that makes the maxima and sums of the parts of rows those of the rows: features are shared out."""
    width = spec.features or spec.scores
    of = shares(width, STORED[ACCUMULATOR[spec.dtype]])
    program = _share(compact_parameters(softmax_merge(spec)), "K", width, of)
    if 1 < spec.scores < spec.features and spec.scores <= MOST_PICKED:
        program = pick_entries(program, "H")
    return build(program, CudaTeams(of.lanes, teams(of.lanes)), arch)


def _share(program: Program, axis: str, width: int, of: Shares, lanes: int = 0) -> Program:
    """Every visit of an axis shared out, in one pass over the edges."""
    return share_axis(tile_axis(program, axis, ((width,),)), f"{axis}_0", lanes or of.lanes, of.part)


def _attention(program: Program, spec: AttentionSpec, terms: dict[str, int]) -> tuple[Program, int]:
    """(program, lanes): features and the terms of scores are shared out; every lane has all scores."""
    itemsize = STORED[spec.dtype]
    wide = shares(spec.features, itemsize)
    lanes = max([wide.lanes, *(shares(count, itemsize).lanes for count in terms.values() if count > 1)])
    for name, count in terms.items():
        if count > 1:
            program = share_sum(program, name, lanes, shares(count, itemsize).part)
    program = _share(program, "K", spec.features, wide, lanes)
    return pick_entries(
        program, "H"
    ) if 1 < spec.scores < spec.features and spec.scores <= MOST_PICKED else program, lanes


__all__ = [
    "aggregate_kernel",
    "attention_gradient_kernel",
    "attention_kernel",
    "bucket_kernel",
    "build",
    "edge_map_kernel",
    "edge_softmax_kernel",
    "segment_kernel",
    "softmax_merge_kernel",
    "sums_kernel",
    "supported",
    "wrap_entries",
]
