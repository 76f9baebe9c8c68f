"""Random expressions and commands: what is legal computes what PyTorch does, what is not is refused."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st_

from tests.tensor.scheduling import fuzz
from tests.tensor.scheduling.cases import WAYS, Case
from tests.tensor.scheduling.checks import Refused, check
from tests.tensor.scheduling.drawn import random_case
from tests.tensor.scheduling.kept import KEPT

QUIET = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False)


@st_.composite
def cases(draw, way) -> Case:
    return random_case(lambda options: draw(st_.sampled_from(list(options))), way=way)


def checked(case, *how) -> None:
    with suppress(Refused):  # in words, before anything runs
        check(case, how)


def tried(way, count) -> None:
    @settings(QUIET, max_examples=count)
    @given(cases(way))
    def test(case):
        checked(case, "stage1")

    test()


@pytest.mark.short(len(KEPT))
@pytest.mark.parametrize("case", KEPT, ids=range(len(KEPT)))
def test_what_was_wrong_once(case):
    check(case, ("stage1", "stage3", "kernel"))


def test_random_schedules():
    tried("schedule", 70)


@pytest.mark.parametrize("way", WAYS[1:])
def test_random_expressions(way):
    tried(way, 15)


@pytest.mark.parametrize("seed", [3])
def test_random_schedules_compiled(seed):
    checked(random_case(random.Random(seed).choice), "stage3", "kernel")


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_many_random_cases(way):
    tried(way, 4000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 180))
def test_many_random_cases_compiled(seed):
    choose = random.Random(seed).choice
    checked(random_case(choose, way=choose(WAYS)), "stage3", "kernel")


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
