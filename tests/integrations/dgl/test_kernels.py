"""What DGL's autograd calls, ``_gspmm`` and ``_gsddmm``: values, chosen sources and edges, shapes and types as DGL's
own.
"""

import dgl
import dgl.backend.pytorch.sparse as dgl_sparse
import pytest
import torch
from dgl._sparse_ops import _gsddmm, _gspmm

import gnn_sparse_backend as gsb
from tests.integrations.dgl.oracle import bipartite, calls, homogeneous, multigraph, normal

NAN, INF = float("nan"), float("inf")


def few(*shape, dtype=torch.float64, seed=0):
    """Values of which many are equal, and some are not numbers or infinite."""
    x = normal(*shape, dtype=dtype, seed=seed).mul(1.5).round()
    flat = x.view(-1)
    for at, value in enumerate((NAN, INF, -INF)):
        flat[at::17] = value
    return x


def same(ours, theirs, tolerance=0.0):
    if theirs is None:
        assert ours is None
        return
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    if tolerance:
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def same_spmm(index, op, reduce, u, e):
    expected, args = _gspmm(index, op, reduce, u, e)
    with gsb.enabled("dgl"):
        actual, chosen = dgl_sparse._gspmm(index, op, reduce, u, e)
        assert calls()["gspmm"][1] == {}
    same(actual, expected, 1e-12 if reduce == "sum" else 0.0)
    for one, other in zip(chosen, args):
        same(one, other)


@pytest.fixture(params=[torch.int32, torch.int64], ids=str)
def graph(request, structure):
    return bipartite(*structure, idtype=request.param)


@pytest.mark.parametrize("reduce", ["sum", "max", "min"])
@pytest.mark.parametrize("op", ["copy_lhs", "copy_rhs", "add"])
def test_reductions_of_every_structure(graph, op, reduce):
    same_spmm(graph._graph, op, reduce, few(graph.num_src_nodes(), 4), few(graph.num_edges(), 4, seed=1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "op, u, e",
    [
        ("copy_lhs", (3,), (3,)),
        ("copy_lhs", (), ()),
        ("copy_rhs", (3,), (3,)),
        ("copy_rhs", (), ()),
        ("add", (3,), (3,)),
        ("sub", (3,), ()),
        ("mul", (), ()),
        ("mul", (), (1,)),
        ("div", (1,), ()),
        ("add", (), (3,)),
        ("mul", (2, 3), (2, 1)),
        ("sub", (2, 3), (3,)),
        ("mul", (3,), (2, 1)),
    ],
)
def test_who_is_chosen_among_equal_messages(op, u, e, dtype):
    """DGL's kernels do not agree on it: it is the first or the last by type and broadcasting."""
    graph = multigraph(12, 150)
    u, e = few(12, *u, dtype=dtype), few(150, *e, dtype=dtype, seed=1)
    for reduce in ("max", "min"):
        same_spmm(graph._graph, op, reduce, u, e)
        same_spmm(graph._graph.reverse(), op, reduce, u, e)


def test_without_just_in_time_kernels_dgl_chooses_the_first():
    graph, x = multigraph(12, 150), few(12, 4, dtype=torch.float32)
    assert dgl.is_libxsmm_enabled()
    dgl.use_libxsmm(False)
    try:
        same_spmm(graph._graph, "copy_lhs", "max", x, None)
    finally:
        dgl.use_libxsmm(True)
    same_spmm(graph._graph, "copy_lhs", "max", x, None)


def tied_graphs():
    plain = lambda: multigraph(9, 80)
    edges = plain().edges()
    return {
        "reversed": lambda: dgl.reverse(plain()),
        "reversed, the other way known": lambda: dgl.reverse(plain().formats(["csr"])).formats(["csr", "csc", "coo"]),
        "csc alone": lambda: plain().formats(["csc"]),
        "sources sorted": lambda: dgl.sort_csc_by_tag(plain(), torch.arange(9) % 3),
        "self loops": lambda: dgl.add_self_loop(plain()),
        "subgraph": lambda: dgl.edge_subgraph(plain(), torch.arange(79, 10, -2)),
        "block": lambda: dgl.to_block(plain()),
        "relation": lambda: dgl.heterograph({("a", "r", "a"): edges, ("a", "s", "a"): edges[::-1]})["s"],
        "batch": lambda: dgl.batch([plain(), dgl.reverse(plain())]),
        "sampled": lambda: dgl.sampling.sample_neighbors(plain(), torch.arange(9), 4),
    }


@pytest.mark.parametrize("name", tied_graphs())
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_ties_follow_dgls_order_of_edges(name, dtype):
    graph = tied_graphs()[name]()
    u, e = few(graph.num_src_nodes(), 4, dtype=dtype), few(graph.num_edges(), 4, dtype=dtype, seed=1)
    v = few(graph.num_dst_nodes(), 4, dtype=dtype)
    with gsb.enabled("dgl"):  # the structure of the one direction comes from that of the other
        dgl.ops.copy_e_sum(graph, e)
        for index, x in ((graph._graph, u), (graph._graph.reverse(), v)):
            if name != "csc alone" or x is u:
                actual, (_, chosen) = dgl_sparse._gspmm(index, "add", "max", x, e)
                expected, (_, args) = _gspmm(index, "add", "max", x, e)
                same(actual, expected)
                same(chosen, args)


def test_ties_of_a_list_of_edges_alone():
    """There DGL's threads race for them: any edge of the maximum is right."""
    graph = multigraph(9, 80).formats(["coo"])
    e = few(80, 4).nan_to_num()
    with gsb.enabled("dgl"):
        actual, (_, chosen) = dgl_sparse._gspmm(graph._graph, "copy_rhs", "max", None, e)
    expected, _ = _gspmm(graph._graph, "copy_rhs", "max", None, e)
    same(actual, expected)
    degrees = graph.in_degrees() > 0
    assert torch.equal(e.gather(0, chosen)[degrees], expected[degrees])
    rows = torch.arange(9).unsqueeze(1).expand(-1, 4)
    assert torch.equal(graph.edges()[1][chosen][degrees], rows[degrees])


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "dot", "copy_lhs", "copy_rhs"])
@pytest.mark.parametrize("targets", ["uv", "ue", "ve", "ev", "uu", "vv", "ee"])
def test_values_at_the_edges(op, targets):
    graph = bipartite([1, 4, 0, 4, 4, 2, 4], [0, 1, 3, 3, 5, 5, 1], (6, 8), torch.int32)
    count = {"u": 8, "v": 6, "e": 7}
    shapes = [((), ()), ((2, 3), (3,))] if targets in ("uv", "ev") else [((3,), (3,))]
    for first, second in shapes:
        x, y = few(count[targets[0]], *first), few(count[targets[1]], *second, seed=1)
        expected = _gsddmm(graph._graph, op, x, y, *targets)
        with gsb.enabled("dgl"):
            actual = dgl_sparse._gsddmm(graph._graph, op, x, y, *targets)
            assert calls()["gsddmm"][1] == {}
        same(actual, expected, 0.0 if op.startswith("copy") else 1e-12)


def test_the_long_names_of_targets():
    graph, x, e = dgl.rand_graph(6, 20), normal(6, 3), normal(20, 3, seed=1)
    for targets in (("src", "dst"), ("src", "edge")):
        y = x if targets[1] == "dst" else e
        expected = _gsddmm(graph._graph, "mul", x, y, *targets)
        with gsb.enabled("dgl"):
            same(dgl_sparse._gsddmm(graph._graph, "mul", x, y, *targets), expected, 1e-12)


def test_values_at_the_edges_of_every_structure(graph):
    x, y = normal(graph.num_src_nodes(), 5), normal(graph.num_dst_nodes(), 5, seed=1)
    for op in ("dot", "sub", "copy_rhs"):
        expected = _gsddmm(graph._graph, op, x, y)
        with gsb.enabled("dgl"):
            same(dgl_sparse._gsddmm(graph._graph, op, x, y), expected, 1e-12)
            assert calls()["gsddmm"][1] == {}


def test_a_tape_of_dgls_own_is_played_back_on_our_kernels():
    graph = homogeneous([1, 4, 0, 4, 4, 2, 4], [0, 1, 3, 3, 5, 5, 1], (6, 6))
    x, w = normal(6, 4).requires_grad_(), normal(7, 4, seed=1).requires_grad_()
    compute = lambda: (
        dgl.ops.u_mul_e_sum(graph, x, w).sum()
        + dgl.ops.u_dot_v(graph, x, x).sum()
        + dgl.ops.edge_softmax(graph, w).pow(2).sum()
        + dgl.ops.copy_u_max(graph, x).sum()
    )
    expected = torch.autograd.grad(compute(), [x, w])
    total = compute()
    with gsb.enabled("dgl"):
        actual = torch.autograd.grad(total, [x, w])
        assert calls() == {"gspmm": (3, {}), "gsddmm": (1, {}), "edge_softmax_backward": (1, {})}
    for one, other in zip(actual, expected):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
