"""Layers of dgl.nn and update_all with the backend on against the same with it off, on every kind of graph."""

import dgl
import dgl.function as fn
import dgl.nn.pytorch as dglnn
import pytest
import torch

import gnn_sparse_backend as gsb
from tests.integrations.dgl.oracle import TOLERANCE, agree, bipartite, calls, homogeneous, normal, run

F_IN, F_OUT = 6, 4


class OnGraph(torch.nn.Module):
    """A layer with its graph bound, so that only tensors are inputs."""

    def __init__(self, layer, graph, call=lambda layer, graph, *tensors: layer(graph, *tensors)):
        super().__init__()
        self.layer, self.graph, self.call = layer, graph, call

    def forward(self, *tensors):
        return self.call(self.layer, self.graph, *tensors)


@pytest.fixture(params=[torch.int32, torch.int64], ids=str)
def idtype(request):
    return request.param


@pytest.fixture(params=[torch.float64, torch.float32], ids=str)
def dtype(request):
    return request.param


@pytest.fixture(params=["random", "skewed", "duplicates", "no_edges"])
def square(request, zoo, idtype):
    return homogeneous(*zoo[request.param], idtype=idtype)


def layer(make, dtype):
    torch.manual_seed(0)
    return make().to(dtype)


# gradients are of one operator with the result, and not counted again
SUM, MEAN = {"gspmm": (1, {})}, {"gspmm_mean": (1, {})}
LAYERS = {
    "sage mean": (lambda: dglnn.SAGEConv(F_IN, F_OUT, "mean"), MEAN),
    "sage mean, wider out": (lambda: dglnn.SAGEConv(F_IN, 3 * F_IN, "mean"), MEAN),
    "sage gcn": (lambda: dglnn.SAGEConv(F_IN, F_OUT, "gcn"), SUM),
    "graph conv both": (lambda: dglnn.GraphConv(F_IN, F_OUT, "both", allow_zero_in_degree=True), SUM),
    "graph conv right": (lambda: dglnn.GraphConv(F_IN, 3 * F_IN, "right", allow_zero_in_degree=True), SUM),
    "graph conv left": (lambda: dglnn.GraphConv(F_IN, F_OUT, "left", allow_zero_in_degree=True), SUM),
    "graph conv none": (lambda: dglnn.GraphConv(F_IN, F_OUT, "none", allow_zero_in_degree=True), SUM),
    "gin sum": (lambda: dglnn.GINConv(torch.nn.Linear(F_IN, F_OUT), "sum", learn_eps=True), SUM),
    "gin mean": (lambda: dglnn.GINConv(torch.nn.Linear(F_IN, F_OUT), "mean"), MEAN),
    "sg conv of 3 hops": (lambda: dglnn.SGConv(F_IN, F_OUT, k=3, allow_zero_in_degree=True), {"gspmm": (3, {})}),
    "tag conv of 2 hops": (lambda: dglnn.TAGConv(F_IN, F_OUT, k=2), {"gspmm": (2, {})}),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_that_run_here_entirely(name, square, dtype):
    make, expected = LAYERS[name]
    counts = agree(OnGraph(layer(make, dtype), square), normal(square.num_nodes(), F_IN, dtype=dtype))
    assert counts == expected


@pytest.mark.parametrize("norm", ["both", "none", "right"])
@pytest.mark.parametrize("weight_shape", [(), (1,)])
def test_graph_conv_with_edge_weights(norm, weight_shape, square, dtype):
    make = lambda: dglnn.GraphConv(F_IN, F_OUT, norm, allow_zero_in_degree=True)
    call = lambda layer, graph, x, w: layer(graph, x, edge_weight=w)
    counts = agree(
        OnGraph(layer(make, dtype), square, call),
        normal(square.num_nodes(), F_IN, dtype=dtype),
        normal(square.num_edges(), *weight_shape, dtype=dtype, seed=1),
    )
    assert counts == SUM


def test_sage_with_edge_weights(square, dtype):
    call = lambda layer, graph, x, w: layer(graph, x, edge_weight=w)
    counts = agree(
        OnGraph(layer(lambda: dglnn.SAGEConv(F_IN, F_OUT, "mean"), dtype), square, call),
        normal(square.num_nodes(), F_IN, dtype=dtype),
        normal(square.num_edges(), dtype=dtype, seed=1),
    )
    assert counts == MEAN


@pytest.mark.parametrize("aggregator", ["mean", "pool"])
def test_sage_on_a_bipartite_graph(aggregator, structure, idtype, dtype):
    graph = bipartite(*structure, idtype=idtype)
    if aggregator == "pool" and graph.num_src_nodes() == 0:
        pytest.skip("DGL's own gradient of max needs a source")
    call = lambda layer, graph, x, y: layer(graph, (x, y))
    counts = agree(
        OnGraph(layer(lambda: dglnn.SAGEConv((F_IN, 5), F_OUT, aggregator), dtype), graph, call),
        normal(graph.num_src_nodes(), F_IN, dtype=dtype),
        normal(graph.num_dst_nodes(), 5, dtype=dtype, seed=1),
    )
    assert counts == (MEAN if aggregator == "mean" else {"gspmm": (1, {})})


def test_a_stack_of_sampled_blocks(idtype, dtype):
    graph = dgl.rand_graph(200, 1500, idtype=idtype)
    dgl.seed(3)
    sampler = dgl.dataloading.NeighborSampler([5, 5])
    _, _, blocks = sampler.sample_blocks(graph, torch.arange(20, dtype=idtype))

    class Stack(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(
                [dglnn.SAGEConv(F_IN, 8, "mean"), dglnn.GraphConv(8, F_OUT, allow_zero_in_degree=True)]
            )

        def forward(self, x):
            for block, each in zip(blocks, self.layers):
                x = each(block, x)
            return x

    counts = agree(layer(Stack, dtype), normal(blocks[0].num_src_nodes(), F_IN, dtype=dtype))
    assert counts == SUM | MEAN


def three_relations(idtype):
    draw = lambda high, n, seed: torch.randint(high, (n,), generator=torch.Generator().manual_seed(seed))
    return dgl.heterograph(
        {
            ("a", "r", "b"): (draw(10, 30, 0), draw(12, 30, 1)),
            ("b", "s", "b"): (draw(12, 40, 2), draw(12, 40, 3)),
            ("b", "t", "a"): (draw(12, 5, 4), draw(10, 5, 5)),
        },
        num_nodes_dict={"a": 10, "b": 12},
        idtype=idtype,
    )


def test_relations_one_by_one(idtype, dtype):
    graph = three_relations(idtype)
    convolution = lambda: dglnn.HeteroGraphConv(
        {
            "r": dglnn.GraphConv(F_IN, F_OUT, allow_zero_in_degree=True),
            "s": dglnn.SAGEConv(F_IN, F_OUT, "mean"),
            "t": dglnn.GINConv(torch.nn.Linear(F_IN, F_OUT), "sum"),
        },
        aggregate="sum",
    )
    # GINConv and SAGEConv need features of their destinations too
    call = lambda layer, graph, a, b: torch.cat(list(layer(graph, ({"a": a, "b": b}, {"a": a, "b": b})).values()))
    counts = agree(
        OnGraph(layer(convolution, dtype), graph, call),
        normal(10, F_IN, dtype=dtype),
        normal(12, F_IN, dtype=dtype, seed=1),
    )
    assert counts == {"gspmm": (2, {}), "gspmm_mean": (1, {})}


def test_multi_update_all(idtype, dtype):
    graph = three_relations(idtype)

    def compute(a, b):
        with graph.local_scope():
            graph.nodes["a"].data["h"], graph.nodes["b"].data["h"] = a, b
            graph.multi_update_all(
                {"r": (fn.copy_u("h", "m"), fn.mean("m", "h")), "s": (fn.copy_u("h", "m"), fn.sum("m", "h"))}, "sum"
            )
            return graph.nodes["b"].data["h"]

    counts = agree(compute, normal(10, 3, dtype=dtype), normal(12, 3, dtype=dtype, seed=1))
    assert counts == SUM | MEAN


@pytest.mark.parametrize(
    "message, reduce, ran",
    [
        (fn.copy_u("h", "m"), fn.sum("m", "o"), (1, {})),
        (fn.copy_u("h", "m"), fn.max("m", "o"), (1, {})),
        (fn.u_sub_e("h", "w", "m"), fn.min("m", "o"), (1, {})),
        (fn.u_add_e("h", "w", "m"), fn.sum("m", "o"), (1, {})),
        (fn.v_mul_e("h", "w", "m"), fn.max("m", "o"), (1, {})),
        (fn.u_mul_e("h", "w", "m"), fn.mean("m", "o"), None),
        (lambda edges: {"m": edges.src["h"] * edges.data["w"]}, fn.sum("m", "o"), (1, {})),
    ],
)
def test_update_all(message, reduce, ran, square, dtype):
    if square.num_edges() == 0 and not isinstance(message, fn.message.MessageFunction):
        pytest.skip("DGL gives a user's message function no edges to run on")
    if square.num_edges() == 0 and reduce.name in ("max", "min") and message.name != "copy_u":
        pytest.skip("DGL scatters the gradient of a maximum to edge 0, which is not there")

    def compute(h, w):
        with square.local_scope():
            square.ndata["h"], square.edata["w"] = h, w
            square.update_all(message, reduce)
            return square.ndata["o"]

    counts = agree(
        compute, normal(square.num_nodes(), F_IN, dtype=dtype), normal(square.num_edges(), F_IN, dtype=dtype, seed=1)
    )
    assert counts == MEAN if ran is None else counts["gspmm"] == ran


@pytest.mark.parametrize("formats", ["coo", "csc", "csr", ["csr", "csc"]])
def test_graphs_restricted_to_some_formats(formats, idtype):
    graph = dgl.rand_graph(40, 200, idtype=idtype)
    unrestricted = dgl.graph(graph.edges(), num_nodes=40, idtype=idtype)
    restricted = unrestricted.formats(formats)
    x, w = normal(40, 3), normal(200, 1, seed=1)
    expected = run(lambda x, w: dgl.ops.u_mul_e_sum(unrestricted, x, w), [x, w])
    with gsb.enabled("dgl"):
        actual = run(lambda x, w: dgl.ops.u_mul_e_sum(restricted, x, w), [x, w])
        assert calls() == {"gspmm": (1, {})}
    for one, other in zip(actual, expected):
        torch.testing.assert_close(one, other, **TOLERANCE[torch.float64])


def test_rows_of_very_many_features_are_not_followed():
    """Of a matrix for each row a kernel would take minutes to compile."""
    torch.manual_seed(0)
    layer = dglnn.EGTLayer(feat_size=16, edge_feat_size=8, num_heads=8, num_virtual_nodes=4, edge_update=True)
    nodes, edges = torch.rand(3, 220, 16), torch.rand(3, 220, 220, 8)
    mask = (torch.rand(3, 220, 220) < 0.5) * -1e9
    expected = layer(nodes, edges, mask)
    with gsb.enabled("dgl"):
        found = layer(nodes, edges, mask)
        assert calls() == {}
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other)
