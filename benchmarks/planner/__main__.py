"""How good the planner's choices are: ``python -m benchmarks.planner.__main__``.

On every graph and width, for a sum, a weighted sum, a mean and a maximum: the time of the plan that is chosen without
any measurement on that graph, of the best plan (all that are worth trying are measured), and of the one kernel that is
best for all cells together. Regret is planned over best, minus one; cells in which a plan was not measured are left out
of its mean. Then how the cost of a kernel grows with the number of edges.

Making the kernels and formats of a cell, and the first calls of its plans, does not count against the budget.

Rows in the order of their lengths are not searched: whether they go so is not a part of a plan
(``ops/message/executables/one_pass.py``). Every plan is timed as on a graph that is used again and again.

The constants of the cost model are measured first, into a database of this run; none of the user's measurements is
used.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch

from benchmarks.planner import gpu_plans
from benchmarks.planner.regret import summarise
from benchmarks.planner.report import draw, show
from benchmarks.support import cli, graphs, machine, merging, report
from benchmarks.support.budget import Budget
from benchmarks.support.gpu import device as gpu
from gnn_sparse_backend import Graph
from gnn_sparse_backend.planner.candidates import trials
from gnn_sparse_backend.planner.choose import choose
from gnn_sparse_backend.planner.cpu.rows import RowPlan
from gnn_sparse_backend.planner.cpu.spmm import GROUPS_PER_THREAD
from gnn_sparse_backend.planner.database import PlanDatabase, database
from gnn_sparse_backend.tuning.calibrate_cpu import calibrate
from gnn_sparse_backend.tuning.tune import FEWEST_ROUNDS, MOST_ROUNDS, compile_plans, problem_of_task, time_plans
from gnn_sparse_backend.tuning.tuning_tasks import Task

OPS = ("sum", "weighted_sum", "mean", "max")
WIDTHS = (1, 4, 32, 64, 128, 256, 512)
# Kernels that one might use for everything; each is measured in every cell.
SINGLE = (RowPlan(1), RowPlan(2), RowPlan(2, prefetch=8), RowPlan(2, in_lanes=True))
# Compiling is not measuring.
_COMPILE_SECONDS = 120.0
# Plans that come this close to the fastest are timed again, in so many rounds at most: the least of few samples would
# make one of several equal plans look best.
_CLOSE, _ROUNDS = 1.25, 400


def measure_cell(
    graph: Graph, name: str, op: str, width: int, budget: float, pause: Callable[[float], None] = lambda seconds: None
) -> dict:
    """One cell as plain values, times in seconds. pause: is told the seconds that went to kernels, formats and first
    calls.
    """
    begin = time.perf_counter()
    task = Task(op, "forward", graph, width, torch.float32)
    problem = problem_of_task(task)
    choice = choose(problem, lambda: "")
    single = {_label(plan): _with_groups(plan, problem.threads) for plan in SINGLE}
    compile_plans([task], time.perf_counter() + _COMPILE_SECONDS)
    plans = dict.fromkeys((choice.plan, *trials(problem), *single.values()))
    # a plan's first call may compile, or make a format: samples of each follow, however little the budget is
    seconds = time_plans(task, plans, time.perf_counter() + _COMPILE_SECONDS, rounds=FEWEST_ROUNDS)
    pause(time.perf_counter() - begin)
    begin = time.perf_counter()
    for share, most, rounds in ((0.5, math.inf, MOST_ROUNDS), (1.0, _CLOSE, _ROUNDS)):
        fastest = min(seconds.values())
        close = [plan for plan in seconds if plan == choice.plan or seconds[plan] <= most * fastest]
        # all of them to the end: a plan may be behind after few rounds because the processor does not yet expect its
        # branches
        again = time_plans(task, close, begin + share * budget, rounds=rounds, hopeless=math.inf)
        seconds |= {plan: min(seconds[plan], taken) for plan, taken in again.items()}
    best = min(seconds, key=seconds.get)
    predicted = {plan: cost.seconds for plan, cost in choice.predicted}
    return {
        "graph": name,
        "op": op,
        "width": width,
        "source": choice.source,
        "complete": len(seconds) == len(plans),
        "planned": str(choice.plan),
        "planned_seconds": seconds[choice.plan],
        "rules_seconds": seconds.get(trials(problem)[0]),
        "predicted_seconds": predicted[choice.plan],
        "best": str(best),
        "best_seconds": seconds[best],
        "regret": seconds[choice.plan] / seconds[best] - 1,
        "single_seconds": {label: seconds[plan] for label, plan in single.items() if plan in seconds},
        "seconds": {str(plan): taken for plan, taken in seconds.items()},
    }


def measure_growth(edges: int, width: int, degree: int, seed: int, budget: float) -> dict:
    """The planned time of a sum on uniformly random columns, at so many edges."""
    rows = max(1, edges // degree)
    rng = np.random.default_rng(seed)
    indices = torch.from_numpy(rng.integers(0, rows, rows * degree, dtype=np.int32))
    indptr = torch.arange(0, rows * degree + 1, degree)
    task = Task("sum", "forward", Graph.from_csr(indptr, indices, (rows, rows), trusted=True), width, torch.float32)
    choice = choose(problem_of_task(task), lambda: "")
    begin = time.perf_counter()
    seconds = time_plans(task, [choice.plan], begin + budget, rounds=_ROUNDS)[choice.plan]
    predicted = dict(choice.predicted)[choice.plan].seconds
    return {
        "edges": rows * degree,
        "width": width,
        "degree": degree,
        "plan": str(choice.plan),
        "seconds": seconds,
        "predicted_seconds": predicted,
        "nanoseconds_per_edge": seconds / (rows * degree) * 1e9,
    }


def run(
    names: Sequence[str],
    widths: Sequence[int],
    edges: Sequence[int],
    *,
    budget: float,
    threads: int,
    seed: int,
    widest: Mapping[str, int] = MappingProxyType({}),
    begin: Callable[[str], None] = lambda cell: None,
    done: Callable[[dict], None] = lambda so_far: None,
    before: dict | None = None,
) -> dict:
    """Measure everything; the report as plain values, times in seconds.

    widest: of the widths, by name of the graph. ``begin`` is called at each cell's beginning, ``done`` at its end with
    the report so far. before: an earlier report, whose other cells are kept.
    """
    description = machine.describe(threads)
    with tempfile.TemporaryDirectory() as scratch, database.using(PlanDatabase(Path(scratch) / "plans.json")) as plans:
        begin("measuring this machine")
        units = calibrate(threads)
        cells, growth, skipped = [], [], {}

        def so_far() -> dict:
            merged = merging.merge(
                before,
                {
                    "machine": description,
                    "units": units,
                    "cells": list(cells),
                    "growth": list(growth),
                    "skipped": dict(skipped),
                },
            )
            merged["growth"].sort(key=lambda row: row["edges"])
            return merged | {"summary": summarise(merged["cells"])}

        places = [(name, op, width) for name in names for op in OPS for width in graphs.widths_of(name, widths, widest)]
        shares = Budget(
            budget,
            {**{place: _weight(place) for place in places}, **{("growth", count): count**0.5 for count in edges}},
        )
        for name in names:
            try:
                loaded = graphs.load(name, seed)
            except graphs.Unavailable as missing:
                skipped[name] = str(missing)
                continue
            graph = Graph.from_csr(loaded.indptr, loaded.indices, loaded.shape, trusted=True)
            for place in (place for place in places if place[0] == name):
                begin(", ".join(map(str, place)))
                cells.append(measure_cell(graph, *place, shares.take(place), shares.pause))
                done(so_far())
        for count in edges:
            begin(f"growth: {count:,} edges")
            growth.append(measure_growth(count, 32, 16, seed, shares.take(("growth", count))))
            done(so_far())
        assert not plans.records(), "nothing may be known of these graphs"
        return so_far()


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = cli.parser(__doc__.split("\n")[0], budget=600, parents=[gpu.device_parser()])
    graphs.add_arguments(parser, "*")
    parser.add_argument(
        "--widths",
        nargs="+",
        type=cli.positive_int,
        metavar="F",
        help=f"by default {' '.join(map(str, WIDTHS))}, of the largest graph up to {max(graphs.WIDEST.values())}",
    )
    parser.add_argument(
        "--edges",
        nargs="*",
        type=cli.positive_int,
        default=[10**k for k in range(4, 9)],
        metavar="E",
        help="sizes of the growth",
    )
    cli.add_append(parser)
    options = parser.parse_args(argv)
    options.graphs = graphs.chosen(options)
    options.widest = {} if options.widths else graphs.WIDEST
    options.widths = options.widths or list(WIDTHS)
    if options.quick:
        options.graphs, options.widths, options.edges = ["cora", "pubmed", "wordnet"], [4, 64], [10**4, 10**5, 10**6]
        options.budget = min(options.budget, 45)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the tables, write ``planner.json`` and ``planner.png``."""
    options = arguments(argv)
    console = cli.start(options)
    if options.device == "cuda":
        return gpu_plans.main(options, console)
    total = (
        1
        + len(OPS) * sum(len(graphs.widths_of(name, options.widths, options.widest)) for name in options.graphs)
        + len(options.edges)
    )
    path = options.out / "planner.json"
    with report.progress(console, total) as begin:
        results = run(
            options.graphs,
            options.widths,
            options.edges,
            budget=options.budget,
            threads=options.threads,
            seed=options.seed,
            widest=options.widest,
            begin=begin,
            done=lambda so_far: machine.write_json(path, so_far),
            before=merging.read(path) if options.append else None,
        )
    show(results, console)
    machine.write_json(path, results)
    console.print(f"written: {path}, {draw(results, options.out / 'planner.png')}")
    return 0


def _label(plan: RowPlan) -> str:
    """The name of a kernel that is the same in every cell. Where features are many, a kernel in lanes is the one
    without.
    """
    return str(plan).replace("2 groups", "groups").replace("in lanes", "in lanes where features are few")


def _with_groups(plan: RowPlan, threads: int) -> RowPlan:
    return plan if plan.groups == 1 else replace(plan, groups=GROUPS_PER_THREAD * threads)


def _weight(place: tuple) -> float:
    """Time for a cell: by the root of its work, so that small cells still get enough rounds."""
    name, _, width = place
    return (graphs.RECIPES[name].edges * width) ** 0.5


if __name__ == "__main__":
    raise SystemExit(main())
