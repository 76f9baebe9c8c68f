"""What each order of a relational product costs, and how good the planner's choice is: ``python -m
benchmarks.layers.rgcn.orders``.

Run by itself it prints, for each graph and width, the orders of one product and of its gradients, and with ``--bases``
a product whose matrices are combinations of bases, beside the same with the matrices of all relations at once. ``python
-m benchmarks.rgcn`` measures the first beside its networks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

import torch

import gnn_sparse_backend as gsb
from benchmarks.layers.rgcn.graphs import RECIPES, RelationalGraph, load_available
from benchmarks.support import cli, machine
from benchmarks.support.timing import Rules, interleaved
from gnn_sparse_backend.ops.relational.executables import run_sum
from gnn_sparse_backend.ops.relational.operators import traced_rel_graph
from gnn_sparse_backend.planner.cpu import relational as relational_rules
from gnn_sparse_backend.planner.cpu.relational import ORDERS

PLANNED, FORWARD = "planned", "product"


def order_calls(graph: RelationalGraph, features: int, seed: int) -> dict[str, dict[str, Callable]]:
    """``{product: {order: call}}`` of one product with means and of its gradients; ``planned`` is the planner's own
    choice.
    """
    rel, x, generator = _problem(graph, features, seed)
    w = torch.randn(graph.num_relations, 1, features, features, generator=generator) / features**0.5
    cotangent = torch.randn(graph.nodes, features, generator=generator)

    def product(order: str, transposed: bool = False) -> Callable:
        operand, matrices = (cotangent, w.transpose(2, 3)) if transposed else (x, w)
        # the graph has to live: what an operator gets are its arrays alone
        head = traced_rel_graph(rel).arguments
        return lambda: torch.ops.gsb.rgms_product(*head, operand, matrices, None, True, transposed, order)

    def sums(by: str | None) -> Callable:
        return lambda: run_sum(rel, x, cotangent, 1, None, True, False, by)

    orders = {PLANNED: ""} | {order: order for order in ORDERS}
    return {
        FORWARD: {name: product(order) for name, order in orders.items()},
        "gradient of x": {name: product(order, True) for name, order in orders.items()},
        "gradient of W": {PLANNED: sums(None), "rows": sums("rows"), "columns": sums("columns")},
    }


def basis_calls(graph: RelationalGraph, features: int, bases: int, seed: int) -> dict[str, dict[str, Callable]]:
    """``{product: {way: call}}`` of one product with means whose matrices are combinations of so many bases: as it is,
    and with all of them made before."""
    rel, x, generator = _problem(graph, features, seed)
    comp = torch.randn(graph.num_relations, bases, generator=generator)
    matrices = torch.randn(bases, features, features, generator=generator) / features**0.5
    made = lambda: (comp @ matrices.flatten(1)).unflatten(1, matrices.shape[1:])
    return {
        FORWARD: {
            PLANNED: lambda: gsb.rgms(rel, x, (comp, matrices), reduce="mean"),
            "all matrices made": lambda: gsb.rgms(rel, x, made(), reduce="mean"),
        }
    }


def _problem(graph: RelationalGraph, features: int, seed: int) -> tuple[gsb.RelGraph, torch.Tensor, torch.Generator]:
    rel = gsb.RelGraph.from_triples(
        *(torch.from_numpy(a) for a in (graph.source, graph.destination, graph.relation)),
        (graph.nodes, graph.nodes),
        graph.num_relations,
    )
    generator = torch.Generator().manual_seed(seed)
    return rel, torch.randn(graph.nodes, features, generator=generator), generator


def measure(
    graph: RelationalGraph, features: int, budget: float, seed: int = 0, bases: int = 0
) -> dict[str, dict[str, float]]:
    """``{product: {order: median seconds}}``; with ``bases``, of the ways of bases."""
    calls = basis_calls(graph, features, bases, seed) if bases else order_calls(graph, features, seed)
    found = {}
    with torch.no_grad():
        for product, orders in calls.items():
            # every order stays in the race: each is a result
            timed = interleaved(orders, Rules(budget_s=budget / len(calls), min_rounds=3, hopeless=1e9, slow=1e9))
            found[product] = {order: timing.median for order, timing in timed.items()}
    return found


def regret(products: Mapping[str, Mapping[str, float]]) -> float:
    """What the products took as planned over what they took by the best order of each, minus one."""
    return (
        sum(seconds[PLANNED] for seconds in products.values())
        / sum(min(seconds.values()) for seconds in products.values())
        - 1
    )


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=300.0)
    parser.add_argument("--graphs", nargs="+", choices=tuple(RECIPES), default=["aifb", "mutag", "wordnet", "bgs"])
    parser.add_argument("--features", nargs="+", type=cli.positive_int, default=[16, 32, 64, 128], metavar="F")
    parser.add_argument(
        "--bases", nargs="+", type=cli.positive_int, default=[], metavar="B", help="numbers of bases, in turn"
    )
    parser.add_argument(
        "--whole-bytes",
        type=int,
        metavar="N",
        default=relational_rules.WHOLE_BYTES,
        help="matrices of more bytes are copied tile by tile; 0 copies all",
    )
    options = parser.parse_args(argv)
    if options.quick:
        options.graphs, options.features, options.budget = ["aifb"], [32], min(options.budget, 10.0)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print a line for each case, write ``rgcn_orders.json``. 1 if nothing ran, else 0."""
    options = arguments(argv)
    console = cli.start(options)
    relational_rules.WHOLE_BYTES = options.whole_bytes
    cases = [(width, bases) for width in options.features for bases in options.bases or [0]]
    share, found = options.budget / (len(options.graphs) * len(cases)), []
    for graph in load_available(options.graphs, options.seed):
        if not isinstance(graph, RelationalGraph):
            console.print(f"[yellow]{graph[0]} skipped:[/] {graph[1]}")
            continue
        for width, bases in cases:
            several = f", {bases} bases" if bases else ""
            for product, seconds in measure(graph, width, share, options.seed, bases).items():
                cell = {
                    "graph": graph.name,
                    "features": width,
                    "bases": bases,
                    "product": product,
                    "seconds": seconds,
                    "regret": regret({product: seconds}),
                }
                found.append(cell)
                times = ", ".join(f"{order} {1e3 * taken:.3g} ms" for order, taken in seconds.items())
                console.print(
                    f"{graph.name}, F = {width}{several}, {product}: {times}; regret {cell['regret']:.0%}",
                    highlight=False,
                )
    machine.write_json(
        options.out / "rgcn_orders.json",
        {"machine": machine.describe(options.threads), "whole_bytes": options.whole_bytes, "cells": found},
    )
    return 0 if found else 1


if __name__ == "__main__":
    raise SystemExit(main())
