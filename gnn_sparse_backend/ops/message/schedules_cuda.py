"""Kernels for a GPU, by what is static in them: the programs of the operators, shared out among the lanes of a team."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...compiler.cache.kernel import Kernel
from ...compiler.language.program import Program
from ...compiler.language.types import BYTES
from ...compiler.own_schedules import chosen, kept_by_schedules
from ...compiler.schedules.primitives.cuda.cache_row import cache_row
from ...compiler.schedules.primitives.cuda.segments import scan_segments
from ...compiler.schedules.primitives.cuda.side_by_side import visit_side_by_side
from ...compiler.schedules.primitives.cuda.team_reduce import fold_across_lanes
from ...compiler.schedules.primitives.shared.horizontal import fuse_grids
from ...compiler.schedules.sequence import Step
from ...compiler.schedules.teams import team_schedule
from ...compiler.transforms.compact import compact_parameters
from ...compiler.transforms.decompose import decompose_format
from ...compiler.transforms.dense_axes.load_ahead import load_ahead
from ...compiler.transforms.dense_axes.select_entry import pick_entries
from ...compiler.transforms.dense_axes.share import share_axis, share_sum
from ...compiler.transforms.dense_axes.tile import tile_axis
from ...compiler.transforms.format_rules import hyb_bucket_rule
from ...planner.cuda.buckets import BucketPlan, bucket_widths
from ...planner.cuda.plan import WARP, CudaPlan, Shares, passes, shares
from ...planner.cuda.rows import STRETCH, LanePlan, TeamPlan, stretches
from ..core import cuda_build
from .programs.aggregate import AggregateSpec, aggregate
from .programs.edge_map import EdgeMapSpec, edge_map
from .programs.inner import Inner, heads_name, inner_name


@kept_by_schedules
def aggregate_kernel(spec: AggregateSpec, plan: TeamPlan | LanePlan) -> Kernel:
    """The kernel of an aggregation, a team for each row, by a final plan."""
    if isinstance(plan, LanePlan):
        program = tile_axis(compact_parameters(aggregate(spec, stage=False)), "K", ((spec.features,),))
        schedule = team_schedule(plan.lanes, fold_across_lanes("edges_tile_0", plan.lanes))
    elif spec.inner:
        of = shares(spec.features, BYTES[spec.dtype])
        program, lanes = _inner_shared(compact_parameters(aggregate(spec, stage=False)), spec.inner, of, spec.dtype)
        program = _inner_picked(share_features(program, "K", spec.features, of, lanes), spec.inner)
        schedule = team_schedule(lanes)
    else:
        program, lanes, loops = _features_shared(spec, plan.team)
        schedule = team_schedule(lanes, *_cached(plan.cached, lanes, loops))
    return cuda_build.build(program, chosen(spec, program, schedule, plan.arch), plan.arch)


@kept_by_schedules
def bucket_kernel(spec: AggregateSpec, plan: BucketPlan) -> Kernel:
    """The kernel of an aggregation over rows in buckets of 1 to ``plan.widest`` slots, in one launch, the widest
    first.

    A team takes 2**(k - i) rows of the bucket of 2**i slots, 2**k being the widest, so that all blocks have equally
    many slots (compile-time balance; SparseTIR, section 4.2.1).

    Parameters: (m, n, [num_edges], count, ..., indices, ..., [D], X0, X1, ..., C, Rows, [E], ...), where those of a
    bucket come from the widest on (`hyb_bucket_rule`). What stands on non-zeros has a row of slots for each of Rows.
    """
    program, lanes, loops = _features_shared(spec, grouped=False)
    widths = bucket_widths(plan.widest)
    cached = [f"{loop}_w{width}" for width in widths if width >= STRETCH for loop in loops]
    rules = [hyb_bucket_rule(program, width, name=f"w{width}", tasks=None) for width in widths]
    program = decompose_format(program, rules, copies=False, disjoint=True)
    of_width = dict(zip(widths, program.iterations, strict=True))
    turns = tuple((of_width[width].name, plan.widest // width) for width in widths if width < plan.widest)
    steps = *_cached(True, lanes, cached), fuse_grids(("C",))
    schedule = team_schedule(lanes, *steps, turns=turns)
    return cuda_build.build(program, chosen(spec, program, schedule, plan.arch), plan.arch)


@kept_by_schedules
def segment_kernel(spec: AggregateSpec, arch: str) -> Kernel:
    """The kernel of an aggregation over rows in groups of 1 to 32 non-zeros, none of them empty: a lane for each
    non-zero.

    spec: of a sum or a mean. Parameters are those of `programs.aggregate.aggregate`.
    """
    program = tile_axis(compact_parameters(aggregate(spec, stage=False)), "K", ((spec.features,),))
    schedule = team_schedule(WARP, scan_segments("edges_tile_0", WARP))
    return cuda_build.build(program, chosen(spec, program, schedule, arch), arch)


def _cached(wanted: bool, lanes: int, loops: Iterable[str]) -> tuple[Step, ...]:
    """A step for each of the loops over edges that teams go through in stretches."""
    return tuple(cache_row(loop, lanes) for loop in stretches(wanted, lanes, *loops))


def _features_shared(spec: AggregateSpec, team: int = 0, grouped: bool = True) -> tuple[Program, int, tuple[str, ...]]:
    """(program, lanes, loops over edges) of an aggregation whose features are shared out to the lanes of a team."""
    of = shares(spec.features, BYTES[spec.dtype], team or WARP)
    widths = passes(spec.features, of)
    program = compact_parameters(aggregate(spec, stage=False, grouped=grouped))
    program = tile_axis(program, "K", tuple((width,) for width in widths))
    for number in range(len(widths)):
        program = share_axis(load_ahead(program, f"K_{number}"), f"K_{number}", of.lanes, of.part)
    return program, of.lanes, tuple(f"edges_tile_{number}" for number in range(len(widths)))


def _inner_shared(program: Program, inner: Sequence[Inner], of: Shares, dtype: str) -> tuple[Program, int]:
    """(program, lanes): the terms of sums in a message are shared out, and every lane has all values. of: what is
    shared out beside them.
    """
    itemsize = BYTES[dtype]
    lanes = max([of.lanes, *(shares(one.terms, itemsize).lanes for one in inner if one.terms > 1)])
    for number, one in enumerate(inner):
        if one.terms > 1:
            program = share_sum(program, inner_name(number), lanes, shares(one.terms, itemsize).part)
    return program, lanes


def _inner_picked(program: Program, inner: Sequence[Inner]) -> Program:
    """What lanes read of these values at features that are shared out is picked, so that values stay in registers."""
    for number in range(len(inner)):
        program = pick_entries(program, heads_name(number))
    return program


@kept_by_schedules
def edge_map_kernel(spec: EdgeMapSpec, plan: CudaPlan) -> Kernel:
    """The kernel of an edge map: the features of an edge, or the terms of its sums, are shared out."""
    program = compact_parameters(edge_map(spec))
    of = shares(spec.width if spec.terms == 1 else spec.terms, BYTES[spec.dtype])
    lanes = of.lanes
    if spec.inner:
        program, lanes = _inner_shared(program, spec.inner, of, spec.dtype)
    elif isinstance(plan, LanePlan):
        schedule = team_schedule(plan.lanes, visit_side_by_side("edges", plan.lanes))
        return cuda_build.build(program, chosen(spec, program, schedule, plan.arch), plan.arch)
    if spec.terms == 1:
        program = share_features(program, "H", spec.width, of, lanes)
    else:
        program = share_sum(program, "sum", lanes, of.part)
    program = _inner_picked(program, spec.inner)
    return cuda_build.build(program, chosen(spec, program, team_schedule(lanes), plan.arch), plan.arch)


def share_features(program: Program, axis: str, width: int, of: Shares, lanes: int = 0) -> Program:
    """Every visit of an axis shared out, in one pass over the edges."""
    return share_axis(tile_axis(program, axis, ((width,),)), f"{axis}_0", lanes or of.lanes, of.part)
