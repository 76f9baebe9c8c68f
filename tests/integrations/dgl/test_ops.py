"""dgl.ops with the backend on against the same with it off: results, gradients and what ran where."""

import dgl
import pytest
import torch

import gnn_sparse_backend as gsb
from tests.integrations.dgl.oracle import agree, bipartite, homogeneous, normal

# gradients are of one operator with the result, and not counted again
ONLY_OURS_SUM = {"gspmm": (1, {})}
ONLY_OURS_MEAN = {"gspmm_mean": (1, {})}
ONLY_OURS_EDGES = {"gsddmm": (1, {})}
# with PyTorch 2.4 DGL's own gradient of a maximum over one row is wrong, since this is
GATHERS_ONE_ROW = torch.eye(2).gather(0, torch.tensor([0, 1]).as_strided((1, 2), (1, 1))).sum() == 2


@pytest.fixture(params=[torch.int32, torch.int64], ids=str)
def graph(request, structure):
    return bipartite(*structure, idtype=request.param)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("reduce, counts", [("sum", ONLY_OURS_SUM), ("mean", ONLY_OURS_MEAN)])
def test_copied_source_features(graph, dtype, reduce, counts):
    x = normal(graph.num_src_nodes(), 7, dtype=dtype)
    assert agree(lambda x: getattr(dgl.ops, f"copy_u_{reduce}")(graph, x), x) == counts
    assert agree(lambda x: dgl.ops.gspmm(graph, "copy_lhs", reduce, x, None), x) == counts


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_weighted_source_features(graph, dtype):
    x, w = normal(graph.num_src_nodes(), 5, dtype=dtype), normal(graph.num_edges(), dtype=dtype, seed=1)
    assert agree(lambda x, w: dgl.ops.u_mul_e_sum(graph, x, w), x, w) == ONLY_OURS_SUM
    assert agree(lambda x, w: dgl.ops.u_mul_e_mean(graph, x, w), x, w) == ONLY_OURS_MEAN


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_dot_products_of_both_ends(graph, dtype):
    u, v = normal(graph.num_src_nodes(), 3, 6, dtype=dtype), normal(graph.num_dst_nodes(), 3, 6, dtype=dtype, seed=1)
    assert agree(lambda u, v: dgl.ops.u_dot_v(graph, u, v), u, v) == ONLY_OURS_EDGES
    assert agree(lambda u, v: dgl.ops.v_dot_u(graph, v, u), u, v) == ONLY_OURS_EDGES


def test_summed_edge_features(graph):
    e = normal(graph.num_edges(), 4)
    assert agree(lambda e: dgl.ops.copy_e_sum(graph, e), e) == ONLY_OURS_SUM
    assert agree(lambda e: dgl.ops.copy_e_mean(graph, e), e) == ONLY_OURS_MEAN


@pytest.mark.short(8)
@pytest.mark.parametrize(
    "op, features, edge_features",
    [
        ("mul", (), ()),
        ("mul", (8,), ()),
        ("mul", (8,), (1,)),
        ("mul", (8,), (8,)),
        ("mul", (1,), (5,)),
        ("mul", (3, 4), (1,)),
        ("mul", (3, 4), (3, 1)),
        ("mul", (3, 4), (1, 4)),
        ("mul", (3, 1), (1, 4)),
        ("mul", (2, 3, 4), (2, 1, 4)),
        ("mul", (4,), (2, 1, 1)),
        ("add", (3, 1), (1, 4)),
        ("add", (8,), (8,)),
        ("sub", (2, 3, 4), (2, 1, 4)),
        ("sub", (8,), ()),
        ("div", (3, 4), (3, 1)),
        ("div", (1,), (5,)),
    ],
)
def test_every_operator_and_every_way_to_broadcast(op, features, edge_features):
    graph = dgl.rand_graph(20, 90)
    x, w = normal(20, *features), normal(90, *edge_features, seed=1)
    w = w.sign() * (w.abs() + 0.5) if op == "div" else w
    assert agree(lambda x, w: getattr(dgl.ops, f"u_{op}_e_sum")(graph, x, w), x, w) == ONLY_OURS_SUM
    if op in ("sub", "div"):
        assert agree(lambda x, w: getattr(dgl.ops, f"u_{op}_e_mean")(graph, x, w), x, w) == ONLY_OURS_MEAN
        assert agree(lambda x, w: getattr(dgl.ops, f"u_{op}_e_max")(graph, x, w), x, w) == ONLY_OURS_SUM


@pytest.mark.parametrize("lhs, rhs", [("u", "v"), ("v", "u"), ("u", "e"), ("e", "u"), ("v", "e"), ("e", "v")])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "dot"])
def test_every_operator_at_every_pair_of_ends(op, lhs, rhs):
    graph = bipartite([1, 4, 0, 4, 4, 2, 4], [0, 1, 3, 3, 5, 5, 1], (6, 7))
    count = {"u": 7, "v": 6, "e": 7}
    function = getattr(dgl.ops, f"{lhs}_{op}_{rhs}")
    first, second = ((2, 1, 4), (3, 4)) if op in ("add", "dot") else ((4,), (4,)) if op == "mul" else ((), ())
    x, y = normal(count[lhs], *first), normal(count[rhs], *second, seed=1)
    y = y.sign() * (y.abs() + 0.5) if op == "div" else y
    assert agree(lambda x, y: function(graph, x, y), x, y) == ONLY_OURS_EDGES


def test_dot_products_of_scalars():
    graph = dgl.rand_graph(20, 90)
    for lhs, rhs in (((), ()), ((), (1,)), ((1,), (1,)), ((2, 1), (1,))):
        counts = agree(lambda x, y: dgl.ops.u_dot_e(graph, x, y), normal(20, *lhs), normal(90, *rhs, seed=1))
        assert counts == ONLY_OURS_EDGES


def test_copies_to_the_edges(graph):
    x, y = normal(graph.num_src_nodes(), 2, 3), normal(graph.num_dst_nodes(), 5)
    assert agree(lambda x: dgl.ops.copy_u(graph, x), x) == ONLY_OURS_EDGES
    assert agree(lambda y: dgl.ops.copy_v(graph, y), y) == ONLY_OURS_EDGES


@pytest.mark.parametrize("features", [(), (1,), (9,), (3, 5), (2, 3, 4)])
def test_every_feature_shape_copied(features):
    graph = dgl.rand_graph(20, 90)
    assert agree(lambda x: dgl.ops.copy_u_sum(graph, x), normal(20, *features)) == ONLY_OURS_SUM
    assert agree(lambda x: dgl.ops.copy_u_mean(graph, x), normal(20, *features)) == ONLY_OURS_MEAN
    assert agree(lambda x: dgl.ops.copy_u_max(graph, x), normal(20, *features)) == ONLY_OURS_SUM


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_maxima_and_their_gradients(graph, reduce, dtype):
    """Few distinct values: most maxima are ties, whose gradient goes where DGL sends it."""
    if graph.num_src_nodes() == 0 or graph.num_edges() == 0:
        pytest.skip("DGL scatters gradients to node and edge 0, which are not there")
    if graph.num_dst_nodes() == 1 and not GATHERS_ONE_ROW:
        pytest.skip("this PyTorch gathers one row of strides (1, 1) wrongly, from which DGL has its gradient")
    x = normal(graph.num_src_nodes(), 5, dtype=dtype).round()
    w = normal(graph.num_edges(), 5, dtype=dtype, seed=1).round()
    assert agree(lambda x: getattr(dgl.ops, f"copy_u_{reduce}")(graph, x), x) == ONLY_OURS_SUM
    assert agree(lambda x, w: getattr(dgl.ops, f"u_mul_e_{reduce}")(graph, x, w), x, w) == ONLY_OURS_SUM
    assert agree(lambda x, w: getattr(dgl.ops, f"u_add_e_{reduce}")(graph, x, w), x, w[:, :1]) == ONLY_OURS_SUM


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("edges, features", [(60, (2,)), (60, (7,)), (600, (2, 1)), (600, (7,)), (600, (3, 20))])
def test_maxima_whichever_way_their_gradient_goes(edges, features, dtype):
    """Few edges and many, narrow and wide; some destinations without edges, or with sources alone that are NaN
    throughout.
    """
    ends = torch.randint(20, (2, edges), generator=torch.Generator().manual_seed(3))
    ends[0][ends[0] < 3] = 3
    ends[1][ends[0] == 4] = 5
    graph = homogeneous(*ends.tolist(), (20, 20))
    x = normal(20, *features, dtype=dtype).round()
    x[5] = float("nan")

    def gradient(x):
        y = dgl.ops.copy_u_max(graph, x).clamp(-9, 9)
        return torch.autograd.grad((y**2).sum(), x, create_graph=True)[0]

    assert agree(lambda x: dgl.ops.copy_u_max(graph, x), x) == ONLY_OURS_SUM
    assert agree(lambda x: dgl.ops.copy_u_min(graph, x), x) == ONLY_OURS_SUM
    agree(gradient, x)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t().contiguous().t(),
        lambda x: torch.cat([x, x, x], dim=1)[:, x.shape[1] : 2 * x.shape[1]],
        lambda x: torch.cat([x, x])[::2],
        lambda x: x[:1].expand(x.shape[0], -1),
        lambda x: torch.cat([x.new_zeros(1), x.reshape(-1)])[1:].view(x.shape),  # aligned to its elements only
    ],
)
def test_operands_that_are_not_contiguous(view):
    graph = homogeneous([1, 4, 0, 4, 4, 2], [0, 1, 3, 3, 5, 5], (6, 6))
    x, w = normal(6, 9), normal(6, 1, seed=1)
    assert agree(lambda x, w: dgl.ops.u_mul_e_sum(graph, view(x), w), x, w) == ONLY_OURS_SUM
    assert agree(lambda x, w: dgl.ops.u_mul_e_sum(graph, x, view(w)), x, w) == ONLY_OURS_SUM
    # The cotangent of an expanded reduction is itself expanded
    assert agree(lambda x: dgl.ops.copy_u_sum(graph, x).sum(), x) == ONLY_OURS_SUM


def test_infinities_and_nans_go_where_dgl_sends_them():
    graph = homogeneous([1, 4, 0, 4, 4, 2, 0], [0, 1, 3, 3, 5, 5, 0], (7, 6))
    x, w = normal(7, 20), normal(7, 1, seed=1)
    x[0, 3], x[1, 4], x[3, 5], w[2] = float("inf"), -float("inf"), float("nan"), float("inf")
    x[6] = float("nan")  # no edge leaves it
    expected = dgl.ops.u_mul_e_sum(graph, x, w), dgl.ops.copy_u_sum(graph, x), dgl.ops.u_dot_v(graph, x, x)
    with gsb.enabled("dgl"):
        actual = dgl.ops.u_mul_e_sum(graph, x, w), dgl.ops.copy_u_sum(graph, x), dgl.ops.u_dot_v(graph, x, x)
    for one, other in zip(actual, expected):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types(dtype):
    """At least what DGL accepts, accumulated no worse: checked against float64 of the same rounded inputs."""
    graph = dgl.rand_graph(30, 400)
    x, w = normal(30, 16, dtype=dtype), normal(400, 1, dtype=dtype, seed=1)
    with gsb.enabled("dgl"):
        actual = dgl.ops.u_mul_e_sum(graph, x, w)
    assert actual.dtype == dtype
    expected = dgl.ops.u_mul_e_sum(graph, x.double(), w.double())
    torch.testing.assert_close(actual.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-2)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_gradients_of_gradients(reduce):
    graph = dgl.rand_graph(15, 60)
    x, w = normal(15, 4), normal(60, 1, seed=1)

    def penalty(x, w):
        out = getattr(dgl.ops, f"u_mul_e_{reduce}")(graph, x, w)
        grad_x, grad_w = torch.autograd.grad(out.pow(2).sum(), [x, w], create_graph=True)
        return grad_x.pow(2).sum() + grad_w.pow(3).sum()

    counts = agree(penalty, x, w)
    assert all(not fell_back for _, fell_back in counts.values())
