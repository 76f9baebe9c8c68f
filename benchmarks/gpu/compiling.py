"""What benchmarks on a GPU do with ours alone, for kernels to be compiled: no peer, no reference, no times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch

from benchmarks.layers import gpu_steps
from benchmarks.layers.contenders import BACKEND
from benchmarks.operators.gpu_peers import OURS, PEERS
from benchmarks.planner import gpu_plans, gpu_ratings
from benchmarks.support.gpu import device as operators
from gnn_sparse_backend.ops.core.plans import planned
from gnn_sparse_backend.ops.message.calls import run_aggregate
from gnn_sparse_backend.planner.candidates import trials
from gnn_sparse_backend.tuning.tune import problem_of_task
from gnn_sparse_backend.tuning.tuning_tasks import Task


def _operator(operator: str, given, device: torch.device, limits) -> dict:
    """In the place of `device.measure`."""
    PEERS[operator][OURS](given)()
    return {"times": {OURS: (0.0, 0.0)}, **gpu_ratings.NO_RATINGS}


def _step(cell: gpu_steps.Cell, device: torch.device, limits=None) -> dict:
    """In the place of `gpu_steps.measure`."""
    for name in cell.names:
        if name.endswith(BACKEND):
            call = cell.make(name, device)
            with call.context():
                call.call()
    return {**cell.labels, "contenders": {}, **gpu_ratings.NO_RATINGS}


def _plans(graph, op: str, width: int, seed: int, seconds=None) -> dict:
    """In the place of `gpu_plans.measure`."""
    task = Task(op, "forward", graph, width, torch.float32)
    of, plans = task.message_op, trials(problem_of_task(task))
    operands = [torch.ones(graph.shape[1], width), torch.ones(graph.num_edges, 1)][: len(of.places)]
    for plan in plans:
        with planned(graph, of.kind, width, torch.float32, plan):
            run_aggregate(of, graph, operands)
    return {"chosen": str(plans[0]), "best": None, "regret": None, "seconds": {}}


@contextmanager
def ours_alone() -> Iterator[None]:
    """Inside the block benchmarks call what is ours once, and measure nothing."""
    with ExitStack() as patches:
        for module, instead in ((operators, _operator), (gpu_steps, _step), (gpu_plans, _plans)):
            patches.enter_context(mock.patch.object(module, "measure", instead))
        yield
