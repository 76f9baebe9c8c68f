"""Relational graph convolutional networks of two layers: ``python -m benchmarks.rgcn``.

Inference and training step under DGL (RelGraphConv, edges taken as sorted and not; HeteroGraphConv) and PyG (RGCNConv,
FastRGCNConv), each as it is and with the backend; a step is forward, and backward from a random cotangent to x and
parameters. Answers are compared before anything is timed. Peak memory is measured in a fresh process for each, which
also says who does not fit. Beside each cell stands what the orders of one product cost, and the regret of the planner's
choice.

``--device cuda`` adds PyTorch's own gather, matrix product and scatter to them, and takes ``--dtype`` and ``--tf32``:
answers are compared with that in float64, and times, memory and the shares of the GPU's limits are as of ``gpu_steps``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from benchmarks.layers.contenders import BACKEND
from benchmarks.layers.rgcn import gpu as rgcn_gpu
from benchmarks.layers.rgcn import memory as rgcn_memory
from benchmarks.layers.rgcn import orders as rgcn_orders
from benchmarks.layers.rgcn import report as rgcn_report
from benchmarks.layers.rgcn.graphs import ONE_EDGE, RECIPES, RelationalGraph, load_available
from benchmarks.layers.rgcn.models import PEERS, TORCH, Dense, Network, context_of, framework_of
from benchmarks.layers.rgcn.turns import MODES, first_calls, timed
from benchmarks.layers.rgcn.work import network_work
from benchmarks.support import cells, cli, machine, merging, report, roofline, summary
from benchmarks.support.budget import Budget, weight
from benchmarks.support.gpu import device as gpu
from benchmarks.support.reasons import Evidence
from benchmarks.support.turns import Switched, in_turns

FEATURES = (16, 32, 64, 128)
# of those that share an operator with the backend on, one stands for both
CONTENDERS = (*PEERS, *(peer + BACKEND for peer in PEERS if peer != "dgl-presorted"))
# of a cell's time without the orders
MODE_SHARES = {"inference": 0.4, "step": 0.6}
# of a cell's time, for the orders of the product
ORDERS_SHARE = 0.2


def measure_cells(
    graph: RelationalGraph,
    features: int,
    names: Sequence[str],
    peaks: Mapping[str, Mapping[str, dict]],
    limits: roofline.Roofline,
    budget: float,
    seed: int,
    overhead: Mapping[str, Mapping[str, float]],
) -> list[dict]:
    """The cells of a graph and width, one for each mode in ``peaks``, as plain values. peaks: memory by mode and
    contender.
    """
    modes = tuple(mode for mode in MODES if mode in peaks)
    unable = {
        mode: {name: peaks[mode][name]["error"] for name in names if "error" in peaks[mode][name]} for mode in modes
    }
    running = [name for name in names if not any(name in unable[mode] for mode in modes)]
    # what cannot take a step may still infer
    partly = [
        name for name in names if name not in running and "inference" in modes and name not in unable["inference"]
    ]
    networks, first, wrong, evidence = first_calls(running, graph, features, seed, modes)
    for name in partly:
        networks[name] = Network(name, graph, features, seed)
        with context_of(name)():
            begin = time.perf_counter()
            networks[name].inference()
            first["inference"][name] = time.perf_counter() - begin
    orders = rgcn_orders.measure(graph, features, ORDERS_SHARE * budget, seed)
    rest = Dense(graph, features)
    ours = tuple(name for name in names if name.endswith(BACKEND))
    found = []
    for mode in modes:
        calls = {
            name: Switched(getattr(network, mode), context_of(name))
            for name, network in networks.items()
            if name in first[mode] and name not in wrong[mode]
        }
        chosen = {
            product: times for product, times in orders.items() if mode == "step" or product == rgcn_orders.FORWARD
        }
        share = MODE_SHARES[mode] / sum(MODE_SHARES[other] for other in modes)
        timings = timed(calls, first[mode], (1 - ORDERS_SHARE) * share * budget)
        dense = in_turns({"rest": Switched(getattr(rest, mode))}, budget_s=0.0)["rest"].timing.median
        told = {
            name: Evidence(overhead[mode].get(name), dense, had.ours, had.fallbacks)
            for name, had in evidence[mode].items()
            if name in ours
        }
        rated = cells.rate(
            f"{graph.name}, F = {features}, {mode}",
            timings,
            ours,
            limits,
            network_work(graph, features, backward=mode == "step"),
            wrong=wrong[mode],
            evidence={name: told.get(name, Evidence()) for name in ours},
        )
        found.append(
            {
                "graph": graph.name,
                "edges": graph.num_edges,
                "features": features,
                "mode": mode,
                **rated,
                "unable": unable[mode],
                "orders": {"seconds": chosen, "regret": rgcn_orders.regret(chosen)},
                **memory_ratio(peaks[mode], ours),
            }
        )
    return found


def memory_ratio(peaks: Mapping[str, dict], ours: Sequence[str]) -> dict:
    """``memory``: the entries; ``memory_ratio``: the leanest peer's peak over that of the leanest of ours."""
    known = {name: entry["step"] for name, entry in peaks.items() if "step" in entry}
    return {"memory": dict(peaks), "memory_ratio": summary.speedup(known, ours)}


def overheads(names: Iterable[str], seed: int) -> dict[str, dict[str, float]]:
    """``{mode: {contender: median seconds}}`` of ours on a graph of one edge."""
    calls = {mode: {} for mode in MODES}
    for name in names:
        if name.endswith(BACKEND):
            network = Network(name, ONE_EDGE, 16, seed)
            for mode in MODES:
                calls[mode][name] = Switched(getattr(network, mode), context_of(name))
    return {
        mode: {name: turns.timing.median for name, turns in in_turns(calls[mode], budget_s=0.2).items()}
        for mode in MODES
    }


def run(
    selected: Iterable[RelationalGraph],
    features: Sequence[int],
    names: Sequence[str],
    *,
    shares: Budget,
    threads: int,
    longest: float,
    seed: int = 0,
    modes: Sequence[str] = MODES,
    limits: roofline.Roofline | None = None,
    begin: Callable[[str], None] = lambda cell: None,
    done: Callable[[dict, dict], None] = lambda cell, so_far: None,
    before: dict | None = None,
) -> dict:
    """Measure every cell; return the report as plain values, times in seconds, memory in bytes. before: an earlier
    report, whose other cells are kept.

    shares: of the time, by (name of the graph, width). longest: seconds of a call beyond which a contender is too slow
    for the larger widths. ``done`` is called at each cell's end with the cell and the report so far.
    """
    description = machine.describe(threads)
    limits = limits or roofline.measure(threads)
    overhead = overheads(names, seed)
    described, measured = [], []

    def so_far() -> dict:
        merged = merging.merge(
            before,
            {
                "machine": description,
                "roofline": limits.to_dict(),
                "contenders": {name: framework_of(name) for name in names},
                "graphs": list(described),
                "per_call": overhead,
                "cells": list(measured),
            },
        )
        return merged | {"summary": summarise(merged["cells"])}

    for graph in selected:
        described.append(graph.describe())
        start = time.perf_counter()
        begin(f"{graph.name}, memory")
        peaks = rgcn_memory.measure(names, graph, features, modes, threads, longest)
        shares.pause(time.perf_counter() - start)
        for width in features:
            begin(f"{graph.name}, F = {width}")
            here = {mode: peaks[width, mode] for mode in modes}
            for cell in measure_cells(
                graph, width, names, here, limits, shares.take((graph.name, width)), seed, overhead
            ):
                measured.append(cell)
                done(cell, so_far())
    return so_far()


def summarise(measured: Sequence[dict]) -> dict:
    """``summary.summarise``, and by mode: geometric mean and least of the ratios in time and in memory; mean regret."""
    modes = {}
    for mode in MODES:
        chosen = [cell for cell in measured if cell["mode"] == mode]
        modes[mode] = {
            key: {
                "mean": summary.mean_or_none(cell[key] for cell in chosen),
                "least": min((cell[key] for cell in chosen if cell[key] is not None), default=None),
            }
            for key in ("speedup", "memory_ratio")
        }
    regrets = [cell["orders"]["regret"] for cell in measured]
    return summary.summarise(measured, ("mode", "graph", "features")) | {
        "modes": modes,
        "regret": statistics.fmean(regrets) if regrets else None,
        "worst_regret": max(regrets, default=None),
    }


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=1200.0, parents=[gpu.device_parser()])
    parser.add_argument("--graphs", nargs="+", choices=tuple(RECIPES), help="by default all")
    parser.add_argument("--features", nargs="+", type=cli.positive_int, metavar="F", help=f"by default {FEATURES}")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), help="by default both: %(choices)s")
    parser.add_argument(
        "--contenders",
        nargs="+",
        choices=(*CONTENDERS, TORCH),
        metavar="NAME",
        help=f"by default all: %(choices)s; {TORCH} on a GPU alone",
    )
    parser.add_argument(
        "--dtype", choices=tuple(gpu.DTYPES), default="float32", help="of all values, with --device cuda"
    )
    parser.add_argument(
        "--tf32",
        action="store_true",
        help="with --device cuda: float32 products of all contenders may run on Tensor "
        "Cores in TF32, as torch.set_float32_matmul_precision('high') allows",
    )
    parser.add_argument(
        "--longest",
        type=float,
        default=20.0,
        metavar="SECONDS",
        help="a contender whose call takes longer is left out at larger widths",
    )
    cli.add_append(parser)
    cli.add_reuse_memory(parser)
    options = parser.parse_args(argv)
    options.graphs = options.graphs or (["aifb"] if options.quick else list(RECIPES))
    options.features = options.features or ([32] if options.quick else list(FEATURES))
    there = options.device == "cuda"
    options.contenders = options.contenders or [*CONTENDERS, *([TORCH] if there else [])]
    if not there:
        for given, words in (
            (options.dtype != "float32", f"--dtype {options.dtype}"),
            (options.tf32, "--tf32"),
            (TORCH in options.contenders, f"--contenders {TORCH}"),
        ):
            if given:
                parser.error(f"{words} is measured with --device cuda alone")
    if options.tf32 and options.dtype != "float32":
        parser.error(f"--tf32 is a way to multiply float32, not {options.dtype}: leave one of the two out")
    if options.quick:
        options.budget = min(options.budget, 20.0)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the tables, write ``rgcn.json`` and ``rgcn.png``. 1 if nothing ran or an answer was wrong, else 0."""
    options = arguments(argv)
    console = cli.start(options)
    frameworks = cli.installed(cli.FRAMEWORKS, console)
    names = [name for name in options.contenders if framework_of(name) in (*frameworks, TORCH)]
    if options.device == "cuda":
        return rgcn_gpu.main(options, sorted(names, key=lambda name: name.endswith(BACKEND)), console)
    skipped: dict[str, str] = {}
    path = options.out / "rgcn.json"
    before = merging.read(path) if options.append else None
    shares = Budget(
        options.budget,
        {
            (name, width): weight(RECIPES[name].edges, 4 * width)
            for name in options.graphs
            for width in options.features
        },
    )

    def one_at_a_time() -> Iterable[RelationalGraph]:
        # the largest take a good part of the memory
        start = time.perf_counter()
        for found in load_available(options.graphs, options.seed):
            shares.pause(time.perf_counter() - start)
            if isinstance(found, RelationalGraph):
                yield found
            else:
                skipped[found[0]] = found[1]
                console.print(f"[yellow]{found[0]} skipped:[/] {found[1]}")
            start = time.perf_counter()

    def done(cell: dict, so_far: dict) -> None:
        # a long run that is stopped leaves what it has measured
        machine.write_json(path, so_far)
        console.print(rgcn_report.line(cell), highlight=False)

    with report.progress(console, len(options.graphs) * (1 + len(options.features))) as begin:
        results = run(
            one_at_a_time(),
            options.features,
            names,
            shares=shares,
            threads=options.threads,
            longest=options.longest,
            seed=options.seed,
            modes=options.modes,
            begin=begin,
            done=done,
            before=before,
        )
    if not results["cells"]:
        console.print("[red]nothing to run[/]")
        return 1
    results["skipped"] = skipped
    rgcn_report.show(results, console)
    panels = report.panels_of(results["cells"], "mode", "graph", "features")
    memory_panels = report.panels_of(results["cells"], "mode", "graph", "features", "memory_ratio")
    report.finish(
        results,
        panels | {f"{mode}, peak memory": lines for mode, lines in memory_panels.items()},
        "rgcn",
        "features",
        options.out,
        console,
    )
    return 1 if results["summary"]["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
