"""The ways that aggregations and edge maps can run: one class for each, built from a spec and a final plan."""

from __future__ import annotations

from dataclasses import replace

from ....planner.cuda.plan import CudaPlan
from ....planner.plan import Plan
from ...core.executable import builds
from .. import schedules_cpu, schedules_cuda
from ..programs.aggregate import AggregateSpec
from ..programs.edge_map import EdgeMapSpec
from .aggregation import Aggregation
from .blocks_cuda import OnBlocks
from .buckets_cuda import TeamsOfBuckets
from .edge_maps import EdgeMaps
from .one_pass import OnePass
from .parts_cuda import TeamsOfParts, TeamsOfRows
from .scattered import Scattered
from .segments_cuda import TeamsOfChunks
from .several_passes import Partitions, Parts
from .slices import Slices


def final_plan(plan: Plan, spec: AggregateSpec | EdgeMapSpec) -> Plan:
    """The plan without what a spec cannot run of it: what is chosen for the spec."""
    if isinstance(spec, EdgeMapSpec):
        return plan
    return (schedules_cuda if type(plan) is CudaPlan else schedules_cpu).supported(plan, spec)


def way_of(spec: AggregateSpec | EdgeMapSpec, plan: Plan) -> type[Aggregation] | type[EdgeMaps]:
    """The class of what runs by a final plan."""
    if isinstance(spec, EdgeMapSpec):
        return EdgeMaps
    if type(plan) is not CudaPlan:
        if plan.longest_part:
            return Parts
        if plan.sliced:
            return Slices
        if plan.partitions > 1:
            return Partitions
        return Scattered if plan.reduction == "scattered" else OnePass
    if plan.blocks:
        return OnBlocks
    if plan.segments:
        return TeamsOfChunks
    if plan.buckets:
        return TeamsOfBuckets
    return TeamsOfParts if plan.longest_part else TeamsOfRows


@builds(AggregateSpec, Plan)
@builds(EdgeMapSpec, Plan)
def on_cpu(spec: AggregateSpec | EdgeMapSpec, plan: Plan) -> Aggregation | EdgeMaps:
    return way_of(spec, plan)(spec, plan)


@builds(AggregateSpec, CudaPlan)
@builds(EdgeMapSpec, CudaPlan)
def on_gpu(spec: AggregateSpec | EdgeMapSpec, plan: CudaPlan) -> Aggregation | EdgeMaps:
    return way_of(spec, plan)(compact(spec), plan)


def compact(spec):
    """Return the spec without strides: what kernels of teams are given has none (`operand_arguments`), so that one
    serves all.
    """
    return replace(spec, operands=tuple(replace(operand, strided=False) for operand in spec.operands))
