"""A benchmark of one operator: every cell (graph, mode, width) on the same operands for all contenders.

Answers are checked against float64 before anything is timed; the contenders are timed interleaved. ``spmm`` and
``sddmm`` say what is particular to them in a ``Suite``.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import psutil

from benchmarks.operators import suite_report
from benchmarks.operators.work import Work
from benchmarks.support import cells, cli, graphs, machine, merging, report, roofline, summary
from benchmarks.support.budget import Budget, weight
from benchmarks.support.graphs import ONE_EDGE, BenchmarkGraph
from benchmarks.support.reasons import Evidence
from benchmarks.support.timing import Rules, Timing, interleaved

SMALL_GRAPH_EDGES = 20_000
LONG_CALL_S = 3.0
"""A contender whose first call takes longer, and hopelessly longer than the fastest's, is not called again."""
BEATEN = 3.0
"""Nor is a peer called for more features once its calls take longer and so many times as long as another peer's."""
MEMORY_SHARE = 0.6
"""Of the memory that is free; what needs more is not tried."""
STRUCTURES_SHARE = 0.6
"""Of all memory, for what is taken before calls begin: contenders that would prepare after that are left out."""

Call = Callable[[], tuple]


class CannotDo(Exception):
    """The library cannot do this work; the message says why."""


class Contender(ABC):
    """One library's way to do the work. ``note`` says what a reader of the numbers must know about it.

    It is prepared once per graph, outside the timed region: whatever structure it can keep between calls of a training
    loop it may build there (formats, transposes, index types). The preparation's cost is reported apart.
    """

    name: str
    note: str

    @abstractmethod
    def prepare(self, graph: BenchmarkGraph) -> None:
        """Build what can be kept between calls on this graph."""

    @abstractmethod
    def bind(self, problem) -> Call:
        """A callable giving the mode's results. Raises CannotDo."""


@dataclass(frozen=True)
class Suite:
    """An operator's benchmark.

    modes: what a cell may compute; each has ``name`` and ``backward``. contenders: makes all of them, ours first.
    operands: ``(graph, width, seed)`` to values that the modes share. problem: ``(graph, mode, operands)`` to an object
    with ``graph``, ``mode``, ``width`` and ``mismatch(results)``, which is None or says what is wrong.
    work: ``(pattern, width, mode)`` to the least that must be done.
    """

    name: str
    description: str
    features: tuple[int, ...]
    modes: tuple
    contenders: Callable[[], list[Contender]]
    operands: Callable
    problem: Callable
    work: Callable[..., Work]


def want_memory(what: str, needed: int) -> None:
    """Raises CannotDo where ``needed`` bytes are more than a call may take."""
    if needed > MEMORY_SHARE * psutil.virtual_memory().available:
        raise CannotDo(f"{what} would need {needed / 2**30:.1f} GiB")


def measure_cell(
    suite: Suite,
    problem,
    running: Iterable[Contender],
    limits: roofline.Roofline,
    rules: Rules,
    overhead: float | None = None,
    left_out: Mapping[str, str] = {},
) -> dict:
    """One cell: answers checked, then times. ``unable`` and ``wrong`` name the contenders without one, and why.

    overhead: the seconds that our call takes on a graph of one edge. left_out: the contenders that are not called, and
    why.
    """
    graph, mode, width = problem.graph, problem.mode, problem.width
    calls, first_call, unable, wrong = {}, {}, {}, {}
    for contender in running:
        if contender.name in left_out:
            unable[contender.name] = left_out[contender.name]
            continue
        try:
            # with a gradient, the cotangent is as large as the first result
            want_memory("the results", (2 if mode.backward else 1) * problem.result_bytes)
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
    fastest = min((first_call[name] for name in calls), default=0.0)
    # our first call may compile
    long = [
        name
        for name in calls
        if not name.startswith(summary.OURS) and first_call[name] > max(LONG_CALL_S, rules.hopeless * fastest)
    ]
    timed = interleaved({name: call for name, call in calls.items() if name not in long}, rules, warm=False)
    timed |= {name: Timing.of([first_call[name]]) for name in long}
    timings = {name: timed[name].to_dict() | {"first_call": first_call[name]} for name in calls}
    rated = cells.rate(
        f"{graph.name}, F = {width}, {mode.name}",
        timings,
        (summary.OURS,),
        limits,
        suite.work(graph.pattern, width, mode),
        wrong=wrong,
        evidence=Evidence(overhead=overhead),
    )
    return rated | {
        "graph": graph.name,
        "edges": graph.num_edges,
        "mode": mode.name,
        "features": width,
        "unable": unable,
    }


def beaten(measured: Iterable[dict], graph: str, mode: str, width: int) -> dict[str, str]:
    """The peers that need not be called, and why: with fewer features their calls were long, and much longer than a
    peer's.
    """
    found = {}
    for cell in measured:
        if (cell["graph"], cell["mode"]) != (graph, mode) or cell["features"] >= width:
            continue
        peers = {
            name: timing["median"] for name, timing in cell["timings"].items() if not name.startswith(summary.OURS)
        }
        best = min(peers.values(), default=0.0)
        found |= {
            name: f"not called: {median:.0f} s a call at F = {cell['features']}, {median / best:.0f} times the best "
            f"peer's"
            for name, median in peers.items()
            if median > max(LONG_CALL_S, BEATEN * best)
        }
    return found


def per_call_cost(suite: Suite, running: Sequence[Contender], width: int, rules: Rules) -> dict[str, dict[str, float]]:
    """Seconds per call on a graph of one edge, where all of the time is the call's own: ``{mode: {contender: s}}``."""
    operands = suite.operands(ONE_EDGE, width, 0)
    for contender in running:
        contender.prepare(ONE_EDGE)
    costs = {}
    for mode in suite.modes:
        problem = suite.problem(ONE_EDGE, mode, operands)
        calls = {}
        for contender in running:
            with contextlib.suppress(CannotDo):
                calls[contender.name] = contender.bind(problem)
        costs[mode.name] = {name: timing.median for name, timing in interleaved(calls, rules).items()}
    return costs


def run(
    suite: Suite,
    selected: Iterable[BenchmarkGraph],
    features: Sequence[int],
    *,
    shares: Budget,
    threads: int,
    seed: int = 0,
    limits: roofline.Roofline | None = None,
    small: int = SMALL_GRAPH_EDGES,
    rules: Rules = Rules(),
    widest: Mapping[str, int] = MappingProxyType({}),
    begin: Callable[[str], None] = lambda cell: None,
    done: Callable[[dict, dict], None] = lambda cell, so_far: None,
    before: dict | None = None,
) -> dict:
    """Measure every cell of ``selected`` x ``features`` x modes; return the report as plain values, times in seconds.

    widest: of the features, by name of the graph. shares: of the time, by (name of the graph, width, mode). rules: of
    the calls on one edge. ``begin`` is called at the beginning of each cell, ``done`` at its end with the cell and the
    report of all cells so far. before: an earlier report, whose other cells are kept.
    """
    description = machine.describe(threads)
    limits = limits or roofline.measure(threads)
    running = suite.contenders()
    described, preparation, measured = [], {}, []
    per_call = per_call_cost(suite, running, 32, rules)

    def so_far() -> dict:
        merged = merging.merge(
            before,
            {
                "benchmark": suite.name,
                "machine": description,
                "roofline": limits.to_dict(),
                "contenders": {contender.name: contender.note for contender in running},
                "graphs": list(described),
                "preparation": dict(preparation),
                "per_call": per_call,
                "cells": list(measured),
            },
        )
        merged["cells"].sort(key=lambda cell: cell["features"])
        return merged | {"summary": summarise(merged["cells"], small)}

    for graph in selected:
        described.append(graph.describe())
        preparation[graph.name], crowded = {}, {}
        for contender in running:
            memory = psutil.virtual_memory()
            if memory.available < (1 - STRUCTURES_SHARE) * memory.total:
                crowded[contender.name] = (
                    f"not prepared: the structures before it left {memory.available / 2**30:.1f} GiB for all calls"
                )
                continue
            start = time.perf_counter()
            contender.prepare(graph)
            preparation[graph.name][contender.name] = time.perf_counter() - start
        for width in sorted(graphs.widths_of(graph.name, features, widest)):
            operands = suite.operands(graph, width, seed)
            for mode in suite.modes:
                begin(f"{graph.name}, F = {width}, {mode.name}")
                share = Rules(budget_s=shares.take((graph.name, width, mode)))
                problem = suite.problem(graph, mode, operands)
                known = [*(before or {}).get("cells", ()), *measured]
                measured.append(
                    measure_cell(
                        suite,
                        problem,
                        running,
                        limits,
                        share,
                        per_call[mode.name].get(summary.OURS),
                        beaten(known, graph.name, mode.name, width) | crowded,
                    )
                )
                done(measured[-1], so_far())
    return so_far()


def summarise(measured: Sequence[dict], small: int = SMALL_GRAPH_EDGES) -> dict:
    """Geometric means of the speed-ups over the best peer, and the cells a reader should see first.

    ``slow``: cells of more than ``small`` edges where the best peer is faster. ``small``: for the other cells, the
    seconds that a call of ours takes beyond the best peer's.
    """
    rated = summary.worst(measured, len(measured))
    return summary.summarise(measured, ("mode", "graph", "features")) | {
        "slow": [summary.place(c) for c in rated if c["edges"] > small and c["speedup"] < 1],
        "small_graph_edges": small,
        "small": [summary.place(c) for c in rated if c["edges"] <= small],
    }


def arguments(suite: Suite, argv: Sequence[str] | None = None, parents=()) -> argparse.Namespace:
    parser = cli.parser(suite.description, budget=420.0, parents=parents)
    graphs.add_arguments(parser)
    parser.add_argument(
        "--features",
        nargs="+",
        type=int,
        metavar="F",
        help=f"by default {' '.join(map(str, suite.features))}, of the largest graph up to "
        f"{max(graphs.WIDEST.values())}",
    )
    parser.add_argument(
        "--modes",
        nargs="+",
        choices=[mode.name for mode in suite.modes],
        metavar="MODE",
        default=[mode.name for mode in suite.modes],
        help="by default all: %(choices)s",
    )
    parser.add_argument(
        "--profile-threshold",
        type=int,
        default=SMALL_GRAPH_EDGES,
        metavar="EDGES",
        help="graphs of at most so many edges are judged by microseconds per call, not by the ratio",
    )
    cli.add_append(parser)
    cli.add_reuse_memory(parser)
    options = parser.parse_args(argv)
    options.graphs = graphs.chosen(options)
    options.widest = {} if options.features else graphs.WIDEST
    options.features = options.features or list(suite.features)
    if options.quick:
        options.graphs = [name for name in options.graphs if name in ("cora", "pubmed")] or ["pubmed"]
        options.features, options.budget = [32, 128], min(options.budget, 30.0)
    if any(width < 1 for width in options.features):
        parser.error(f"--features must be positive, got {options.features}")
    return options


def main(suite: Suite, argv: Sequence[str] | None = None, parents=()) -> int:
    """Run, print the tables, write ``NAME.json`` and ``NAME.png``. 1 if there was no graph or an answer of ours was
    wrong, else 0. parents: of the parser, for arguments that the caller has read already.
    """
    options = arguments(suite, argv, parents)
    console = cli.start(options)
    suite = Suite(**(vars(suite) | {"modes": tuple(mode for mode in suite.modes if mode.name in options.modes)}))
    skipped: dict[str, str] = {}
    path = options.out / f"{suite.name}.json"
    before = merging.read(path) if options.append else None
    shares = Budget(
        options.budget,
        {
            (name, width, mode): weight(graphs.RECIPES[name].edges, width * (3 if mode.backward else 1))
            for name in options.graphs
            for width in graphs.widths_of(name, options.features, options.widest)
            for mode in suite.modes
        },
    )

    def one_at_a_time() -> Iterable[BenchmarkGraph]:
        # the largest take a good part of the memory
        for name in options.graphs:
            start = time.perf_counter()
            found, missing = graphs.load_available([name], options.seed, console)
            shares.pause(time.perf_counter() - start)
            skipped.update(missing)
            yield from found

    def done(cell: dict, so_far: dict) -> None:
        # a long run that is stopped leaves what it has measured
        machine.write_json(path, so_far)

    total = sum(len(graphs.widths_of(name, options.features, options.widest)) for name in options.graphs) * len(
        suite.modes
    )
    with report.progress(console, total) as begin:
        results = run(
            suite,
            one_at_a_time(),
            options.features,
            shares=shares,
            threads=options.threads,
            seed=options.seed,
            widest=options.widest,
            small=options.profile_threshold,
            rules=Rules(budget_s=min(2.0, options.budget / 20)),
            begin=begin,
            done=done,
            before=before,
        )
    if not results["cells"]:
        console.print("[red]no graph to run on[/]")
        return 1
    results["skipped"] = skipped
    suite_report.show(results, console)
    panels = report.panels_of(results["cells"], "mode", "graph", "features")
    report.finish(results, panels, suite.name, "features", options.out, console)
    return 1 if any(summary.OURS in cell["reason"] for cell in results["summary"]["wrong"]) else 0
