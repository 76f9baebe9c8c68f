"""Random statements and commands: what is legal computes what NumPy does, to the bit; what is not is refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st_

from tests.tensor.scheduling import fuzz
from tests.tensor.scheduling.cases import Case, check, random_case
from tests.tensor.scheduling.kept import KEPT

QUIET = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False)


@st_.composite
def cases(draw) -> Case:
    return random_case(lambda options: draw(st_.sampled_from(list(options))))


@pytest.mark.parametrize("case", KEPT, ids=range(len(KEPT)))
def test_what_was_wrong_once(case):
    check(case, ("stage1", "stage3", "kernel"))


@settings(QUIET, max_examples=80)
@given(cases())
def test_random_schedules(case):
    check(case)


@pytest.mark.parametrize("seed", [3])
def test_random_schedules_compiled(seed):
    check(random_case(random.Random(seed).choice), ("stage3", "kernel"))


@pytest.mark.slow
@settings(QUIET, max_examples=8000)
@given(cases())
def test_many_random_schedules(case):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 180))
def test_many_random_schedules_compiled(seed):
    check(random_case(random.Random(seed).choice), ("stage3", "kernel"))


def test_failures_are_made_small(monkeypatch):
    """A fault that any split shows is one of a single split, of the smallest shapes that there are."""

    def fails(case, how):
        if any(command[0] == "split" for command in case.commands):
            raise AssertionError("split")

    monkeypatch.setattr(fuzz, "check", fails)
    case = Case(
        "y[i] = A[i,j] * x[j]",
        {"A": "csc", "x": "dense"},
        {"i": 9, "j": 7},
        (("reorder", "j", "i"), ("split", "i", "a", "b", 4), ("unroll", "b")),
    )
    small = fuzz.shrunk(case, ("stage1",))
    assert small.commands == (("split", "i", "a", "b", 4),) and small.sizes == {"i": 0, "j": 0}
    assert fuzz.reason(small, ("stage1",)) == "AssertionError: split"
