"""One operator on all edge types of a graph at once, and the layers of dgl.nn for such graphs."""

import dgl
import dgl.backend.pytorch.sparse as dgl_sparse
import dgl.function as fn
import dgl.nn.pytorch as dglnn
import pytest
import torch
from dgl._sparse_ops import _gsddmm_hetero, _gspmm_hetero

import gnn_sparse_backend as gsb
from tests.integrations.dgl.oracle import agree, calls, normal
from tests.integrations.dgl.test_kernels import few, same


def relations(idtype=torch.int64):
    """Two edge types into b, one into a; nothing into or out of c."""
    draw = lambda high, n, seed: torch.randint(high, (n,), generator=torch.Generator().manual_seed(seed))
    return dgl.heterograph(
        {
            ("a", "r", "b"): (draw(10, 60, 0), draw(12, 60, 1)),
            ("b", "s", "b"): (draw(12, 40, 2), draw(12, 40, 3)),
            ("b", "t", "a"): (draw(12, 5, 4), draw(10, 5, 5)),
        },
        num_nodes_dict={"a": 10, "b": 12, "c": 3},
        idtype=idtype,
    )


@pytest.fixture(params=[torch.int32, torch.int64], ids=str)
def graph(request):
    return relations(request.param)


def same_lists(ours, theirs, tolerance=0.0):
    assert len(ours) == len(theirs) and type(ours) is type(theirs)
    for one, other in zip(ours, theirs):
        same(one, other, tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("reduce", ["sum", "max", "min"])
@pytest.mark.parametrize(
    "op, u, e",
    [
        ("copy_lhs", (3,), (3,)),
        ("copy_lhs", (), ()),
        ("copy_rhs", (3,), (3,)),
        ("copy_rhs", (), ()),
        ("mul", (3,), (3,)),
        ("add", (), ()),
        ("add", (2, 3), (2, 1)),
        ("div", (3,), (1,)),
        ("sub", (), (3,)),
    ],
)
def test_reductions_over_all_edge_types(graph, op, reduce, u, e, dtype):
    sources = [few(10, *u, dtype=dtype), few(12, *u, dtype=dtype, seed=1), None]
    edges = [few(graph.num_edges(each), *e, dtype=dtype, seed=at + 2) for at, each in enumerate(graph.etypes)]
    features = (*sources, *edges)
    if op == "copy_lhs":
        features = (*sources, None, None, None)
    if op == "copy_rhs":
        features = (None, None, None, *edges)
    expected, args = _gspmm_hetero(graph._graph, op, reduce, 3, features)
    with gsb.enabled("dgl"):
        actual, chosen = dgl_sparse._gspmm_hetero(graph._graph, op, reduce, 3, features)
        assert calls() == {"gspmm_hetero": (1, {})}
    same_lists(actual, expected, 0.0 if reduce != "sum" else 1e-12 if dtype is torch.float64 else 1e-5)
    for one, other in zip(chosen, args):
        same_lists(one, other)


@pytest.mark.parametrize(
    "op, first, second, targets",
    [
        ("add", (3,), (3,), "uv"),
        ("dot", (2, 3), (2, 3), "uv"),
        ("mul", (2, 3), (2, 1), "ve"),
        ("sub", (), (), "ev"),
        ("div", (3,), (1,), "ue"),
        ("copy_lhs", (3,), (), "uv"),
        ("copy_rhs", (), (3,), "uv"),
        ("copy_rhs", (), (), "uv"),
    ],
)
def test_values_at_the_edges_of_all_types(graph, op, first, second, targets):
    def features(target, shape, seed):
        if target == "e":
            return [normal(graph.num_edges(each), *shape, seed=seed + at) for at, each in enumerate(graph.etypes)]
        return [normal(10, *shape, seed=seed), normal(12, *shape, seed=seed + 1), None]

    lhs, rhs = features(targets[0], first, 0), features(targets[1], second, 3)
    expected = _gsddmm_hetero(graph._graph, op, 3, *targets, (*lhs, *rhs))
    with gsb.enabled("dgl"):
        actual = dgl_sparse._gsddmm_hetero(graph._graph, op, 3, *targets, (*lhs, *rhs))
        assert calls() == {"gsddmm_hetero": (1, {})}
    same_lists(actual, expected, 1e-12)


def node_features(width=3, dtype=torch.float64):
    return normal(10, width, dtype=dtype), normal(12, width, dtype=dtype, seed=1)


def edge_features(graph, *shape, dtype=torch.float64):
    return [
        normal(graph.num_edges(each), *shape, dtype=dtype, seed=at + 5)
        for at, each in enumerate(graph.canonical_etypes)
    ]


def passing(graph, message, reduce):
    """The destinations' results of one ``update_all`` over all edge types."""

    def compute(a, b, *edges):
        with graph.local_scope():
            graph.nodes["a"].data["h"], graph.nodes["b"].data["h"] = a, b
            for each, e in zip(graph.canonical_etypes, edges):
                graph.edges[each].data["w"] = e
            graph.update_all(message, reduce)
            return torch.cat([graph.nodes[each].data["o"] for each in "ab"])

    return compute


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("reduce", [fn.sum("m", "o"), fn.max("m", "o"), fn.min("m", "o")], ids=lambda r: r.name)
@pytest.mark.parametrize(
    "message",
    [fn.copy_u("h", "m"), fn.copy_e("w", "m"), fn.u_add_e("h", "w", "m"), fn.u_mul_e("h", "w", "m")],
    ids=lambda m: m.name,
)
def test_update_all(graph, message, reduce, dtype):
    if message.name in ("u_add_e", "u_mul_e") and reduce.name != "sum":
        pytest.skip("DGL has no gradient for it")
    if dtype is torch.float32 and message.name == "copy_e" and reduce.name != "sum":
        pytest.skip("covered in float64")
    counts = agree(passing(graph, message, reduce), *node_features(dtype=dtype), *edge_features(graph, 3, dtype=dtype))
    ran, fell_back = counts["gspmm_hetero"]
    assert ran >= 1 and fell_back == {} and all(not reasons for _, reasons in counts.values())


@pytest.mark.parametrize("norm_by", ["dst", "src"])
def test_softmax_over_the_edges_of_all_types(graph, norm_by):
    def compute(*scores):
        out = dgl.ops.edge_softmax(graph, dict(zip(graph.canonical_etypes, scores)), norm_by=norm_by)
        return torch.cat([out[each] for each in graph.canonical_etypes])

    counts = agree(compute, *edge_features(graph, 2))
    assert counts == {"gspmm_hetero": (3, {}), "gsddmm_hetero": (3, {})}


def test_values_between_all_ends_at_once(graph):
    def compute(a, b):
        with graph.local_scope():
            graph.nodes["a"].data["h"], graph.nodes["b"].data["h"] = a, b
            graph.apply_edges(fn.u_dot_v("h", "h", "s"))
            return torch.cat([graph.edges[each].data["s"] for each in graph.canonical_etypes])

    assert agree(compute, *node_features())["gsddmm_hetero"] == (1, {})


def test_a_first_edge_type_without_edges_stays_dgls():
    """DGL then computes nothing for any type; whoever relies on the zeros keeps them."""
    graph = dgl.heterograph({("a", "r", "a"): ([], []), ("a", "s", "a"): ([0, 1], [1, 2])}, num_nodes_dict={"a": 3})
    x = normal(3, 2)
    for reduce in ("sum", "max"):
        expected, _ = _gspmm_hetero(graph._graph, "copy_lhs", reduce, 1, (x, None, None))
        with gsb.enabled("dgl"):
            actual, _ = dgl_sparse._gspmm_hetero(graph._graph, "copy_lhs", reduce, 1, (x, None, None))
        same_lists(actual, expected)
        assert not actual[0].any()


def test_edge_types_whose_features_differ_keep_dgls_error(graph):
    features = (normal(10, 3), normal(12, 4), None, None, None, None)
    with pytest.raises(dgl.DGLError, match="must be same"):
        _gspmm_hetero(graph._graph, "copy_lhs", "sum", 3, features)
    with gsb.enabled("dgl"), pytest.raises(dgl.DGLError, match="must be same"):
        dgl_sparse._gspmm_hetero(graph._graph, "copy_lhs", "sum", 3, features)
    assert calls() == {"gspmm_hetero": (0, {"features of edge types differ in shape or type": 1})}


def test_relations_of_a_model_one_by_one(graph):
    convolution = dglnn.HeteroGraphConv(
        {
            "r": dglnn.GATConv(3, 4, 2, allow_zero_in_degree=True),
            "s": dglnn.SAGEConv(3, 8, "pool"),
            "t": dglnn.GINConv(torch.nn.Linear(3, 8), "max"),
        },
        aggregate=lambda found, _: sum(x.flatten(1) for x in found),
    ).double()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = convolution

        def forward(self, a, b):
            out = self.convolution(graph, ({"a": a, "b": b}, {"a": a, "b": b}))
            return torch.cat(list(out.values()))

    counts = agree(Model(), *node_features())
    assert all(not reasons for _, reasons in counts.values()) and counts["gspmm"][0] >= 2
