"""Softmax over edges: values and gradients as DGL's, over either end and over a part of the edges."""

import dgl
import dgl.backend.pytorch.sparse as dgl_sparse
import pytest
import torch
from dgl._sparse_ops import _edge_softmax_backward, _edge_softmax_forward

import gnn_sparse_backend as gsb
from tests.integrations.dgl.oracle import agree, bipartite, calls, multigraph, normal
from tests.integrations.dgl.test_kernels import same

ONLY_OURS = {"edge_softmax_forward": (1, {})}


@pytest.fixture(params=[torch.int32, torch.int64], ids=str)
def graph(request, structure):
    return bipartite(*structure, idtype=request.param)


@pytest.mark.parametrize("norm_by", ["dst", "src"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_every_structure(graph, norm_by, dtype):
    compute = lambda scores: dgl.ops.edge_softmax(graph, scores, norm_by=norm_by)
    assert agree(compute, 5 * normal(graph.num_edges(), 3, 1, dtype=dtype)) == ONLY_OURS


@pytest.mark.parametrize("features", [(), (1,), (4,), (3, 1), (2, 3, 1)])
def test_every_shape(features):
    graph = multigraph(9, 80)
    assert agree(lambda scores: dgl.nn.functional.edge_softmax(graph, scores), normal(80, *features)) == ONLY_OURS


@pytest.mark.parametrize("norm_by", ["dst", "src"])
def test_a_part_of_the_edges(norm_by):
    graph, some = multigraph(9, 80), torch.arange(70, 5, -3)
    compute = lambda scores: dgl.ops.edge_softmax(graph, scores[some], some, norm_by)
    counts = agree(compute, normal(80, 2))
    assert counts == {"edge_softmax_forward": (1, {}), "edge_softmax_backward": (1, {})}


def test_gradients_of_gradients():
    graph = multigraph(9, 80)
    scores = normal(80, 2).requires_grad_()

    def second():
        (grad,) = torch.autograd.grad(dgl.ops.edge_softmax(graph, scores).pow(2).sum(), scores, create_graph=True)
        return torch.autograd.grad(grad.pow(2).sum(), scores)[0]

    # DGL's own backward is not differentiable: check it by differences
    with gsb.enabled("dgl"):
        found = second()
        step = normal(80, 2, seed=3)
        scores = (scores.detach() + 1e-6 * step).requires_grad_()
        ahead = first_gradient(graph, scores)
        scores = (scores.detach() - 2e-6 * step).requires_grad_()
        behind = first_gradient(graph, scores)
    expected = (ahead - behind) / 2e-6
    torch.testing.assert_close((found * step).sum(), expected, rtol=1e-5, atol=1e-8)


def first_gradient(graph, scores):
    (grad,) = torch.autograd.grad(dgl.ops.edge_softmax(graph, scores).pow(2).sum(), scores)
    return grad.pow(2).sum()


def test_infinities_and_nans():
    graph = bipartite([0, 0, 1, 1, 2, 2, 3, 3, 4], [0, 1, 0, 1, 0, 1, 0, 1, 0], (6, 2))
    inf, nan = float("inf"), float("nan")
    scores = torch.tensor([-inf, 1, -inf, -inf, inf, 1, nan, 1, -inf], dtype=torch.float64)
    for columns in (scores, scores.unsqueeze(1), scores.float()):
        expected = _edge_softmax_forward(graph._graph, columns, "copy_rhs")
        with gsb.enabled("dgl"):
            same(dgl_sparse._edge_softmax_forward(graph._graph, columns, "copy_rhs"), expected)


def test_views_and_what_autograd_calls():
    graph = multigraph(9, 80)
    wide = normal(4, 80).t()
    for scores in (wide, wide[:, ::2], normal(1, 2).expand(80, 2)):
        compact = scores.contiguous()  # which DGL wants
        expected = _edge_softmax_forward(graph._graph, compact, "copy_rhs")
        back = _edge_softmax_backward(graph._graph, expected, expected * compact)
        with gsb.enabled("dgl"):
            same(dgl_sparse._edge_softmax_forward(graph._graph, scores, "copy_rhs"), expected, 1e-12)
            same(dgl_sparse._edge_softmax_backward(graph._graph, expected, expected * scores), back, 1e-12)
            assert all(not reasons for _, reasons in calls().values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_types(dtype):
    graph, scores = multigraph(9, 80), normal(80, 2, dtype=dtype)
    with gsb.enabled("dgl"):
        actual = dgl.ops.edge_softmax(graph, scores)
    assert actual.dtype is dtype
    expected = dgl.ops.edge_softmax(graph, scores.double())
    torch.testing.assert_close(actual.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-3)
