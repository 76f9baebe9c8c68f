"""How good the rules for a GPU are: ``python -m benchmarks.planner --device cuda``.

A sum and a weighted sum on every graph and width: the time of the plan that the rules choose, and of its neighbours, each of
which differs from it in one thing: rows in parts or not, edges loaded in stretches or not, the lanes that share a row, buckets.
Regret is chosen over best, minus one. The cache is flushed before each call; every answer is checked against float64.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from rich.console import Console

from benchmarks import gpu, graphs, machine, report
from benchmarks.gpu import NOT_MEASURED
from gnn_sparse_backend.ops.form import Form, form
from gnn_sparse_backend.ops.graph import Graph
from gnn_sparse_backend.ops.message_kernels import run_aggregate
from gnn_sparse_backend.ops.plans import plan_of, planned
from gnn_sparse_backend.planner.cuda_plan import LANES_PAY, NARROW, PART, WARP, CudaPlan

FORMS = {"sum": form("x0", ("column",), "sum"), "weighted_sum": form("mul(x1, x0)", ("column", "edge"), "sum")}


def neighbours(plan: CudaPlan, features: int) -> list[CudaPlan]:
    """The plan, and those that differ from it in one thing."""
    others = [replace(plan, longest_part=0 if plan.longest_part else PART, buckets=False), replace(plan, cached=not plan.cached)]
    if features <= NARROW:
        others += [replace(plan, reduction="parallel", lanes=lanes, buckets=False) for lanes in (LANES_PAY, WARP)]
        others.append(replace(plan, reduction="sequential", lanes=0))
    else:
        others.append(replace(plan, longest_part=PART, buckets=not plan.buckets))
    return list(dict.fromkeys([plan, *others]))


def words(plan: CudaPlan) -> str:
    """A plan as tables have it."""
    said = [f"{plan.lanes} lanes along edges" if plan.lanes else "features to lanes"]
    said += ["edges in stretches"] * plan.cached + ["buckets"] * plan.buckets
    return ", ".join(said + [f"parts of {plan.longest_part}"] * bool(plan.longest_part and not plan.buckets))


def measure(graph: Graph, of: Form, width: int, seed: int, seconds=gpu.seconds) -> dict:
    """Seconds by plan, the chosen one, the best, and the regret; words for a plan that fails. seconds: as ``gpu.seconds``."""
    generator = torch.Generator().manual_seed(seed)
    device = graph.device
    x = torch.randn(graph.shape[1], width, generator=generator).to(device)
    operands = [x, torch.rand(graph.num_edges, 1, generator=generator).to(device)][:len(of.places)]
    exact = run_aggregate(of, graph, [each.double() for each in operands])
    chosen = plan_of(graph, of.kind, width, x.itemsize)
    taken: dict[CudaPlan, float | str] = {}
    for plan in neighbours(chosen, width):
        with planned(graph, of.kind, width, x.itemsize, plan):
            try:
                right = gpu.right(run_aggregate(of, graph, operands), exact)
                taken[plan] = seconds(lambda: run_aggregate(of, graph, operands), device, True) if right else "wrong"
            except Exception as error:  # the others are measured all the same
                taken[plan] = f"refused: {(str(error) or type(error).__name__).splitlines()[0]}"
    measured = {plan: each for plan, each in taken.items() if not isinstance(each, str)}
    best = min(measured, key=measured.get, default=None)
    regret = measured[chosen] / measured[best] - 1 if chosen in measured else None
    return {"chosen": words(chosen), "best": best and words(best), "regret": regret,
            "seconds": {words(plan): each for plan, each in taken.items()}}


def cells(options: argparse.Namespace, console: Console) -> Iterator[dict]:
    """A cell for every graph, operator and width; where there is no GPU they say so."""
    device = torch.device("cuda") if torch.cuda.is_available() else None
    for name in options.graphs:
        found = graphs.load_available([name], options.seed, console)[0] if device else [None]
        for loaded in found:
            graph = loaded and Graph.from_csr(*(torch.from_numpy(a).to(device) for a in (loaded.indptr, loaded.indices)), loaded.shape)
            for op, of in FORMS.items():
                for width in options.widths:
                    had = NOT_MEASURED if graph is None else measure(graph, of, width, options.seed)
                    yield {"graph": name, "op": op, "width": width, "result": had}


def main(options: argparse.Namespace, console: Console) -> int:
    """Print the table and write ``planner_cuda.json``. 1 if an answer was wrong, else 0."""
    there = torch.cuda.is_available()
    where = torch.cuda.get_device_name() if there else f"no GPU at hand: {NOT_MEASURED}"
    table = report.table(f"Chosen and best plan on CUDA, ms, cache flushed ({where})", ("graph", "operator"),
                         ("width", "chosen", "best", "regret", "plan", "best plan"))
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
            row = (*(each if isinstance(each, str) else report.milliseconds(each) for each in ms),
                   "" if had["regret"] is None else report.percent(had["regret"]), had["chosen"], had["best"] or "")
        table.add_row(cell["graph"], cell["op"], str(cell["width"]), *row)
    console.print(table)
    if regrets:
        console.print(f"regret: mean {report.percent(sum(regrets) / len(regrets))}, worst {report.percent(max(regrets))}")
    console.print(f"written: {machine.write_json(options.out / 'planner_cuda.json', {'device': where, 'cells': done})}")
    return 1 if wrong else 0
