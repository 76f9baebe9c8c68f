"""Full-graph training at the size of ogbn-products in little memory: ``python -m benchmarks.large``.

2.4 million nodes, 124 million edges, 100 features, three layers of 256, by default a sixteenth of that: ``--scale 1``
is the whole. Each network trains in a process of its own, alone and on the backend; peaks are the kernel's account of
that process, with Python, PyTorch, the graph and the features. The graph is generated, once, below ``--data``.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from rich.console import Console

from benchmarks.large import data
from benchmarks.large.epoch import Cell, train
from benchmarks.support import cli, machine, memory, report

NETWORKS = ("pyg-sage", "pyg-gcn", "pyg-gat", "dgl-sage")
CONTENDERS = {"backend": True, "alone": False}
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
    parser.add_argument("--scale", type=scale_of, default=Fraction(1, 16), help="of the graph; 1 is the whole")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--contenders", nargs="+", choices=tuple(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--epochs", type=cli.positive_int, default=2, help="of each; the least time counts")
    parser.add_argument("--limit", type=float, default=20.0, help="GiB that a process may ask for")
    parser.add_argument("--threads", type=cli.positive_int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=Path("out/large"), help="folder of the generated graphs")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of large.json")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Generate what is missing, run, print the table, and write ``large.json``. 0, or 1 if nothing is installed."""
    options, console = arguments(argv), Console()
    frameworks = cli.installed(dict.fromkeys(each.partition("-")[0] for each in options.networks), console)
    networks = [each for each in options.networks if each.partition("-")[0] in frameworks]
    if not networks:
        console.print("[red]nothing to run[/]")
        return 1
    files = data.files(options.data, options.scale, options.seed)
    memory.in_child(data.write, files, options.scale, options.seed)
    nodes, edges = data.sizes(options.scale)
    results = {
        "machine": machine.describe(options.threads),
        "scale": str(options.scale),
        "nodes": nodes,
        "edges": edges,
        "limit": options.limit,
        "cells": [],
    }
    for network, contender in itertools.product(networks, options.contenders):
        framework, _, kind = network.partition("-")
        limit = int(options.limit * GIB)
        cell = Cell(framework, kind, CONTENDERS[contender], options.threads, options.epochs, options.seed, limit)
        try:
            found = memory.in_child(train, files, cell)
        except memory.CannotMeasure as error:
            found = {"fits": False, "why": str(error)}
        results["cells"].append({"network": network, "contender": contender, **found})
        machine.write_json(options.out / "large.json", results)
    show(results, console)
    return 0


def show(results: dict, console: Console) -> None:
    """The table of times and peaks."""
    console.print(machine.one_line(results["machine"]))
    if (warning := machine.busy(results["machine"])) is not None:
        console.print(f"[yellow]{warning}[/]")
    table = report.table(
        f"{results['nodes']:,} nodes, {results['edges']:,} edges, {results['scale']} of the whole",
        ("network", "contender"),
        ("peak, GiB", "epoch, s", "ns an edge", "graph, s", "last loss"),
    )
    for cell in results["cells"]:
        names = cell["network"], cell["contender"]
        if not cell["fits"]:
            table.add_row(*names, f"more than {results['limit']:g}", "", "", "", "")
            continue
        least = min(cell["epochs"])
        table.add_row(
            *names,
            f"{cell['peak'] / GIB:.2f}",
            f"{least:.2f}",
            f"{least / results['edges'] * 1e9:.1f}",
            f"{cell['graph']:.2f}",
            f"{cell['losses'][-1]:.6f}",
        )
    console.print(table)


if __name__ == "__main__":
    raise SystemExit(main())
