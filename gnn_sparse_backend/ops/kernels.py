"""What every kernel of a graph has in common: how its rows are shared out, and its leading arguments."""
from __future__ import annotations

import torch

from ..formats.row_groups import balanced_row_groups
from ..planner.plan import Plan
from ..planner.spmm import plan_spmm

# A row costs its output and the loop around it beside its edges.
ROW_COST = 2.0

type_name = {dtype: str(dtype).removeprefix("torch.") for dtype in
             (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64)}.__getitem__
"""The compiler's name of a torch type."""


def aggregation_plan(graph, features: int, itemsize: int) -> Plan:
    """The plan of an aggregation of so many features, kept with the graph."""
    threads = torch.get_num_threads()
    key = (features, itemsize, threads)
    plan = graph.plans.get(key)
    if plan is None:
        plan = graph.plans[key] = plan_spmm(*graph.shape, graph.num_edges, features, itemsize, threads)
    return plan


def structure_arguments(graph, groups: int):
    """(sizes, index arrays): the leading arguments of every kernel on this graph in so many row groups."""
    found = graph.plans.get(groups)
    if found is None:
        rows, cols = graph.shape
        group_ptr = balanced_row_groups(graph.indptr, groups, cost_per_row=ROW_COST)
        found = ((groups, rows, cols, graph.num_edges), (group_ptr, graph.indptr, graph.indices))
        found = graph.plans.setdefault(groups, found)
    return found
