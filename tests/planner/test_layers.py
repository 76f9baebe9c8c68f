"""Layers and models of the frameworks compile nothing after gsb.precompile on their graph, and the data that it takes
for them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import stats
from gnn_sparse_backend.integrations.core.foreign import structures_of
from models import data as model_data
from models import relational_data
from models.prepare import prepare
from models.train import Config, train

pytestmark = [pytest.mark.usefixtures("plans", "two_threads"), pytest.mark.filterwarnings("ignore")]
NODES, EDGES, KINDS, HEADS, IN, OUT = 200, 1500, 5, 3, 18, 7
MODULES = {"dgl": "dgl", "pyg": "torch_geometric"}
SIZES = {"nodes": 300, "edges": 2000, "seed": 0}


def edges():
    generator = torch.Generator().manual_seed(0)
    return torch.randint(NODES, (2, EDGES), generator=generator), torch.randint(KINDS, (EDGES,), generator=generator)


def _dgl(name):
    from dgl import nn

    types, norm = edges()[1], torch.rand(EDGES, 1)
    return {
        "gat_attention": ((HEADS, OUT), lambda: nn.GATConv(IN, OUT, HEADS, allow_zero_in_degree=True), ()),
        "gatv2_attention": ((HEADS, OUT), lambda: nn.GATv2Conv(IN, OUT, HEADS, allow_zero_in_degree=True), ()),
        "weighted_rgms_bases": ((IN, OUT, 2), lambda: nn.RelGraphConv(IN, OUT, KINDS, "basis", 2), (types, norm)),
        "rgms_blocks": ((IN, 2 * IN, 6), lambda: nn.RelGraphConv(IN, 2 * IN, KINDS, "bdd", 6), (types,)),
    }[name]


def _pyg(name):
    from torch_geometric import nn

    types = edges()[1]
    return {
        "gat_attention": ((HEADS, OUT), lambda: nn.GATConv(IN, OUT, HEADS, add_self_loops=False), ()),
        "gatv2_attention": ((HEADS, OUT), lambda: nn.GATv2Conv(IN, OUT, HEADS, add_self_loops=False), ()),
        "attention": ((HEADS, OUT), lambda: nn.TransformerConv(IN, OUT, HEADS), ()),
        "rgms_mean": ((IN, OUT), lambda: nn.RGCNConv(IN, OUT, KINDS), (types,)),
        "rgms_bases_mean": ((IN, OUT, 2), lambda: nn.RGCNConv(IN, OUT, KINDS, num_bases=2), (types,)),
    }[name]


@pytest.mark.short(3)
@pytest.mark.parametrize(
    "framework, name",
    [
        *[("dgl", name) for name in ("gat_attention", "gatv2_attention", "weighted_rgms_bases", "rgms_blocks")],
        *[("pyg", name) for name in ("gat_attention", "gatv2_attention", "attention", "rgms_mean", "rgms_bases_mean")],
    ],
)
def test_layers_compile_nothing(framework, name):
    pytest.importorskip(MODULES[framework])
    index, types = edges()
    if framework == "dgl":
        import dgl

        graph = dgl.graph((index[0], index[1]), num_nodes=NODES)
        graph.edata["_TYPE"] = types
        data, (width, make, more) = graph, _dgl(name)
        call = lambda layer, x: layer(graph, x, *more)
    else:
        from torch_geometric.data import Data

        data, (width, make, more) = Data(edge_index=index, edge_type=types, num_nodes=NODES), _pyg(name)
        call = lambda layer, x: layer(x, index, *more)
    assert gsb.precompile(data, {name: width}, budget="60s", progress=False).complete
    layer, x = make(), torch.randn(NODES, IN, requires_grad=True)
    before = stats()
    with gsb.enabled(framework):
        out = call(layer, x)
        out.backward(torch.ones_like(out))
    assert (stats().compiles, stats().disk_loads) == (before.compiles, before.disk_loads)


@pytest.mark.slow
@pytest.mark.parametrize("framework, model", [("dgl", "rgcn"), ("pyg", "sage")])
def test_models_compile_nothing(framework, model):
    pytest.importorskip(MODULES[framework])
    source = relational_data if model == "rgcn" else model_data
    dataset = source.load("generated", framework, **SIZES)
    config = Config(hidden=19, epochs=2, model=model, bases=3, precompile="60s")
    report = prepare(framework, dataset, config)
    assert report.complete and report.rows
    before = stats()
    (run,) = train(framework, ["on"], dataset, replace(config, precompile=""))
    assert (stats().compiles, stats().disk_loads) == (before.compiles, before.disk_loads)
    assert run.own_calls and not run.framework_calls
    (other,) = train(framework, ["on"], dataset, config)  # which prepares by itself
    assert other.losses == run.losses


def test_a_model_says_what_time_is_none():
    with pytest.raises(ValueError, match="'soon'"):
        Config(precompile="soon")


def dgl_hetero():
    dgl = pytest.importorskip("dgl")
    return dgl.heterograph(
        {
            ("a", "x", "b"): (torch.tensor([0, 1]), torch.tensor([2, 2])),
            ("b", "y", "a"): (torch.tensor([2]), torch.tensor([0])),
        }
    )


def dgl_typed(key):
    dgl = pytest.importorskip("dgl")
    graph = dgl.graph((torch.tensor([0, 1, 4]), torch.tensor([4, 4, 0])), num_nodes=5)
    graph.edata[key] = torch.tensor([0, 0, 1])
    return graph


def pyg_hetero():
    pytest.importorskip("torch_geometric")
    from torch_geometric.data import HeteroData

    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 2, 3
    data["a", "x", "b"].edge_index = torch.tensor([[0, 1], [2, 2]])
    data["b", "y", "a"].edge_index = torch.tensor([[2], [0]])
    return data


def pyg_typed():
    pytest.importorskip("torch_geometric")
    from torch_geometric.data import Data

    return Data(edge_index=torch.tensor([[0, 1, 4], [4, 4, 0]]), edge_type=torch.tensor([0, 0, 1]), num_nodes=5)


TYPED = {
    "DGL heterograph": dgl_hetero,
    "DGL _TYPE": lambda: dgl_typed("_TYPE"),
    "DGL etype": lambda: dgl_typed("etype"),
    "PyG HeteroData": pyg_hetero,
    "PyG Data": pyg_typed,
    "pair": lambda: (torch.tensor([[0, 1, 4], [4, 4, 0]]), torch.tensor([0, 0, 1])),
}


@pytest.mark.parametrize("kind", TYPED)
def test_edges_with_types_are_read_as_relations(kind):
    """Nodes a stand before nodes b: the edges are those of one graph of five nodes."""
    data = TYPED[kind]()
    ((name, found),) = structures_of(data, (gsb.RelGraph,))
    assert (found.shape, found.num_relations) == ((5, 5), 2) and "3 edges, 2 relations" in name
    assert [found.source.tolist(), found.destination.tolist(), found.relation.tolist()] == [
        [0, 1, 4],
        [4, 4, 0],
        [0, 0, 1],
    ]
    both = [structure for _, structure in structures_of([data], (gsb.Graph, gsb.RelGraph))]
    types = 2 if "etero" in kind else 1
    assert [type(each) for each in both] == [gsb.Graph] * types + [gsb.RelGraph]
    assert sum(graph.num_edges for graph in both[:-1]) == 3
    report = gsb.precompile(data, {"sum": 4, "rgms": (4, 6)}, budget=0, backward=False, progress=False)
    assert [row.op for row in report.rows] == ["sum"] * types + ["rgms"]


def test_graphs_without_edge_types_have_no_relations():
    pytest.importorskip("torch_geometric")
    from torch_geometric.data import Data

    plain = Data(edge_index=edges()[0], num_nodes=NODES)
    for data in (plain, edges()[0], [edges()[0]], torch.eye(3).to_sparse()):
        with pytest.raises(ValueError, match="RelGraph.*it has no types of edges"):
            gsb.precompile(data, 8, ("sum", "rgms"), progress=False)
    with pytest.raises(ValueError, match="gsb.Segments, which an object of type Data is not"):
        gsb.precompile(plain, 8, "segment_mm", progress=False)
    with pytest.raises(TypeError, match="no graph in an object of type"):
        gsb.precompile(3, 8, "rgms", progress=False)
    hetero = pyg_hetero()
    hetero["a", "x", "b"].adj_t = torch.eye(3, 2).to_sparse_csr()
    del hetero["a", "x", "b"].edge_index
    with pytest.raises(ValueError, match="edge_index, which .*'x'.* of this HeteroData has not got"):
        gsb.precompile(hetero, 8, "rgms", progress=False)


@pytest.mark.parametrize("framework", MODULES)
def test_dataset_transforms(framework):
    pytest.importorskip(MODULES[framework])
    if framework == "dgl":
        from gnn_sparse_backend.integrations.dgl.transform import Precompile
    else:
        from gnn_sparse_backend.integrations.pyg.transform import Precompile

    data = {"dgl": lambda: dgl_typed("etype"), "pyg": pyg_typed}[framework]()
    transform = Precompile({"edge_softmax": 3, "rgms_mean": iter([(4, 6)])}, budget="20s")
    for _ in range(2):
        assert transform(data) is data or framework == "pyg"  # PyG hands out shallow copies
    for report in transform.reports:
        assert [row.op for row in report.rows] == [
            "edge_softmax and backward",
            "rgms_mean and backward",
        ] and report.complete
    assert len(transform.reports) == 2
    with pytest.raises(ValueError, match="'rgsm'"):
        Precompile(8, ("rgsm",))
