"""Balanced groups of rows: bounds on the cost of a group, degenerate graphs, refusals."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnn_sparse_backend.formats import balanced_row_groups
from gnn_sparse_backend.formats.partitions import row_groups
from gnn_sparse_backend.formats.partitions.row_groups import EVEN, cut_rows, look_at_rows
from tests.formats.structures import many

degree_lists = st.lists(st.one_of(st.integers(0, 5), st.integers(0, 1000)), max_size=60)
costs = st.one_of(st.just(0.0), st.floats(0.01, 100))


def indptr_of(degrees, dtype):
    return torch.tensor([0, *torch.tensor(degrees, dtype=torch.int64).cumsum(0).tolist()], dtype=dtype)


@many
@given(
    degrees=degree_lists,
    num_groups=st.integers(1, 70),
    row=costs,
    nnz=costs,
    dtype=st.sampled_from([torch.int32, torch.int64]),
)
def test_no_group_costs_more_than_its_share_and_one_row(degrees, num_groups, row, nnz, dtype):
    if row == nnz == 0:
        row = 1.0
    groups = balanced_row_groups(indptr_of(degrees, dtype), num_groups, row, nnz)
    assert groups.dtype == dtype and groups.shape == (num_groups + 1,)
    bounds = groups.tolist()
    assert bounds[0] == 0 and bounds[-1] == len(degrees) and bounds == sorted(bounds)
    cost = [row + nnz * degree for degree in degrees]
    share = sum(cost) / num_groups + max(cost, default=0)
    assert all(sum(cost[a:b]) <= share * (1 + 1e-9) for a, b in itertools.pairwise(bounds))


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


def test_offsets_need_not_begin_with_0():
    """As those of a piece, whose non-zeros stand in the middle of a structure."""
    indptr = indptr_of([40, 1, 0, 7, 7, 300, 2, 9] * 5, torch.int64)
    for num_groups in (2, 3, 8):
        cuts = balanced_row_groups(indptr, num_groups)
        assert torch.equal(balanced_row_groups(indptr + 10_000, num_groups), cuts)
        assert torch.equal(
            balanced_row_groups(indptr + 10_000, num_groups, 2.0, 0.5),
            balanced_row_groups(indptr, num_groups, 2.0, 0.5),
        )


def equal_cuts(rows, groups):
    return [group * rows // groups for group in range(groups + 1)]


# as many groups as divide the stretches that are looked at, as do not, as there are, and more
@pytest.mark.parametrize("groups", [2, 18, 32, 64, 300])
@pytest.mark.parametrize("rows", [300, 1024, 1055])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_batch_is_cut_in_equal_rows(rows, groups, dtype):
    degrees = np.tile([2, 3, 1, 2], rows)[:rows]
    offsets = np.concatenate(([7], 7 + degrees.cumsum())).astype(dtype)  # as in a piece of a structure
    looks = []

    def look():
        looks.append(groups)
        return look_at_rows(offsets)

    for cuts in (cut_rows(offsets, groups, 2.0, 1.0), cut_rows(offsets, groups, 2.0, 1.0, look)):
        assert cuts.numpy().dtype == dtype and cuts.tolist() == equal_cuts(rows, groups)
    assert len(looks) == (64 % groups == 0)


def test_rows_are_balanced_where_equal_ones_cost_too_much(monkeypatch):
    """One heavy row anywhere; a heavy end; more non-zeros than a batch has; fewer rows than groups."""
    light = np.random.default_rng(0).integers(0, 11, 1000)
    heavy = [np.where(np.arange(1000) == at, 2000, light) for at in (0, 499, 999)]
    for degrees, even in (
        (light, True),
        *((degrees, False) for degrees in heavy),
        (np.sort(light), False),
        (light[:31], False),
    ):
        indptr = indptr_of(degrees, torch.int32)
        balanced = balanced_row_groups(indptr, 32, 2.0, 1.0).tolist()
        cuts = cut_rows(indptr.numpy(), 32, 2.0, 1.0).tolist()
        assert (cuts == equal_cuts(len(degrees), 32)) == even and (cuts == balanced) == (not even)
    indptr = indptr_of(light, torch.int64)
    monkeypatch.setattr(row_groups, "EVEN_EDGES", int(indptr[-1]) - 1)
    assert cut_rows(indptr.numpy(), 32, 2.0, 1.0).tolist() == balanced_row_groups(indptr, 32, 2.0, 1.0).tolist()


@many
@given(degrees=degree_lists, num_groups=st.integers(1, 70))
def test_no_group_costs_much_more_than_the_mean_or_a_row(degrees, num_groups):
    cuts = cut_rows(indptr_of(degrees, torch.int32).numpy(), num_groups, 2.0, 1.0).tolist()
    assert len(cuts) == num_groups + 1 and cuts[0] == 0 and cuts[-1] == len(degrees) and cuts == sorted(cuts)
    cost = [2.0 + degree for degree in degrees]
    mean = sum(cost) / num_groups
    most = max(EVEN * mean, mean + max(cost, default=0))
    assert all(sum(cost[a:b]) <= most * (1 + 1e-9) for a, b in itertools.pairwise(cuts))


@pytest.mark.parametrize("degrees", [[], [0], [0, 0, 0, 0]])
@pytest.mark.parametrize("row", [0.0, 1.0])
def test_graphs_without_edges(degrees, row):
    bounds = balanced_row_groups(indptr_of(degrees, torch.int32), 3, cost_per_row=row).tolist()
    assert bounds[0] == 0 and bounds[-1] == len(degrees) and bounds == sorted(bounds)


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (([0, 1], 2), TypeError, "got list"),
        ((torch.tensor([0.0, 1.0]), 2), TypeError, "got torch.float32"),
        ((torch.tensor([], dtype=torch.int64), 2), ValueError, r"got \(0,\)"),
        ((torch.tensor([[0, 1]]), 2), ValueError, r"got \(1, 2\)"),
        ((torch.tensor([0, 1]), 0), ValueError, "num_groups must be at least 1, got 0"),
        ((torch.tensor([0, 1]), 1.5), TypeError, "num_groups must be an integer, got 1.5"),
        ((torch.tensor([0, 1]), 2, -1.0), ValueError, "cost_per_row must be finite and not negative, got -1.0"),
        (
            (torch.tensor([0, 1]), 2, 1.0, float("nan")),
            ValueError,
            "cost_per_nnz must be finite and not negative, got nan",
        ),
        ((torch.tensor([0, 1]), 2, 0, 0), ValueError, "both 0"),
    ],
)
def test_bad_arguments_are_refused_in_words(arguments, error, words):
    with pytest.raises(error, match=words):
        balanced_row_groups(*arguments)
