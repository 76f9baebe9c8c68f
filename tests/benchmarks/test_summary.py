"""Ratios must point the right way, and the worst cells must be the worst."""

import math

import pytest

from benchmarks import summary


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
