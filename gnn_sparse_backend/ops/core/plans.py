"""The plan of an aggregation on a graph: asked of the planner once, and kept with the graph."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

import torch

from ...compiler.cache.bounded import make_room
from ...compiler.language.types import BYTES
from ...formats.partitions.row_groups import heaviest
from ...log import first_at_info
from ...planner.choose import choose, plan_for
from ...planner.cpu.passes import LONG_ROW, PARTS, PartitionPlan
from ...planner.cpu.rows import NARROW
from ...planner.cpu.slices import may_slice
from ...planner.database import PlanDatabase, database
from ...planner.decisions import measured_plan
from ...planner.plan import Plan, interned
from ...planner.problem import Problem, longest_row, reach_of, typical_row
from ...runtime import devices
from ...runtime.threads import planned_threads
from ...runtime.type_names import type_name
from ...structures.derived import fact
from ...structures.facts import columns_ascend, fingerprint, row_offsets, rows_looked_at

_log = logging.getLogger(__name__)

# Edges from which a tenth of a millisecond is nothing beside a call, and columns are looked at.
SAMPLED = 1_000_000


@fact
def reach_of_columns(graph) -> int:
    """Columns that neighbouring edges of a graph on the CPU reach over (`planner.problem.reach_of`)."""
    return reach_of(graph.indices.numpy(), *graph.shape)


@fact
def longest_of_rows(graph) -> int:
    """Non-zeros of a row so long that others would wait for it, 0 where there is none (`planner.problem`)."""
    return longest_row(row_offsets(graph), PARTS // 2, heaviest(rows_looked_at(graph)))


@fact
def typical_of_rows(graph) -> int:
    """Non-zeros of a row as most are (`planner.problem`)."""
    return typical_row(row_offsets(graph))


def plan_of(graph, kind: str, features: int, dtype: torch.dtype, in_order: bool = False) -> Plan:
    """The plan of an aggregation or edge map of ``features`` features of a type, of an edge map before they are summed;
    ``kind`` is that of its message.

    in_order: whether the result depends on the order of the non-zeros, which passes over ranges of columns keep where
    these ascend in every row.
    """
    key = plan_key(kind, features, dtype, in_order)
    plan = graph.plans.get(key)
    if plan is None:
        if graph.unsynchronised is not None and (on_gpu := _on_gpu(graph.device)):
            arch = devices.arch_of(graph.device)
            plan = on_gpu.plan_unsynchronised(graph, arch, kind, features, graph.unsynchronised)
        else:
            problem = problem_of(graph, kind, features, dtype)
            plan = plan_for(problem, lambda: structure_fingerprint(graph), database_of(graph.device))
        if in_order and isinstance(plan, PartitionPlan) and not columns_ascend(graph):
            plan = interned(plan.otherwise)
        make_room(graph.plans)
        graph.plans[key] = plan
        if _log.isEnabledFor(logging.INFO):
            _log_plan(graph, kind, features, dtype, plan)
    return plan


def plan_key(kind: str, features: int, dtype: torch.dtype, in_order: bool = False) -> tuple:
    """What a graph keeps such a plan under, in its ``plans``."""
    return kind, features, dtype, torch.get_num_threads(), in_order


def _log_plan(graph, kind: str, features: int, dtype: torch.dtype, plan: Plan) -> None:
    """Tell of a plan that a graph was just given, with the planner's reasons where somebody listens at ``debug``."""
    why = ""
    if _log.isEnabledFor(logging.DEBUG):
        if graph.unsynchronised is not None:
            why = ". By rules, from sizes alone: nobody waits for the lengths of rows."
        else:
            problem, known = problem_of(graph, kind, features, dtype), database_of(graph.device)
            chosen = choose(problem, lambda: structure_fingerprint(graph), known)
            why = f". From {chosen.source}: {' '.join(chosen.reasons)}"
    told = kind, features, type_name(dtype)
    first_at_info(_log, (*told, plan), "plan of %s, %d features in %s, on %r: %s%s", *told, graph, plan, why)


def database_of(device: torch.device) -> PlanDatabase:
    """What was measured on a device: of the CPU, or of a GPU of its name."""
    on_gpu = _on_gpu(device)
    if on_gpu is None:
        return database()
    known: PlanDatabase = on_gpu.database_of_gpu(device)
    return known


def new_plan(graph, key: tuple, problem: Problem, on_cpu: Callable[[], Plan], name: str):
    """The plan that a graph keeps under ``key`` from now on: what was measured of the problem, else by rules alone,
    ``on_cpu``; for a GPU by its rules, from the features of the problem. name: what it is the plan of, in words.
    """
    on_gpu, features = _on_gpu(graph.device), problem.features
    make_room(graph.plans)
    if on_gpu:
        plan = interned(on_gpu.cuda_plan_of(graph, devices.arch_of(graph.device), features))
    else:
        plan = measured_plan(problem, lambda: structure_fingerprint(graph), on_cpu())
    graph.plans[key] = plan
    if _log.isEnabledFor(logging.INFO):
        first_at_info(_log, (name, features, plan), "plan of %s, by rules, on %r: %s", name, graph, plan)
    return plan


@contextmanager
def planned(graph, kind: str, features: int, dtype: torch.dtype, plan: Plan) -> Iterator[None]:
    """Inside the block the aggregation runs on this graph by ``plan``."""
    key = plan_key(kind, features, dtype)
    before = graph.plans.get(key)
    graph.plans[key] = plan
    try:
        yield
    finally:
        if before is None:
            graph.plans.pop(key, None)
        else:
            graph.plans[key] = before


def forget_plans(graph) -> None:
    """Let the planner be asked again: its database has changed."""
    graph.plans.clear()


def problem_of(graph, kind: str, features: int, dtype: torch.dtype) -> Problem:
    """What the planner is told of an aggregation on this graph."""
    name = type_name(dtype)
    on_gpu = _on_gpu(graph.device)
    if on_gpu:
        problem: Problem = on_gpu.cuda_problem_of(graph, on_gpu.gpu_of(graph.device), kind, features, name)
        return problem
    rows, cols = graph.shape
    looked_at = graph.num_edges >= SAMPLED or may_slice(cols, features * BYTES[name])
    reach = reach_of_columns(graph) if looked_at else 0
    long = graph.num_edges >= LONG_ROW
    longest = longest_of_rows(graph) if long else 0
    typical = typical_of_rows(graph) if long and features <= NARROW else 0
    return Problem(kind, rows, cols, graph.num_edges, features, name, planned_threads(), reach, longest, typical)


def _on_gpu(device: torch.device) -> ModuleType | None:
    """`plans_cuda` where a device is a GPU, which is imported then; None for the CPU."""
    if not devices.arch_of(device):
        return None
    from . import plans_cuda

    return plans_cuda


def structure_fingerprint(graph) -> str:
    """32 hex digits of shape, indptr and indices. Plans do not depend on the order in which the user numbers edges."""
    return fingerprint(graph, numbered=False)
