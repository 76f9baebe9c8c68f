"""The convolutions of ``torch_geometric.nn.conv`` that sum, average or compare weighted messages of neighbours.

Under every aggregation they are in ``zoo_pyg_aggr``; attention, relations and geometry are in ``zoo_pyg_attention``,
several types of nodes in ``zoo_pyg_hetero``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch_geometric.nn as gnn
from torch import Tensor, nn
from torch_geometric import EdgeIndex

from tests.coverage.pyg.graphs import (
    EDGES,
    NODES,
    SOURCES,
    TARGETS,
    adjacency,
    batch,
    bipartite,
    isolated,
    no_edges,
    within_graphs,
)
from tests.coverage.report import Bound, Case, features

IN, OUT, HEADS = 6, 4, 2
SINGLE = (torch.float32,)  # layers that make float32 tensors of their own
X, X0 = features(NODES, IN), features(NODES, IN, seed=3)
W = features(EDGES, seed=1).abs() + 0.5  # a weight per edge
E = features(EDGES, 5, seed=2)  # features per edge
PAIR = {"x": features(SOURCES, IN), "y": features(TARGETS, 5, seed=1)}  # sources and targets of unlike widths
WEIGHTED = dict(x=X, w=W)


def conv(
    name: str,
    layer: Callable[[], nn.Module],
    call: Callable = lambda m, g: m.layer(m.x, g),
    graph: Callable = isolated,
    note: str = "",
    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32),
    **inputs: Tensor,
) -> Case:
    """A case of a layer on a graph; node features ``x`` where no inputs are given."""
    return Case(name, lambda: Bound(layer(), **(inputs or {"x": X})), lambda m: call(m, graph()), note, dtypes)


def weighted(m: nn.Module, g: Tensor) -> Tensor:
    return m.layer(m.x, g, m.w)


def on_edges(m: nn.Module, g: Tensor) -> Tensor:
    return m.layer(m.x, g, m.e)


def pair(m: nn.Module, g: Tensor) -> Tensor:
    return m.layer((m.x, m.y), g)


def sources(m: nn.Module, g: Tensor) -> Tensor:
    """Sources have features, targets have none."""
    return m.layer((m.x, None), g, size=(SOURCES, TARGETS))


def twice(m: nn.Module, g: Tensor, *rest) -> Tensor:
    """The second call meets what the first one cached."""
    return m.layer(m.x, g, *rest) + m.layer(m.x, g, *rest)


def on_matrix(layout: str, learned: bool = False) -> Callable:
    """A call with a sparse matrix; its entries are ``w``, for layers that look at them, or learned ones."""

    def call(m: nn.Module, g: Tensor) -> Tensor:
        return m.layer(m.x, adjacency(layout, m.w if learned else m.w.detach()))

    return call


def on_edge_index(order: str | None) -> Callable:
    def call(m: nn.Module, g: Tensor) -> Tensor:
        index = EdgeIndex(g, sparse_size=(NODES, NODES))
        return m.layer(m.x, index if order is None else index.sort_by(order, stable=True).values)

    return call


def linear(width: int = IN) -> nn.Module:
    return nn.Linear(width, OUT)


def mlp(width: int = IN) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, OUT))


AGGREGATIONS = ("sum", "mean", "max", "min", "mul", "std", "var", "median", "softmax", "powermean")


def _simple() -> list[Case]:
    cases = [conv(f"SimpleConv, {aggr}", lambda aggr=aggr: gnn.SimpleConv(aggr)) for aggr in AGGREGATIONS]
    cases += [
        conv(f"SimpleConv, {aggr}, edge weights", lambda aggr=aggr: gnn.SimpleConv(aggr), weighted, **WEIGHTED)
        for aggr in ("sum", "mean", "max", "min", "mul", "softmax")
    ]
    cases += [
        conv(f"SimpleConv, {aggr}, no edges", lambda aggr=aggr: gnn.SimpleConv(aggr), graph=no_edges)
        for aggr in ("sum", "mean", "max")
    ]
    cases += [
        conv(f"SimpleConv, root: {root}", lambda root=root: gnn.SimpleConv("mean", combine_root=root))
        for root in ("sum", "cat", "self_loop")
    ]
    cases += [
        conv(
            f"SimpleConv, matrix {layout}, {aggr}",
            lambda aggr=aggr: gnn.SimpleConv(aggr),
            on_matrix(layout),
            **WEIGHTED,
        )
        for layout in ("csr", "csc", "coo")
        for aggr in ("sum", "mean")
    ]
    proj = dict(mode="proj", mode_kwargs=dict(in_channels=IN, out_channels=OUT))
    attn = dict(mode="attn", mode_kwargs=dict(in_channels=IN, out_channels=IN, num_heads=2))
    return cases + [
        conv("SimpleConv, several", lambda: gnn.SimpleConv(["sum", "max", "std"])),
        conv("SimpleConv, several, projected", lambda: gnn.SimpleConv(["mean", "min"], aggr_kwargs=proj)),
        conv("SimpleConv, several, attention", lambda: gnn.SimpleConv(["mean", "max", "min"], aggr_kwargs=attn)),
        conv("SimpleConv, several, matrix csr", lambda: gnn.SimpleConv(["mean", "max"]), on_matrix("csr"), **WEIGHTED),
        conv("SimpleConv, learned softmax", lambda: gnn.SimpleConv(gnn.SoftmaxAggregation(learn=True))),
        conv("SimpleConv, target to source", lambda: gnn.SimpleConv("max", flow="target_to_source")),
        conv("SimpleConv, sources alone", lambda: gnn.SimpleConv("mean"), sources, bipartite, x=PAIR["x"]),
        conv("SimpleConv, edge index", lambda: gnn.SimpleConv("sum"), on_edge_index("row"), dtypes=SINGLE, x=X),
        conv("SimpleConv, batch of features", lambda: gnn.SimpleConv("sum"), x=features(3, NODES, IN)),
        conv("SimpleConv, heads", lambda: gnn.SimpleConv("mean", node_dim=0), x=features(NODES, HEADS, OUT)),
        conv("SimpleConv, one dimension", lambda: gnn.SimpleConv("sum", node_dim=0), x=features(NODES)),
        conv("SimpleConv, width 1", lambda: gnn.SimpleConv("mean"), x=features(NODES, 1)),
        conv("SimpleConv, odd width", lambda: gnn.SimpleConv("max"), x=features(NODES, 17)),
        conv(
            "SimpleConv, strided features",
            lambda: gnn.SimpleConv("sum"),
            lambda m, g: m.layer(m.x.t(), g),
            x=features(IN, NODES),
        ),
        conv(
            "SimpleConv, repeated features",
            lambda: gnn.SimpleConv("mean"),
            lambda m, g: m.layer(m.x.expand(NODES, IN), g),
            x=features(1, IN),
        ),
    ]


def _normalised() -> list[Case]:
    cases = [
        conv(f"GCNConv, {text}", lambda options=options: gnn.GCNConv(IN, OUT, **options), weighted, **WEIGHTED)
        for text, options in {
            "improved": dict(improved=True),
            "no self loops": dict(add_self_loops=False),
            "not normalised": dict(normalize=False),
            "max": dict(aggr="max"),
            "target to source": dict(flow="target_to_source"),
            "decomposed": dict(decomposed_layers=2),
        }.items()
    ]
    cases += [
        conv(f"GCNConv, matrix {layout}", lambda: gnn.GCNConv(IN, OUT), on_matrix(layout), **WEIGHTED)
        for layout in ("csr", "coo")
    ]
    cases += [
        conv(
            f"GCNConv, edge index {order or 'unsorted'}",
            lambda: gnn.GCNConv(IN, OUT),
            on_edge_index(order),
            dtypes=SINGLE,
            x=X,
        )
        for order in (None, "row", "col")
    ]
    cases += [
        conv(
            f"ChebConv, normalisation {kind}",
            lambda kind=kind: gnn.ChebConv(IN, OUT, 3, kind),
            lambda m, g: m.layer(m.x, g, m.w, lambda_max=torch.tensor(1.7, dtype=m.x.dtype)),
            **WEIGHTED,
        )
        for kind in ("rw", None)
    ]
    return cases + [
        conv("GCNConv", lambda: gnn.GCNConv(IN, OUT)),
        conv("GCNConv, edge weights", lambda: gnn.GCNConv(IN, OUT), weighted, **WEIGHTED),
        conv("GCNConv, wider output", lambda: gnn.GCNConv(OUT, IN), x=features(NODES, OUT)),
        conv("GCNConv, cached", lambda: gnn.GCNConv(IN, OUT, cached=True), twice),
        conv("GCNConv, width derived", lambda: gnn.GCNConv(-1, OUT)),
        conv("GCNConv, no edges", lambda: gnn.GCNConv(IN, OUT), graph=no_edges),
        conv("GCNConv, batch of features", lambda: gnn.GCNConv(IN, OUT), x=features(2, NODES, IN)),
        conv(
            "GCNConv, learned matrix", lambda: gnn.GCNConv(IN, OUT, normalize=False), on_matrix("coo", True), **WEIGHTED
        ),
        conv("ChebConv", lambda: gnn.ChebConv(IN, OUT, 3)),
        conv("ChebConv, one hop", lambda: gnn.ChebConv(IN, OUT, 1), note="one hop passes no messages"),
        conv(
            "ChebConv, several graphs",
            lambda: gnn.ChebConv(IN, OUT, 2),
            lambda m, g: m.layer(m.x, g, batch=batch(), lambda_max=torch.ones(4, dtype=m.x.dtype)),
            within_graphs,
        ),
        conv("TAGConv", lambda: gnn.TAGConv(IN, OUT, 2), weighted, **WEIGHTED),
        conv("SGConv", lambda: gnn.SGConv(IN, OUT, 2), weighted, **WEIGHTED),
        conv(
            "SGConv, cached",
            lambda: gnn.SGConv(IN, OUT, 2, cached=True),
            lambda m, g: m.layer(m.x.detach(), g) + m.layer(m.x.detach(), g),
        ),
        conv("SSGConv", lambda: gnn.SSGConv(IN, OUT, 0.1, 2), weighted, **WEIGHTED),
        conv("APPNP", lambda: gnn.APPNP(3, 0.1), weighted, **WEIGHTED),
        conv("APPNP, dropout of edges", lambda: gnn.APPNP(3, 0.1, 0.3)),
        conv("APPNP, matrix csr", lambda: gnn.APPNP(2, 0.1), on_matrix("csr"), **WEIGHTED),
        conv("ARMAConv", lambda: gnn.ARMAConv(IN, OUT, 2, 2, dropout=0.2), weighted, **WEIGHTED),
        conv("ARMAConv, shared weights", lambda: gnn.ARMAConv(IN, OUT, 3, 2, shared_weights=True)),
        conv("GCN2Conv", lambda: gnn.GCN2Conv(IN, 0.1, 0.5, 2), lambda m, g: m.layer(m.x, m.x0, g), x=X, x0=X0),
        conv(
            "GCN2Conv, edge weights",
            lambda: gnn.GCN2Conv(IN, 0.1, shared_weights=False),
            lambda m, g: m.layer(m.x, m.x0, g, m.w),
            x=X,
            x0=X0,
            w=W,
        ),
        conv("LGConv", gnn.LGConv, weighted, **WEIGHTED),
        conv("LGConv, not normalised", lambda: gnn.LGConv(normalize=False)),
        conv("ClusterGCNConv", lambda: gnn.ClusterGCNConv(IN, OUT, 0.2)),
        conv("MixHopConv", lambda: gnn.MixHopConv(IN, OUT, [0, 1, 2]), weighted, **WEIGHTED),
        conv("EGConv", lambda: gnn.EGConv(IN, OUT, ["sum", "mean", "symnorm", "max", "min", "std", "var"], 2, 3)),
        conv("EGConv, symnorm", lambda: gnn.EGConv(IN, OUT, ["symnorm"], 2, 3)),
        conv(
            "EGConv, matrix csr",
            lambda: gnn.EGConv(IN, OUT, ["sum", "mean"], 2, 3, add_self_loops=False),
            on_matrix("csr"),
            **WEIGHTED,
        ),
        conv("PDNConv", lambda: gnn.PDNConv(IN, OUT, 5, 8), on_edges, x=X, e=E),
        conv("WLConvContinuous", gnn.WLConvContinuous, weighted, **WEIGHTED),
        conv("AntiSymmetricConv", lambda: gnn.AntiSymmetricConv(IN, num_iters=2)),
        conv("AntiSymmetricConv, own convolution", lambda: gnn.AntiSymmetricConv(IN, gnn.SAGEConv(IN, IN))),
        conv("DirGNNConv", lambda: gnn.DirGNNConv(gnn.SAGEConv(IN, OUT))),
        conv("DirGNNConv, GCN", lambda: gnn.DirGNNConv(gnn.GCNConv(IN, OUT, add_self_loops=False), root_weight=False)),
        conv(
            "HypergraphConv",
            lambda: gnn.HypergraphConv(IN, OUT),
            lambda m, g: m.layer(m.x, g, m.w),
            bipartite,
            x=features(SOURCES, IN),
            w=features(TARGETS - 1, seed=1).abs() + 0.5,
        ),
        *(
            conv(
                f"HypergraphConv, attention by {mode}",
                lambda mode=mode: gnn.HypergraphConv(IN, OUT, True, mode, HEADS, concat=mode == "node"),
                lambda m, g: m.layer(m.x, g, hyperedge_attr=m.y, num_edges=TARGETS),
                bipartite,
                x=features(SOURCES, IN),
                y=features(TARGETS, IN, seed=1),
            )
            for mode in ("node", "edge")
        ),
    ]


CASES = _simple() + _normalised()
