"""SpMM against the libraries that users have: ``python -m benchmarks.spmm``.

Every cell (graph, mode, width) runs all contenders on the same operands, checks their answers against SciPy in float64,
and times them interleaved. The tables show every contender in every cell.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence

from benchmarks import cells, cli, graphs, machine, report, roofline, spmm_report, summary
from benchmarks.budget import Budget, weight
from benchmarks.graphs import ONE_EDGE, BenchmarkGraph
from benchmarks.peers import CannotDo, Contender, contenders
from benchmarks.problem import MODES, Operands, Problem
from benchmarks.reasons import Evidence
from benchmarks.timing import Rules, interleaved
from benchmarks.work import aggregation_work

FEATURES = (32, 64, 128, 256, 512)
SMALL_GRAPH_EDGES = 20_000


def measure_cell(problem: Problem, running: Iterable[Contender], limits: roofline.Roofline, rules: Rules,
                 overhead: float | None = None) -> dict:
    """One cell: answers checked, then times. ``unable`` and ``wrong`` name the contenders without one, and why.

    overhead: the seconds that our call takes on a graph of one edge.
    """
    graph, mode, width = problem.graph, problem.mode, problem.x.shape[1]
    calls, first_call, unable, wrong = {}, {}, {}, {}
    for contender in running:
        try:
            call = contender.bind(problem)
        except CannotDo as reason:
            unable[contender.name] = str(reason)
            continue
        begin = time.perf_counter()
        results = call()
        first_call[contender.name] = time.perf_counter() - begin
        if (mismatch := problem.mismatch(results)) is None:
            calls[contender.name] = call
        else:
            wrong[contender.name] = mismatch
        del results
    timings = {name: timing.to_dict() | {"first_call": first_call[name]}
               for name, timing in interleaved(calls, rules, warm=False).items()}
    work = aggregation_work(graph.pattern, width, weighted=mode.weighted, backward=mode.backward)
    rated = cells.rate(f"{graph.name}, F = {width}, {mode.name}", timings, (summary.OURS,), limits, work, wrong=wrong,
                       evidence=Evidence(overhead=overhead))
    return rated | {"graph": graph.name, "edges": graph.num_edges, "mode": mode.name, "features": width,
                    "unable": unable}


def per_call_cost(running: Sequence[Contender], width: int, rules: Rules) -> dict[str, dict[str, float]]:
    """Seconds per call on a graph of one edge, where all of the time is the call's own: ``{mode: {contender: s}}``."""
    operands = Operands.random(ONE_EDGE, width)
    for contender in running:
        contender.prepare(ONE_EDGE)
    costs = {}
    for mode in MODES:
        problem = Problem.of(ONE_EDGE, mode, operands)
        calls = {}
        for contender in running:
            with contextlib.suppress(CannotDo):
                calls[contender.name] = contender.bind(problem)
        costs[mode.name] = {name: timing.median for name, timing in interleaved(calls, rules).items()}
    return costs


def run(selected: Sequence[BenchmarkGraph], features: Sequence[int], *, budget: float, threads: int, seed: int = 0,
        limits: roofline.Roofline | None = None, small: int = SMALL_GRAPH_EDGES,
        begin: Callable[[str], None] = lambda cell: None) -> dict:
    """Measure every cell of ``selected`` x ``features`` x modes; return the report as plain values, times in seconds.

    ``begin`` is called at the beginning of each cell.
    """
    description = machine.describe(threads)
    limits = limits or roofline.measure(threads)
    running = contenders()
    preparation, measured = {}, []
    per_call = per_call_cost(running, 32, Rules(budget_s=min(2.0, budget / 20)))
    shares = Budget(budget, {(g.name, w, m): weight(g.num_edges, w * (3 if m.backward else 1))
                             for g in selected for w in features for m in MODES})
    for graph in selected:
        preparation[graph.name] = {}
        for contender in running:
            start = time.perf_counter()
            contender.prepare(graph)
            preparation[graph.name][contender.name] = time.perf_counter() - start
        for width in features:
            operands = Operands.random(graph, width, seed)
            for mode in MODES:
                begin(f"{graph.name}, F = {width}, {mode.name}")
                rules = Rules(budget_s=shares.take((graph.name, width, mode)))
                measured.append(measure_cell(Problem.of(graph, mode, operands), running, limits, rules,
                                             per_call[mode.name].get(summary.OURS)))
    return {
        "machine": description,
        "roofline": limits.to_dict(),
        "contenders": {contender.name: contender.note for contender in running},
        "graphs": [graph.describe() for graph in selected],
        "preparation": preparation,
        "per_call": per_call,
        "cells": measured,
        "summary": summarise(measured, small),
    }


def summarise(measured: Sequence[dict], small: int = SMALL_GRAPH_EDGES) -> dict:
    """Geometric means of the speed-ups over the best peer, and the cells a reader should see first.

    ``slow``: cells of more than ``small`` edges where we reach under 0.9 of the best peer. ``small``: for the other
    cells, the seconds that a call of ours takes beyond the best peer's.
    """
    rated = summary.worst(measured, len(measured))
    return summary.summarise(measured, ("mode", "graph", "features")) | {
        "slow": [summary.place(c) for c in rated if c["edges"] > small and c["speedup"] < 0.9],
        "small_graph_edges": small,
        "small": [summary.place(c) for c in rated if c["edges"] <= small],
    }


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=420.0)
    parser.add_argument("--graphs", nargs="+", choices=tuple(graphs.RECIPES), default=list(graphs.DEFAULT))
    parser.add_argument("--features", nargs="+", type=int, default=list(FEATURES), metavar="F")
    parser.add_argument("--profile-threshold", type=int, default=SMALL_GRAPH_EDGES, metavar="EDGES",
                        help="graphs of at most so many edges are judged by microseconds per call, not by the ratio")
    options = parser.parse_args(argv)
    if options.quick:
        options.graphs = [name for name in options.graphs if name in ("cora", "pubmed")] or ["pubmed"]
        options.features, options.budget = [32, 128], min(options.budget, 30.0)
    if any(width < 1 for width in options.features):
        parser.error(f"--features must be positive, got {options.features}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the tables, write ``spmm.json`` and ``spmm.png``. 1 if there was no graph or an answer was wrong,
    else 0.
    """
    options = arguments(argv)
    console = cli.start(options)
    selected, skipped = graphs.load_available(options.graphs, options.seed, console)
    if not selected:
        console.print("[red]no graph to run on[/]")
        return 1
    with report.progress(console, len(selected) * len(options.features) * len(MODES)) as begin:
        results = run(selected, options.features, budget=options.budget, threads=options.threads, seed=options.seed,
                      small=options.profile_threshold, begin=begin)
    results["skipped"] = skipped
    spmm_report.show(results, console)
    panels = report.panels_of(results["cells"], "mode", "graph", "features")
    report.finish(results, panels, "spmm", "features", options.out, console)
    return 1 if results["summary"]["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
