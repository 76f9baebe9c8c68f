"""What PyG asks pyg-lib for runs while it is enabled, without a word more, and is refused as before when it is not."""

import pytest
import torch
from torch_geometric import nn, transforms, utils
from torch_geometric.data import Data
from torch_geometric.loader import ClusterData, GraphSAINTNodeSampler, ShaDowKHopSampler

import gnn_sparse_backend as gsb
from tests.integrations.pyg.features import asks_pyg_lib

X, POS = torch.randn(30, 4), torch.rand(30, 3)
BATCH = torch.arange(30) // 15
EDGES = torch.stack([torch.arange(30), torch.arange(30).roll(1)])
EDGES = torch.cat([EDGES, EDGES.flip(0)], 1)
CALLS = {
    "knn_graph": lambda: nn.knn_graph(POS, 3, BATCH),
    "radius_graph": lambda: nn.radius_graph(POS, 0.4, BATCH),
    "knn": lambda: nn.knn(POS, POS[::3], 2),
    "radius": lambda: nn.radius(POS, POS[::3], 0.4),
    "nearest": lambda: nn.nearest(POS, POS[::3]),
    "fps": lambda: nn.fps(POS, BATCH, 0.3),
    "graclus": lambda: nn.graclus(EDGES, num_nodes=30),
    "voxel_grid": lambda: nn.voxel_grid(POS, 0.3, BATCH),
    "DynamicEdgeConv": lambda: nn.DynamicEdgeConv(nn.MLP([8, 5], norm=None), 3)(X, BATCH),
    "XConv": lambda: nn.XConv(4, 6, 3, 4)(X, POS, BATCH),
    "GravNetConv": lambda: nn.GravNetConv(4, 6, 2, 3, 4)(X, BATCH),
    "SplineConv": lambda: nn.SplineConv(4, 6, 1, 5)(X, EDGES, torch.rand(60, 1)),
    "Node2Vec": lambda: nn.Node2Vec(EDGES, 8, 6, 4).loader(batch_size=8).collate_fn([0, 1]),
    "ClusterData": lambda: ClusterData(Data(X, EDGES), 3, log=False)[0],
    "DimeNet": lambda: nn.DimeNet(8, 1, 1, 2, 2, 2, cutoff=2.0)(torch.ones(30, dtype=torch.int64), 5 * POS, BATCH),
    "PANConv": lambda: nn.PANConv(4, 6, 2)(X, EDGES)[0],
    "GraphSAINT": lambda: next(iter(GraphSAINTNodeSampler(Data(X, EDGES), 5))).edge_index,
    "ShaDow": lambda: next(iter(ShaDowKHopSampler(Data(X, EDGES), 2, 2, batch_size=4))).edge_index,
    "dropout_path": lambda: utils.dropout_path(EDGES, 0.5)[0],
    "SchNet": lambda: nn.SchNet(8, 8, 1)(torch.ones(30, dtype=torch.int64), 5 * POS, BATCH),
}
OF_PYG_LIB = {"ClusterData", "GraphSAINT", "Node2Vec", "ShaDow", "SplineConv"}
"""What every release asks for there, or of torch-sparse, which comes by it."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OF_PYG_LIB else asks_pyg_lib) for name in CALLS]
)
def test_what_wants_pyg_lib(name):
    call = CALLS[name]
    with gsb.enabled("pyg"):
        found = call()
        if isinstance(found, torch.Tensor) and found.is_floating_point():
            found.sum().backward()
    with pytest.raises((ImportError, TypeError)):  # a spline is None there
        call()


@asks_pyg_lib
def test_what_else_runs():
    """Places of keys by our class, walks of a transform, and samples along a path of types, which needs nothing."""
    from torch_geometric import HashTensor

    with gsb.enabled("pyg"):
        keys = torch.tensor([10**9, -5, 7])
        tensor = HashTensor(keys, torch.arange(3.0))
        assert type(tensor._map).__name__ == "CPUHashMap"
        assert tensor[torch.tensor([7, 10**9])].tolist() == [2, 0]
        rooted = transforms.RootedRWSubgraph(walk_length=3)(Data(X, EDGES))
        assert rooted.n_sub_batch.max() == 29
        path = [("a", "to", "b"), ("b", "to", "a")]
        model = nn.MetaPath2Vec(dict.fromkeys(path, EDGES), 8, path, 4, 2)
        model.loss(*next(iter(model.loader(batch_size=8)))).backward()
    with pytest.raises(ImportError):
        utils.dropout_path(EDGES, 0.5)
