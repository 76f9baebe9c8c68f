"""SpMM against the libraries that users have: ``python -m benchmarks.spmm``.

Every cell (graph, mode, width) runs all contenders on the same operands, checks their answers against SciPy in float64,
and times them interleaved. The tables show every contender in every cell.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterable, Sequence

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import cli, graphs, machine, report, roofline, summary
from benchmarks.graphs import BenchmarkGraph
from benchmarks.peers import CannotDo, Contender, contenders
from benchmarks.problem import MODES, Mode, Operands, Problem
from benchmarks.timing import Rules, interleaved

FEATURES = (32, 64, 128, 256, 512)
SMALL_GRAPH_EDGES = 20_000


def measure_cell(problem: Problem, running: Iterable[Contender], limits: roofline.Roofline, rules: Rules) -> dict:
    """One cell: answers checked, then times. ``unable`` and ``wrong`` name the contenders without one, and why."""
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
    timings = interleaved(calls, rules, warm=False)
    medians = {name: timing.median for name, timing in timings.items()}
    work = roofline.aggregation_work(graph.indptr, graph.indices, graph.shape, width,
                                     weighted=mode.weighted, backward=mode.backward)
    compulsory, gather = limits.bounds(work)
    ours = medians.get(summary.OURS)
    return {
        "graph": graph.name, "edges": graph.num_edges, "mode": mode.name, "features": width,
        "timings": {name: {**timing.to_dict(), "first_call": first_call[name]} for name, timing in timings.items()},
        "unable": unable, "wrong": wrong, "best_peer": summary.best_peer(medians), "speedup": summary.speedup(medians),
        "bytes_compulsory": work.compulsory, "bytes_gather": work.gather, "flops": work.flops,
        "bound_compulsory": compulsory, "bound_gather": gather,
        "roofline_compulsory": compulsory / ours if ours else None, "roofline_gather": gather / ours if ours else None,
    }


def per_call_cost(running: Sequence[Contender], width: int, rules: Rules) -> dict[str, dict[str, float]]:
    """Seconds per call on a graph of one edge, where all of the time is the call's own: ``{mode: {contender: s}}``."""
    tiny = BenchmarkGraph("one edge", "", np.array([0, 1], np.int32), np.array([0], np.int32), (1, 1))
    operands = Operands.random(tiny, width)
    for contender in running:
        contender.prepare(tiny)
    costs = {}
    for mode in MODES:
        problem = Problem.of(tiny, mode, operands)
        calls = {}
        for contender in running:
            with contextlib.suppress(CannotDo):
                calls[contender.name] = contender.bind(problem)
        costs[mode.name] = {name: timing.median for name, timing in interleaved(calls, rules).items()}
    return costs


def cell_weight(graph: BenchmarkGraph, mode: Mode, width: int) -> float:
    """A cell's share of the time budget: grows more slowly than its work, so that small cells are measured well too."""
    return 1 + 3 * (graph.num_edges * width * (3 if mode.backward else 1) / 1e8) ** 0.5


def run(selected: Sequence[BenchmarkGraph], features: Sequence[int], *, budget: float, threads: int, seed: int = 0,
        limits: roofline.Roofline | None = None, small: int = SMALL_GRAPH_EDGES, progress: Progress | None = None) -> dict:
    """Measure every cell of ``selected`` x ``features`` x modes; return the report as plain values, times in seconds."""
    description = machine.describe(threads)
    limits = limits or roofline.measure(threads)
    running = contenders()
    remaining = {(g.name, w, m.name): cell_weight(g, m, w) for g in selected for w in features for m in MODES}
    task = progress.add_task("", total=len(remaining)) if progress else None
    preparation, cells = {}, []
    per_call = per_call_cost(running, 32, Rules(budget_s=min(2.0, budget / 20)))
    deadline = time.perf_counter() + budget
    for graph in selected:
        preparation[graph.name] = {}
        for contender in running:
            begin = time.perf_counter()
            contender.prepare(graph)
            preparation[graph.name][contender.name] = time.perf_counter() - begin
        for width in features:
            operands = Operands.random(graph, width, seed)
            for mode in MODES:
                if progress:
                    progress.update(task, description=f"{graph.name}, F = {width}, {mode.name}")
                share = remaining.pop((graph.name, width, mode.name))
                share /= share + sum(remaining.values())
                rules = Rules(budget_s=max(0.01, share * (deadline - time.perf_counter())))
                cells.append(measure_cell(Problem.of(graph, mode, operands), running, limits, rules))
                if progress:
                    progress.advance(task)
    return {
        "machine": description,
        "roofline": report.roofline_values(limits),
        "contenders": {contender.name: contender.note for contender in running},
        "graphs": [graph.describe() for graph in selected],
        "preparation": preparation,
        "per_call": per_call,
        "cells": cells,
        "summary": summarise(cells, small),
    }


def summarise(cells: Sequence[dict], small: int = SMALL_GRAPH_EDGES) -> dict:
    """Geometric means of the speed-ups over the best peer, and the cells a reader should see first.

    ``slow``: cells of more than ``small`` edges where we reach under 0.9 of the best peer. ``small``: for the other
    cells, the seconds that a call of ours takes beyond the best peer's.
    """
    rated = [cell for cell in cells if cell["speedup"] is not None]

    def mean(chosen):
        return summary.geometric_mean(c["speedup"] for c in chosen) if chosen else None

    def by(key):
        return {str(value): mean([c for c in rated if c[key] == value]) for value in dict.fromkeys(c[key] for c in cells)}

    return {
        "geometric_mean": mean(rated), "by_mode": by("mode"), "by_graph": by("graph"), "by_features": by("features"),
        "cells": len(cells),
        "wrong": [_place(c) | {"reason": c["wrong"]} for c in cells if c["wrong"]],
        "worst": [_place(c) for c in summary.worst(rated)],
        "slow": [_place(c) for c in summary.worst(rated, len(rated)) if c["edges"] > small and c["speedup"] < 0.9],
        "small_graph_edges": small,
        "small": [_place(c) for c in rated if c["edges"] <= small],
    }


def _place(cell: dict) -> dict:
    ours = cell["timings"].get(summary.OURS, {}).get("median")
    peer = cell["best_peer"]
    theirs = cell["timings"][peer]["median"] if peer else None
    return {"graph": cell["graph"], "mode": cell["mode"], "features": cell["features"], "speedup": cell["speedup"],
            "best_peer": peer, "ours": ours, "theirs": theirs,
            "difference": ours - theirs if ours is not None and theirs is not None else None}


def load_available(names: Iterable[str], seed: int, console: Console) -> tuple[list[BenchmarkGraph], dict[str, str]]:
    """The graphs whose data are here, and for each of the others the reason, which is printed too."""
    found, skipped = [], {}
    for name in names:
        try:
            found.append(graphs.load(name, seed))
        except graphs.Unavailable as missing:
            skipped[name] = str(missing)
            console.print(f"[yellow]{name} skipped:[/] {missing}")
    return found, skipped


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
    """Run, print the tables, write ``spmm.json`` and ``spmm.png``. 1 if there was no graph or an answer was wrong, else 0."""
    options = arguments(argv)
    cli.set_threads(options.threads)
    cli.quiet_libraries()
    console = Console()
    selected, skipped = load_available(options.graphs, options.seed, console)
    if not selected:
        console.print("[red]no graph to run on[/]")
        return 1
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        results = run(selected, options.features, budget=options.budget, threads=options.threads, seed=options.seed,
                      small=options.profile_threshold, progress=progress)
    results["skipped"] = skipped
    report.print_spmm(results, console)
    path = machine.write_json(options.out / "spmm.json", results)
    picture = report.draw_spmm(results, options.out / "spmm.png")
    console.print(f"written: {path}, {picture}")
    return 1 if results["summary"]["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
