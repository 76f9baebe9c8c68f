"""What each order of a relational product costs, and how good the planner's choice is."""

from __future__ import annotations

from collections.abc import Callable

import torch

import gnn_sparse_backend as gsb
from benchmarks.rgcn_graphs import RelationalGraph
from benchmarks.timing import Rules, interleaved
from gnn_sparse_backend.ops.rgms_library import structure
from gnn_sparse_backend.planner.rgms import ORDERS

PLANNED = "planned"


def order_calls(graph: RelationalGraph, features: int, seed: int) -> dict[str, Callable]:
    """``{order: call}`` of one product with means; ``planned`` is the planner's own choice."""
    rel = gsb.RelGraph.from_triples(*(torch.from_numpy(a) for a in (graph.source, graph.destination, graph.relation)),
                                    (graph.nodes, graph.nodes), graph.num_relations)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(graph.nodes, features, generator=generator)
    w = torch.randn(graph.num_relations, 1, features, features, generator=generator) / features ** 0.5

    def call(order: str) -> Callable:
        # the graph has to live: what an operator gets are its arrays alone
        return lambda: torch.ops.gsb.rgms_product(*structure(rel), x, w, None, True, False, order)

    return {PLANNED: call("")} | {order: call(order) for order in ORDERS}


def measure(graph: RelationalGraph, features: int, budget: float, seed: int = 0) -> dict:
    """``{"seconds": {order: median}, "regret": planned over the best, minus one}``."""
    with torch.no_grad():
        # every order stays in the race: each is a result
        rules = Rules(budget_s=budget, min_rounds=3, hopeless=1e9, slow=1e9)
        timed = interleaved(order_calls(graph, features, seed), rules)
    seconds = {order: timing.median for order, timing in timed.items()}
    return {"seconds": seconds, "regret": seconds[PLANNED] / min(seconds.values()) - 1}
