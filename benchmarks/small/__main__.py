"""Layers on small graphs, with and without the backend: ``python -m benchmarks.small``.

Batches of molecules and a sampled block, 32 features, on a graph that is known and on one that is new at every call.
Two processes, one with the backend, take turns; a cell is the median of its turns. What a loader does is not timed;
whatever is derived of a graph is.
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.small import batches, layers
from benchmarks.small.worker import Cell, work
from benchmarks.support import cli, machine, report

TURNS = 9
CLOSE = 2e-3


def cells(frameworks, sizes, modes, threads) -> Iterator[Cell]:
    for framework, count in itertools.product(frameworks, threads):
        for mode in modes:
            kinds = layers.LOOPS if mode == "training" else layers.LAYERS
            for layer, size, graph in itertools.product(kinds[framework], sizes, ("new", "known")):
                if mode == "training" and (graph == "known" or size in (batches.BLOCK, "1 molecule")):
                    continue
                if layers.possible(layer, size):
                    yield Cell(framework, layer, size, graph, mode, count)


class Pair:
    """Two processes of a framework, without and with the backend."""

    def __init__(self, framework: str):
        context = multiprocessing.get_context("spawn")
        self.ends = []
        for ours in (False, True):
            here, there = context.Pipe()
            context.Process(target=work, args=(there, framework, ours), daemon=True).start()
            self.ends.append(here)

    def ask(self, what) -> list:
        """What both answer, one after the other."""
        found = []
        for end in self.ends:
            end.send(what)
            found.append(end.recv())
        return found

    def end(self) -> None:
        for end in self.ends:
            end.send("end")


def measure(pair: Pair, cell: Cell, turns: int) -> dict:
    """One cell, as plain values: seconds of a call alone and with the backend."""
    alone, ours = pair.ask(tuple(cell))
    same = len(alone) == len(ours) and all(
        np.allclose(a, b, rtol=CLOSE, atol=CLOSE * max(1.0, float(np.abs(a).max(initial=0))))
        for a, b in zip(alone, ours)
    )
    times = list(zip(*(pair.ask(None) for _ in range(turns + 2))))
    a, b = (statistics.median(each[2:]) for each in times)
    return {**cell._asdict(), "alone": a, "ours": b, "speedup": a / b if same else None}


def memory(frameworks, batches_of: int) -> list[dict]:
    """Training on new batches: bytes of a fresh process without and with the backend in the end, and what they grew."""
    found = []
    for framework in frameworks:
        for layer in ("GIN", "GCN", "GAT"):
            pair = Pair(framework)
            pair.ask(tuple(Cell(framework, layer, "32 molecules", "new", "training", 1)))
            alone, ours = pair.ask(batches_of)
            pair.end()
            found.append({"framework": framework, "layer": layer, "alone": alone, "ours": ours})
    return found


def show_memory(found: list[dict], batches_of: int, console) -> None:
    heading = ("in the end, alone, MB", "ours", "grown, alone, MB", "ours")
    table = report.table(f"memory of a process after {batches_of:,} new batches", ("framework", "layer"), heading)
    for each in found:
        numbers = (each["alone"][0], each["ours"][0], each["alone"][1], each["ours"][1])
        table.add_row(each["framework"], each["layer"], *(f"{n / 1e6:,.0f}" for n in numbers))
    console.print(table)


def run(chosen: list[Cell], turns: int, begin: Callable[[str], None] = lambda cell: None) -> list[dict]:
    """All cells."""
    measured, pairs = [], {}
    for cell in chosen:
        begin(", ".join(map(str, cell)))
        if cell.framework not in pairs:
            pairs[cell.framework] = Pair(cell.framework)
        measured.append(measure(pairs[cell.framework], cell, turns))
    for pair in pairs.values():
        pair.end()
    return measured


def geometric_mean(found: list[dict]) -> float:
    ratios = [cell["speedup"] for cell in found if cell["speedup"]]
    return statistics.geometric_mean(ratios) if ratios else float("nan")


def show(measured: list[dict], console) -> None:
    """A row for each layer and size, microseconds alone / with us and the ratio; then the means."""
    kinds = sorted({(cell["graph"], cell["mode"]) for cell in measured}, key=lambda k: (k[1], k[0] == "known"))
    for framework, threads in dict.fromkeys((cell["framework"], cell["threads"]) for cell in measured):
        own = [c for c in measured if (c["framework"], c["threads"]) == (framework, threads)]
        title = f"{framework}, {threads} thread{'s' * (threads > 1)}: microseconds alone / with the backend, ratio"
        table = report.table(title, ("layer", "size"), [f"{graph}, {mode}" for graph, mode in kinds])
        for layer, size in dict.fromkeys((c["layer"], c["size"]) for c in own):
            row = {(c["graph"], c["mode"]): c for c in own if (c["layer"], c["size"]) == (layer, size)}
            table.add_row(layer, size, *(_entry(row.get(kind)) for kind in kinds))
        console.print(table)
    for kind in kinds:
        own = [c for c in measured if (c["graph"], c["mode"]) == kind]
        console.print(f"{', '.join(kind)}: geometric mean {geometric_mean(own):.2f}, least {_least(own)}")
    wrong = [c for c in measured if c["speedup"] is None]
    low = sum(c["speedup"] < 0.97 for c in measured if c["speedup"])
    console.print(
        f"all {len(measured)} cells: geometric mean {geometric_mean(measured):.2f}, {low} under 0.97, "
        f"{len(wrong)} wrong"
    )


def _least(found: list[dict]) -> str:
    least = min((c for c in found if c["speedup"]), key=lambda c: c["speedup"])
    return (
        f"{least['speedup']:.2f} ({least['framework']} {least['layer']}, {least['size']}, {least['threads']} threads)"
    )


def _entry(cell: dict | None) -> str:
    if cell is None:
        return report.MISSING
    if cell["speedup"] is None:
        return "[red]wrong[/]"
    mark = "[red]" if cell["speedup"] < 0.97 else ""
    return f"{cell['alone'] * 1e6:.0f} / {cell['ours'] * 1e6:.0f} {mark}{cell['speedup']:.2f}"


def main() -> None:
    parser = cli.parser(__doc__, budget=900.0)
    sizes = (*batches.SIZES, batches.BLOCK)
    parser.add_argument("--frameworks", nargs="+", choices=tuple(cli.FRAMEWORKS), default=["pyg", "dgl"])
    parser.add_argument("--layers", nargs="+", help="by default all")
    parser.add_argument("--sizes", nargs="+", choices=sizes, default=list(sizes))
    parser.add_argument("--modes", nargs="+", choices=("inference", "step", "training"), default=None)
    parser.add_argument(
        "--memory",
        type=int,
        default=0,
        metavar="BATCHES",
        help="measure memory after this number of new batches, and no times",
    )
    parser.add_argument("--turns", type=cli.positive_int, default=TURNS)
    parser.add_argument("--all-threads", type=cli.positive_int, nargs="+", default=[1, 2], help="numbers of threads")
    options = parser.parse_args()
    console = cli.start(options)
    frameworks = cli.installed(options.frameworks, console)
    if options.memory:
        show_memory(memory(frameworks, options.memory), options.memory, console)
        return
    threads = options.all_threads[:1] if options.quick else options.all_threads
    chosen = [
        cell
        for cell in cells(frameworks, options.sizes, options.modes or ("training", "inference", "step"), threads)
        if options.layers is None or cell.layer in options.layers
    ]
    if options.quick:
        chosen = [cell for cell in chosen if cell.size == "32 molecules"]
    with report.progress(console, len(chosen)) as begin:
        measured = run(chosen, options.turns, begin)
    show(measured, console)
    found = {"machine": machine.describe(options.threads), "cells": measured}
    console.print(f"written: {machine.write_json(options.out / 'small.json', found)}")


if __name__ == "__main__":
    main()
