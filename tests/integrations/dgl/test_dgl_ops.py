"""dgl.ops with the backend on against the same with it off: results, gradients and what ran where."""
import dgl
import pytest
import torch

import gnn_sparse_backend as gsb
from dgl_oracle import agree, bipartite, homogeneous, normal

ONLY_OURS_SUM = {"gspmm": (2, {})}
ONLY_OURS_MEAN = {"gspmm_mean": (1, {})}  # its gradients are one operator with it
ONLY_OURS_WEIGHTED = {"gspmm": (2, {}), "gsddmm": (1, {})}


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
    assert agree(lambda x, w: dgl.ops.u_mul_e_sum(graph, x, w), x, w) == ONLY_OURS_WEIGHTED
    assert agree(lambda x, w: dgl.ops.u_mul_e_mean(graph, x, w), x, w) == ONLY_OURS_MEAN


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_dot_products_of_both_ends(graph, dtype):
    u, v = normal(graph.num_src_nodes(), 3, 6, dtype=dtype), normal(graph.num_dst_nodes(), 3, 6, dtype=dtype, seed=1)
    counts = agree(lambda u, v: dgl.ops.u_dot_v(graph, u, v), u, v)
    assert counts == {"gspmm": (2, {}), "gsddmm": (1, {})}
    assert agree(lambda u, v: dgl.ops.v_dot_u(graph, v, u), u, v) == counts


def test_summed_edge_features(graph):
    e = normal(graph.num_edges(), 4)
    counts = agree(lambda e: dgl.ops.copy_e_sum(graph, e), e)
    assert counts == {"gspmm": (1, {}), "gsddmm": (0, {"op copy_rhs": 1})}
    assert agree(lambda e: dgl.ops.copy_e_mean(graph, e), e) == ONLY_OURS_MEAN


@pytest.mark.parametrize("features, weights, ours_forward", [
    ((), (), True),
    ((1,), (1,), True),
    ((8,), (1,), True),
    ((8,), (8,), True),
    ((3, 4), (3, 1), True),
    ((3, 4), (1, 1), True),
    ((3, 4), (1,), True),
    ((3, 4), (3, 4), True),
    ((1, 4), (1, 1), True),
    ((2, 3, 4), (2, 3, 1), True),
    ((2, 3, 4), (2, 1, 1), True),
    ((2, 1), (2, 1), True),
    ((3, 4), (1, 4), False),
    ((3, 4), (4,), False),
    ((1,), (5,), False),
    ((1, 4), (3, 1), False),
    ((2, 3, 4), (2, 1, 4), False),
])
def test_every_way_that_a_weight_broadcasts(features, weights, ours_forward):
    graph = dgl.rand_graph(20, 90)
    x, w = normal(20, *features), normal(90, *weights, seed=1)
    counts = agree(lambda x, w: dgl.ops.u_mul_e_sum(graph, x, w), x, w)
    ran, fell_back = counts["gspmm"]
    assert ran + sum(fell_back.values()) == 2
    mean_counts = agree(lambda x, w: dgl.ops.u_mul_e_mean(graph, x, w), x, w)
    assert mean_counts["gspmm_mean"] == ((1, {}) if ours_forward else (0, {"broadcast of the source feature": 1}))
    assert (ran > 0 and not fell_back) if ours_forward else fell_back["broadcast of the source feature"] >= 1


@pytest.mark.parametrize("features", [(), (1,), (9,), (3, 5), (2, 3, 4)])
def test_every_feature_shape_copied(features):
    graph = dgl.rand_graph(20, 90)
    assert agree(lambda x: dgl.ops.copy_u_sum(graph, x), normal(20, *features)) == ONLY_OURS_SUM
    assert agree(lambda x: dgl.ops.copy_u_mean(graph, x), normal(20, *features)) == ONLY_OURS_MEAN


def test_an_operator_whose_mean_is_not_ours_may_have_a_sum_that_is():
    graph = dgl.rand_graph(20, 90)
    counts = agree(lambda x, w: dgl.ops.u_div_e_mean(graph, x, w), normal(20, 4), normal(90, 1, seed=1).abs() + 0.5)
    assert counts["gspmm_mean"] == (0, {"op div": 1}) and counts["gspmm"] == (2, {})


@pytest.mark.parametrize("op", ["sub", "div"])
def test_operators_that_dgl_rewrites(op):
    graph = dgl.rand_graph(20, 90)
    x, w = normal(20, 4), normal(90, 1, seed=1).abs() + 0.5
    counts = agree(lambda x, w: getattr(dgl.ops, f"u_{op}_e_sum")(graph, x, w), x, w)
    assert counts["gspmm"] == ((2, {}) if op == "div" else (1, {"op add": 1}))


@pytest.mark.parametrize("view", [
    lambda x: x.t().contiguous().t(),
    lambda x: torch.cat([x, x, x], dim=1)[:, x.shape[1]:2 * x.shape[1]],
    lambda x: torch.cat([x, x])[::2],
    lambda x: x[:1].expand(x.shape[0], -1),
    lambda x: torch.cat([x.new_zeros(1), x.reshape(-1)])[1:].view(x.shape),  # aligned to its elements only
])
def test_operands_that_are_not_contiguous(view):
    graph = homogeneous([1, 4, 0, 4, 4, 2], [0, 1, 3, 3, 5, 5], (6, 6))
    x, w = normal(6, 9), normal(6, 1, seed=1)
    assert agree(lambda x, w: dgl.ops.u_mul_e_sum(graph, view(x), w), x, w) == ONLY_OURS_WEIGHTED
    assert agree(lambda x, w: dgl.ops.u_mul_e_sum(graph, x, view(w)), x, w) == ONLY_OURS_WEIGHTED
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
