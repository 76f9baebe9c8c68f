"""Gradients of spmm and sddmm, of first and second order, in eager mode."""

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.message import operators
from tests.ops.oracle import DTYPES, assert_right, graph_of, longest_row, random, sddmm_oracle, spmm_oracle, structures

SMALL = ["no_edges", "one_column", "duplicates", "last_rows_empty"]
SHAPES = [((2,), None), ((2,), ()), ((1,), (1,)), ((2, 3), None), ((2, 2), ()), ((2, 2), (2,)), ((3, 1), (3,))]


@pytest.mark.short(12)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("features, weights", SHAPES)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_spmm_gradcheck(zoo, name, features, weights, reduce):
    structure = zoo[name]
    graph = graph_of(structure)
    inputs = [random(structure[2][1], *features, grad=True)]
    if weights is not None:
        inputs.append(random(structure[0].size, *weights, seed=1, grad=True))
    function = lambda x, weight=None: gsb.spmm(graph, x, weight, reduce)
    assert gradcheck(function, inputs, atol=1e-9, rtol=1e-7)
    assert gradgradcheck(function, inputs, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("features", [(3,), (1,), (2, 2)])
def test_sddmm_gradcheck(zoo, name, features):
    structure = zoo[name]
    graph = graph_of(structure)
    inputs = [random(structure[2][0], *features, grad=True), random(structure[2][1], *features, seed=1, grad=True)]
    function = lambda u, v: gsb.sddmm(graph, u, v)
    assert gradcheck(function, inputs, atol=1e-9, rtol=1e-7)
    assert gradgradcheck(function, inputs, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("name", ["duplicates", "last_rows_empty"])
def test_gradients_of_the_mean_of_the_transpose(zoo, name):
    structure = zoo[name]
    graph = graph_of(structure).transpose()
    inputs = [random(structure[2][0], 2, grad=True), random(structure[0].size, seed=1, grad=True)]
    function = lambda x, weight: gsb.spmm(graph, x, weight, "mean")
    assert gradcheck(function, inputs, atol=1e-9, rtol=1e-7)
    assert gradgradcheck(function, inputs, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_spmm_gradients_in_each_type(structure, dtype, reduce, poisoned_memory):
    row, col, shape = structure
    x, weight = random(shape[1], 6, dtype=dtype, grad=True), random(row.size, dtype=dtype, seed=1, grad=True)
    y = gsb.spmm(graph_of(structure), x, weight, reduce)
    cotangent = random(*y.shape, dtype=dtype, seed=2)
    y.backward(cotangent)
    scaled = cotangent.double()
    if reduce == "mean":
        degrees = np.maximum(np.bincount(row, minlength=shape[0]), 1)
        scaled = scaled / torch.from_numpy(degrees)[:, None]
    reverse = (col, row, shape[::-1])
    assert x.grad.dtype == weight.grad.dtype == dtype
    assert_right(x.grad, spmm_oracle(reverse, scaled, weight), longest_row(reverse))
    assert_right(weight.grad, sddmm_oracle(structure, scaled, x), 6)


@settings(max_examples=12, deadline=None)
@given(structures(), st.booleans())
def test_gradients_on_any_structure(structure, mean):
    row, col, shape = structure
    x, weight = random(shape[1], 3, grad=True), random(row.size, seed=1, grad=True)
    y = gsb.spmm(graph_of(structure), x, weight, "mean" if mean else "sum")
    dense = (
        torch.zeros(shape, dtype=torch.float64).index_put(
            (torch.from_numpy(row), torch.from_numpy(col)), weight, accumulate=True
        )
        @ x
    )
    if mean:
        dense = dense / torch.from_numpy(np.bincount(row, minlength=shape[0])).clamp(min=1)[:, None]
    cotangent = random(*y.shape, seed=2)
    torch.testing.assert_close(
        torch.autograd.grad(y, [x, weight], cotangent), torch.autograd.grad(dense, [x, weight], cotangent)
    )


def test_only_the_gradients_that_are_needed_are_computed(zoo, calls_to):
    graph = graph_of(zoo["random"])
    products, dots = calls_to(operators, "run_aggregate"), calls_to(operators, "run_edge_map")
    edges = graph.num_edges
    for x_grad, weight_grad in [(True, True), (True, False), (False, True)]:
        y = gsb.spmm(graph, random(29, 3, grad=x_grad), random(edges, grad=weight_grad))
        products.clear(), dots.clear()
        y.sum().backward()
        assert (bool(products), bool(dots)) == (x_grad, weight_grad)
    for u_grad, v_grad in [(True, True), (True, False), (False, True)]:
        y = gsb.sddmm(graph, random(33, 3, grad=u_grad), random(29, 3, grad=v_grad))
        products.clear(), dots.clear()
        y.sum().backward()
        assert (len(products), len(dots)) == (u_grad + v_grad, 0)


def test_no_graph_is_recorded_without_need(zoo):
    graph = graph_of(zoo["random"])
    assert gsb.spmm(graph, random(29, 3)).grad_fn is None
    with torch.no_grad():
        assert not gsb.spmm(graph, random(29, 3, grad=True)).requires_grad
    with torch.inference_mode():
        gsb.spmm(graph, random(29, 3, grad=True), random(200, grad=True))
    with pytest.raises(RuntimeError, match="does not require grad"):
        gsb.spmm(graph, random(29, 3)).sum().backward()


def test_non_leaf_and_expanded_operands(zoo):
    structure = zoo["random"]
    base, one = random(29, 3, grad=True), random(1, seed=1, grad=True)
    gsb.spmm(graph_of(structure), (base * 2).t().contiguous().t(), one.expand(200)).sum().backward()
    out_degrees = torch.from_numpy(np.bincount(structure[1], minlength=29))[:, None].double()
    torch.testing.assert_close(base.grad, (2 * one * out_degrees).expand(29, 3).detach())
    torch.testing.assert_close(one.grad, (2 * base * out_degrees).sum().reshape(1).detach())


def test_writing_to_a_saved_operand_is_noticed(zoo):
    graph = graph_of(zoo["random"])
    x, weight = random(29, 3), random(200, grad=True)
    y = gsb.spmm(graph, x, weight)
    x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_graph_that_dies_before_backward(zoo):
    structure = zoo["random"]
    graph = graph_of(structure)
    x, weight = random(29, 3, grad=True), random(200, seed=1, grad=True)
    expected = torch.autograd.grad(gsb.spmm(graph, x, weight, "mean").sum(), [x, weight])
    y = gsb.spmm(graph_of(structure), x, weight, "mean").sum()
    gc.collect()
    torch.testing.assert_close(torch.autograd.grad(y, [x, weight]), expected)


def test_a_graph_is_freed_with_its_last_use(zoo):
    gc.disable()
    try:
        graph = graph_of(zoo["random"])
        x = random(29, 3, grad=True)
        gsb.spmm(graph, x, reduce="mean").sum().backward()
        indices = weakref.ref(graph.transpose().indices)
        del graph
        assert indices() is None
    finally:
        gc.enable()
