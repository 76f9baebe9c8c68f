"""Gradients of means: messages divided by the degrees of their rows, and rows divided before they are messages."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.message.reductions import means
from tests.ops.oracle import DTYPES, graph_of, random

FEATURES = [((1,), None), ((3,), ()), ((2, 3), None), ((2, 2), (2,)), ((3, 1), (3,))]


@pytest.fixture(params=["rows first", "messages"])
def way(request, monkeypatch):
    """Both ways, whatever would pay; gives a list of what was divided first."""
    monkeypatch.setattr(means, "EDGES_PAY", 0 if request.param == "rows first" else float("inf"))
    return request.param


@pytest.mark.parametrize("name", ["no_edges", "duplicates", "last_rows_empty"])
@pytest.mark.parametrize("features, weights", FEATURES)
@pytest.mark.parametrize("transposed", [False, True])
def test_gradcheck_either_way(zoo, way, name, features, weights, transposed):
    graph = graph_of(zoo[name])
    graph = graph.transpose() if transposed else graph
    inputs = [random(graph.shape[1], *features, grad=True)]
    if weights is not None:
        inputs.append(random(graph.num_edges, *weights, seed=1, grad=True))
    function = lambda x, weight=None: gsb.spmm(graph, x, weight, "mean")
    assert gradcheck(function, inputs, atol=1e-9, rtol=1e-7)
    assert gradgradcheck(function, inputs, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("features", [1, 4, 16, 17])
def test_both_ways_round_alike(zoo, monkeypatch, dtype, features):
    graph = graph_of(zoo["random"])
    x = random(graph.shape[1], features, dtype=dtype, grad=True)
    y = gsb.spmm(graph, x, None, "mean")
    cotangent = random(*y.shape, dtype=dtype, seed=2)
    found = []
    for least in (0, float("inf")):
        monkeypatch.setattr(means, "EDGES_PAY", least)
        found.append(torch.autograd.grad(y, x, cotangent, retain_graph=True)[0])
    # a product that is rounded before it is added, and one that is not
    torch.testing.assert_close(*found, rtol=8 * torch.finfo(dtype).eps, atol=8 * torch.finfo(dtype).eps)


def test_the_operator_of_the_transpose_either_way(zoo, way):
    graph = graph_of(zoo["last_rows_empty"])
    g = random(graph.shape[0], 2, 2)
    weight = random(graph.num_edges, 2, seed=1)
    x = random(graph.shape[1], 2, 2, grad=True)
    expected = torch.autograd.grad(gsb.spmm(graph, x, weight, "mean"), x, g)[0]
    compiled = torch.compile(lambda x: gsb.spmm(graph, x, weight, "mean"), backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(x), x, g)[0], expected)


@pytest.mark.parametrize(
    "features, edges, divided",
    [(1, 800, True), (1, 799, False), (4, 3200, True), (4, 3199, False), (16, 12_800, True), (17, 50_000, False)],
)
def test_rows_are_divided_first_where_they_are_few(features, edges, divided):
    generator = torch.Generator().manual_seed(0)
    graph = gsb.Graph.from_coo(*torch.randint(100, (2, edges), generator=generator), (100, 100))
    for dtype in DTYPES:
        found = means.divided_first(graph, torch.ones(100, features, dtype=dtype))
        assert (found is not None) == (divided and dtype in (torch.float32, torch.float64)), (
            "halves would be rounded once more"
        )
