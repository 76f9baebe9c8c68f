"""Turns must switch as often as they say, keep the opening call apart, and interleave."""

from contextlib import contextmanager

import pytest

from benchmarks.support.turns import Switched, in_turns


class FakeMachine:
    """A clock that only calls move. The first call after a switch takes ``opening`` seconds more."""

    def __init__(self, opening=0.0):
        self.now, self.opening, self.log, self._cold = 0.0, opening, [], False

    def clock(self):
        return self.now

    def switched(self, name, seconds):
        @contextmanager
        def context():
            self.log.append(f"+{name}")
            self._cold = True
            yield
            self.log.append(f"-{name}")

        def call():
            self.now += seconds + (self.opening if self._cold else 0.0)
            self._cold = False
            self.log.append(name)
            return name

        return Switched(call, context)


def test_the_opening_call_is_timed_apart():
    machine = FakeMachine(opening=10.0)
    turns = in_turns({"a": machine.switched("a", 1.0)}, budget_s=0.0, turn_s=0.0, calls=2, clock=machine.clock)["a"]
    assert turns.timing.median == pytest.approx(1.0) and turns.timing.samples == 4
    assert turns.opening == pytest.approx(11.0)


def test_turns_interleave_in_rotating_order_inside_their_contexts():
    machine = FakeMachine()
    contenders = {name: machine.switched(name, 1.0) for name in "ab"}
    in_turns(contenders, budget_s=0.0, turn_s=0.0, calls=1, min_turns=2, clock=machine.clock)
    assert machine.log == ["+a", "a", "a", "-a", "+b", "b", "b", "-b", "+b", "b", "b", "-b", "+a", "a", "a", "-a"]


def test_short_calls_fill_the_turn_and_rounds_the_budget():
    machine = FakeMachine()
    turns = in_turns({"a": machine.switched("a", 0.25)}, budget_s=10.0, turn_s=1.0, calls=2, clock=machine.clock)["a"]
    # a turn takes 5 calls of 0.25 s, the opening one included: 8 turns in 10 s
    assert turns.timing.samples == 8 * 4


def test_first_gives_result_and_seconds():
    machine = FakeMachine(opening=2.0)
    assert machine.switched("a", 1.0).first(machine.clock) == ("a", 3.0)
    assert machine.log == ["+a", "a", "-a"]


def test_nothing_to_time_and_nonsense():
    assert in_turns({}, budget_s=1.0) == {}
    with pytest.raises(ValueError, match="at least one"):
        in_turns({}, budget_s=1.0, calls=0)
