"""The harness must report what happened: medians, order, and when contenders leave."""

import gc

import pytest

from benchmarks.support.timing import Rules, Timing, interleaved


class FakeMachine:
    """A clock that only calls move; each contender's durations are given, the last one repeating."""

    def __init__(self, **durations):
        self.now = 0.0
        self.log = []
        self._durations = {name: list(values) for name, values in durations.items()}

    def clock(self):
        return self.now

    def contenders(self):
        return {name: lambda name=name: self._run(name) for name in self._durations}

    def _run(self, name):
        values = self._durations[name]
        self.now += values.pop(0) if len(values) > 1 else values[0]
        self.log.append(name)


def test_summary_of_samples():
    timing = Timing.of([1.0, 2.0, 3.0, 4.0, 100.0])
    assert (timing.lower, timing.median, timing.upper, timing.minimum, timing.samples) == (2.0, 3.0, 4.0, 1.0, 5)
    assert timing.outliers == 1
    with pytest.raises(ValueError, match="no samples"):
        Timing.of([])


def test_median_ignores_a_disturbance_and_the_warm_up():
    machine = FakeMachine(a=[50.0, 1.0, 1.0, 1.0, 90.0, 1.0, 1.0])
    timing = interleaved(machine.contenders(), Rules(budget_s=1e-9, min_rounds=5), clock=machine.clock)["a"]
    assert timing.median == 1.0 and timing.samples == 5 and timing.outliers == 1


def test_rounds_interleave_in_rotating_order():
    machine = FakeMachine(a=[1.0], b=[1.0])
    interleaved(machine.contenders(), Rules(min_rounds=4, max_rounds=4, budget_s=1e-9), clock=machine.clock, warm=False)
    assert "".join(machine.log) == "aabb" + "ba" + "ab"


def test_short_calls_are_averaged_over_a_sample():
    machine = FakeMachine(a=[1e-4])
    timing = interleaved(machine.contenders(), Rules(sample_s=1e-2, max_rounds=6), clock=machine.clock)["a"]
    assert timing.calls == 100 and timing.median == pytest.approx(1e-4)


@pytest.mark.slow
def test_long_calls_need_fewer_samples():
    machine = FakeMachine(a=[1.5])
    rules = Rules(budget_s=1e-9, min_rounds=5, long_rounds=3, long_s=1.0)
    assert interleaved(machine.contenders(), rules, clock=machine.clock)["a"].samples == 3
    machine = FakeMachine(a=[1.5], b=[0.5])
    timings = interleaved(machine.contenders(), rules, clock=machine.clock)
    assert timings["b"].samples == 5, "one that is shorter keeps its own number"
    with pytest.raises(ValueError, match="long_rounds 0"):
        Rules(long_rounds=0)


def test_the_hopeless_leave_early_and_the_close_stay():
    machine = FakeMachine(fast=[1.0, 1.5] * 20, close=[1.2, 1.7] * 20, slow=[5.0], hopeless=[50.0])
    rules = Rules(budget_s=1000.0, precision=1e-6, min_rounds=5, max_rounds=12)
    samples = {name: t.samples for name, t in interleaved(machine.contenders(), rules, clock=machine.clock).items()}
    assert samples == {"fast": 13, "close": 13, "slow": 5, "hopeless": 2}


def test_one_disturbed_sample_drives_nobody_out():
    machine = FakeMachine(a=[1.0], b=[1.0, 500.0, 1.0])
    timings = interleaved(machine.contenders(), Rules(budget_s=1e-9), clock=machine.clock)
    assert timings["b"].samples >= 5 and timings["b"].median == 1.0


@pytest.mark.slow
def test_stops_when_precise_and_when_the_budget_is_spent():
    machine = FakeMachine(steady=[1.0])
    assert interleaved(machine.contenders(), Rules(budget_s=1e9), clock=machine.clock)["steady"].samples == 5
    machine = FakeMachine(wild=[1.0, 3.0] * 200)
    samples = interleaved(machine.contenders(), Rules(budget_s=60.0), clock=machine.clock)["wild"].samples
    assert 20 <= samples <= 35


@pytest.mark.slow
def test_the_garbage_collector_is_off_inside_and_restored():
    seen = []
    interleaved({"a": lambda: seen.append(gc.isenabled())}, Rules(budget_s=1e-9, sample_s=1e-9))
    assert seen and not any(seen) and gc.isenabled()

    def fails():
        raise RuntimeError("broken contender")

    with pytest.raises(RuntimeError, match="broken contender"):
        interleaved({"a": fails})
    assert gc.isenabled()


def test_nothing_to_time():
    assert interleaved({}) == {}


def test_rules_refuse_nonsense():
    with pytest.raises(ValueError, match="min_rounds"):
        Rules(min_rounds=0)
    with pytest.raises(ValueError, match="ratios"):
        Rules(slow=0.5)
