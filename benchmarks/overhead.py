"""What the backend adds to a layer on a small graph: ``python -m benchmarks.overhead``.

SAGE, GCN and GAT layers of DGL and PyG as the frameworks make them by default, on a generated graph of 3,000 nodes
and 10,000 edges, where little of the time is in kernels. Each with and without the backend, in turns in one process,
medians of many calls. Before that, what a single call costs beside its kernel, on known graphs and on the fresh ones of
mini-batches (``call_overhead``), what the first large results of a process take and how much memory
(``first_calls``), and the host's share of calls on a GPU, on a stand-in for one (``host_share``).
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from benchmarks.layers import call_overhead, contenders, first_calls, gpu_steps
from benchmarks.layers.layer_work import attention_work, gcn_work, sage_work
from benchmarks.layers.layers import LayerStep, disagreement
from benchmarks.operators.work import Work
from benchmarks.support import cells, cli, machine, reasons, report, roofline, summary
from benchmarks.support.budget import Budget
from benchmarks.support.generators import power_law
from benchmarks.support.gpu import device as gpu
from benchmarks.support.gpu import host_share
from benchmarks.support.graphs import ONE_EDGE, BenchmarkGraph
from benchmarks.support.reasons import Evidence
from benchmarks.support.turns import Switched, in_turns

LAYERS = ("sage", "gcn", "gat")
HIDDEN = (16, 64)
HEADS = {"sage": 1, "gcn": 1, "gat": 4}
# name: (method of LayerStep, whether it goes back)
MODES = {"no grad": ("inference", False), "with grad": ("forward", False), "forward+backward": ("step", True)}
# Of the time, for single calls, and for those on a stand-in for a GPU.
CALLS_SHARE, HOST_SHARE = 0.4, 0.05


def small_graph(nodes: int, edges: int, seed: int) -> BenchmarkGraph:
    communities = max(1, min(16, nodes // 100))
    matrix = power_law(nodes, edges, 2.2, max(1, nodes // 20), seed, communities=communities, locality=0.6)
    return BenchmarkGraph.of("small", "generated", matrix)


def layer_work(framework: str, kind: str, graph: BenchmarkGraph, hidden: int, backward: bool) -> Work:
    """The least that the layer must do, without the self loops that PyG's add."""
    if kind == "sage":
        return sage_work(framework, graph.pattern, (hidden, hidden), backward=backward, input_gradient=True)
    if kind == "gcn":
        return gcn_work(graph.pattern, hidden, hidden, backward=backward)
    return attention_work(kind, framework, graph.pattern, hidden, HEADS[kind], hidden // HEADS[kind], backward=backward)


def make_step(framework: str, kind: str, graph: BenchmarkGraph, hidden: int, seed: int, device="cpu") -> LayerStep:
    heads = HEADS[kind]
    return LayerStep(
        framework,
        kind,
        graph,
        features=hidden,
        heads=heads,
        width=hidden // heads,
        plain=False,
        seed=seed,
        device=device,
    )


def measure_cell(
    framework: str,
    kind: str,
    graph: BenchmarkGraph,
    hidden: int,
    mode: str,
    limits: roofline.Roofline,
    budget: float,
    seed: int,
) -> dict:
    """One cell, as plain values."""
    method, backward = MODES[mode]
    ours = contenders.name(framework, True)
    steps = {name: make_step(framework, kind, graph, hidden, seed) for name in (framework, ours)}
    calls = contenders.switched({name: getattr(step, method) for name, step in steps.items()})
    expected, _ = calls[framework].first()
    with calls[ours].context():
        answer, own, fallbacks = reasons.count_calls(framework, calls[ours].call)
    mismatch = disagreement(steps[ours].results, _results(answer), _results(expected))
    wrong = {ours: mismatch} if mismatch else {}
    # a call on one edge, to tell calling from working
    one_edge = make_step(framework, kind, ONE_EDGE, hidden, seed)
    calls["one edge"] = contenders.switched({ours: getattr(one_edge, method)})[ours]
    right = {name: call for name, call in calls.items() if name not in wrong}
    timed = in_turns(right, budget_s=budget, turn_s=0.05, calls=5)
    overhead = timed.pop("one edge").timing.median
    timings = {name: turns.timing.to_dict() | {"opening": turns.opening} for name, turns in timed.items()}
    rated = cells.rate(
        f"{framework}, {kind}, hidden {hidden}, {mode}",
        timings,
        (ours,),
        limits,
        layer_work(framework, kind, graph, hidden, backward),
        wrong=wrong,
        evidence=Evidence(overhead=overhead, ours=own, fallbacks=fallbacks),
    )
    return {"framework": framework, "layer": kind, "hidden": hidden, "mode": mode, **rated}


def _results(answer: object) -> tuple:
    return answer if isinstance(answer, tuple) else (answer,)


def run(
    graph: BenchmarkGraph,
    frameworks: Sequence[str],
    layers: Sequence[str],
    hidden: Sequence[int],
    *,
    budget: float,
    threads: int,
    seed: int = 0,
    limits: roofline.Roofline | None = None,
    begin: Callable[[str], None] = lambda cell: None,
) -> dict:
    """Measure every cell; return the report as plain values, times in seconds. ``begin`` is called at each cell's
    beginning.
    """
    description = machine.describe(threads)
    limits = limits or roofline.measure(threads)
    places = list(itertools.product(frameworks, layers, hidden, MODES))
    shares = Budget(budget, dict.fromkeys(places, 1.0))
    measured = []
    for place in places:
        framework, kind, width, mode = place
        begin(f"{framework}, {kind}, hidden {width}, {mode}")
        measured.append(measure_cell(framework, kind, graph, width, mode, limits, shares.take(place), seed))
    return {
        "machine": description,
        "roofline": limits.to_dict(),
        "graph": graph.describe(),
        "cells": measured,
        "summary": summary.summarise(measured, ("framework", "layer", "hidden", "mode")),
    }


def show(results: Mapping, console) -> None:
    """A row per cell: microseconds a call with and without the backend."""
    report.print_head(results, console)
    graph = results["graph"]
    table = report.table(
        f"A layer on {graph['rows']:,} nodes and {graph['edges']:,} edges, median microseconds a call (quartiles)",
        ("framework", "layer", "mode"),
        ("hidden", "framework alone", "backend", "ratio", "one edge", *report.ROOFLINE_HEADINGS),
    )
    for cell in results["cells"]:
        names = (cell["framework"], contenders.name(cell["framework"], True))
        table.add_row(
            cell["framework"],
            cell["layer"],
            cell["mode"],
            str(cell["hidden"]),
            *(_microseconds(cell["timings"].get(name)) for name in names),
            report.ratio(cell["speedup"]),
            f"{cell['evidence']['overhead'] * 1e6:.0f}",
            *report.roofline_columns(cell),
        )
    console.print(table)
    console.print(
        "ratio: the framework alone over itself with the backend, above 1 we are faster. one edge: the "
        f"backend's call on a graph of one edge, which is the calling alone. {report.ROOFLINE_NOTE}"
    )
    report.print_summary(results["summary"], console)


def _microseconds(timing: dict | None) -> str:
    if timing is None:
        return "[red]wrong[/]"
    return f"{timing['median'] * 1e6:.0f} ({timing['lower'] * 1e6:.0f} to {timing['upper'] * 1e6:.0f})"


def cells_on_gpu(
    options: argparse.Namespace, graph: BenchmarkGraph, frameworks: Sequence[str]
) -> Iterator[gpu_steps.Cell]:
    """The cells of ``--device cuda``."""
    for place in itertools.product(frameworks, options.layers, options.hidden, MODES):
        yield cell_on_gpu(*place, graph, options.seed)


def cell_on_gpu(framework: str, kind: str, hidden: int, mode: str, graph: BenchmarkGraph, seed: int) -> gpu_steps.Cell:
    results: tuple[str, ...] = ()

    def make(contender: str, device: torch.device) -> Switched:
        nonlocal results
        step = make_step(framework, kind, graph, hidden, seed, device)
        results = step.results
        method = getattr(step, MODES[mode][0])
        return Switched(lambda: _results(method()), contenders.context_of(contender))

    return gpu_steps.Cell(
        {"layer": kind, "hidden": hidden, "mode": mode},
        tuple(contenders.names([framework])),
        make,
        lambda answer, expected: disagreement(results, answer, expected),
        lambda contender: layer_work(framework, kind, graph, hidden, MODES[mode][1]),
    )


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=120.0, parents=[gpu.device_parser()])
    parser.add_argument("--frameworks", nargs="+", choices=tuple(cli.FRAMEWORKS), default=list(cli.FRAMEWORKS))
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--hidden", nargs="+", type=cli.positive_int, default=list(HIDDEN))
    parser.add_argument(
        "--calls",
        type=cli.positive_int,
        default=call_overhead.BLOCKS,
        metavar="BLOCKS",
        help="sampled blocks that single calls are measured on",
    )
    parser.add_argument("--nodes", type=cli.positive_int, default=3_000)
    parser.add_argument("--edges", type=cli.positive_int, default=10_000)
    parser.add_argument(
        "--first-nodes",
        type=cli.positive_int,
        default=first_calls.NODES,
        help="of the graph on which a process makes its first calls",
    )
    options = parser.parse_args(argv)
    if options.quick:
        options.budget, options.first_nodes = min(options.budget, 20.0), min(options.first_nodes, 10_000)
    if any(width % HEADS[kind] for width in options.hidden for kind in options.layers):
        parser.error(f"--hidden must be multiples of the {HEADS['gat']} heads of GAT, got {options.hidden}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the table, write ``overhead.json`` and ``.png``. 1 if no framework is installed or an answer was
    wrong, else 0.
    """
    options = arguments(argv)
    console = cli.start(options)
    frameworks = cli.installed(options.frameworks, console)
    if not frameworks:
        console.print("[red]nothing to run[/]")
        return 1
    graph = small_graph(options.nodes, options.edges, options.seed)
    if options.device == "cuda":
        return gpu_steps.main(
            "overhead",
            f"a layer on {options.nodes:,} nodes and {options.edges:,} edges",
            cells_on_gpu(options, graph, frameworks),
            contenders.names(frameworks),
            ("layer", "hidden", "mode"),
            options.out,
            console,
        )
    total = (
        len(frameworks) * len(options.layers) * len(options.hidden) * len(MODES)
        + (len(call_overhead.OPS) + len(frameworks)) * len(call_overhead.FAN_OUTS)
        + len(contenders.names(frameworks))
    )
    with report.progress(console, total) as begin:
        calls = call_overhead.run(
            frameworks, budget=CALLS_SHARE * options.budget, seed=options.seed, blocks=options.calls, begin=begin
        )
        first = first_calls.run(
            frameworks, nodes=options.first_nodes, threads=options.threads, seed=options.seed, begin=begin
        )
        host = host_share.run(HOST_SHARE * options.budget)
        results = run(
            graph,
            frameworks,
            options.layers,
            options.hidden,
            budget=(1 - CALLS_SHARE - HOST_SHARE) * options.budget,
            threads=options.threads,
            seed=options.seed,
            begin=begin,
        ) | {"calls": calls, "first calls": first, "host": host}
    call_overhead.show(calls, console)
    first_calls.show(first, console)
    host_share.show(host, console)
    show(results, console)
    lines = [cell | {"panel": f"{cell['framework']}, {cell['mode']}"} for cell in results["cells"]]
    panels = report.panels_of(lines, "panel", "layer", "hidden")
    report.finish(results, panels, "overhead", "hidden width", options.out, console)
    return 1 if results["summary"]["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
