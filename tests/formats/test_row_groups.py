"""Balanced groups of rows: bounds on the cost of a group, degenerate graphs, refusals."""

import pytest
import torch
from format_structures import many
from hypothesis import given
from hypothesis import strategies as st

from gnn_sparse_backend.formats import balanced_row_groups

degree_lists = st.lists(st.one_of(st.integers(0, 5), st.integers(0, 1000)), max_size=60)
costs = st.one_of(st.just(0.0), st.floats(0.01, 100))


def indptr_of(degrees, dtype):
    return torch.tensor([0, *torch.tensor(degrees, dtype=torch.int64).cumsum(0).tolist()], dtype=dtype)


@many
@given(degrees=degree_lists, num_groups=st.integers(1, 70), row=costs, nnz=costs,
       dtype=st.sampled_from([torch.int32, torch.int64]))
def test_no_group_costs_more_than_its_share_and_one_row(degrees, num_groups, row, nnz, dtype):
    if row == nnz == 0:
        row = 1.0
    groups = balanced_row_groups(indptr_of(degrees, dtype), num_groups, row, nnz)
    assert groups.dtype == dtype and groups.shape == (num_groups + 1,)
    bounds = groups.tolist()
    assert bounds[0] == 0 and bounds[-1] == len(degrees) and bounds == sorted(bounds)
    cost = [row + nnz * degree for degree in degrees]
    share = sum(cost) / num_groups + max(cost, default=0)
    assert all(sum(cost[a:b]) <= share * (1 + 1e-9) for a, b in zip(bounds, bounds[1:]))


def test_groups_balance_edges_not_rows():
    indptr = indptr_of([100] + [1] * 99, torch.int64)
    assert balanced_row_groups(indptr, 2, cost_per_row=0).tolist() == [0, 1, 100]
    assert balanced_row_groups(indptr, 2, cost_per_nnz=0).tolist() == [0, 50, 100]


def test_a_cut_goes_to_the_nearest_row_boundary():
    # The middle of the cost, 5.5, lies between the boundaries 5 and 9, then between 2 and 6.
    assert balanced_row_groups(indptr_of([5, 4, 2], torch.int64), 2, cost_per_row=0).tolist() == [0, 1, 3]
    assert balanced_row_groups(indptr_of([2, 4, 5], torch.int64), 2, cost_per_row=0).tolist() == [0, 2, 3]


def test_equal_rows_are_cut_evenly():
    assert balanced_row_groups(indptr_of([3] * 12, torch.int32), 4).tolist() == [0, 3, 6, 9, 12]


@pytest.mark.parametrize("degrees", [[], [0], [0, 0, 0, 0]])
@pytest.mark.parametrize("row", [0.0, 1.0])
def test_graphs_without_edges(degrees, row):
    bounds = balanced_row_groups(indptr_of(degrees, torch.int32), 3, cost_per_row=row).tolist()
    assert bounds[0] == 0 and bounds[-1] == len(degrees) and bounds == sorted(bounds)


@pytest.mark.parametrize("arguments, error, words", [
    (([0, 1], 2), TypeError, "got list"),
    ((torch.tensor([0.0, 1.0]), 2), TypeError, "got torch.float32"),
    ((torch.tensor([], dtype=torch.int64), 2), ValueError, r"got \(0,\)"),
    ((torch.tensor([[0, 1]]), 2), ValueError, r"got \(1, 2\)"),
    ((torch.tensor([0, 1]), 0), ValueError, "num_groups must be at least 1, got 0"),
    ((torch.tensor([0, 1]), 1.5), TypeError, "num_groups must be an integer, got 1.5"),
    ((torch.tensor([0, 1]), 2, -1.0), ValueError, "cost_per_row must be finite and not negative, got -1.0"),
    ((torch.tensor([0, 1]), 2, 1.0, float("nan")), ValueError, "cost_per_nnz must be finite and not negative, got nan"),
    ((torch.tensor([0, 1]), 2, 0, 0), ValueError, "both 0"),
])
def test_bad_arguments_are_refused_in_words(arguments, error, words):
    with pytest.raises(error, match=words):
        balanced_row_groups(*arguments)
