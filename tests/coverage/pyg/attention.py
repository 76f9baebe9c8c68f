"""The convolutions of ``torch_geometric.nn.conv`` with attention, with relations, or on points in space."""

from __future__ import annotations

import torch
import torch_geometric.nn as gnn
from torch import Tensor, nn

from tests.coverage.pyg.conv import HEADS, IN, OUT, PAIR, SINGLE, X0, E, W, X, conv, mlp, on_edges, on_matrix, pair
from tests.coverage.pyg.graphs import (
    EDGES,
    LINKS,
    NODES,
    RELATIONS,
    SOURCES,
    TARGETS,
    batch,
    bipartite,
    draw,
    edge_types,
    isolated,
    loopless,
    no_edges,
    with_stand_ins,
)
from tests.coverage.report import Bound, Case, features

POS, NORMALS = features(NODES, 3, seed=5), nn.functional.normalize(features(NODES, 3, seed=6), dim=1)
POINTS = dict(x=X, pos=POS)

# These cannot be built or run here: how to try, and what the error says.
NOT_BUILT = {
    "FusedGATConv": (lambda: gnn.FusedGATConv(IN, OUT, add_self_loops=False), "dgNN"),
    "CuGraphSAGEConv": (lambda: gnn.CuGraphSAGEConv(IN, OUT), "pylibcugraphops"),
    "CuGraphGATConv": (lambda: gnn.CuGraphGATConv(IN, OUT), "pylibcugraphops"),
    "CuGraphRGCNConv": (lambda: gnn.CuGraphRGCNConv(IN, OUT, RELATIONS), "pylibcugraphops"),
    "PANConv": (lambda: gnn.PANConv(IN, OUT, 2)(X.float(), isolated()), "torch-sparse"),
}
# A base class: an instance of it would exchange its `propagate`, and with it that of layers which are made later.
ABSTRACT = {"MessagePassing"}


def with_attention(m: nn.Module, g: Tensor) -> tuple[Tensor, Tensor]:
    out, (_, alpha) = m.layer(m.x, g, return_attention_weights=True)
    return out, alpha


def pair_on_edges(m: nn.Module, g: Tensor) -> Tensor:
    return m.layer((m.x, m.y), g, m.e)


def _attention() -> list[Case]:
    cases = []
    for kind in (gnn.GATConv, gnn.GATv2Conv):
        name = kind.__name__
        cases += [
            conv(name, lambda kind=kind: kind(IN, OUT, HEADS)),
            conv(f"{name}, dropout, residual", lambda kind=kind: kind(IN, OUT, HEADS, dropout=0.3, residual=True)),
            conv(f"{name}, one head", lambda kind=kind: kind(IN, OUT)),
            conv(f"{name}, mean of heads", lambda kind=kind: kind(IN, OUT, HEADS, concat=False, add_self_loops=False)),
            conv(f"{name}, attention", lambda kind=kind: kind(IN, OUT, HEADS), with_attention),
            conv(f"{name}, max", lambda kind=kind: kind(IN, OUT, HEADS, aggr="max")),
            conv(f"{name}, no edges", lambda kind=kind: kind(IN, OUT, HEADS, add_self_loops=False), graph=no_edges),
            conv(
                f"{name}, bipartite",
                lambda kind=kind: kind((IN, 5), OUT, HEADS, add_self_loops=False),
                pair,
                bipartite,
                **PAIR,
            ),
            conv(
                f"{name}, bipartite, edge features",
                lambda kind=kind: kind((IN, 5), OUT, HEADS, add_self_loops=False, edge_dim=5),
                pair_on_edges,
                bipartite,
                **PAIR,
                e=E[:LINKS],
            ),
            conv(
                f"{name}, matrix csr",
                lambda kind=kind: kind(IN, OUT, HEADS, add_self_loops=False),
                on_matrix("csr"),
                x=X,
                w=W,
            ),
            conv(f"{name}, target to source", lambda kind=kind: kind(IN, OUT, HEADS, flow="target_to_source")),
        ]
        cases += [
            conv(
                f"{name}, edge features, loops filled by {fill}",
                lambda kind=kind, fill=fill: kind(IN, OUT, HEADS, edge_dim=5, fill_value=fill),
                on_edges,
                x=X,
                e=E,
            )
            for fill in ("mean", "max", 0.5)
        ]
    return cases + [
        conv(
            "GATConv, sources alone",
            lambda: gnn.GATConv((IN, IN), OUT, HEADS, add_self_loops=False),
            lambda m, g: m.layer((m.x, None), g, size=(SOURCES, TARGETS)),
            bipartite,
            x=PAIR["x"],
        ),
        conv("GATv2Conv, shared weights", lambda: gnn.GATv2Conv(IN, OUT, HEADS, share_weights=True)),
        conv("TransformerConv", lambda: gnn.TransformerConv(IN, OUT, HEADS)),
        conv("TransformerConv, gated root", lambda: gnn.TransformerConv(IN, OUT, HEADS, False, True, 0.3)),
        conv("TransformerConv, attention", lambda: gnn.TransformerConv(IN, OUT, HEADS), with_attention),
        conv(
            "TransformerConv, edge features",
            lambda: gnn.TransformerConv(IN, OUT, HEADS, edge_dim=5),
            on_edges,
            x=X,
            e=E,
        ),
        conv(
            "TransformerConv, bipartite",
            lambda: gnn.TransformerConv((IN, 5), OUT, HEADS, root_weight=False),
            pair,
            bipartite,
            **PAIR,
        ),
        conv("AGNNConv", gnn.AGNNConv),
        conv("AGNNConv, fixed", lambda: gnn.AGNNConv(False, False)),
        conv(
            "SuperGATConv, MX",
            lambda: gnn.SuperGATConv(IN, OUT, HEADS, attention_type="MX", dropout=0.3),
            lambda m, g: (m.layer(m.x, g), m.layer.get_attention_loss()),
        ),
        conv(
            "SuperGATConv, SD",
            lambda: gnn.SuperGATConv(IN, OUT, HEADS, False, attention_type="SD", edge_sample_ratio=0.8),
            lambda m, g: (m.layer(m.x, g), m.layer.get_attention_loss()),
        ),
        conv("FAConv", lambda: gnn.FAConv(IN, dropout=0.2), lambda m, g: m.layer(m.x, m.x0, g), x=X, x0=X0),
        conv(
            "FAConv, attention",
            lambda: gnn.FAConv(IN),
            lambda m, g: (lambda out: (out[0], out[1][1]))(m.layer(m.x, m.x0, g, return_attention_weights=True)),
            x=X,
            x0=X0,
        ),
        conv(
            "FAConv, edge weights",
            lambda: gnn.FAConv(IN, normalize=False),
            lambda m, g: m.layer(m.x, m.x0, g, m.w),
            x=X,
            x0=X0,
            w=W,
        ),
        conv("FeaStConv", lambda: gnn.FeaStConv(IN, OUT, HEADS)),
        conv(
            "FeaStConv, bipartite",
            lambda: gnn.FeaStConv(IN, OUT, HEADS, False),
            pair,
            bipartite,
            x=PAIR["x"],
            y=features(TARGETS, IN, seed=1),
        ),
        conv("DNAConv", lambda: gnn.DNAConv(IN, 2, 2, 0.2), x=features(NODES, 3, IN)),
        conv(
            "GeneralConv",
            lambda: gnn.GeneralConv(IN, OUT, 5, heads=HEADS, attention=True, l2_normalize=True),
            on_edges,
            x=X,
            e=E,
        ),
        conv(
            "GeneralConv, dot product",
            lambda: gnn.GeneralConv(
                IN, OUT, heads=HEADS, attention=True, attention_type="dot_product", directed_msg=False
            ),
        ),
        conv("GeneralConv, no attention", lambda: gnn.GeneralConv(IN, OUT, aggr="mean", heads=3)),
        conv(
            "GPSConv",
            lambda: gnn.GPSConv(IN, gnn.GINConv(nn.Linear(IN, IN)), HEADS, norm="layer_norm"),
            lambda m, g: m.layer(m.x, g, batch()),
        ),
        conv(
            "GPSConv, performer",
            lambda: gnn.GPSConv(IN, gnn.GCNConv(IN, IN), HEADS, attn_type="performer"),
            lambda m, g: m.layer(m.x, g, batch()),
        ),
    ]


def _modulated(kind: str) -> nn.Module:
    layer = gnn.RGATConv(IN, OUT, RELATIONS, mod=kind)
    nn.init.constant_(layer.l2, 1 / OUT)  # PyG leaves it as the allocator hands it out
    return layer


def four_neighbours() -> Tensor:
    return torch.stack([draw(NODES, 4 * NODES, 8), torch.arange(NODES).repeat_interleave(4)])


def _relational() -> list[Case]:
    def typed(m: nn.Module, g: Tensor) -> Tensor:
        return m.layer(m.x, g, edge_types(g.shape[1]))

    cases = []
    for kind in (gnn.RGCNConv, gnn.FastRGCNConv):
        name = kind.__name__
        cases += [
            conv(name, lambda kind=kind: kind(IN, OUT, RELATIONS), typed),
            conv(f"{name}, bases", lambda kind=kind: kind(IN, OUT, RELATIONS, num_bases=2, aggr="sum"), typed),
            conv(f"{name}, blocks", lambda kind=kind: kind(IN, OUT, RELATIONS, num_blocks=2), typed),
            conv(
                f"{name}, embeddings",
                lambda kind=kind: kind(NODES, OUT, RELATIONS, num_bases=2),
                lambda m, g: m.layer(None, g, edge_types()),
            ),
            conv(
                f"{name}, bipartite",
                lambda kind=kind: kind((IN, 5), OUT, RELATIONS),
                lambda m, g: m.layer((m.x, m.y), g, edge_types(LINKS)),
                bipartite,
                **PAIR,
            ),
        ]
    cases += [
        conv(
            f"RGATConv, {mode}, {across}",
            lambda mode=mode, across=across: gnn.RGATConv(
                IN, OUT, RELATIONS, heads=HEADS, attention_mechanism=across, attention_mode=mode
            ),
            typed,
        )
        for mode in ("additive-self-attention", "multiplicative-self-attention")
        for across in ("within-relation", "across-relation")
    ]
    cases += [
        conv(f"RGATConv, {mod}", lambda mod=mod: _modulated(mod), typed)
        for mod in ("additive", "scaled", "f-additive", "f-scaled")
    ]
    return cases + [
        conv("RGCNConv, max", lambda: gnn.RGCNConv(IN, OUT, RELATIONS, aggr="max"), typed),
        conv(
            "RGATConv, edge features, bases",
            lambda: gnn.RGATConv(IN, OUT, RELATIONS, 2, heads=HEADS, edge_dim=5),
            lambda m, g: m.layer(m.x, g, edge_types(), m.e),
            x=X,
            e=E,
        ),
        conv(
            "RGATConv, blocks", lambda: gnn.RGATConv(IN, OUT, RELATIONS, num_blocks=2, heads=HEADS, concat=False), typed
        ),
        conv("FiLMConv", lambda: gnn.FiLMConv(IN, OUT, RELATIONS), typed),
        conv("FiLMConv, bipartite", lambda: gnn.FiLMConv((IN, 5), OUT, act=None, aggr="max"), pair, bipartite, **PAIR),
        conv(
            "HEATConv",
            lambda: gnn.HEATConv(IN, OUT, 2, RELATIONS, 3, 5, 4, HEADS, dropout=0.2),
            lambda m, g: m.layer(m.x, g, draw(2, NODES, 3), edge_types(), m.e),
            x=X,
            e=E,
        ),
    ]


def _points() -> list[Case]:
    def spatial(m: nn.Module, g: Tensor) -> Tensor:
        return m.layer(m.x, m.pos, g)

    def spatial_pair(m: nn.Module, g: Tensor) -> Tensor:
        return m.layer((m.x, m.y), (m.pos, m.pos_y), g)

    points_pair = dict(
        x=PAIR["x"], y=features(TARGETS, IN, seed=1), pos=features(SOURCES, 3), pos_y=features(TARGETS, 3)
    )
    unit = features(EDGES, 2).sigmoid()
    return [
        conv("PointNetConv", lambda: gnn.PointNetConv(mlp(IN + 3), nn.Linear(OUT, OUT)), spatial, **POINTS),
        conv(
            "PointNetConv, positions alone",
            lambda: gnn.PointNetConv(mlp(3)),
            lambda m, g: m.layer(None, m.pos, g),
            pos=POS,
        ),
        conv(
            "PointNetConv, bipartite",
            lambda: gnn.PointNetConv(mlp(IN + 3), add_self_loops=False),
            spatial_pair,
            bipartite,
            **points_pair,
        ),
        conv("PointTransformerConv", lambda: gnn.PointTransformerConv(IN, OUT), spatial, **POINTS),
        conv(
            "PointTransformerConv, own networks",
            lambda: gnn.PointTransformerConv((IN, IN), OUT, mlp(3), mlp(OUT), add_self_loops=False),
            spatial_pair,
            bipartite,
            **points_pair,
        ),
        conv(
            "PointGNNConv",
            lambda: gnn.PointGNNConv(nn.Linear(IN, 3), nn.Linear(IN + 3, OUT), nn.Linear(OUT, IN)),
            spatial,
            **POINTS,
        ),
        conv(
            "PPFConv",
            lambda: gnn.PPFConv(mlp(IN + 4), nn.Linear(OUT, OUT), add_self_loops=False),
            lambda m, g: m.layer(m.x, m.pos, m.normals, g),
            loopless,
            **POINTS,
            normals=NORMALS,
        ),
        conv("GMMConv", lambda: gnn.GMMConv(IN, OUT, 5, 2), on_edges, x=X, e=E),
        conv(
            "GMMConv, separate",
            lambda: gnn.GMMConv((IN, 5), OUT, 5, 2, True, "max"),
            pair_on_edges,
            bipartite,
            **PAIR,
            e=E[:LINKS],
        ),
        conv("NNConv", lambda: gnn.NNConv(IN, OUT, nn.Linear(5, IN * OUT)), on_edges, x=X, e=E),
        conv(
            "NNConv, max, bipartite",
            lambda: gnn.NNConv((IN, 5), OUT, nn.Linear(5, IN * OUT), "max"),
            pair_on_edges,
            bipartite,
            **PAIR,
            e=E[:LINKS],
        ),
        Case(
            "SplineConv",
            with_stand_ins(lambda: Bound(gnn.SplineConv(IN, OUT, 2, [3, 4]), x=X, e=unit)),
            with_stand_ins(lambda m: m.layer(m.x, isolated(), m.e)),
        ),
        Case(
            "GravNetConv",
            with_stand_ins(lambda: Bound(gnn.GravNetConv(IN, OUT, 3, 4, 3), x=X)),
            with_stand_ins(lambda m: m.layer(m.x, batch())),
        ),
        Case(
            "XConv",
            with_stand_ins(lambda: Bound(gnn.XConv(IN, 8, 3, 4, 5), **POINTS)),
            with_stand_ins(lambda m: m.layer(m.x, m.pos)),
            "gathers a fixed number of neighbours: no message passing",
        ),
        conv("MeshCNNConv", lambda: gnn.MeshCNNConv(IN, OUT), graph=four_neighbours, dtypes=SINGLE),
    ]


CASES = _attention() + _relational() + _points()
