"""The ways that aggregations and edge maps can run: one class for each, built from a spec and a final plan."""

from __future__ import annotations

from collections.abc import Mapping
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
from .one_pass import IN_PAIRS, OnePass
from .parts_cuda import TeamsOfParts, TeamsOfRows
from .scattered import Scattered
from .segments_cuda import TeamsOfChunks
from .several_passes import Partitions, Parts


def final_plan(plan: Plan, spec: AggregateSpec | EdgeMapSpec) -> Plan:
    """The plan without what a spec cannot run of it: what is chosen for the spec."""
    if isinstance(spec, EdgeMapSpec):
        return plan
    return (schedules_cuda if type(plan) is CudaPlan else schedules_cpu).supported(plan, spec)


def variants(plan: Plan | CudaPlan, spec: AggregateSpec) -> Mapping[str, str]:
    """The ways that an aggregation can run by a plan, each with the words for when it is taken. Nothing is compiled."""
    final = final_plan(plan, spec)
    kind = _on_gpu(final) if isinstance(final, CudaPlan) else _on_cpu(final)
    pairs = schedules_cpu.as_bf16x2(spec) is not None
    return {name: when for name, when in kind.variants.items() if pairs or not name.endswith(IN_PAIRS)}


def _on_cpu(plan: Plan) -> type[Aggregation]:
    if plan.longest_part:
        return Parts
    if plan.partitions > 1:
        return Partitions
    return Scattered if plan.reduction == "scattered" else OnePass


def _on_gpu(plan: CudaPlan) -> type[Aggregation]:
    if plan.blocks:
        return OnBlocks
    if plan.segments:
        return TeamsOfChunks
    if plan.buckets:
        return TeamsOfBuckets
    return TeamsOfParts if plan.longest_part else TeamsOfRows


@builds(AggregateSpec, Plan)
def aggregation_on_cpu(spec: AggregateSpec, plan: Plan) -> Aggregation:
    return _on_cpu(plan)(spec, plan)


@builds(AggregateSpec, CudaPlan)
def aggregation_on_gpu(spec: AggregateSpec, plan: CudaPlan) -> Aggregation:
    spec = compact(spec)
    if plan.blocks:
        return OnBlocks(spec, plan, aggregation_on_gpu(spec, replace(plan, blocks=False)))
    return _on_gpu(plan)(spec, plan)


@builds(EdgeMapSpec, Plan)
def edge_map_on_cpu(spec: EdgeMapSpec, plan: Plan) -> EdgeMaps:
    return EdgeMaps(spec, plan, schedules_cpu.edge_map_kernel(spec, plan.groups > 1, plan.prefetch))


@builds(EdgeMapSpec, CudaPlan)
def edge_map_on_gpu(spec: EdgeMapSpec, plan: CudaPlan) -> EdgeMaps:
    spec = compact(spec)
    return EdgeMaps(spec, plan, schedules_cuda.edge_map_kernel(spec, plan))


def compact(spec):
    """The same without strides: what kernels of teams are given has none (`operand_arguments`), so that one serves
    all.
    """
    return replace(spec, operands=tuple(replace(operand, strided=False) for operand in spec.operands))


__all__ = ["final_plan", "variants"]
