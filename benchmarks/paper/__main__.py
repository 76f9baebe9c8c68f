"""The tables of SparseTIR as ours: ``python -m benchmarks.paper``.

Four parts, each with a page of tables and a figure: how much formats pad (its tables 1 and 2); cache misses by column
partitions (its figure 12), counted where the processor lets us, else simulated; SpMM format by format against torch,
DGL and PyG; and the thresholds of Huang et al. beside our cost model.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.layers.rgcn import graphs as relational
from benchmarks.paper import durations, padding, parts, sheets, thresholds
from benchmarks.support import cli, graphs, machine, report
from benchmarks.support.budget import Budget, weight
from gnn_sparse_backend.formats.hyb import MAX_EXPONENT
from gnn_sparse_backend.planner.database import PlanDatabase, database

RELATIONAL = tuple(name for name in relational.RECIPES if name != "am")
FEATURES = (32, 64, 128)
LEAST_SECONDS = 0.2


def run(name: str, part: parts.Part, options: argparse.Namespace, console: Console) -> dict:
    """The report of a part as plain values, which is written after every place."""
    path, described = options.out / f"paper_{name}.json", machine.describe(options.threads)
    found: list[dict] = []
    skipped: dict[str, str] = {}
    weights = {place: weight(place.edges, place.features) for place in part.wanted}
    timed = sum(parts.SHARES[each] for each in options.parts)
    shares = Budget(options.budget * parts.SHARES[name] / max(timed, 1e-9), weights)
    loaded: dict[tuple[str, bool], object] = {}

    def so_far() -> dict:
        return {"machine": described, "cells": found, "skipped": skipped, "summary": part.summarise(found)}

    with report.progress(console, len(part.wanted)) as begin:
        for place in part.wanted:
            begin(f"{name}: {place}")
            share, key = shares.take(place, LEAST_SECONDS), (place.graph, place.relational)
            if key not in loaded:
                start = time.perf_counter()
                loaded.clear()  # one at a time
                try:
                    loaded[key] = place.load(options.seed)
                except graphs.Unavailable as missing:
                    skipped[place.graph] = str(missing)
                    continue
                shares.pause(time.perf_counter() - start)
            found += part.measure(loaded[key], place, share, shares.pause)
            machine.write_json(path, so_far())
    return so_far()


def publish(name: str, part: parts.Part, results: dict, options: argparse.Namespace, console: Console) -> None:
    """Print the tables, and write them with their figure."""
    cells = results["cells"]
    console.rule(part.title)
    for name_of_graph, why in results["skipped"].items():
        console.print(f"[yellow]{name_of_graph} skipped:[/] {why}")
    if not cells:
        return
    tables = part.sheets(cells)
    for table in tables:
        table.show(console)
    folder = options.pages or options.out
    figure = report.draw_ratios(part.panels(cells), part.axis, folder / f"paper-{name}.svg", part.figure)
    command = f"python -m benchmarks.paper --parts {name}"
    page = sheets.write(
        folder / f"paper-{name}.md", part.title, command, part.about, results["machine"], tables, figure
    )
    console.print(f"written: {options.out / f'paper_{name}.json'}, {page}, {figure}")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=240.0)
    graphs.add_arguments(parser)
    parser.set_defaults(graphs=[name for name in graphs.DEFAULT if graphs.RECIPES[name].edges < graphs.KEPT_EDGES])
    parser.add_argument("--parts", nargs="+", choices=tuple(parts.PARTS), default=list(parts.PARTS))
    parser.add_argument(
        "--relational", nargs="*", choices=tuple(relational.RECIPES), default=list(RELATIONAL), help="for 3-D hyb"
    )
    parser.add_argument("--features", nargs="+", type=cli.positive_int, default=list(FEATURES))
    parser.add_argument("--widths", nargs="+", type=cli.positive_int, default=list(thresholds.WIDTHS), help="of rules")
    parser.add_argument("--partitions", nargs="+", type=cli.positive_int, default=list(padding.PARTITIONS), metavar="C")
    parser.add_argument("--exponents", nargs="+", type=int, default=list(padding.EXPONENTS), metavar="K")
    parser.add_argument(
        "--formats", nargs="+", default=[*durations.FORMATS, *durations.MORE_FORMATS], metavar="WORDS", help="timed"
    )
    parser.add_argument("--sets", type=cli.positive_int, default=4, help="of the first level's that are simulated")
    parser.add_argument("--pages", type=Path, metavar="FOLDER", help="for pages and figures; by default that of --out")
    options = parser.parse_args(argv)
    options.graphs = graphs.chosen(options)
    if any(not 0 <= k <= MAX_EXPONENT for k in options.exponents):
        parser.error(f"--exponents are from 0 to {MAX_EXPONENT}, got {options.exponents}")
    if options.quick:
        options.graphs, options.relational, options.features = ["pubmed"], ["aifb"], [32]
        options.widths, options.budget = [4, 32], min(options.budget, 15.0)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts; write ``paper_PART.json``, ``paper-PART.md`` and ``paper-PART.svg``. 1 if an answer was wrong."""
    options = arguments(argv)
    console = cli.start(options)
    wrong = False
    # knowing nothing that was measured before
    with tempfile.TemporaryDirectory() as scratch, database.using(PlanDatabase(Path(scratch) / "plans.json")):
        for name in options.parts:
            part = parts.of(name, options)
            results = run(name, part, options, console)
            publish(name, part, results, options, console)
            for cell in results["summary"]["wrong"]:
                console.print(f"[red]WRONG: {cell['where']}: {cell['reason']}[/]")
                wrong = True
    return int(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
