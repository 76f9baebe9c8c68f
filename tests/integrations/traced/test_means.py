"""Means, sums along other dimensions and the order of a sum and a linear map, in programs through ``gsb.compile``."""

from __future__ import annotations

import pytest
from torch.nn import functional

from gnn_sparse_backend.integrations.lazy import orders
from tests.integrations.traced.programs import EDGES, NODES, check, edges, expanded, features, into


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
