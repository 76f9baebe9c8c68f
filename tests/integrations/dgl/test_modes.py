"""Autocast, worker processes, pickling, index types, restricted formats, derived graphs: results stay what they
were.
"""

import copy
import pickle

import dgl
import dgl.function as fn
import dgl.nn.pytorch as dglnn
import pytest
import torch

import gnn_sparse_backend as gsb
from tests.integrations.dgl.oracle import TOLERANCE, agree, calls, multigraph, normal, run
from tests.integrations.dgl.test_layers import OnGraph

LAYERS = {
    "sage": lambda: dglnn.SAGEConv(6, 8, "pool"),
    "graph conv": lambda: dglnn.GraphConv(6, 8, allow_zero_in_degree=True),
    "gat": lambda: dglnn.GATConv(6, 4, 2, allow_zero_in_degree=True),
    "relations": lambda: dglnn.RelGraphConv(6, 8, 3, "basis", 2),
}


def layer(name, dtype=torch.float64):
    torch.manual_seed(0)
    return LAYERS[name]().to(dtype)


def call(layer, graph, *tensors):
    kinds = (torch.arange(graph.num_edges()) % 3,) if isinstance(layer, dglnn.RelGraphConv) else ()
    return layer(graph, *tensors, *kinds)


@pytest.fixture(params=LAYERS)
def name(request):
    return request.param


DERIVED = {
    "self loops": lambda g: dgl.add_self_loop(g),
    "reversed": lambda g: g.reverse(),
    "subgraph of edges": lambda g: dgl.edge_subgraph(g, torch.arange(0, 60, 3)),
    "subgraph of nodes": lambda g: dgl.node_subgraph(g, torch.arange(1, 9)),
    "simple": lambda g: dgl.to_simple(g),
    "both directions": lambda g: dgl.to_bidirected(g),
    "batch": lambda g: dgl.batch([g, g.reverse()]),
    "pickled": lambda g: pickle.loads(pickle.dumps(g)),
    "copied": copy.deepcopy,
    "int32": lambda g: g.int(),
    "reordered": lambda g: dgl.reorder_graph(g, "rcmk", store_ids=False),
    "one relation": lambda g: dgl.heterograph({("a", "r", "a"): g.edges(), ("a", "s", "a"): g.edges()[::-1]})["s"],
    "sampled": lambda g: dgl.sampling.sample_neighbors(g, torch.arange(12), 3),
    "edges added later": lambda g: dgl.add_edges(g, [1, 2, 3], [3, 3, 4]),
    "edges removed": lambda g: dgl.remove_edges(g, torch.arange(5, 20)),
}


@pytest.mark.parametrize("derived", DERIVED)
def test_derived_graphs(derived, name):
    dgl.seed(1)
    torch.manual_seed(1)
    graph = DERIVED[derived](multigraph(12, 60))
    with gsb.enabled("dgl"):  # the structures of what it comes from are known
        other = multigraph(12, 60)
        dgl.ops.copy_u_max(other, normal(12, 2))
        dgl.seed(1)
        graph_with = DERIVED[derived](other)
    assert torch.equal(graph_with.edges()[0], graph.edges()[0])
    for each in (graph, graph_with):
        counts = agree(OnGraph(layer(name), each, call), normal(each.num_nodes(), 6))
        assert all(not reasons for _, reasons in counts.values())


@pytest.mark.parametrize("formats", [["coo"], ["csr", "csc"], ["coo", "csc"]], ids="-".join)
def test_restricted_formats(formats, name):
    graph = multigraph(12, 60)
    module = OnGraph(layer(name), graph, call)
    expected = run(module, [normal(12, 6)])
    module.graph = graph.formats(formats)
    try:
        run(module, [normal(12, 6)])
        refused = False
    except dgl.DGLError:  # DGL finds no kernel for these formats: we may
        refused = True
    try:
        with gsb.enabled("dgl"):
            actual = run(module, [normal(12, 6)])
    except dgl.DGLError:
        assert refused
        return
    for one, other in zip(actual, expected):
        torch.testing.assert_close(one, other, **TOLERANCE[torch.float64])
    assert all(not reasons for _, reasons in calls().values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(dtype, name):
    """Matrix products run in half types: what DGL then refuses, it refuses; the rest agrees as far as those types
    go.
    """
    graph, x = dgl.add_self_loop(multigraph(12, 60)), normal(12, 6, dtype=torch.float32)
    module = OnGraph(layer(name, torch.float32), graph, call)

    def under_autocast():
        with torch.autocast("cpu", dtype):
            return run(module, [x])

    try:
        expected = under_autocast()
    except (dgl.DGLError, RuntimeError) as error:  # DGL has no kernels of float16, nor of operands of two types
        assert dtype is torch.float16 or "same type" in str(error), error
        pytest.skip("DGL refuses it")
    with gsb.enabled("dgl"):
        actual = under_autocast()
    for one, other in zip(actual, expected):
        assert one.dtype == other.dtype and one.shape == other.shape
        torch.testing.assert_close(one.float(), other.float(), rtol=0.1, atol=0.1)


class Doubling:
    """A collation that passes messages in a worker."""

    def __init__(self, graph):
        self.graph = graph

    def __call__(self, numbers):
        with gsb.enabled("dgl"):
            x = torch.ones(12, 3) * numbers[0]
            return dgl.ops.copy_u_sum(self.graph, x), dgl.ops.copy_u_max(self.graph, x), calls()["gspmm"]


def test_worker_processes():
    graph, numbers = multigraph(12, 60), list(range(6))
    with gsb.enabled("dgl"):
        dgl.ops.copy_u_sum(graph, torch.ones(12, 3))  # kernels and structures of the parent are inherited
        loader = torch.utils.data.DataLoader(numbers, batch_size=1, num_workers=2, collate_fn=Doubling(graph))
        found = list(loader)
    for number, (sums, maxima, counts) in zip(numbers, found):
        torch.testing.assert_close(sums, dgl.ops.copy_u_sum(graph, torch.ones(12, 3) * number))
        torch.testing.assert_close(maxima, dgl.ops.copy_u_max(graph, torch.ones(12, 3) * number))
        assert counts[1] == {} and counts[0] >= 2


def test_sampled_minibatches_from_workers():
    graph = multigraph(60, 500)
    graph.ndata["h"] = normal(60, 6)
    torch.manual_seed(0)
    layers = torch.nn.ModuleList(
        [dglnn.SAGEConv(6, 6, "mean"), dglnn.GATConv(6, 3, 2, allow_zero_in_degree=True)]
    ).double()

    def epoch():
        sampler = dgl.dataloading.MultiLayerFullNeighborSampler(2, prefetch_node_feats=["h"])
        loader = dgl.dataloading.DataLoader(graph, torch.arange(60), sampler, batch_size=16, num_workers=1)
        for _, _, blocks in loader:
            x = blocks[0].srcdata["h"]
            for block, each in zip(blocks, layers):
                x = each(block, x)
            yield x.detach()

    expected = list(epoch())
    with gsb.enabled("dgl"):
        actual = list(epoch())
        assert all(not reasons for _, reasons in calls().values()) and calls()["attention"][0] == len(expected)
    for one, other in zip(actual, expected):
        torch.testing.assert_close(one, other, **TOLERANCE[torch.float64])


def test_a_graph_with_lazy_features_is_pickled_with_their_values():
    graph = multigraph(12, 60)
    graph.ndata["h"] = normal(12, 3)
    with gsb.enabled("dgl"), graph.local_scope():
        graph.apply_edges(fn.u_mul_v("h", "h", "s"))
        for other in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph), graph.clone()):
            torch.testing.assert_close(
                other.edata["s"] + 0, dgl.ops.u_mul_v(graph, graph.ndata["h"], graph.ndata["h"]) + 0
            )
        part = dgl.edge_subgraph(graph, torch.arange(9))
        torch.testing.assert_close(part.edata["s"], graph.edata["s"][:9])


def test_checkpointed_layers(name):
    graph = multigraph(12, 60)
    module = layer(name)

    def compute(x):
        return torch.utils.checkpoint.checkpoint(lambda x: call(module, graph, x), x, use_reentrant=False)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, x):
            return compute(x)

    counts = agree(Model(), normal(12, 6))
    assert all(not reasons for _, reasons in counts.values())


def test_transforms_of_functions_stay_dgls():
    graph, x = multigraph(12, 60), normal(12, 3)

    def attempt():
        try:
            return torch.func.grad(lambda x: dgl.ops.copy_u_sum(graph, x).pow(2).sum())(x)
        except Exception as error:
            return type(error)

    expected = attempt()
    with gsb.enabled("dgl"):
        actual = attempt()
    assert type(actual) is type(expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected)
    else:
        assert actual is expected


def test_torch_jit_records_dgls_own(name):
    module = OnGraph(layer(name), multigraph(12, 60), call).requires_grad_(False)
    x, other = normal(12, 6), normal(12, 6, seed=1)
    expected = module(other)
    with gsb.enabled("dgl"):
        traced = torch.jit.trace(module, x, check_trace=False)
        counts = calls()
        assert counts and all(set(reasons) == {"torch.jit is tracing"} for _, reasons in counts.values())
        torch.testing.assert_close(traced(other), expected)


def test_deterministic():
    graph = multigraph(12, 600)
    module = OnGraph(layer("gat"), graph, call)
    with gsb.enabled("dgl"):
        first, second = run(module, [normal(12, 6)]), run(module, [normal(12, 6)])
    assert all(torch.equal(one, other) for one, other in zip(first, second))


@pytest.mark.parametrize("name", ["sage", "gat", "relations"])
def test_exporting_a_layer_ends_as_with_dgl_alone(name):
    module = OnGraph(layer(name), multigraph(12, 60), call)

    def error():
        with pytest.raises(RuntimeError, match="Cannot access data pointer of Tensor") as found:
            torch.export.export(module, (normal(12, 6),), strict=False)
        return type(found.value), str(found.value)

    expected = error()
    with gsb.enabled("dgl"):
        assert error() == expected
