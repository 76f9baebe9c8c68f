"""The convolutions of ``zoo_pyg_conv`` under every aggregation, and with sources and targets of their own."""

from __future__ import annotations

import torch
import torch_geometric.nn as gnn

from tests.coverage.pyg.conv import (
    AGGREGATIONS,
    IN,
    OUT,
    PAIR,
    SINGLE,
    WEIGHTED,
    E,
    W,
    X,
    conv,
    linear,
    mlp,
    on_edge_index,
    on_edges,
    on_matrix,
    pair,
    sources,
    weighted,
)
from tests.coverage.pyg.graphs import LINKS, NODES, TARGETS, batch, bipartite, by_target, draw, square, with_stand_ins
from tests.coverage.report import Bound, Case, features


def _aggregators() -> list[Case]:
    cases = [conv(f"SAGEConv, {aggr}", lambda aggr=aggr: gnn.SAGEConv(IN, OUT, aggr)) for aggr in AGGREGATIONS]
    cases += [
        conv(
            f"SAGEConv, {aggr}",
            lambda aggr=aggr: gnn.SAGEConv(IN, OUT, aggr, aggr_kwargs=dict(in_channels=IN, out_channels=IN)),
            graph=by_target,
        )
        for aggr in ("lstm", "gru")
    ]
    cases += [
        conv(f"GINConv, {aggr}", lambda aggr=aggr: gnn.GINConv(mlp(), train_eps=True, aggr=aggr))
        for aggr in ("sum", "mean", "max")
    ]
    cases += [
        conv(f"GraphConv, {aggr}", lambda aggr=aggr: gnn.GraphConv(IN, OUT, aggr), weighted, **WEIGHTED)
        for aggr in ("sum", "mean", "max", "min")
    ]
    cases += [
        conv(f"EdgeConv, {aggr}", lambda aggr=aggr: gnn.EdgeConv(mlp(2 * IN), aggr)) for aggr in ("max", "mean", "sum")
    ]
    cases += [
        conv(f"{kind.__name__}, matrix {layout}", lambda kind=kind: kind(IN, OUT), on_matrix(layout), **WEIGHTED)
        for kind in (gnn.SAGEConv, gnn.GraphConv)
        for layout in ("csr", "coo")
    ]
    degrees = torch.tensor([2, 1, 1, 2, 2, 3, 1])
    return cases + [
        conv("SAGEConv, several", lambda: gnn.SAGEConv(IN, OUT, ["mean", "max", "std"])),
        conv("SAGEConv, projected, normalised", lambda: gnn.SAGEConv(IN, OUT, project=True, normalize=True)),
        conv("SAGEConv, no root", lambda: gnn.SAGEConv(IN, OUT, root_weight=False)),
        conv("SAGEConv, bipartite", lambda: gnn.SAGEConv((IN, 5), OUT), pair, bipartite, **PAIR),
        conv("SAGEConv, max, bipartite", lambda: gnn.SAGEConv((IN, 5), OUT, "max"), pair, bipartite, **PAIR),
        conv("SAGEConv, sources alone", lambda: gnn.SAGEConv((IN, 5), OUT), sources, bipartite, x=PAIR["x"]),
        conv("SAGEConv, widths derived", lambda: gnn.SAGEConv((-1, -1), OUT), pair, bipartite, **PAIR),
        conv(
            "SAGEConv, sampled",
            lambda: gnn.SAGEConv(IN, OUT),
            lambda m, g: m.layer((m.x, m.x[:TARGETS]), g),
            bipartite,
            x=PAIR["x"],
        ),
        conv("SAGEConv, edge index", lambda: gnn.SAGEConv(IN, OUT), on_edge_index("col"), dtypes=SINGLE, x=X),
        conv("GraphConv, bipartite", lambda: gnn.GraphConv((IN, 5), OUT), pair, bipartite, **PAIR),
        conv(
            "GraphConv, bipartite, edge weights",
            lambda: gnn.GraphConv((IN, 5), OUT, "mean"),
            lambda m, g: m.layer((m.x, m.y), g, m.w),
            bipartite,
            **PAIR,
            w=W[:LINKS],
        ),
        conv(
            "GINConv, bipartite",
            lambda: gnn.GINConv(mlp()),
            pair,
            bipartite,
            x=PAIR["x"],
            y=features(TARGETS, IN, seed=1),
        ),
        conv("GINEConv", lambda: gnn.GINEConv(mlp(), train_eps=True, edge_dim=5), on_edges, x=X, e=E),
        conv(
            "GINEConv, bipartite",
            lambda: gnn.GINEConv(linear(), edge_dim=5),
            lambda m, g: m.layer((m.x, m.y), g, m.e),
            bipartite,
            x=PAIR["x"],
            y=features(TARGETS, IN, seed=1),
            e=E[:LINKS],
        ),
        conv("GatedGraphConv", lambda: gnn.GatedGraphConv(IN, 2), weighted, **WEIGHTED),
        conv("GatedGraphConv, max", lambda: gnn.GatedGraphConv(IN + 1, 2, "max")),
        conv("ResGatedGraphConv", lambda: gnn.ResGatedGraphConv(IN, OUT)),
        conv(
            "ResGatedGraphConv, edge features",
            lambda: gnn.ResGatedGraphConv((IN, 5), OUT, edge_dim=5),
            lambda m, g: m.layer((m.x, m.y), g, m.e),
            bipartite,
            **PAIR,
            e=E[:LINKS],
        ),
        conv("MFConv", lambda: gnn.MFConv(IN, OUT, 4)),
        conv("MFConv, bipartite", lambda: gnn.MFConv((IN, 5), OUT, 3), pair, bipartite, **PAIR),
        conv("SignedConv, first", lambda: gnn.SignedConv(IN, OUT, True), lambda m, g: m.layer(m.x, g, g.flip(0))),
        conv(
            "SignedConv",
            lambda: gnn.SignedConv(OUT, OUT, False),
            lambda m, g: m.layer(m.x, g, g.flip(0)),
            x=features(NODES, 2 * OUT),
        ),
        conv("LEConv", lambda: gnn.LEConv(IN, OUT), weighted, **WEIGHTED),
        conv("LEConv, bipartite", lambda: gnn.LEConv((IN, 5), OUT), pair, bipartite, **PAIR),
        conv(
            "PNAConv",
            lambda: gnn.PNAConv(
                IN,
                OUT,
                ["sum", "mean", "min", "max", "var", "std"],
                ["identity", "amplification", "attenuation", "linear", "inverse_linear"],
                degrees,
                5,
                2,
            ),
            on_edges,
            x=X,
            e=E,
        ),
        conv(
            "PNAConv, divided input",
            lambda: gnn.PNAConv(
                IN, OUT, ["mean", "max"], ["identity"], degrees, towers=2, divide_input=True, train_norm=True
            ),
        ),
        conv("GENConv", lambda: gnn.GENConv(IN, OUT, learn_t=True, edge_dim=5), on_edges, x=X, e=E),
        *(
            conv(f"GENConv, {aggr}", lambda aggr=aggr, more=more: gnn.GENConv(IN, OUT, aggr, norm="layer", **more))
            for aggr, more in {
                "powermean": dict(learn_p=True),
                "mean": dict(msg_norm=True, learn_msg_scale=True),
                "max": {},
                "sum": {},
            }.items()
        ),
        conv("GENConv, bipartite", lambda: gnn.GENConv((IN, 5), OUT), pair, bipartite, **PAIR),
        conv("CGConv", lambda: gnn.CGConv(IN, 5, batch_norm=True), on_edges, x=X, e=E),
        conv("CGConv, bipartite", lambda: gnn.CGConv((IN, 5), aggr="max"), pair, bipartite, **PAIR),
        conv(
            "EdgeConv, bipartite",
            lambda: gnn.EdgeConv(mlp(2 * IN)),
            pair,
            bipartite,
            x=PAIR["x"],
            y=features(TARGETS, IN, seed=1),
        ),
        Case(
            "DynamicEdgeConv",
            with_stand_ins(lambda: Bound(gnn.DynamicEdgeConv(mlp(2 * IN), 3), x=X)),
            with_stand_ins(lambda m: m.layer(m.x, batch())),
        ),
        conv(
            "WLConv",
            gnn.WLConv,
            lambda m, g: m.layer(m.x, g.flip(0)[:, g[0].argsort()]),
            square,
            "hashes of integer colours: no message passing",
            SINGLE,
            x=draw(3, NODES, 2),
        ),
    ]


CASES = _aggregators()
