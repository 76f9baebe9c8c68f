"""Modules of DGL that are not convolutions and pass messages: readouts, wrappers, typed products, explainers."""

from __future__ import annotations

from collections.abc import Callable

import dgl
import dgl.nn.pytorch as dglnn
import torch
from torch import Tensor, nn

from tests.coverage.dgl.graphs import DENSE, EDGES, NODES, RELATIONS, batch, draw, isolated, square
from tests.coverage.report import Bound, Case, features

IN = OUT = 4
X = features(NODES, IN)
SINGLE = (torch.float32,)

# Modules of dgl.nn.pytorch whose forward asks no operator of message passing, and what they are instead.
NO_MESSAGES = {
    "BiasedMHA": "dense attention",
    "GraphormerLayer": "dense attention",
    "EGTLayer": "dense attention",
    "DegreeEncoder": "an embedding",
    "LapPosEncoder": "dense layers",
    "PathEncoder": "an embedding",
    "SpatialEncoder": "an embedding",
    "SpatialEncoder3d": "dense layers",
    "DeepWalk": "an embedding",
    "MetaPath2Vec": "an embedding",
    "HeteroEmbedding": "an embedding",
    "HeteroLinear": "dense layers",
    "JumpingKnowledge": "dense layers",
    "EdgePredictor": "dense layers",
    "TransE": "dense layers",
    "TransR": "dense layers",
    "WeightBasis": "dense layers",
    "KNNGraph": "makes a graph",
    "SegmentedKNNGraph": "makes a graph",
    "RadiusGraph": "makes a graph",
}


def _pools() -> list[Case]:
    """Readouts of a batch of three graphs, the second without edges."""
    rows = batch().num_nodes()

    def case(
        name: str, layer: Callable[[], nn.Module], call: Callable = lambda m, g: m.layer(g, m.x), note: str = ""
    ) -> Case:
        return Case(name, lambda: Bound(layer(), x=features(rows, IN)), lambda m: call(m, batch()), note)

    heads = dict(n_heads=2, d_head=3, d_ff=8)
    return [
        case("SumPooling", dglnn.SumPooling),
        case("AvgPooling", dglnn.AvgPooling),
        case("MaxPooling", dglnn.MaxPooling),
        case("SortPooling", lambda: dglnn.SortPooling(2), note="sorting: no message passing"),
        case(
            "GlobalAttentionPooling",
            lambda: dglnn.GlobalAttentionPooling(nn.Linear(IN, 1), nn.Linear(IN, OUT)),
            lambda m, g: m.layer(g, m.x, get_attention=True),
        ),
        case("Set2Set", lambda: dglnn.Set2Set(IN, 2, 1)),
        case(
            "SetTransformerEncoder",
            lambda: dglnn.SetTransformerEncoder(IN, **heads, dropouth=0.2),
            note="dense attention on padded sets",
        ),
        case(
            "SetTransformerEncoder, induced",
            lambda: dglnn.SetTransformerEncoder(IN, **heads, block_type="isab", m=2),
            note="dense attention on padded sets",
        ),
        case(
            "SetTransformerDecoder",
            lambda: dglnn.SetTransformerDecoder(IN, 2, 3, 8, 1, 2),
            note="dense attention on padded sets",
        ),
        case("WeightAndSum", lambda: dglnn.WeightAndSum(IN)),
    ]


def _typed_products() -> list[Case]:
    types = draw(RELATIONS, NODES, 4)
    cases = []
    for kind in (None, "basis", "bdd"):
        for presorted in (False, True):
            order = types.sort().values if presorted else types
            cases.append(
                Case(
                    f"TypedLinear, {kind or 'full'}{', presorted' if presorted else ''}",
                    lambda kind=kind: Bound(dglnn.TypedLinear(IN, OUT, RELATIONS, kind, 2), x=X),
                    lambda m, order=order, presorted=presorted: m.layer(m.x, order, presorted),
                    "a batch of dense products" if kind == "bdd" else DENSE,
                )
            )
    wide = features(NODES, 12)
    return cases + [
        Case(
            "TypedLinear, wide",
            lambda: Bound(dglnn.TypedLinear(12, 12, RELATIONS), x=wide),
            lambda m: m.layer(m.x, types),
            DENSE,
        )
    ]


def _others() -> list[Case]:
    class Edges(nn.Module):
        """What `dgl.nn.Sequential` stacks: takes and returns features of nodes and edges."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(OUT, OUT)

        def forward(self, graph: dgl.DGLGraph, x: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
            x = self.linear(dgl.ops.u_mul_e_sum(graph, x, e))
            return x, e + dgl.ops.u_add_v(graph, x, x)

    labels, known = draw(3, NODES, 2), torch.arange(NODES) % 3 > 0
    stacked = dict(x=features(NODES, OUT), e=features(EDGES, OUT, seed=1))
    return [
        Case(
            "Sequential",
            lambda: Bound(dglnn.Sequential(Edges(), Edges()), **stacked),
            lambda m: m.layer(isolated(), m.x, m.e),
        ),
        Case(
            "LabelPropagation",
            lambda: Bound(dglnn.LabelPropagation(3, 0.5, normalize=True)),
            lambda m: m.layer(isolated(), labels, known),
            dtypes=SINGLE,
        ),
        Case(
            "LabelPropagation, by rows",
            lambda: Bound(dglnn.LabelPropagation(3, 0.5, "row", reset=True)),
            lambda m: m.layer(square(), labels, known),
            dtypes=SINGLE,
        ),
    ]


def _transforms() -> list[Case]:
    """What prepares a graph, and measures of it."""

    def diffusion(kind: str) -> Callable:
        def call(m: nn.Module) -> tuple[Tensor, ...]:
            graph = square()
            graph.ndata["feat"], graph.edata["w"] = m.x, m.w
            dgl.SIGNDiffusion(k=2, eweight_name="w", diffuse_op=kind)(graph)
            return graph.ndata["out_feat_1"], graph.ndata["out_feat_2"]

        return call

    def norm(m: nn.Module) -> Tensor:
        graph = square()
        graph.edata["w"] = m.w
        return dgl.GCNNorm()(graph).edata["w"]

    def homophily(m: nn.Module) -> tuple[Tensor, ...]:
        graph, labels = square(), draw(3, NODES, 2)
        return tuple(
            torch.tensor(measure(graph, labels))
            for measure in (dgl.node_homophily, dgl.edge_homophily, dgl.linkx_homophily)
        )

    def loops(kind: str) -> Callable:
        def call(m: nn.Module) -> Tensor:
            graph = isolated()
            graph.edata["w"] = m.w
            return dgl.add_self_loop(graph, fill_data=kind).edata["w"]

        return call

    x, w = features(NODES, IN), features(EDGES + NODES, seed=1).abs() + 0.5
    return [
        *(
            Case(f"SIGNDiffusion, {kind}", lambda: Bound(x=x, w=w), diffusion(kind))
            for kind in ("raw", "rw", "gcn", "ppr")
        ),
        Case("GCNNorm", lambda: Bound(w=w), norm),
        Case(
            "add_self_loop, sum and mean of edges",
            lambda: Bound(w=features(EDGES, 4)),
            lambda m: tuple(loops(kind)(m) for kind in ("sum", "mean", "max", "min")),
        ),
        Case("homophily measures", Bound, homophily, dtypes=SINGLE),
    ]


CASES = _pools() + _typed_products() + _others() + _transforms()
