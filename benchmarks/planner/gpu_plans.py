"""How good the rules for a GPU are: ``python -m benchmarks.planner.__main__ --device cuda``.

A sum and a weighted sum on every graph and width: the time of the plan that the rules choose, and of the other
candidates of the planner.
Regret is chosen over best, minus one. The cache is flushed before each call; every answer is checked against float64.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import torch
from rich.console import Console

from benchmarks.support import graphs, machine, report
from benchmarks.support.gpu import device as gpu
from benchmarks.support.gpu import timing as gpu_timing
from benchmarks.support.gpu.timing import NOT_MEASURED
from benchmarks.support.gpu.turns import refusals
from gnn_sparse_backend.ops.core.plans import planned
from gnn_sparse_backend.ops.core.plans_cuda import gpu_of
from gnn_sparse_backend.ops.message.calls import run_aggregate
from gnn_sparse_backend.planner.candidates import trials
from gnn_sparse_backend.planner.cost import predicted_seconds
from gnn_sparse_backend.planner.cuda.cost import default_units
from gnn_sparse_backend.planner.plan import Plan
from gnn_sparse_backend.structures.graph import Graph
from gnn_sparse_backend.tuning.tune import problem_of_task
from gnn_sparse_backend.tuning.tuning_tasks import Task

OPERATORS = "sum", "weighted_sum"


def measure(graph: Graph, op: str, width: int, seed: int, seconds=None) -> dict:
    """Seconds by plan, the chosen one, the best, and the regret; words for a plan that fails. Beside them what the cost
    model predicts, and the counts that it does so from, to which its constants can be fitted. seconds: in the place of
    ``gpu_timing.seconds``.
    """
    seconds = seconds or gpu_timing.seconds
    generator = torch.Generator().manual_seed(seed)
    device, task = graph.device, Task(op, "forward", graph, width, torch.float32)
    of = task.message_op
    x = torch.randn(graph.shape[1], width, generator=generator).to(device)
    operands = [x, torch.rand(graph.num_edges, 1, generator=generator).to(device)][: len(of.places)]
    exact = run_aggregate(of, graph, [each.double() for each in operands])
    problem = problem_of_task(task)
    plans, units = trials(problem), default_units(gpu_of(device))
    chosen = plans[0]
    taken: dict[Plan, float | str] = {}
    for plan in plans:
        with refusals(taken, plan), planned(graph, of.kind, width, x.dtype, plan):
            right = gpu.right(run_aggregate(of, graph, operands), exact)
            taken[plan] = seconds(lambda: run_aggregate(of, graph, operands), device, True) if right else "wrong"
    measured = {plan: each for plan, each in taken.items() if not isinstance(each, str)}
    best = min(measured, key=measured.get, default=None)
    regret = measured[chosen] / measured[best] - 1 if chosen in measured else None
    return {
        "chosen": str(chosen),
        "best": best and str(best),
        "regret": regret,
        "seconds": {str(plan): each for plan, each in taken.items()},
        "predicted": {str(plan): predicted_seconds(problem, plan, units) for plan in plans},
        "counts": {str(plan): plan.counts(problem) for plan in plans},
    }


def cells(options: argparse.Namespace, console: Console) -> Iterator[dict]:
    """A cell for every graph, operator and width; where there is no GPU they say so."""
    device, _ = gpu_timing.device_and_name()
    for name in options.graphs:
        found = graphs.load_available([name], options.seed, console)[0] if device else [None]
        for loaded in found:
            graph = loaded and Graph.from_csr(
                *(torch.from_numpy(a).to(device) for a in (loaded.indptr, loaded.indices)), loaded.shape
            )
            for op in OPERATORS:
                for width in options.widths:
                    had = NOT_MEASURED if graph is None else measure(graph, op, width, options.seed)
                    yield {"graph": name, "op": op, "width": width, "result": had}


def main(options: argparse.Namespace, console: Console) -> int:
    """Print the table and write ``planner_cuda.json``. 1 if an answer was wrong, else 0."""
    _, where = gpu_timing.device_and_name()
    table = report.table(
        f"Chosen and best plan on CUDA, ms, cache flushed ({where})",
        ("graph", "operator"),
        ("width", "chosen", "best", "regret", "plan", "best plan"),
    )
    done, regrets, wrong = [], [], False
    for cell in cells(options, console):
        done.append(cell)
        had = cell["result"]
        if isinstance(had, str):
            row: Sequence[str] = (had,) * 5
        else:
            taken = had["seconds"]
            wrong |= "wrong" in taken.values()
            regrets += [had["regret"]] if had["regret"] is not None else []
            ms = [taken.get(each) for each in (had["chosen"], had["best"])]
            row = (
                *(each if isinstance(each, str) else report.milliseconds(each) for each in ms),
                "" if had["regret"] is None else report.percent(had["regret"]),
                had["chosen"],
                had["best"] or "",
            )
        table.add_row(cell["graph"], cell["op"], str(cell["width"]), *row)
    console.print(table)
    if regrets:
        console.print(
            f"regret: mean {report.percent(sum(regrets) / len(regrets))}, worst {report.percent(max(regrets))}"
        )
    console.print(f"written: {machine.write_json(options.out / 'planner_cuda.json', {'device': where, 'cells': done})}")
    return 1 if wrong else 0
