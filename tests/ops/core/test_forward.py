"""spmm and sddmm forward against NumPy float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import gnn_sparse_backend as gsb
from tests.ops.oracle import DTYPES, assert_right, graph_of, longest_row, random, sddmm_oracle, spmm_oracle, structures


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_spmm(structure, dtype, reduce, weighted, poisoned_memory):
    x = random(structure[2][1], 7, dtype=dtype)
    weight = random(structure[0].size, dtype=dtype, seed=1) if weighted else None
    y = gsb.spmm(graph_of(structure), x, weight, reduce)
    assert y.dtype == dtype and y.is_contiguous()
    assert_right(y, spmm_oracle(structure, x, weight, reduce == "mean"), longest_row(structure))


@pytest.mark.parametrize("width", [0, 1, 2, 7, 16, 33, 64, 128, 602])
@pytest.mark.parametrize("weighted", [False, True])
def test_spmm_widths(zoo, width, weighted, poisoned_memory):
    for structure in (zoo["skewed"], zoo["last_rows_empty"]):
        x = random(structure[2][1], width, dtype=torch.float32)
        weight = random(structure[0].size, dtype=torch.float32, seed=1) if weighted else None
        y = gsb.spmm(graph_of(structure), x, weight)
        assert_right(y, spmm_oracle(structure, x, weight), longest_row(structure))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("heads, width", [(1, 5), (4, 8), (3, 1), (2, 0), (0, 4)])
@pytest.mark.parametrize("per_edge", ["none", "scalar", "column", "heads"])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_spmm_heads(zoo, dtype, heads, width, per_edge, reduce):
    structure = zoo["last_rows_empty"]
    edges = structure[0].size
    x = random(structure[2][1], heads, width, dtype=dtype)
    shape = {"none": None, "scalar": (edges,), "column": (edges, 1), "heads": (edges, heads)}[per_edge]
    weight = None if shape is None else random(*shape, dtype=dtype, seed=1)
    y = gsb.spmm(graph_of(structure), x, weight, reduce)
    assert_right(y, spmm_oracle(structure, x, weight, reduce == "mean"), longest_row(structure))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(7,), (1,), (0,), (3, 5), (1, 5), (4, 0)])
def test_sddmm(structure, dtype, shape, poisoned_memory):
    u, v = random(structure[2][0], *shape, dtype=dtype), random(structure[2][1], *shape, dtype=dtype, seed=1)
    y = gsb.sddmm(graph_of(structure), u, v)
    assert y.dtype == dtype and y.is_contiguous()
    assert_right(y, sddmm_oracle(structure, u, v), shape[-1])


@pytest.mark.parametrize("width", [2, 16, 33, 64, 128, 602])
def test_sddmm_widths(zoo, width):
    structure = zoo["random"]
    u = random(structure[2][0], width, dtype=torch.float32)
    v = random(structure[2][1], width, dtype=torch.float32, seed=1)
    assert_right(gsb.sddmm(graph_of(structure), u, v), sddmm_oracle(structure, u, v), width)


@settings(max_examples=20, deadline=None)
@given(structures(), st.integers(1, 9), st.booleans(), st.booleans())
def test_any_structure(structure, width, mean, transposed):
    graph = graph_of(structure)
    row, col, shape = structure
    if transposed:
        graph, structure = graph.transpose(), (col, row, shape[::-1])
    x = random(structure[2][1], width)
    weight, u = random(row.size, seed=1), random(structure[2][0], width, seed=2)
    terms = longest_row(structure)
    assert_right(gsb.spmm(graph, x, weight, "mean" if mean else "sum"), spmm_oracle(structure, x, weight, mean), terms)
    assert_right(gsb.spmm(graph, x), spmm_oracle(structure, x), terms)
    assert_right(gsb.sddmm(graph, u, x), sddmm_oracle(structure, u, x), width)


def test_int64_indices(structure, set_index_bits):
    set_index_bits(64)
    graph = graph_of(structure)
    assert graph.indices.dtype == torch.int64 or max(*structure[2], structure[0].size) == 0
    x, weight = random(structure[2][1], 5, grad=True), random(structure[0].size, seed=1, grad=True)
    y = gsb.spmm(graph, x, weight, "mean")
    assert_right(y, spmm_oracle(structure, x, weight, True), longest_row(structure))
    cotangent = random(*y.shape, seed=2)
    y.backward(cotangent)
    set_index_bits(32)
    narrow = graph_of(structure)
    assert narrow.indices.dtype == torch.int32
    expected = torch.autograd.grad(gsb.spmm(narrow, x, weight, "mean"), [x, weight], cotangent)
    torch.testing.assert_close([x.grad, weight.grad], list(expected))


def test_agrees_with_scipy():
    matrix = sparse.random(50, 40, density=0.1, random_state=3, format="csr")
    x = random(40, 6)
    y = gsb.spmm(gsb.Graph.from_scipy(matrix), x, torch.from_numpy(matrix.data))
    np.testing.assert_allclose(y.numpy(), matrix @ x.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("width", [1, 7, 64])
def test_non_finite_values_stay_in_the_rows_that_see_them(zoo, bad, reduce, width):
    for name in ("random", "skewed", "last_rows_empty"):
        structure = row, col, shape = zoo[name]
        graph = graph_of(structure)
        for source in (0, shape[1] - 1, int(col[0])):
            x = random(shape[1], width, dtype=torch.float32)
            x[source] = bad
            finite = gsb.spmm(graph, x, None, reduce).isfinite().all(1).numpy()
            np.testing.assert_array_equal(finite, ~np.isin(np.arange(shape[0]), row[col == source]))
        weight = random(row.size, dtype=torch.float32)
        weight[3] = bad
        finite = gsb.spmm(graph, random(shape[1], width, dtype=torch.float32), weight, reduce).isfinite().all(1).numpy()
        np.testing.assert_array_equal(finite, np.arange(shape[0]) != row[3])


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_non_finite_values_stay_in_the_edges_that_see_them(zoo, bad):
    row, col, shape = zoo["random"]
    u, v = random(shape[0], 7, dtype=torch.float32), random(shape[1], 7, dtype=torch.float32)
    u[4, 2], v[0] = bad, bad
    finite = gsb.sddmm(graph_of(zoo["random"]), u, v).isfinite().numpy()
    np.testing.assert_array_equal(finite, (row != 4) & (col != 0))


def test_half_types_accumulate_in_float32():
    ones = torch.ones(1, 3, dtype=torch.float16)
    graph = gsb.Graph.from_coo(torch.zeros(5000, dtype=torch.long), torch.zeros(5000, dtype=torch.long), (1, 1))
    assert gsb.spmm(graph, ones).tolist() == [[5000.0] * 3]  # adding in float16 stops at 2048
    assert gsb.spmm(graph, ones.bfloat16()).tolist() == [[4992.0] * 3]
    assert gsb.spmm(graph, ones * 60000, reduce="mean").tolist() == [[60000.0] * 3]  # the sum overflows float16


def test_weights_follow_the_users_edge_order(zoo):
    row, col, shape = zoo["random"]
    order = np.random.default_rng(0).permutation(row.size)
    x, weight = random(shape[1], 5), random(row.size, seed=1)
    one = gsb.spmm(graph_of((row, col, shape)), x, weight)
    other = gsb.spmm(graph_of((row[order], col[order], shape)), x, weight[order])
    torch.testing.assert_close(one, other)
    u = random(shape[0], 5)
    torch.testing.assert_close(
        gsb.sddmm(graph_of((row, col, shape)), u, x)[order], gsb.sddmm(graph_of((row[order], col[order], shape)), u, x)
    )
