"""Means, sums along other dimensions and the order of a sum and a linear map, in programs through ``gsb.compile``."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.lazy import orders, products
from tests.integrations.traced.programs import EDGES, NODES, check, edges, expanded, features, into

GIVEN = features(NODES, 16, seed=5)


def test_degrees_and_means():
    def program(x, index):
        m = x.index_select(0, index[0])
        count = m.new_zeros(NODES)
        count.scatter_add_(0, index[1], m.new_ones(m.shape[0]))
        out = into(m, NODES).scatter_add_(0, expanded(index[1], m), m)
        return out / count.clamp(min=1).view(-1, 1).expand_as(out)

    assert check(program, features(NODES, 6), edges()) == {"copy.mean": 1}


@pytest.mark.parametrize("divisor", ["raw", "of others", "of 2", "each"])
def test_other_divisors_are_no_means(divisor):
    def program(x, index):
        m = x.index_select(0, index[0])
        count = m.new_zeros(NODES).scatter_add_(0, index[0 if divisor == "of others" else 1], m.new_ones(m.shape[0]))
        out = into(m, NODES).scatter_add_(0, expanded(index[1], m), m)
        if divisor == "each":  # a number for each feature, of a square matrix
            return out[:, : x.shape[1]] / count[: x.shape[1]].clamp(min=1)
        return out / (count + 1 if divisor == "raw" else count.clamp(min=2 if divisor == "of 2" else 1)).view(-1, 1)

    assert check(program, features(NODES, 6), edges()) == {"copy.sum": 1, "in_degrees": 1}


def test_sums_that_are_written_to_later():
    def program(x, index):
        for _ in range(2):
            m = x.index_select(0, index[0])
            x = into(m, NODES).scatter_add_(0, expanded(index[1], m), m)
            x.mul_(0.5).add_(1.0)
            x.clamp_(-2.0, 2.0)
        return x

    assert check(program, features(NODES, 6), edges()) == {"copy.sum": 2}


@pytest.mark.parametrize("dim", [1, -2])
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax"])
def test_nodes_along_another_dimension(dim, reduce):
    def program(x, index):
        m = x.index_select(dim, index[0])
        by = index[1].view(1, -1, 1).expand_as(m)
        return x.new_zeros(3, NODES, 4).scatter_reduce(dim, by, m, reduce, include_self=False)

    found = check(program, features(3, NODES, 4), edges())
    found.pop("in_degrees", None)
    assert found == {"edge_map": 1, f"scatter.{'max' if reduce == 'amax' else 'sum'}": 1}


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("wide_out", [2, 64])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_linear_map_goes_where_it_costs_less(reduce, wide_out, weighted, monkeypatch):
    ran = []
    aggregate = orders.total
    monkeypatch.setattr(
        orders, "total", lambda message, *rest: (ran.append(message.inner), aggregate(message, *rest))[1]
    )

    def program(x, w, matrix, bias, index):
        m = x.index_select(0, index[0])
        m = m * w if weighted else m
        out = into(m, NODES).scatter_reduce_(0, expanded(index[1], m), m, reduce, include_self=False)
        return functional.linear(out, matrix, bias)

    operands = (
        features(NODES, 16),
        features(EDGES, 1, seed=4),
        features(wide_out, 16, seed=2),
        features(wide_out, seed=3),
    )
    found = check(program, *operands, edges())
    assert found == {f"{'mul' if weighted else 'copy'}.{reduce}": 1} and ran == [(min(wide_out, 16),)]


@pytest.fixture
def asked(monkeypatch):
    """What the rule for maps that come first said, of these gradients."""
    found, rule = [], products.sums_first

    def asking(*sizes, needed):
        found.append((said := rule(*sizes, needed=needed), tuple(needed)))
        return said

    monkeypatch.setattr(products, "sums_first", asking)
    return found


BY = {
    "linear": lambda x, matrix: functional.linear(x, matrix.t()),
    "matmul": torch.matmul,
    "mm": torch.mm,
    "@": lambda x, matrix: x @ matrix,
}


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("wide", [2, 64])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_linear_map_before_the_gather(by, reduce, wide, weighted, asked):
    def program(x, w, matrix, index):
        m = BY[by](x, matrix).index_select(0, index[0])
        m = m * w if weighted else m
        return into(m, NODES).scatter_reduce_(0, expanded(index[1], m), m, reduce, include_self=False) + 1.0

    operands = features(NODES, 16), features(EDGES, 1, seed=4), features(16, wide, seed=2), edges()
    assert check(program, *operands) == {f"{'mul' if weighted else 'copy'}.{reduce}": 1}
    assert asked == [(wide == 64, (True, True, weighted))]


def test_of_features_without_a_gradient(asked):
    def program(matrix, index):
        m = (GIVEN @ matrix).index_select(0, index[0])
        return into(m, NODES).scatter_add_(0, expanded(index[1], m), m)

    assert check(program, features(16, 16), edges()) == {"copy.sum": 1}
    assert asked == [(True, (False, True, False))]


@pytest.mark.parametrize("use", ["root", "bias", "view", "written", "max", "gather"])
def test_a_map_that_something_else_becomes_of_stays(use, asked):
    def program(x, matrix, index):
        x = x + 0.0
        h = x @ matrix
        if use == "bias":
            h = functional.linear(x, matrix.t(), matrix[0])
        if use == "written":
            x.mul_(2.0)
            x = x.detach()
        if use == "view":
            h = h.view(-1, 4, 16).transpose(1, 2).reshape(-1, 64)
        m = h.index_select(0, index[0])
        if use == "gather":
            return m
        out = into(m, NODES).scatter_reduce_(0, expanded(index[1], m), m, "amax" if use == "max" else "sum")
        return out + h if use == "root" else out + x.sum()

    if use == "written":  # PyTorch itself has no gradient of it
        x, matrix, index = features(NODES, 16), features(16, 64), edges()
        with torch.no_grad():
            found = gsb.compile(program, backend="aot_eager")(x, matrix, index)
            torch.testing.assert_close(found, program(x, matrix, index))
    else:
        check(program, features(NODES, 16), features(16, 64, seed=2), edges())
    assert asked == []
