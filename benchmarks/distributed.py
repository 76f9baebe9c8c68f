"""Epochs of processes that share a graph: ``python -m benchmarks.distributed``.

Parts: ``epoch`` sets two processes with one thread each beside one with two, also over the loopback as between
machines, with halos that are waited for before anything is computed, and with those of the epoch before; ``scaling``
takes 1 to 4 processes on the same graph, and on one that grows with them; ``predict`` says from the rates of this
machine what 8 to 256 of them would take for a graph of a billion edges; ``cut`` measures what cutting a graph of
``--cut-edges`` takes. Whole epochs of GraphSAGE: forward, loss, backward, sum of gradients, Adam.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.partitioned import calibration, prediction, processes, worker
from benchmarks.partitioned.memory import of_partition
from benchmarks.partitioned.processes import Problem
from benchmarks.support import cli, machine, memory, report

KINDS = ("strong", "weak")
PARTS = ("epoch", "scaling", "predict", "cut")
DEGREE = 25
# processes, threads of each, with halos of the epoch before, in shared memory, computing while halos travel
CONTENDERS = {
    "1 x 2": (1, 2),
    "2 x 1": (2, 1),
    "2 x 1, waits first": (2, 1, False, True, False),
    "2 x 1, loopback": (2, 1, False, False),
    "2 x 1, loopback, waits first": (2, 1, False, False, False),
    "2 x 1, loopback, delayed": (2, 1, True, False),
}
BILLION = {"nodes": 1e9 / DEGREE, "edges": 1e9}
MACHINES = (8, 16, 32, 64, 128, 256)
NETWORKS = {"10 Gbit/s": 10e9 / 8, "100 Gbit/s": 100e9 / 8}
LATENCY = 30e-6
"""Seconds of a message between machines: assumed."""


def epoch(problem: Problem, rounds: int, names: Sequence[str]) -> dict:
    """One process with two threads, two with one: in so many turns. names: of ``CONTENDERS``, those that take part."""
    with tempfile.TemporaryDirectory() as folder:
        cut = processes.cut(problem, [1, 2], Path(folder))
        found: dict[str, list[dict]] = {name: [] for name in CONTENDERS if name in names}
        for _, name in itertools.product(range(rounds), found):
            found[name].append(processes.measure(problem, Path(folder), *CONTENDERS[name]))
    cells = {name: _middle(turns) for name, turns in found.items()}
    return {"problem": dataclasses.asdict(problem), "cut": cut[2], "cells": cells}


def _middle(turns: list[dict]) -> dict:
    """The turn whose median is the middle one, with the medians of all."""
    ordered = sorted(turns, key=lambda turn: turn["epoch"])
    return ordered[len(ordered) // 2] | {"turns": [turn["epoch"] for turn in turns]}


def scaling(problem: Problem, counts: Sequence[int], kinds: Sequence[str], kept: Path | None, only_cut: bool) -> dict:
    """strong: the graph on more processes of a thread. weak: a graph whose edges grow with them, to all of them with
    four. kept: a folder in which parts are left for the next time; otherwise they are cut anew. only_cut: nothing is
    measured.
    """
    found: dict = {"problem": dataclasses.asdict(problem)} | {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() if kept is None else contextlib.nullcontext(kept) as folder:
        for kind in kinds:
            for share, some in [(problem, counts)] if kind == "strong" else [(_share(problem, n), [n]) for n in counts]:
                parts = Path(folder) / f"{share.edges} {share.width} {share.method} {share.seed}"
                cut = processes.cut(share, list(some), parts)
                for count in () if only_cut else some:
                    found[kind].append(processes.measure(share, parts, count, 1) | {"cut": cut[count]})
    return found


def _share(problem: Problem, count: int) -> Problem:
    return dataclasses.replace(problem, nodes=problem.nodes * count // 4, edges=problem.edges * count // 4)


def predict(problem: Problem, checked: dict | None) -> dict:
    """Rates, epochs of a billion edges, and the same formula beside what was measured here with two processes.

    checked: what ``epoch`` found; from its first contender comes the rate of all but sums and products.
    """
    message = calibration.loopback()
    given = (problem.nodes, problem.edges, problem.width)
    found = {"loopback": message, "network_latency": LATENCY, "cells": []}
    both = calibration.rates(*given, 2, problem.seed, LATENCY)
    cells = checked["cells"] if checked else {}
    if "1 x 2" in cells:
        alone = prediction.Shape(problem.nodes, problem.edges, problem.width, problem.layers, 0.0, 1.0)
        both = prediction.calibrated(both, alone, cells["1 x 2"]["epoch"])
    found["rates"] = dataclasses.asdict(both)
    for machines in (1, *MACHINES):
        halo, inner = prediction.halo_of(**BILLION, machines=machines)
        shape = prediction.Shape(**BILLION, width=problem.width, layers=problem.layers, halo=halo, inner=inner)
        cell = {"machines": machines, "halo": halo, "memory": prediction.memory(shape, machines)}
        for network, bandwidth in NETWORKS.items():
            cell[network] = prediction.seconds(shape, machines, both, bandwidth)
        found["cells"].append(cell)
    if checked and "2 x 1, loopback" in cells:
        one, cell = both.of_a_process(2, message["latency"]), cells["2 x 1, loopback"]
        halo, inner = statistics.mean(checked["cut"]["halo"]) * 2 / problem.nodes, cell["inner"][0] / cell["edges"][0]
        shape = prediction.Shape(problem.nodes, problem.edges, problem.width, problem.layers, halo, inner)
        counted = prediction.halo_of(problem.nodes, problem.edges, 2)[0]
        found["checked"] = prediction.seconds(shape, 2, one, message["bandwidth"]) | {
            "measured": cell["epoch"],
            "halo": halo,
            "halo counted": counted,
        }
    return found


def run(options: argparse.Namespace) -> dict:
    nodes = options.edges // DEGREE
    given = (options.width, options.layers, options.epochs, options.method, options.seed, options.reuse_memory)
    given = (*given, options.layer)
    problem = Problem(nodes, options.edges, *given)
    found: dict = {"machine": machine.describe(options.threads)}
    if "epoch" in options.parts:
        found["epoch"] = epoch(problem, options.rounds, options.contenders)
    if "scaling" in options.parts:
        sizes = [dataclasses.replace(problem, nodes=edges // DEGREE, edges=edges) for edges in options.sizes]
        given = (options.processes, options.kinds, options.parts_folder, options.only_cut)
        found["scaling"] = [scaling(size, *given) for size in sizes]
    if "predict" in options.parts:
        found["predict"] = predict(problem, found.get("epoch"))
    if "cut" in options.parts:
        given = (options.cut_edges // DEGREE, DEGREE, 2, options.method, options.seed, options.sample)
        given = (*given, {"auto": None, "yes": True, "no": False}[options.coarsen])
        found["cut"] = memory.in_child(of_partition, *given) | {"method": options.method}
    return found


_COLUMNS = ("epoch ms", "compute", "wait", "gradients", "wire alone", "hidden", "MB sent", "peak MiB each")


def _cells(cell: dict) -> list[str]:
    told = [f"{cell[name] * 1e3:.0f}" for name in ("epoch", "compute", "halo", "gradients", "wire")]
    hidden = "" if cell["hidden"] is None else report.percent(cell["hidden"])
    peak = ", ".join(f"{each / 2**20:,.0f}" for each in cell["peak"])
    return [*told, hidden, f"{sum(cell['sent']) / 1e6:.1f}", peak]


def _title(problem: dict) -> str:
    return (
        f"{problem['nodes']:,} nodes, {problem['edges']:,} edges, {problem['layers']} layers "
        f"({problem['layer']}) of width {problem['width']}, cut by {problem['method']}"
    )


def show(results: dict, console) -> None:
    console.print(machine.one_line(results["machine"]))
    if "epoch" in results:
        found = results["epoch"]
        title = f"an epoch: {_title(found['problem'])}"
        table = report.table(title, ("processes x threads",), (*_COLUMNS, "over the first", "turns, ms"))
        first = next(iter(found["cells"].values()))["epoch"]
        for name, cell in found["cells"].items():
            turns = ", ".join(f"{turn * 1e3:.0f}" for turn in cell["turns"])
            table.add_row(name, *_cells(cell), f"{cell['epoch'] / first:.2f}", turns)
        console.print(table)
        console.print(f"{found['cut']['edge_cut']:.1%} of the edges cut")
    for found in results.get("scaling", ()):
        for kind in (kind for kind in KINDS if found.get(kind)):
            table = report.table(
                f"{kind} scaling: {_title(found['problem'])}", ("processes",), (*_COLUMNS, "efficiency")
            )
            for cell in found[kind]:
                base = found[kind][0]["epoch"]
                over = cell["processes"] if kind == "strong" else 1
                table.add_row(str(cell["processes"]), *_cells(cell), report.percent(base / (over * cell["epoch"])))
            console.print(table)
    if "predict" in results:
        _show_prediction(results["predict"], console)
    if "cut" in results:
        told = results["cut"]
        console.print(
            f"cutting {told['edges']:,} edges into 2 parts by {told['method']}: {told['seconds']:.0f} s, "
            f"{told['peak'] / 2**30:.2f} GiB at its peak beside the graph of {told['graph'] / 2**30:.2f} GiB, "
            f"{told['peak'] / told['edges']:.0f} bytes an edge, {told['edge_cut']:.1%} of the edges cut, "
            f"largest part {told['balance']:.2f} of the average"
        )


def _show_prediction(found: dict, console) -> None:
    title = "PREDICTED, never run: an epoch of a billion edges in seconds"
    columns = (
        "halo / own rows",
        "GB each",
        *(f"{n}: {what}" for n in NETWORKS for what in ("epoch", "waited", "MB sent")),
    )
    table = report.table(title, ("machines",), columns)
    for cell in found["cells"]:
        told = [
            text
            for network in NETWORKS
            for text in (
                f"{cell[network]['epoch']:.2f}",
                f"{cell[network]['waited']:.2f}",
                f"{cell[network]['sent'] / 1e6:.0f}",
            )
        ]
        table.add_row(str(cell["machines"]), f"{cell['halo']:.2f}", f"{cell['memory'] / 1e9:.1f}", *told)
    console.print(table)
    console.print("rates: " + ", ".join(f"{name} {value:.3g} s" for name, value in found["rates"].items()))
    console.print("loopback: " + ", ".join(f"{name} {value:.3g}" for name, value in found["loopback"].items()))
    if "checked" in found:
        told = found["checked"]
        console.print(
            f"two processes here over the loopback: {told['epoch'] * 1e3:.0f} ms by the formula, "
            f"{told['measured'] * 1e3:.0f} measured; "
            f"halo over own rows {told['halo counted']:.3f} counted, {told['halo']:.3f} cut"
        )


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=600.0)
    parser.add_argument("--edges", type=cli.positive_int, default=4_000_000, help="of epoch and predict")
    parser.add_argument("--sizes", nargs="+", type=cli.positive_int, default=[1_000_000, 8_000_000], help="of scaling")
    parser.add_argument("--processes", nargs="+", type=cli.positive_int, default=[1, 2, 3, 4], help="of scaling")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="of scaling")
    parser.add_argument("--parts-folder", type=Path, help="where scaling leaves its parts, and finds them again")
    parser.add_argument("--only-cut", action="store_true", help="scaling fills the folder, and measures nothing")
    parser.add_argument("--cut-edges", type=cli.positive_int, default=10_000_000, help="of cut")
    parser.add_argument("--width", type=cli.positive_int, default=64)
    parser.add_argument("--layers", type=cli.positive_int, default=3)
    parser.add_argument("--layer", choices=worker.LAYERS, default="mean", help="how neighbours are summed")
    parser.add_argument("--epochs", type=cli.positive_int, default=5, help="that are timed, of every process")
    parser.add_argument("--rounds", type=cli.positive_int, default=3, help="turns of the contenders of epoch")
    names = list(CONTENDERS)
    parser.add_argument("--contenders", nargs="+", choices=names, default=names, metavar="NAME", help=f"of {names}")
    parser.add_argument("--method", choices=("metis", "range", "random"), default="range")
    parser.add_argument("--sample", type=float, default=1.0, help="of the edges, by which METIS cuts in cut")
    parser.add_argument("--coarsen", choices=("auto", "yes", "no"), default="auto", help="groups for METIS, in cut")
    parser.add_argument("--reuse-memory", action="store_true", help="with gsb.reuse_memory, as under a framework")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args(argv)
    if options.quick:
        options.edges, options.sizes, options.processes, options.epochs = 100_000, [100_000], [1, 2], 2
        options.cut_edges, options.rounds = 100_000, 1
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the tables, write ``distributed.json``."""
    options = arguments(argv)
    console = cli.start(options)
    results = run(options)
    written = machine.write_json(options.out / "distributed.json", results)
    show(results, console)
    console.print(f"written: {written}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
