"""``gsb.spmm_linear`` against float64, in both orders."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.message.linear_order import NOTHING, Needed, maps_first, needed_gradients, sums_first

SHAPES = {
    "narrower": ((30, 30), 16, 3),
    "wider": ((30, 30), 3, 16),
    "few rows": ((5, 60), 16, 3),
    "width 1": ((30, 20), 1, 1),
}


def graph_of(shape, edges=200):
    generator = torch.Generator().manual_seed(1)
    row, column = (torch.randint(0, extent - 1, (edges,), generator=generator) for extent in shape)
    return gsb.Graph.from_coo(row, column, shape)  # the last row and column have no edges


def dense(graph, weight, reduce):
    row = torch.arange(graph.shape[0]).repeat_interleave(graph.in_degrees.long())
    matrix = torch.zeros(graph.shape, dtype=torch.float64)
    matrix.index_put_((row, graph.indices.long()), weight.double()[graph.edge_numbers.long()], accumulate=True)
    return matrix / graph.in_degrees.clamp(min=1).unsqueeze(1) if reduce == "mean" else matrix


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_values(shape, reduce, weighted, dtype):
    size, wide_in, wide_out = SHAPES[shape]
    graph = graph_of(size)
    x, matrix, bias = (torch.randn(*s).to(dtype) for s in ((size[1], wide_in), (wide_out, wide_in), (wide_out,)))
    weight = torch.rand(graph.num_edges).to(dtype) if weighted else None
    found = gsb.spmm_linear(graph, x, matrix, bias, weight, reduce)
    weights = torch.ones(graph.num_edges) if weight is None else weight
    expected = dense(graph, weights, reduce) @ x.double() @ matrix.double().t() + bias.double()
    assert found.dtype is dtype
    scale = (dense(graph, weights.abs(), reduce) @ x.double().abs() @ matrix.double().abs().t()).max() + 1
    assert (found.double() - expected).abs().max() < 4 * torch.finfo(dtype).eps * scale
    torch.testing.assert_close(found[-1], bias)


def test_the_orders():
    assert maps_first(30, 30, 200, 16, 3, 4) and not maps_first(30, 30, 200, 3, 16, 4)
    assert not maps_first(5, 5000, 200, 16, 8, 4)  # a row for every source is more than one for every destination
    assert not maps_first(30, 30, 200, 16, 16, 4)
    square, block = (70_000, 70_000, 850_000), (10_000, 40_000, 100_000)
    for widths in ((128, 64), (256, 128), (64, 32), (128, 32)):  # as measured, on a square graph and on a sampled one
        assert maps_first(*square, *widths, 4) and not maps_first(*block, *widths, 4)
    assert not maps_first(*square, 128, 112, 4)


def test_the_orders_with_gradients():
    square, both, matrix = (70_000, 70_000, 850_000, 128, 128, 4), Needed(x=True, matrix=True), Needed(matrix=True)
    for needed in (NOTHING, both):  # the order that is asked for stays
        assert not maps_first(*square, needed=needed) and not sums_first(*square, needed=needed)
    # without a gradient of the features A X is kept, and nothing aggregated on the way back
    assert sums_first(*square, needed=matrix) and not maps_first(70_000, 70_000, 850_000, 128, 100, 4, needed=matrix)
    assert maps_first(70_000, 70_000, 850_000, 128, 64, 4, needed=both)
    assert sums_first(10_000, 40_000, 100_000, 128, 64, 4, needed=both)


def test_the_gradients_that_are_needed():
    x, matrix, weight = (torch.zeros(2, 2, requires_grad=wanted) for wanted in (False, True, True))
    assert needed_gradients(x, matrix, None) == (False, True, False)
    assert needed_gradients(matrix, x, weight) == (True, False, True)
    with torch.no_grad():
        assert needed_gradients(x, matrix, weight) == NOTHING


@pytest.mark.parametrize("shape", ["narrower", "wider"])
def test_gradients(shape):
    size, wide_in, wide_out = SHAPES[shape]
    graph = graph_of(size, 40)
    given = [
        torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((size[1], wide_in), (wide_out, wide_in))
    ]
    weight = torch.rand(40, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, m, w: gsb.spmm_linear(graph, x, m, None, w, "mean"), (*given, weight))


def test_explain():
    graph = graph_of((30, 30))
    found = gsb.explain(graph, features=(16, 3), op="linear")
    assert found.order == "A (X W)" and "X and W" in str(found) and "30 x 30 with 200 edges" in str(found)
    assert gsb.explain(graph, features=(3, 16), op="linear_mean").order == "(A X) W"
    with_gradients = gsb.explain(graph, features=(16, 3), op="linear", backward=True)
    assert (found.gradients, with_gradients.gradients) == ("nothing", "X and W")
    assert found.aggregated_first < with_gradients.aggregated_first and "W alone" in str(with_gradients)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reduce": "max"}, r"reduce.*max"),
        ({"matrix": torch.zeros(3, 5)}, r"\(30, 16\) and \(3, 5\)"),
        ({"bias": torch.zeros(4)}, r"bias must have shape \(3,\), got \(4,\)"),
        ({"x": torch.zeros(30, 2, 8)}, r"\(30, 2, 8\)"),
    ],
)
def test_errors_quote_what_they_got(change, message):
    given = {"x": torch.zeros(30, 16), "matrix": torch.zeros(3, 16), "bias": None, "reduce": "sum"} | change
    with pytest.raises(ValueError, match=message):
        gsb.spmm_linear(graph_of((30, 30)), **given)
