"""The plan of an aggregation on a graph: asked of the planner once, and kept with the graph."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..planner.choose import plan_for
from ..planner.plan import Plan
from ..planner.problem import Problem, longest_row, reach_of
from ..planner.spmm import LONG_ROW, PARTS
from . import devices
from .cuda_plans import cuda_plan_of
from .fingerprint import fingerprint
from .immutable import once

# Edges from which a tenth of a millisecond is nothing beside a call, and columns are looked at.
SAMPLED = 1_000_000
# What a kind of operator is to a GPU, by its first word.
GPU_KINDS = {"sum": "sum", "mean": "sum", "map": "map"}


def plan_of(graph, kind: str, features: int, itemsize: int) -> Plan:
    """The plan of an aggregation of so many features of so many bytes; ``kind`` is that of its form."""
    key = (kind, features, itemsize, torch.get_num_threads())
    plan = graph.plans.get(key)
    if plan is None:
        arch = devices.arch_of(graph.device)
        if arch:
            plan = cuda_plan_of(graph, arch, features, GPU_KINDS.get(kind.partition(":")[0], ""))
        else:
            problem = problem_of(graph, kind, features, itemsize)
            plan = plan_for(problem, lambda: structure_fingerprint(graph))
        graph.plans[key] = plan
    return plan


@contextmanager
def planned(graph, kind: str, features: int, itemsize: int, plan: Plan) -> Iterator[None]:
    """Inside the block the aggregation runs on this graph by ``plan``."""
    key = (kind, features, itemsize, torch.get_num_threads())
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
    for key in [key for key in graph.plans if isinstance(key, tuple) and len(key) == 4 and isinstance(key[0], str)]:
        graph.plans.pop(key, None)


def problem_of(graph, kind: str, features: int, itemsize: int) -> Problem:
    """What the planner is told of an aggregation on this graph."""
    rows, cols = graph.shape
    reach = 0
    if graph.num_edges >= SAMPLED and graph.device.type == "cpu":
        reach = once(graph.plans, "reach", lambda: reach_of(graph.indices.numpy(), cols))
    longest = 0
    if graph.num_edges >= LONG_ROW and graph.device.type == "cpu":
        longest = once(graph.plans, "longest row", lambda: longest_row(graph.indptr.numpy(), PARTS // 2))
    return Problem(kind, rows, cols, graph.num_edges, features, itemsize, torch.get_num_threads(), reach, longest)


def structure_fingerprint(graph) -> str:
    """32 hex digits of shape, indptr and indices. Plans do not depend on the order in which the user numbers edges."""
    return once(graph.plans, "fingerprint", lambda: fingerprint(graph.indptr, graph.indices, None, graph.shape))
