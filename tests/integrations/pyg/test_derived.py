"""Self loops and GCN's normalisation are computed once for an edge index, and again when it, or they, were written
to.
"""

import gc

import pytest
import torch
import torch_geometric.nn as gnn
import torch_geometric.utils as utils
from torch_geometric.nn.conv import gat_conv, gcn_conv

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.pyg.host import GRAPHS
from tests.integrations.pyg.pair import NODES, check_pair, edges, features

FUNCTIONS = {
    "norm": lambda e: gcn_conv.gcn_norm(e, None, NODES, dtype=torch.float64),
    "norm, improved": lambda e: gcn_conv.gcn_norm(e, None, NODES, True, dtype=torch.float32),
    "norm, no self loops": lambda e: gcn_conv.gcn_norm(e, None, NODES, False, False, "target_to_source"),
    "remove": lambda e: gat_conv.remove_self_loops(e, None),
    "add": lambda e: gat_conv.add_self_loops(e, None, fill_value="mean", num_nodes=NODES),
    "add what remains": lambda e: gcn_conv.add_remaining_self_loops(e, None, 1.0, NODES),
}


@pytest.fixture(params=FUNCTIONS)
def function(request):
    return FUNCTIONS[request.param]


def large() -> torch.Tensor:
    """More entries than are compared in whole."""
    return torch.randint(0, NODES, (2, 2000), generator=torch.Generator().manual_seed(3))


def same(one, other) -> bool:
    return all(
        (a is None and b is None) or (a.dtype == b.dtype and torch.equal(a, b)) for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("make", [edges, large])
def test_once_for_a_content(function, make):
    edge_index = make()
    expected = function(edge_index)
    with gsb.enabled("pyg"):
        first = function(edge_index)
        again = function(edge_index)
        other = function(edge_index.clone())
    assert same(first, expected) and same(again, expected) and same(other, expected)
    assert all(a is b for a, b in zip(first, again) if b is not edge_index)


@pytest.mark.parametrize("make", [edges, large])
def test_a_changed_index_is_another(function, make):
    edge_index = make()
    with gsb.enabled("pyg"):
        function(edge_index)
        edge_index[0, 1] = (edge_index[0, 1] + 1) % NODES
        actual = function(edge_index)
    assert same(actual, function(edge_index))


def test_what_was_written_to_is_computed_again(function):
    edge_index = large()
    expected = function(edge_index)
    with gsb.enabled("pyg"):
        for x in function(edge_index):
            if x is not None and x is not edge_index:
                x.zero_()
        assert same(function(edge_index), expected)


def test_edge_values_are_not_kept():
    edge_index, weight = edges(), torch.rand(edges().shape[1], dtype=torch.float64, requires_grad=True)
    with gsb.enabled("pyg"):
        _, one = gcn_conv.gcn_norm(edge_index, weight, NODES)
        _, other = gcn_conv.gcn_norm(edge_index, weight, NODES)
    assert one is not other and one.requires_grad


def test_functions_that_users_call_are_pygs():
    original = utils.add_self_loops
    with gsb.enabled("pyg"):
        assert utils.add_self_loops is original
        assert gat_conv.add_self_loops is not original
    assert gat_conv.add_self_loops is original


def test_other_arguments_are_told_apart():
    edge_index = large()
    with gsb.enabled("pyg"):
        for dtype in (torch.float32, torch.float64):
            for loops in (True, False):
                value = gcn_conv.gcn_norm(edge_index, None, NODES, add_self_loops=loops, dtype=dtype)
                assert value[1].dtype == dtype and value[0].shape[1] == value[1].shape[0]
                assert (value[0].shape[1] == 2000) == (not loops)


def test_first_made_without_gradients():
    """What is kept serves a training step also if inference mode came first."""
    layer, x, edge_index = gnn.GCNConv(5, 4).double(), features(5), large()
    with gsb.enabled("pyg"):
        with torch.inference_mode():
            layer(x.detach(), edge_index)
        layer(x, edge_index).sum().backward()


@pytest.mark.parametrize(
    "layer",
    [lambda: gnn.GCNConv(5, 4), lambda: gnn.GATConv(5, 4), lambda: gnn.GCN2Conv(5, 0.1)],
    ids=["GCN", "GAT", "GCN2"],
)
def test_layers(layer):
    layer = layer().double()
    inputs = (features(5), features(5)) if isinstance(layer, gnn.GCN2Conv) else (features(5),)
    for edge_index in (edges(), large()):
        check_pair(layer, *inputs, edge_index)


def test_nothing_is_kept_after_disable():
    with gsb.enabled("pyg"):
        gnn.GCNConv(5, 4).double()(features(5), large())
        assert GRAPHS.nbytes > 0
    assert GRAPHS.nbytes == 0 and len(GRAPHS) == 0


def test_the_store_keeps_no_more_than_its_capacity(monkeypatch):
    monkeypatch.setattr(GRAPHS, "capacity", 300_000)
    with gsb.enabled("pyg"):
        for seed in range(40):
            edge_index = torch.randint(0, NODES, (2, 2000), generator=torch.Generator().manual_seed(seed))
            gcn_conv.gcn_norm(edge_index, None, NODES, dtype=torch.float64)
            assert 0 < GRAPHS.nbytes <= 300_000


@pytest.mark.parametrize(
    "call",
    [
        lambda e, w: gcn_conv.gcn_norm(e, w, NODES),
        lambda e, w: gat_conv.remove_self_loops(e, w),
        lambda e, w: gat_conv.add_self_loops(e, w, fill_value=2.0, num_nodes=NODES),
    ],
    ids=["norm", "remove", "add"],
)
def test_the_index_beside_edge_values_is_that_of_the_first_call(call):
    """So its graph is known without a look at its content, which depends on no value."""
    edge_index = large()
    one, other = (
        torch.rand(2000, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)
    )
    expected = [call(edge_index, values) for values in (one, other)]
    with gsb.enabled("pyg"):
        found = [call(edge_index, values) for values in (one, other)]
    assert found[0][0] is found[1][0]
    assert all(same(a, b) for a, b in zip(found, expected))


def test_what_is_derived_of_an_index_too_large_to_copy_lives_as_long_as_its_tensor(monkeypatch, calls_to):
    monkeypatch.setattr(GRAPHS, "capacity", 1000)
    made = calls_to(gcn_conv, "add_remaining_self_loops")
    layer, x, edge_index = gnn.GCNConv(5, 4).double(), features(5), large()
    expected = layer(x, edge_index)
    made.clear()
    with gsb.enabled("pyg"):
        first, second = (layer(x, edge_index) for _ in range(2))
        assert len(GRAPHS) == 1 and len(made) == 1
        torch.testing.assert_close(first, expected)
        assert torch.equal(first, second)
        edge_index[0, 0] = (edge_index[0, 0] + 1) % NODES
        changed = layer(x, edge_index)
        del edge_index, first, second
        made.clear()  # which has what the functions were called with
        gc.collect()
        assert len(GRAPHS) == 0
    assert not torch.equal(changed, expected)
