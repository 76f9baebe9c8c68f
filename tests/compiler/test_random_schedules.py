"""Random schedules of the programs of operators: what a schedule takes means what it did before."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnn_sparse_backend.compiler import unit_schedule
from tests.compiler.programs_under_test import CASES
from tests.compiler.random_schedules import check, program_of, random_schedule
from tests.compiler.structures import seeds

QUIET = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False)
NAMES = sorted(CASES)


@st.composite
def scheduled(draw):
    name, index_dtype = draw(st.sampled_from(NAMES)), draw(st.sampled_from(["int32", "int64"]))
    choose = lambda options: draw(st.sampled_from(list(options)))
    return name, index_dtype, draw(seeds), random_schedule(choose, program_of(name, index_dtype))


def test_a_sum_of_nothing_is_zero_under_a_schedule_that_names_no_loop():
    assert check("segment_sum", "int32", 161, unit_schedule())


@settings(QUIET, max_examples=6)
@given(scheduled())
def test_random_schedules(case):
    check(*case)


@pytest.mark.slow
@settings(QUIET, max_examples=500)
@given(scheduled())
def test_many_random_schedules(case):
    check(*case)
