"""Calls that are errors in PyG: with the backend they raise the same type, in the same words."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.utils import spmm

import gnn_sparse_backend as gsb
from tests.integrations.pyg.features import EdgeIndex
from tests.integrations.pyg.hetero import COUNTS, RELATIONS
from tests.integrations.pyg.hetero import edges as hetero_edges
from tests.integrations.pyg.hetero import inputs as hetero_inputs
from tests.integrations.pyg.pair import NODES, calls, edges, features


def outcome(function):
    """What comes of a call: a tensor, or the type of its error and its words."""
    torch.manual_seed(0)
    try:
        return function().detach()
    except Exception as error:
        return type(error), str(error)


def agree(function):
    """Compare a program with the backend and without; return what it gives."""
    expected = outcome(function)
    with gsb.enabled("pyg"):
        found = outcome(function)
    if isinstance(expected, torch.Tensor):
        assert isinstance(found, torch.Tensor), found
        torch.testing.assert_close(found, expected)
    else:
        assert found == expected
    return expected


def raises(function, *errors):
    found = agree(function)
    assert not isinstance(found, torch.Tensor) and found[0] in errors, found


def put(row, value, of=edges):
    index = of().clone()
    index[row, 3] = value
    return index


class Differences(gnn.MessagePassing):
    """A message of both ends that no operator of PyG has."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return torch.tanh(x_i - x_j)


LAYERS = {
    "SAGEConv": lambda: gnn.SAGEConv(6, 3),
    "SAGEConv max": lambda: gnn.SAGEConv(6, 3, "max"),
    "SAGEConv of two aggregations": lambda: gnn.SAGEConv(6, 3, ["mean", "std"]),
    "GraphConv": lambda: gnn.GraphConv(6, 3),
    "GINConv": lambda: gnn.GINConv(nn.Linear(6, 3)),
    "GATConv": lambda: gnn.GATConv(6, 3, add_self_loops=False),
    "ResGatedGraphConv": lambda: gnn.ResGatedGraphConv(6, 3),
    "SimpleConv": lambda: gnn.SimpleConv("sum"),
    "a layer of the user's": lambda: Differences(),
}


@pytest.mark.parametrize("where", [0, 1], ids=["source", "destination"])
@pytest.mark.parametrize("value", [-1, NODES, 10**12])
@pytest.mark.parametrize("name", LAYERS)
def test_an_index_out_of_range(name, value, where):
    errors = (IndexError,) if where == 0 else (IndexError, ValueError, RuntimeError)
    raises(lambda: LAYERS[name]().double()(features(6), put(where, value)), *errors)


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("name", LAYERS)
def test_fewer_features_than_nodes(name, rows):
    raises(lambda: LAYERS[name]().double()(features(6)[:rows], edges()), IndexError)


@pytest.mark.parametrize("name", ["SAGEConv", "SAGEConv max", "GraphConv", "GINConv", "GATConv"])
def test_fewer_destinations_than_an_index_says(name):
    """An error of the aggregation, as PyG has it."""
    x = (features(6), features(6)[:3])
    raises(
        lambda: LAYERS[name]().double()(x, edges(), size=(NODES, 3)), IndexError if name == "GATConv" else ValueError
    )


TYPES = torch.arange(edges().shape[1]) % 3
RELATIONAL = {
    "RGCNConv": lambda width: gnn.RGCNConv(width, 4, 3),
    "RGCNConv sum": lambda width: gnn.RGCNConv(width, 4, 3, aggr="sum", root_weight=False),
    "RGCNConv bases": lambda width: gnn.RGCNConv(width, 4, 3, num_bases=2),
    "RGCNConv blocks": lambda width: gnn.RGCNConv(width, 4, 3, num_blocks=2),
    "FastRGCNConv": lambda width: gnn.FastRGCNConv(width, 4, 3),
    "FastRGCNConv bases": lambda width: gnn.FastRGCNConv(width, 4, 3, num_bases=2),
}
RELATIONAL_CASES = {
    "wide": lambda x, index: (torch.cat([x, x], 1), index, TYPES),
    "of no width": lambda x, index: (x[:, :0], index, TYPES),
    "few": lambda x, index: (x[:3], index, TYPES),
    "three": lambda x, index: ((x, x, x), index, TYPES),
    "one": lambda x, index: ((x,), index, TYPES),
    "floating edges": lambda x, index: (x, index.float(), TYPES),
    "short edges": lambda x, index: (x, index.short(), TYPES),
    "truth values": lambda x, index: (x, index.bool(), TYPES),
    "source out of range": lambda x, index: (x, put(0, NODES), TYPES),
    "destination out of range": lambda x, index: (x, put(1, -1), TYPES),
    "type out of range": lambda x, index: (x, index, TYPES + 1),
    "negative type": lambda x, index: (x, index, TYPES - 1),
    "fewer types": lambda x, index: (x, index, TYPES[:-1]),
    "another size": lambda x, index: (x, EdgeIndex(index, sparse_size=(NODES + 1, NODES + 1)), TYPES),
    "more destinations": lambda x, index: (x, EdgeIndex(index, sparse_size=(NODES, NODES + 1)), TYPES),
    "its size": lambda x, index: (x, EdgeIndex(index, sparse_size=(NODES, NODES)), TYPES),
    "no size": lambda x, index: (x, EdgeIndex(index), TYPES),
}


@pytest.mark.parametrize("case", RELATIONAL_CASES)
@pytest.mark.parametrize("name", RELATIONAL)
def test_layers_by_relation(name, case):
    x = features(6, dtype=torch.float32).detach()
    agree(lambda: RELATIONAL[name](6)(*RELATIONAL_CASES[case](x, edges())))


@pytest.mark.parametrize("shift", [-1, 0, 1])
@pytest.mark.parametrize("width", [NODES, NODES - 1])
@pytest.mark.parametrize("name", ["RGCNConv", "RGCNConv sum", "RGCNConv bases", "FastRGCNConv", "FastRGCNConv bases"])
def test_numbers_of_nodes_that_no_row_of_a_matrix_has(name, width, shift):
    """Negative ones count from the end, in PyG too."""
    agree(lambda: RELATIONAL[name](width)(torch.arange(NODES) + shift, edges(), TYPES))


def test_numbers_of_nodes_from_the_end_are_pyg_s():
    with gsb.enabled("pyg"):
        gnn.RGCNConv(NODES, 4, 3)(torch.arange(NODES) - 1, edges(), TYPES)
    assert calls()["rgms"] == {"an index is out of range": 1}


@pytest.mark.parametrize("where, value", [(0, 7), (0, -1), (1, 9), (1, -1)])
@pytest.mark.parametrize("layer", [lambda: gnn.SAGEConv(6, 5), lambda: gnn.GraphConv(6, 5)], ids=["sage", "graph"])
def test_layers_over_several_node_types(layer, where, value):
    given = hetero_edges()
    given["user", "likes", "item"][where, 0] = value
    errors = (IndexError,) if where == 0 else (ValueError, RuntimeError)
    conv = lambda: gnn.HeteroConv({name: layer() for name in RELATIONS}).double()
    raises(lambda: conv()(dict(zip(COUNTS, hetero_inputs())), given)["item"], *errors)


@pytest.mark.parametrize("sorted_by_type", [False, True])
@pytest.mark.parametrize("x", [None, [[1.0] * 6] * 9, torch.ones(9, 7), torch.ones(9), torch.ones(9, 6).double()])
def test_a_linear_layer_by_type(x, sorted_by_type):
    kinds = torch.arange(9) // 3
    found = agree(lambda: gnn.HeteroLinear(6, 4, 3, is_sorted=sorted_by_type)(x, kinds))
    assert not isinstance(found, torch.Tensor)


def test_an_adjacency_for_which_there_is_no_memory():
    index = torch.stack([torch.arange(4), torch.arange(4)])
    far = (2**50, 4)
    with gsb.enabled("pyg"):
        for product in (
            lambda x: spmm(torch.sparse_coo_tensor(index, torch.ones(4), far, is_coalesced=True), x),
            lambda x: EdgeIndex(index, sparse_size=far, sort_order="row").matmul(x),
        ):
            with pytest.raises(RuntimeError):
                product(torch.ones(4, 2))
    assert calls() == {f"{name}.sum": {"the graph does not fit into memory": 1} for name in ("spmm", "matmul")}
