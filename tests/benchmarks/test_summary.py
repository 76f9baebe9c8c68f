"""Ratios must point the right way, and the worst cells must be the worst."""

import math

import pytest

from benchmarks.support import summary


def test_geometric_mean():
    assert summary.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert summary.geometric_mean([1.0, 10.0, 100.0]) == pytest.approx(10.0)
    assert math.isnan(summary.geometric_mean([]))
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="positive"):
            summary.geometric_mean([1.0, bad])


def test_speedup_is_best_peer_over_ours():
    assert summary.speedup({"gsb": 1.0, "slow": 9.0, "best": 2.0}) == 2.0
    assert summary.speedup({"gsb": 4.0, "best": 2.0}) == 0.5
    assert summary.best_peer({"gsb": 0.1, "slow": 9.0, "best": 2.0}) == "best"


def test_without_peers_or_ours_there_is_no_ratio():
    assert summary.speedup({"gsb": 1.0}) is None
    assert summary.speedup({"best": 1.0}) is None


def test_worst_first():
    cells = [{"speedup": s} for s in (2.0, None, 0.5, 1.0)]
    assert [c["speedup"] for c in summary.worst(cells, 2)] == [0.5, 1.0]


def test_the_best_of_several_of_ours_is_compared():
    costs = {"dgl": 3.0, "dgl+gsb": 2.0, "pyg": 4.0, "pyg+gsb": 1.0}
    ours = ("dgl+gsb", "pyg+gsb")
    assert summary.best(costs, ours) == "pyg+gsb" and summary.best_peer(costs, ours) == "dgl"
    assert summary.speedup(costs, ours) == 3.0
    assert summary.speedup({"dgl": 3.0, "dgl+gsb": 0.0}, ours) is None


def test_means_by_key_leave_out_what_is_not_rated():
    cells = [{"k": 1, "speedup": 4.0}, {"k": 2, "speedup": None}, {"k": 1, "speedup": 1.0}]
    assert summary.by_key(cells, "k") == {"1": pytest.approx(2.0), "2": None}
    assert summary.mean_or_none([]) is None
