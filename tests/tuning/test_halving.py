"""Successive halving: it finds the best of known costs, spends its samples on the best, and keeps to its budget."""

import math

import pytest

from gnn_sparse_backend.tuning.halving import FIRST_ROUNDS, halved


class Arms:
    """Arms of known seconds, and a clock that stands still between samples.

    disturbed: of the samples from the n-th on, what each takes longer.
    """

    def __init__(self, costs, disturbed=lambda sample: 0.0):
        self.costs, self.disturbed, self.now, self.taken = costs, disturbed, 0.0, []

    def clock(self):
        return self.now

    def sample(self, arm, count):
        seconds = self.costs[arm] + self.disturbed(len(self.taken))
        self.taken.append((arm, self.now))
        self.now += count * seconds
        return seconds

    def halved(self, deadline, **more):
        return halved(list(self.costs), self.sample, deadline, self.clock, **more)

    def samples(self, arm):
        return sum(each == arm for each, _ in self.taken)


@pytest.mark.short(4)
@pytest.mark.parametrize("best", [0, 1, 17, 31])
def test_the_best_of_known_costs_is_found(best):
    arms = Arms({arm: 1e-3 * (1.0 if arm == best else 1.1 + 0.01 * arm) for arm in range(32)})
    found = arms.halved(1e9)
    assert min(found, key=found.get) == best and found == pytest.approx(arms.costs)


def test_a_disturbance_does_not_decide():
    """Two of three samples take five times as long: the least of those of an arm is its own all the same."""
    arms = Arms({arm: 1e-3 * (1 + 0.1 * arm) for arm in range(16)}, lambda sample: 4e-3 if sample % 3 else 0.0)
    found = arms.halved(1e9)
    assert min(found, key=found.get) == 0


def test_half_of_the_arms_go_on():
    arms = Arms({arm: 1e-3 * (1 + 0.05 * arm) for arm in range(8)})
    arms.halved(1e9)
    first = 2 + FIRST_ROUNDS
    # rungs of 8, 4 and 2 arms
    rungs = [first, first + 2 * FIRST_ROUNDS, first + 6 * FIRST_ROUNDS]
    assert [arms.samples(arm) for arm in (7, 4, 3, 2, 1)] == [rungs[0], rungs[0], rungs[1], rungs[1], rungs[2]]


def test_the_first_stays_to_be_compared_with():
    costs = {arm: 1e-3 * (1 + 0.05 * arm) for arm in (7, 0, 1, 2, 3, 4, 5, 6)}
    arms = Arms(costs)
    arms.halved(1e9)
    assert arms.samples(7) == arms.samples(0) > arms.samples(3)


def test_a_hopeless_arm_has_two_samples():
    arms = Arms({"first": 1e-3, "slow": 4e-3, "near": 2e-3})
    found = arms.halved(1e9)
    assert arms.samples("slow") == 2 and found["slow"] == 4e-3


@pytest.mark.short(5)
@pytest.mark.parametrize("deadline", [0.0, 1e-3, 20e-3, 50e-3, 0.3])
def test_no_sample_begins_after_the_deadline(deadline):
    arms = Arms({arm: 1e-3 * (1 + 0.05 * arm) for arm in range(16)})
    found = arms.halved(deadline)
    assert 0 in found and all(begin < deadline for _, begin in arms.taken[1:])
    if deadline == 0.0:
        assert list(found) == [0], "the first has a sample however little time there is"


def test_rungs_share_the_budget():
    """Where the clock ends them, each of the three rungs takes about as long."""
    arms = Arms({arm: 1.0 + 0.01 * arm for arm in range(8)})
    begin = sum(2 * cost for cost in arms.costs.values())
    arms.halved(begin + 30, rounds=10**6)
    ends = [begin + 10, begin + 20, begin + 30]
    counts = [len({arm for arm, at in arms.taken if low <= at < high}) for low, high in zip([begin, *ends], ends)]
    assert counts[0] >= counts[1] >= counts[2] and counts[2] <= 3


def test_there_is_something_to_measure():
    with pytest.raises(ValueError, match="arms are empty"):
        halved([], lambda arm, count: math.nan, 1.0, lambda: 0.0)
