"""What an order of the nodes is worth: ``python -m benchmarks.reorder``.

Sums of the neighbours of each row, on graphs as they come, with their nodes numbered at random, and reordered from
there by each method of ``gsb.reorder``. All orders of a cell are timed interleaved.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from benchmarks.support import cli, graphs, machine, report
from benchmarks.support.budget import Budget, weight
from benchmarks.support.graphs import BenchmarkGraph
from benchmarks.support.timing import Rules, interleaved
from gnn_sparse_backend import Graph, reorder, spmm
from gnn_sparse_backend.structures.reordering.orders import METHODS

GRAPHS = ("cora", "debian", "wordnet", "pubmed", "ppi", "arxiv", "community")
GIVEN, SHUFFLED = "as given", "shuffled"
SETTLED = 10
"""Calls after which a graph is as it stays."""


def orders(graph: BenchmarkGraph, seed: int) -> tuple[dict[str, Graph], dict[str, float]]:
    """The graph in each order, and the seconds that reordering took."""
    label = torch.from_numpy(np.random.default_rng(seed).permutation(graph.shape[0]))
    source, destination = label[torch.from_numpy(graph.edge_index)]
    # by rows, with columns that ascend, as the others
    shuffled = Graph.from_coo(source, destination, graph.shape).transpose()
    found = {GIVEN: Graph.from_csr(graph.indptr, graph.indices, graph.shape), SHUFFLED: shuffled}
    seconds = {}
    for method in METHODS:
        begin = time.perf_counter()
        found[method] = reorder(shuffled, method).graph
        seconds[method] = time.perf_counter() - begin
    return found, seconds


def run(
    selected: Sequence[BenchmarkGraph],
    features: Sequence[int],
    *,
    budget: float,
    threads: int,
    seed: int = 0,
    begin: Callable[[str], None] = lambda cell: None,
) -> dict:
    """Measure every graph and width; the report as plain values, times in seconds."""
    shares = Budget(budget, {(g.name, width): weight(g.num_edges, width) for g in selected for width in features})
    cells, seconds = [], {}
    for graph in selected:
        found, seconds[graph.name] = orders(graph, seed)
        for width in features:
            begin(f"{graph.name}, F = {width}")
            x = torch.randn(graph.shape[1], width, generator=torch.Generator().manual_seed(seed))
            calls = {name: lambda g=g: spmm(g, x) for name, g in found.items()}  # noqa: B023
            for call in calls.values():
                for _ in range(SETTLED):
                    call()
            timed = interleaved(calls, Rules(budget_s=shares.take((graph.name, width))), warm=False)
            timings = {name: timing.to_dict() for name, timing in timed.items()}
            cells.append({"graph": graph.name, "features": width, "timings": timings})
    described = [graph.describe() for graph in selected]
    return {"machine": machine.describe(threads), "graphs": described, "reordering": seconds, "cells": cells}


def show(results: Mapping, console) -> None:
    """A row for each cell: milliseconds in each order, and what reordering gains."""
    console.print(machine.one_line(results["machine"]))
    names = (GIVEN, SHUFFLED, *METHODS)
    table = report.table(
        "A sum of neighbours, median milliseconds a call; shuffled over reordered",
        ("graph",),
        ("features", *names, *(f"{SHUFFLED} / {method}" for method in METHODS)),
    )
    for cell in results["cells"]:
        medians = {name: timing["median"] for name, timing in cell["timings"].items()}
        times = (f"{medians[name] * 1e3:.3g}" for name in names)
        gains = (f"{medians[SHUFFLED] / medians[method]:.2f}" for method in METHODS)
        table.add_row(cell["graph"], str(cell["features"]), *times, *gains)
    console.print(table)
    for graph, seconds in results["reordering"].items():
        taken = ", ".join(f"{method} {each * 1e3:.0f} ms" for method, each in seconds.items())
        console.print(f"reordering {graph}: {taken}")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=120.0)
    graphs.add_arguments(parser)
    parser.set_defaults(graphs=list(GRAPHS))
    parser.add_argument("--features", nargs="+", type=cli.positive_int, default=[32, 128, 256])
    options = parser.parse_args(argv)
    if options.quick:
        options.graphs, options.features, options.budget = ["pubmed"], [32], min(options.budget, 5.0)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the table, write ``reorder.json``. 1 if no graph is on this machine, else 0."""
    options = arguments(argv)
    console = cli.start(options)
    selected, _ = graphs.load_available(graphs.chosen(options), options.seed, console)
    if not selected:
        console.print("[red]nothing to run[/]")
        return 1
    with report.progress(console, len(selected) * len(options.features)) as begin:
        results = run(
            selected,
            options.features,
            budget=options.budget,
            threads=options.threads,
            seed=options.seed,
            begin=begin,
        )
    show(results, console)
    console.print(f"written: {machine.write_json(options.out / 'reorder.json', results)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
