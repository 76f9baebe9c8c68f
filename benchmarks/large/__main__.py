"""Full-graph training at the size of ogbn-products in little memory: ``python -m benchmarks.large``.

2.4 million nodes, 124 million edges, 100 features, three layers of 256, by default a sixteenth of that. The whole, how
much longer an edge takes than at a sixteenth, and the frameworks alone at an eighth and a quarter:

    python -m benchmarks.large --scale 1/16 1 --epochs 2 1 --alone 1/8 1/4

Each network trains in a process of its own; peaks are the kernel's account of that process, with Python, PyTorch, the
graph and the features. Graphs are generated, once, below ``--data``, each by a process that takes 5 GiB for the whole.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from benchmarks.large import data
from benchmarks.large.epoch import Cell, train
from benchmarks.support import cli, machine, memory, report

NETWORKS = ("pyg-sage", "pyg-gcn", "pyg-gat", "dgl-sage")
GIB = 1 << 30


def scale_of(text: str) -> Fraction:
    """A share of the whole, above 0 and at most 1."""
    try:
        scale = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"{text!r} is no fraction such as 1/16") from None
    if not 0 < scale <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return scale


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.large",
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--scale",
        type=scale_of,
        nargs="+",
        default=[Fraction(1, 16)],
        help="of the graph, on the backend; 1 is the whole",
    )
    parser.add_argument("--alone", type=scale_of, nargs="*", default=[], help="of the graph, for the frameworks alone")
    parser.add_argument("--models", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument(
        "--epochs", type=cli.positive_int, nargs="+", default=[2], help="of each scale in turn; the least time counts"
    )
    parser.add_argument("--limit", type=float, default=20.0, help="GiB that a process may ask for")
    parser.add_argument("--threads", type=cli.positive_int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=Path("out/large"), help="folder of the generated graphs")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of large.json")
    return parser.parse_args(argv)


class Run(NamedTuple):
    """One network on one graph. backend: whether ours is under it."""

    network: str
    scale: Fraction
    backend: bool
    epochs: int


def runs(options: argparse.Namespace, networks: Sequence[str]) -> Iterator[Run]:
    """All that is asked for, scale by scale: those on the backend first."""
    epochs = itertools.chain(options.epochs, itertools.repeat(options.epochs[-1]))
    for scale, many in zip(options.scale, epochs):
        yield from (Run(network, scale, True, many) for network in networks)
    for scale in options.alone:
        yield from (Run(network, scale, False, options.epochs[-1]) for network in networks)


def main(argv: Sequence[str] | None = None) -> int:
    """Generate what is missing, run, print the table, and write ``large.json`` after each run. 0, or 1 if nothing is
    installed.
    """
    options, console = arguments(argv), Console()
    frameworks = cli.installed(dict.fromkeys(each.partition("-")[0] for each in options.models), console)
    networks = [each for each in options.models if each.partition("-")[0] in frameworks]
    if not networks:
        console.print("[red]nothing to run[/]")
        return 1
    results: dict = {"machine": machine.describe(options.threads), "limit": options.limit, "cells": []}
    for run in runs(options, networks):
        files = data.files(options.data, run.scale, options.seed)
        memory.in_child(data.write, files, run.scale, options.seed)
        framework, _, kind = run.network.partition("-")
        cell = Cell(framework, kind, run.backend, options.threads, run.epochs, options.seed, int(options.limit * GIB))
        try:
            found = memory.in_child(train, files, cell)
        except memory.CannotMeasure as error:
            found = {"fits": False, "why": str(error)}
        nodes, edges = data.sizes(run.scale)
        about = {"network": run.network, "contender": "backend" if run.backend else "alone", "scale": str(run.scale)}
        results["cells"].append({**about, "nodes": nodes, "edges": edges, **found})
        machine.write_json(options.out / "large.json", results)
        last = results["cells"][-1]
        console.print(run.network, about["contender"], about["scale"], *(_cells(last, results)[3:]), markup=False)
    show(results, console)
    return 0


def show(results: dict, console: Console) -> None:
    """The table of times and peaks."""
    console.print(machine.one_line(results["machine"]))
    if (warning := machine.busy(results["machine"])) is not None:
        console.print(f"[yellow]{warning}[/]")
    table = report.table(
        f"{data.NODES:,} nodes and {data.EDGES:,} edges are the whole",
        ("network", "contender", "of the whole"),
        ("peak, GiB", "graph, s", "epoch, s", "forward", "backward", "ns an edge", "of the smallest", "last loss"),
    )
    for cell in results["cells"]:
        table.add_row(*_cells(cell, results))
    console.print(table)


def _cells(cell: dict, results: dict) -> tuple[str, ...]:
    """What stands in a row of the table."""
    names = cell["network"], cell["contender"], cell["scale"]
    if not cell["fits"]:
        return *names, f"more than {results['limit']:g}", *[""] * 7
    own = time_of_edge(cell)
    alike = [each for each in results["cells"] if each["fits"] and _kind(each) == _kind(cell)]
    smallest = min(alike, key=lambda each: each["edges"])
    return (
        *names,
        f"{cell['peak'] / GIB:.2f}",
        f"{cell['graph']:.1f}",
        f"{min(cell['epochs']):.2f}",
        *(f"{min(each[part] for each in cell['parts']):.2f}" for part in ("forward", "backward")),
        f"{own * 1e9:.1f}",
        f"{own / time_of_edge(smallest):.2f}",
        f"{cell['losses'][-1]:.6f}",
    )


def time_of_edge(cell: dict) -> float:
    """Seconds of the fastest epoch by its edges."""
    return min(cell["epochs"]) / cell["edges"]


def _kind(cell: dict) -> tuple[str, str]:
    return cell["network"], cell["contender"]


if __name__ == "__main__":
    raise SystemExit(main())
