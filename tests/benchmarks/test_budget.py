"""Cells share what time is left by their weights."""

import pytest

from benchmarks.support.budget import Budget, weight


def test_what_a_cell_leaves_goes_to_the_later_ones():
    now = [0.0]
    budget = Budget(100.0, {"a": 1.0, "b": 1.0, "c": 2.0}, clock=lambda: now[0])
    assert budget.take("a") == pytest.approx(25.0)
    now[0] = 10.0
    assert budget.take("c") == pytest.approx(60.0)
    now[0] = 200.0
    assert budget.take("b", least=0.5) == 0.5
    with pytest.raises(KeyError):
        budget.take("a")


def test_a_pause_does_not_count():
    now = [0.0]
    budget = Budget(10.0, {"a": 1.0}, clock=lambda: now[0])
    now[0] = 7.0
    budget.pause(7.0)
    assert budget.take("a") == pytest.approx(10.0)


def test_weights_grow_more_slowly_than_the_work():
    assert 1 < weight(1000, 64) < weight(100_000, 64) < 100 * weight(1000, 64)
