"""Pooling, unpooling, normalisation, metrics and transforms of PyG that reduce features of nodes or edges."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch_geometric.nn as gnn
from torch import Tensor, nn
from torch_geometric import transforms
from torch_geometric.data import Data
from torch_geometric.metrics import LinkPredPrecision

from tests.coverage.pyg.graphs import GRAPHS, NODES, batch, draw, isolated, symmetric, with_stand_ins, within_graphs
from tests.coverage.report import Bound, Case, features

IN, OUT = 6, 4
X = features(NODES, IN)
SINGLE = (torch.float32,)
CLUSTERS = (0, 0, 2, 2, 5, 5, 5, 1, 1, 7, 8, 8)

# Of torch_geometric.nn.pool, and why they are no cases.
NOT_BUILT = {
    **dict.fromkeys(
        (
            "KNNIndex",
            "L2KNNIndex",
            "MIPSKNNIndex",
            "ApproxL2KNNIndex",
            "ApproxMIPSKNNIndex",
            "approx_knn",
            "approx_knn_graph",
        ),
        "searches for neighbours",
    ),
    **dict.fromkeys(
        ("fps", "knn", "knn_graph", "radius", "radius_graph", "nearest", "graclus", "voxel_grid"),
        "pyg-lib makes a graph or clusters",
    ),
    "PANPooling": "its input is a matrix of torch-sparse",
}
# Of torch_geometric.nn.norm.
OF_ROWS = {
    "BatchNorm": "a dense layer",
    "HeteroBatchNorm": "a dense layer",
    "MessageNorm": "a dense layer",
    "HeteroLayerNorm": "a dense layer",
}


def case(
    name: str,
    layer: Callable[[], nn.Module | None],
    call: Callable,
    note: str = "",
    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32),
    **inputs: Tensor,
) -> Case:
    return Case(name, lambda: Bound(layer(), **(inputs or {"x": X})), call, note, dtypes)


def floating(parts: tuple) -> tuple[Tensor, ...]:
    """The tensors among what a pooling layer returns."""
    return tuple(each for each in parts if isinstance(each, Tensor))


def on_graphs(m: nn.Module) -> tuple[Tensor, ...]:
    return floating(m.layer(m.x, within_graphs(), batch=batch()))


def weighted(m: nn.Module) -> tuple[Tensor, ...]:
    return floating(m.layer(m.x, within_graphs(), m.w, batch=batch()))


def graph(m: nn.Module, **more) -> Data:
    return Data(x=m.x, edge_index=isolated(), num_nodes=NODES, **more)


def _pools() -> list[Case]:
    links = within_graphs().shape[1]
    w = features(links, seed=1).sigmoid()
    cases = []
    for name, pool in {"add": gnn.global_add_pool, "mean": gnn.global_mean_pool, "max": gnn.global_max_pool}.items():
        cases += [
            case(f"global_{name}_pool", lambda: None, lambda m, pool=pool: pool(m.x, batch())),
            case(
                f"global_{name}_pool, more graphs than there are",
                lambda: None,
                lambda m, pool=pool: pool(m.x, batch(), GRAPHS + 2),
            ),
            case(
                f"global_{name}_pool, one graph",
                lambda: None,
                lambda m, pool=pool: pool(m.x, None),
                "a dense reduction",
            ),
        ]
    cases += [
        case(
            f"{name}_pool",
            lambda: None,
            lambda m, pool=pool: (lambda out: (out.x, out.edge_attr))(
                pool(torch.tensor(CLUSTERS), graph(m, edge_attr=m.e, pos=m.x[:, :3]))
            ),
            x=X,
            e=features(40, 2),
        )
        for name, pool in (("max", gnn.max_pool), ("avg", gnn.avg_pool))
    ]
    cases += [
        case(f"{name}_pool_x", lambda: None, lambda m, pool=pool: pool(torch.tensor(CLUSTERS), m.x, batch())[0])
        for name, pool in (("max", gnn.max_pool_x), ("avg", gnn.avg_pool_x))
    ]
    cases += [
        case(f"{name}_pool_neighbor_x", lambda: None, lambda m, pool=pool: pool(graph(m)).x)
        for name, pool in (("max", gnn.max_pool_neighbor_x), ("avg", gnn.avg_pool_neighbor_x))
    ]
    return cases + [
        case("TopKPooling", lambda: gnn.TopKPooling(IN, 0.5), weighted, x=X, w=w),
        case("TopKPooling, least score", lambda: gnn.TopKPooling(IN, min_score=0.2, multiplier=2.0), on_graphs),
        case("SAGPooling", lambda: gnn.SAGPooling(IN, 0.5), on_graphs),
        case("SAGPooling, GAT", lambda: gnn.SAGPooling(IN, 0.6, gnn.GATConv, nonlinearity="sigmoid"), on_graphs),
        case("SAGPooling, SAGE, least score", lambda: gnn.SAGPooling(IN, GNN=gnn.SAGEConv, min_score=0.1), on_graphs),
        case("ASAPooling", lambda: gnn.ASAPooling(IN, 0.5, dropout=0.2), on_graphs, dtypes=SINGLE),
        case(
            "ASAPooling, GCN", lambda: gnn.ASAPooling(IN, 2, gnn.GCNConv, add_self_loops=True), on_graphs, dtypes=SINGLE
        ),
        case("EdgePooling", lambda: gnn.EdgePooling(IN), on_graphs),
        case(
            "EdgePooling, sigmoid", lambda: gnn.EdgePooling(IN, gnn.EdgePooling.compute_edge_score_sigmoid), on_graphs
        ),
        case("ClusterPooling", lambda: gnn.ClusterPooling(IN, threshold=0.1), on_graphs, dtypes=SINGLE),
        case("MemPooling", lambda: gnn.MemPooling(IN, OUT, 2, 3), lambda m: floating(m.layer(m.x, batch()))),
        case(
            "knn_interpolate",
            lambda: None,
            with_stand_ins(lambda m: gnn.knn_interpolate(m.x, m.pos, m.goal, k=3)),
            x=X,
            pos=features(NODES, 3),
            goal=features(7, 3, seed=1),
        ),
        case("pool on and back", lambda: gnn.GraphUNet(IN, IN, OUT, 2), lambda m: m.layer(m.x, symmetric())),
    ]


def _norms() -> list[Case]:
    kinds = {
        "GraphNorm": lambda: gnn.GraphNorm(IN),
        "PairNorm": gnn.PairNorm,
        "PairNorm, each node": lambda: gnn.PairNorm(scale_individually=True),
        "MeanSubtractionNorm": gnn.MeanSubtractionNorm,
        "InstanceNorm": lambda: gnn.InstanceNorm(IN, affine=True, track_running_stats=True),
        "LayerNorm": lambda: gnn.LayerNorm(IN),
    }
    return [case(f"norm.{name}", make, lambda m: m.layer(m.x, batch())) for name, make in kinds.items()] + [
        case("norm.GraphSizeNorm", gnn.GraphSizeNorm, lambda m: m.layer(m.x, batch()), "counts nodes"),
        case("norm.DiffGroupNorm", lambda: gnn.DiffGroupNorm(IN, 3), lambda m: m.layer(m.x), "a dense layer"),
    ]


def _transforms() -> list[Case]:
    def attribute(transform: Callable, name: str, **more) -> Callable:
        return lambda m: transform(graph(m, **more))[name]

    def precision(m: nn.Module) -> Tensor:
        metric = LinkPredPrecision(3)
        metric.update(draw(5, 24, 1).view(4, 6), torch.tensor([[0, 0, 1, 3], [2, 3, 1, 4]]))
        return metric.compute()

    points = dict(x=X, pos=features(NODES, 3))
    cases = [
        case(f"transforms.{name}", lambda: None, attribute(transform, key), note, SINGLE)
        for name, transform, key, note in (
            ("GCNNorm", transforms.GCNNorm(), "edge_weight", "weights are counts: no gradient"),
            ("SIGN", transforms.SIGN(2), "x2", ""),
            ("LocalDegreeProfile", transforms.LocalDegreeProfile(), "x", "sums are of degrees"),
            ("FeaturePropagation", transforms.FeaturePropagation(torch.zeros(NODES, IN).bool(), 2), "x", ""),
        )
    ]
    return cases + [
        case(
            "transforms.AddRandomWalkPE",
            lambda: None,
            attribute(transforms.AddRandomWalkPE(3), "random_walk_pe"),
            "weights are counts: no gradient",
            SINGLE,
        ),
        case(
            "transforms.LocalCartesian",
            lambda: None,
            lambda m: transforms.LocalCartesian()(Data(pos=m.pos, edge_index=isolated())).edge_attr,
            dtypes=SINGLE,
            **points,
        ),
        case(
            "transforms.GenerateMeshNormals",
            lambda: None,
            lambda m: transforms.GenerateMeshNormals()(
                Data(pos=m.pos, face=torch.tensor([[0, 1, 2], [1, 2, 3], [4, 5, 0]]).t().contiguous())
            )["norm"],
            dtypes=SINGLE,
            **points,
        ),
        case(
            "transforms.LineGraph",
            lambda: None,
            lambda m: transforms.LineGraph()(Data(edge_index=isolated(), edge_attr=m.e, num_nodes=NODES)).x,
            dtypes=SINGLE,
            e=features(40, 2),
        ),
        case("metrics.LinkPredPrecision", lambda: None, precision, "no gradient", SINGLE),
    ]


CASES = _pools() + _norms() + _transforms()
