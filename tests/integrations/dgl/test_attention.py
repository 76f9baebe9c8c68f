"""Attention in the layers of dgl.nn, as one operator."""

import dgl
import dgl.nn.pytorch as dglnn
import pytest
import torch

import gnn_sparse_backend as gsb
from tests.integrations.dgl.oracle import agree, bipartite, homogeneous, multigraph, normal
from tests.integrations.dgl.test_layers import OnGraph

ONE = {"attention": (1, {})}
WIDTH = 6


def layer(make):
    torch.manual_seed(0)
    return make().double()


LAYERS = {
    "gat": lambda **more: dglnn.GATConv(WIDTH, 4, 3, allow_zero_in_degree=True, **more),
    "gat of one head": lambda **more: dglnn.GATConv(
        WIDTH, 5, 1, activation=torch.relu, allow_zero_in_degree=True, **more
    ),
    "gat with a residual": lambda **more: dglnn.GATConv(WIDTH, 4, 3, residual=True, allow_zero_in_degree=True, **more),
    "gatv2": lambda **more: dglnn.GATv2Conv(WIDTH, 4, 3, allow_zero_in_degree=True, **more),
    "gatv2 of shared weights": lambda **more: dglnn.GATv2Conv(
        WIDTH, 4, 3, share_weights=True, allow_zero_in_degree=True, **more
    ),
    "dot": lambda: dglnn.DotGatConv(WIDTH, 4, 3, allow_zero_in_degree=True),
    "agnn": lambda: dglnn.AGNNConv(allow_zero_in_degree=True),
    "agnn of a fixed temperature": lambda: dglnn.AGNNConv(0.7, learn_beta=False, allow_zero_in_degree=True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, square):
    assert agree(OnGraph(layer(LAYERS[name]), square), normal(square.num_nodes(), WIDTH)) == ONE


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("nodes", [0, 4])
def test_layers_without_edges(name, nodes):
    if nodes == 0 and name == "gat with a residual":
        pytest.skip("DGL asks PyTorch for an unknown extent of an empty tensor")
    graph = homogeneous([], [], (nodes, nodes), torch.int32)
    counts = agree(OnGraph(layer(LAYERS[name]), graph), normal(nodes, WIDTH))
    assert all(not reasons for _, reasons in counts.values())


@pytest.mark.parametrize(
    "name, make, width",
    [
        ("gat", lambda: dglnn.GATConv((WIDTH, 5), 4, 2, allow_zero_in_degree=True), 5),
        ("gatv2", lambda: dglnn.GATv2Conv((WIDTH, 5), 4, 2, allow_zero_in_degree=True), 5),
        ("dot", lambda: dglnn.DotGatConv((WIDTH, 5), 4, 2, allow_zero_in_degree=True), 5),
        ("agnn", lambda: dglnn.AGNNConv(allow_zero_in_degree=True), WIDTH),
    ],
)
def test_layers_between_two_kinds_of_nodes(name, make, width, zoo):
    for structure in ("wide", "tall", "last_rows_empty"):
        graph = bipartite(*zoo[structure], torch.int32)
        call = lambda layer, graph, x, y: layer(graph, (x, y))
        counts = agree(
            OnGraph(layer(make), graph, call),
            normal(graph.num_src_nodes(), WIDTH),
            normal(graph.num_dst_nodes(), width, seed=1),
        )
        assert counts == ONE


@pytest.mark.parametrize("name", ["gat", "gatv2", "dot", "agnn"])
def test_layers_on_sampled_blocks(name):
    dgl.seed(3)
    graph = multigraph(60, 400)
    _, _, (block,) = dgl.dataloading.NeighborSampler([5]).sample_blocks(graph, torch.arange(20))
    assert agree(OnGraph(layer(LAYERS[name]), block), normal(block.num_src_nodes(), WIDTH)) == ONE


def test_features_of_more_dimensions():
    graph = multigraph(9, 40)
    assert agree(OnGraph(layer(LAYERS["gat"]), graph), normal(9, 2, 5, WIDTH)) == ONE


def test_edge_weights_on_the_attention():
    graph = multigraph(9, 40)
    call = lambda layer, graph, x, w: layer(graph, x, edge_weight=w)
    counts = agree(OnGraph(layer(LAYERS["gat"]), graph, call), normal(9, WIDTH), normal(40, seed=1))
    assert counts == {"gsddmm": (1, {}), "edge_softmax_forward": (1, {}), "gspmm": (1, {})}


@pytest.mark.parametrize("name", ["gat", "gatv2"])
def test_attention_dropout(name):
    graph = multigraph(9, 40)
    one = layer(lambda: LAYERS[name](feat_drop=0.3, attn_drop=0.5))

    def call(layer, graph, x):
        torch.manual_seed(4)
        return layer(graph, x)

    assert agree(OnGraph(one, graph, call), normal(9, WIDTH)) == {
        "gsddmm": (1, {}),
        "edge_softmax_forward": (1, {}),
        "gspmm": (1, {}),
    }
    assert agree(OnGraph(one.eval(), graph, call), normal(9, WIDTH)) == ONE


def largest_tensor(compute):
    """Elements of the largest tensor that PyTorch allocates in ``compute``."""
    with torch.profiler.profile(profile_memory=True) as found:
        compute()
    return max(event.cpu_memory_usage for event in found.events()) // 8


@pytest.mark.parametrize("name", ["gat", "gatv2", "dot"])
def test_no_tensor_of_a_feature_vector_per_edge(name):
    """Neither forward nor backward, with attention dropout or without."""
    nodes, edges, heads, width = 20, 4000, 2, 16
    graph = multigraph(nodes, edges)
    kind = {"gat": dglnn.GATConv, "gatv2": dglnn.GATv2Conv, "dot": dglnn.DotGatConv}[name]
    more = {} if name == "dot" else {"attn_drop": 0.4}
    one = layer(lambda: kind(WIDTH, width, heads, allow_zero_in_degree=True, **more))
    x = normal(nodes, WIDTH).requires_grad_()
    with gsb.enabled("dgl"):
        for training in (False, True):
            one.train(training)
            compute = lambda: one(graph, x).pow(2).sum().backward()
            compute()
            assert largest_tensor(compute) < edges * heads * width // 2


@pytest.mark.parametrize("name", ["gat", "gatv2", "dot"])
def test_returned_attention_is_an_ordinary_tensor_with_gradients_to_and_through_it(name):
    graph = multigraph(9, 40)
    one = layer(LAYERS[name])

    def call(layer, graph, x):
        out, weights = layer(graph, x, get_attention=True)
        assert type(weights) is torch.Tensor and weights.is_contiguous()
        (through,) = torch.autograd.grad(out.pow(2).sum(), weights, create_graph=True)
        return torch.cat([out.flatten(), weights.flatten(), through.flatten()])

    counts = agree(OnGraph(one, graph, call), normal(9, WIDTH))
    assert all(not reasons for _, reasons in counts.values()) and counts["attention"] == (1, {})
