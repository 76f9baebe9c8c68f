"""Every convolution that ``dgl.nn.pytorch.conv`` exports, with each of its aggregators and operands."""

from __future__ import annotations

from collections.abc import Callable

import dgl
import dgl.nn.pytorch as dglnn
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.coverage.dgl.graphs import (
    EDGES,
    NODES,
    RELATIONS,
    SOURCES,
    TARGETS,
    bipartite,
    block,
    draw,
    edge_types,
    full_bipartite,
    isolated,
    loopless,
    square,
    square_int32,
)
from tests.coverage.report import Bound, Case, features

# Few widths: a kernel is compiled for each.
IN = OUT = ON_EDGES = 4
WIDE, HEADS = 6, 2
SINGLE = (torch.float32,)  # layers that make float32 tensors of their own
LOOPED = EDGES + NODES  # edges of `square`
X, X0, XWIDE = features(NODES, IN), features(NODES, IN, seed=3), features(NODES, WIDE, seed=4)
W = features(LOOPED, seed=1).abs() + 0.5  # a weight per edge
E = features(LOOPED, ON_EDGES, seed=2)  # features per edge
DOUBLE = (torch.float64,)  # a bias before a batch norm has no gradient but what rounding leaves
BY_PYTHON = "messages and reduction are Python functions"
PAIR = {"x": features(SOURCES, IN), "y": features(TARGETS, IN, seed=1)}

# These cannot be built here; the reason must show in the error that building them raises.
NOT_BUILT = dict.fromkeys(("CuGraphGATConv", "CuGraphRelGraphConv", "CuGraphSAGEConv"), "pylibcugraphops")


def conv(
    name: str,
    layer: Callable[[], nn.Module],
    call: Callable = lambda m, g: m.layer(g, m.x),
    graph: Callable[[], dgl.DGLGraph] = square,
    note: str = "",
    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32),
    **inputs: Tensor,
) -> Case:
    """A case of a layer on a graph; node features ``x`` where no inputs are given."""
    return Case(name, lambda: Bound(layer(), **(inputs or {"x": X})), lambda m: call(m, graph()), note, dtypes)


def weighted(m: nn.Module, g: dgl.DGLGraph) -> Tensor:
    return m.layer(g, m.x, edge_weight=m.w)


def pair(m: nn.Module, g: dgl.DGLGraph) -> Tensor:
    return m.layer(g, (m.x, m.y))


def on_edges(m: nn.Module, g: dgl.DGLGraph) -> Tensor:
    return m.layer(g, m.x, m.e)


def with_attention(m: nn.Module, g: dgl.DGLGraph) -> tuple[Tensor, Tensor]:
    return m.layer(g, m.x, get_attention=True)


def on_block(m: nn.Module, g: dgl.DGLGraph) -> Tensor:
    return m.layer(g, m.x[g.srcdata[dgl.NID]])


def adjacency(g: dgl.DGLGraph) -> Tensor:
    """Rows are destinations, as DGL's dense layers want them; edges that come twice count twice."""
    source, target = g.edges()
    return torch.zeros(g.num_nodes(), g.num_nodes()).index_put((target, source), torch.ones(()), accumulate=True)


def relational(**keywords) -> Callable:
    """A call with a type per edge, drawn, or sorted where the layer is told so."""

    def call(m: nn.Module, g: dgl.DGLGraph) -> Tensor:
        return m.layer(g, m.x, edge_types(g.num_edges(), keywords.get("presorted", False)), **keywords)

    return call


def laplacian(**keywords) -> Callable:
    return lambda m, g: m.layer(g, m.x, lambda_max=[1.8], **keywords)


def _graph_convolutions() -> list[Case]:
    cases = [
        conv(f"GraphConv, norm {norm}", lambda norm=norm: dglnn.GraphConv(IN, OUT, norm))
        for norm in ("both", "left", "right", "none")
    ]
    return cases + [
        conv("GraphConv, wider output", lambda: dglnn.GraphConv(IN, WIDE)),
        conv("GraphConv, narrower output", lambda: dglnn.GraphConv(WIDE, OUT), x=XWIDE),
        conv("GraphConv, edge weights", lambda: dglnn.GraphConv(IN, OUT), weighted, x=X, w=W),
        conv("GraphConv, edge weights, column", lambda: dglnn.GraphConv(IN, OUT, "none"), weighted, x=X, w=W[:, None]),
        conv("GraphConv, isolated nodes", lambda: dglnn.GraphConv(IN, OUT, allow_zero_in_degree=True), graph=isolated),
        conv(
            "GraphConv, own weight",
            lambda: dglnn.GraphConv(IN, OUT, weight=False),
            lambda m, g: m.layer(g, m.x, weight=m.w),
            x=X,
            w=features(IN, OUT),
        ),
        conv("GraphConv, block", lambda: dglnn.GraphConv(IN, OUT), on_block, block),
        conv(
            "GraphConv, bipartite", lambda: dglnn.GraphConv(IN, OUT, allow_zero_in_degree=True), pair, bipartite, **PAIR
        ),
        conv("GraphConv, int32", lambda: dglnn.GraphConv(IN, OUT), graph=square_int32),
        conv("EdgeWeightNorm, both", dglnn.EdgeWeightNorm, lambda m, g: m.layer(g, m.w), w=W),
        conv("EdgeWeightNorm, right", lambda: dglnn.EdgeWeightNorm("right", 1e-3), lambda m, g: m.layer(g, m.w), w=W),
        conv("SGConv", lambda: dglnn.SGConv(IN, OUT, k=2)),
        conv("SGConv, edge weights", lambda: dglnn.SGConv(IN, OUT, k=2), weighted, x=X, w=W),
        conv(
            "SGConv, cached",
            lambda: dglnn.SGConv(IN, OUT, k=2, cached=True),
            lambda m, g: m.layer(g, m.x) + m.layer(g, m.x),
        ),
        conv("TAGConv", lambda: dglnn.TAGConv(IN, OUT, k=2), graph=isolated),
        conv("TAGConv, edge weights", lambda: dglnn.TAGConv(IN, OUT, k=2), weighted, x=X, w=W),
        conv("APPNPConv, edge dropout", lambda: dglnn.APPNPConv(3, 0.1, 0.3), dtypes=SINGLE),
        conv("APPNPConv, edge weights", lambda: dglnn.APPNPConv(3, 0.1), weighted, x=X, w=W),
        conv("ChebConv", lambda: dglnn.ChebConv(IN, OUT, 3), laplacian()),
        conv("ChebConv, isolated nodes", lambda: dglnn.ChebConv(IN, OUT, 2), laplacian(), isolated),
        conv("GCN2Conv", lambda: dglnn.GCN2Conv(IN, 1), lambda m, g: m.layer(g, m.x, m.x0), x=X, x0=X0),
        conv(
            "GCN2Conv, edge weights",
            lambda: dglnn.GCN2Conv(IN, 2, project_initial_features=False),
            lambda m, g: m.layer(g, m.x, m.x0, m.w),
            x=X,
            x0=X0,
            w=W,
        ),
        conv("GroupRevRes", lambda: dglnn.GroupRevRes(dglnn.GraphConv(IN // 2, IN // 2), 2)),
        conv("AGNNConv", dglnn.AGNNConv),
    ]


def _aggregators() -> list[Case]:
    linear = lambda: nn.Linear(IN, OUT)
    cases = [
        conv(f"SAGEConv, {kind}", lambda kind=kind: dglnn.SAGEConv(IN, OUT, kind, feat_drop=0.2), graph=isolated)
        for kind in ("mean", "gcn", "pool", "lstm")
    ]
    cases += [
        conv(f"GINConv, {kind}", lambda kind=kind: dglnn.GINConv(linear(), kind, learn_eps=True), graph=isolated)
        for kind in ("sum", "mean", "max")
    ]
    cases += [
        conv(
            f"NNConv, {kind}",
            lambda kind=kind: dglnn.NNConv(IN, OUT, nn.Linear(ON_EDGES, IN * OUT), kind, True),
            on_edges,
            x=X,
            e=E,
        )
        for kind in ("sum", "mean", "max")
    ]
    cases += [
        conv(
            f"GMMConv, {kind}",
            lambda kind=kind: dglnn.GMMConv(IN, OUT // 2, ON_EDGES, 2, kind, residual=True),
            on_edges,
            x=X,
            e=E,
        )
        for kind in ("sum", "mean", "max")
    ]
    return cases + [
        conv("SAGEConv, wider output", lambda: dglnn.SAGEConv(IN, WIDE, "mean"), graph=isolated),
        conv("SAGEConv, narrower output", lambda: dglnn.SAGEConv(WIDE, OUT, "mean"), graph=isolated, x=XWIDE),
        conv("SAGEConv, edge weights", lambda: dglnn.SAGEConv(IN, OUT, "mean"), weighted, x=X, w=W),
        conv("SAGEConv, bipartite", lambda: dglnn.SAGEConv((IN, IN), OUT, "mean"), pair, bipartite, **PAIR),
        conv("SAGEConv, pool, bipartite", lambda: dglnn.SAGEConv((IN, IN), OUT, "pool"), pair, bipartite, **PAIR),
        conv("SAGEConv, block", lambda: dglnn.SAGEConv(IN, OUT, "gcn"), on_block, block),
        conv("GINConv, edge weights", lambda: dglnn.GINConv(linear()), weighted, x=X, w=W),
        conv("GINConv, max, edge weights", lambda: dglnn.GINConv(linear(), "max"), weighted, x=X, w=W[:, None]),
        conv(
            "GINEConv", lambda: dglnn.GINEConv(linear(), learn_eps=True), on_edges, x=X, e=features(LOOPED, IN, seed=2)
        ),
        conv("EdgeConv", lambda: dglnn.EdgeConv(IN, OUT)),
        conv("EdgeConv, batch norm", lambda: dglnn.EdgeConv(IN, OUT, batch_norm=True)),
        conv("EdgeConv, bipartite", lambda: dglnn.EdgeConv(IN, OUT), pair, full_bipartite, **PAIR),
        conv("GatedGraphConv", lambda: dglnn.GatedGraphConv(IN - 1, OUT, 2, RELATIONS), relational(), x=X[:, 1:]),
        conv("GatedGraphConv, one type", lambda: dglnn.GatedGraphConv(IN - 1, OUT, 2, 1), x=X[:, 1:]),
        conv("CFConv", lambda: dglnn.CFConv(IN, ON_EDGES, OUT, OUT), on_edges, x=X, e=E),
        conv(
            "AtomicConv",
            lambda: dglnn.AtomicConv(torch.full((3,), 2.0), torch.ones(3), torch.ones(3)),
            on_edges,
            note=BY_PYTHON,
            x=features(NODES, 1),
            e=features(LOOPED, 1, seed=1).abs(),
        ),
        conv(
            "AtomicConv, atoms",
            lambda: dglnn.AtomicConv(torch.full((3,), 2.0), torch.ones(3), torch.ones(3), torch.tensor([6.0, 8.0])),
            on_edges,
            note=BY_PYTHON,
            x=6.0 + 2.0 * draw(2, NODES, 1)[:, None].double(),
            e=features(LOOPED, 1, seed=1).abs(),
        ),
        conv(
            "EGNNConv",
            lambda: dglnn.EGNNConv(IN, OUT, OUT, ON_EDGES),
            lambda m, g: m.layer(g, m.x, m.p, m.e),
            loopless,
            x=X,
            p=features(NODES, 4),
            e=E[: loopless().num_edges()],
        ),
        *[
            conv("GatedGCNConv", lambda: dglnn.GatedGCNConv(IN, ON_EDGES, OUT), on_edges, dtypes=DOUBLE, x=X, e=E)
            for _ in range(hasattr(dglnn, "GatedGCNConv"))  # of DGL 2
        ],
        conv(
            "PNAConv",
            lambda: dglnn.PNAConv(
                IN,
                OUT,
                ["mean", "max", "min", "sum", "std", "var", "moment3"],
                ["identity", "amplification", "attenuation"],
                2.5,
                0.2,
                2,
                ON_EDGES,
            ),
            on_edges,
            note=BY_PYTHON,
            dtypes=DOUBLE,
            x=X,
            e=E,
        ),
        conv(
            "DGNConv",
            lambda: dglnn.DGNConv(
                IN, IN, ["dir1-av", "dir2-dx", "sum", "mean", "max"], ["identity", "amplification"], 2.5
            ),
            lambda m, g: m.layer(g, m.x, eig_vec=m.eig),
            note=BY_PYTHON,
            x=X,
            eig=features(NODES, 3),
        ),
    ]


def _attention() -> list[Case]:
    drops = dict(feat_drop=0.2, attn_drop=0.2)
    return [
        conv("GATConv", lambda: dglnn.GATConv(IN, OUT, HEADS, **drops, residual=True)),
        conv(
            "GATConv, edge weights",
            lambda: dglnn.GATConv(IN, OUT, HEADS),
            lambda m, g: m.layer(g, m.x, edge_weight=m.w),
            x=X,
            w=W,
        ),
        conv("GATConv, attention", lambda: dglnn.GATConv(IN, OUT, HEADS), with_attention),
        conv("GATConv, one head", lambda: dglnn.GATConv(IN, OUT, 1)),
        conv(
            "GATConv, isolated nodes", lambda: dglnn.GATConv(IN, OUT, HEADS, allow_zero_in_degree=True), graph=isolated
        ),
        conv(
            "GATConv, bipartite",
            lambda: dglnn.GATConv((IN, IN), OUT, HEADS, allow_zero_in_degree=True),
            pair,
            bipartite,
            **PAIR,
        ),
        conv("GATConv, block", lambda: dglnn.GATConv(IN, OUT, HEADS), on_block, block),
        # No dropout of features: a node without any is at the kink of the leaky ReLU, which has no slope.
        conv("GATv2Conv", lambda: dglnn.GATv2Conv(IN, OUT, HEADS, attn_drop=0.2, residual=True)),
        conv("GATv2Conv, shared weights", lambda: dglnn.GATv2Conv(IN, OUT, HEADS, share_weights=True), with_attention),
        conv(
            "GATv2Conv, bipartite",
            lambda: dglnn.GATv2Conv((IN, IN), OUT, HEADS, allow_zero_in_degree=True),
            pair,
            bipartite,
            **PAIR,
        ),
        conv("EGATConv", lambda: dglnn.EGATConv(IN, ON_EDGES, OUT, OUT, HEADS), on_edges, x=X, e=E),
        conv(
            "EGATConv, edge weights",
            lambda: dglnn.EGATConv(IN, ON_EDGES, OUT, OUT, HEADS),
            lambda m, g: m.layer(g, m.x, m.e, edge_weight=m.w, get_attention=True),
            x=X,
            e=E,
            w=W,
        ),
        conv("EdgeGATConv", lambda: dglnn.EdgeGATConv(IN, ON_EDGES, OUT, HEADS, **drops), on_edges, x=X, e=E),
        conv(
            "EdgeGATConv, attention",
            lambda: dglnn.EdgeGATConv(IN, ON_EDGES, OUT, HEADS),
            lambda m, g: m.layer(g, m.x, m.e, get_attention=True),
            x=X,
            e=E,
        ),
        conv("DotGatConv", lambda: dglnn.DotGatConv(IN, OUT, HEADS), with_attention),
        conv(
            "DotGatConv, bipartite",
            lambda: dglnn.DotGatConv((IN, IN), OUT, HEADS, allow_zero_in_degree=True),
            pair,
            bipartite,
            **PAIR,
        ),
        conv("TWIRLSConv", lambda: dglnn.TWIRLSConv(IN, OUT, 4, 3, dropout=0.2), dtypes=SINGLE),
        conv(
            "TWIRLSConv, attention",
            lambda: dglnn.TWIRLSConv(IN, OUT, 4, 4, attention=True, use_eta=True, attn_dropout=0.2),
            dtypes=SINGLE,
        ),
        conv("TWIRLSUnfoldingAndAttention", lambda: dglnn.TWIRLSUnfoldingAndAttention(IN, 0, 1, 3), dtypes=SINGLE),
        conv(
            "TWIRLSUnfoldingAndAttention, attention",
            lambda: dglnn.TWIRLSUnfoldingAndAttention(
                IN, 0, 1, 4, attn_aft=2, T=3.0, use_eta=True, init_att=True, precond=False
            ),
            dtypes=SINGLE,
        ),
    ]


def _relational() -> list[Case]:
    def hgt(m: nn.Module, g: dgl.DGLGraph, presorted: bool = False) -> Tensor:
        nodes = draw(2, g.num_nodes(), 3)
        return m.layer(
            g,
            m.x,
            nodes.sort().values if presorted else nodes,
            edge_types(g.num_edges(), presorted),
            presorted=presorted,
        )

    cases = [
        conv(f"RelGraphConv, {kind}", lambda kind=kind: dglnn.RelGraphConv(IN, OUT, RELATIONS, kind, 2), relational())
        for kind in ("basis", "bdd")
    ]
    return cases + [
        conv("RelGraphConv", lambda: dglnn.RelGraphConv(IN, OUT, RELATIONS, dropout=0.2), relational()),
        conv(
            "RelGraphConv, isolated nodes",
            lambda: dglnn.RelGraphConv(IN, OUT, RELATIONS, activation=F.relu),
            relational(),
            isolated,
        ),
        conv(
            "RelGraphConv, presorted",
            lambda: dglnn.RelGraphConv(IN, OUT, RELATIONS, layer_norm=True),
            relational(presorted=True),
        ),
        conv(
            "RelGraphConv, norm",
            lambda: dglnn.RelGraphConv(IN, OUT, RELATIONS),
            lambda m, g: m.layer(g, m.x, edge_types(g.num_edges()), m.w),
            x=X,
            w=W[:, None],
        ),
        conv(
            "RelGraphConv, block",
            lambda: dglnn.RelGraphConv(IN, OUT, RELATIONS),
            lambda m, g: m.layer(g, m.x[g.srcdata[dgl.NID]], edge_types(g.num_edges())),
            block,
        ),
        conv("HGTConv", lambda: dglnn.HGTConv(IN, OUT, HEADS, 2, RELATIONS), hgt),
        conv(
            "HGTConv, presorted",
            lambda: dglnn.HGTConv(IN, OUT, HEADS, 2, RELATIONS, use_norm=True),
            lambda m, g: hgt(m, g, True),
            isolated,
        ),
    ]


def _dense() -> list[Case]:
    note = "a dense adjacency matrix: no message passing"
    on_matrix = lambda m, g, *rest: m.layer(adjacency(g).to(m.x), m.x, *rest)
    return [
        conv("DenseGraphConv", lambda: dglnn.DenseGraphConv(IN, OUT), on_matrix, note=note),
        conv("DenseSAGEConv", lambda: dglnn.DenseSAGEConv(IN, OUT), on_matrix, note=note),
        conv("DenseChebConv", lambda: dglnn.DenseChebConv(IN, OUT, 3), lambda m, g: on_matrix(m, g, 1.8), note=note),
    ]


CASES = _graph_convolutions() + _aggregators() + _attention() + _relational() + _dense()
