"""The bounds that measured limits give, and the distance of a time to them."""

import pytest

from benchmarks.operators.work import Work
from benchmarks.support.roofline import Roofline, measure

LIMITS = Roofline(2, ((1000, 100.0), (100_000, 10.0)), 1.0, flops=50.0)


def test_bounds_take_the_slower_of_memory_and_arithmetic():
    assert LIMITS.bounds(Work(1000, 3000, 0)) == pytest.approx((10.0, 30.0))
    assert LIMITS.bounds(Work(1000, 3000, 1000)) == pytest.approx((20.0, 30.0))
    assert LIMITS.bandwidth(10_000) == pytest.approx(55.0)
    assert LIMITS.bandwidth(1) == 100.0 and LIMITS.bandwidth(1e12) == LIMITS.stream == 10.0


def test_distance_says_what_binds_and_how_far_it_is():
    far = LIMITS.distance(Work(1000, 3000, 250), 40.0)
    assert far["binds"] == "memory" and far["roofline_compulsory"] == pytest.approx(10 / 40)
    assert far["roofline_gather"] == pytest.approx(30 / 40)
    assert (far["memory"], far["arithmetic"]) == pytest.approx((10 / 40, 5 / 40))
    near = LIMITS.distance(Work(1000, 3000, 1000), 40.0)
    assert near["binds"] == "arithmetic" and near["roofline_compulsory"] == pytest.approx(0.5)
    untimed = LIMITS.distance(Work(1000, 3000, 0), None)
    assert untimed["bound_compulsory"] == pytest.approx(10.0) and untimed["roofline_compulsory"] is None


def test_measured_limits_are_plausible():
    limits = measure(1, largest=4 << 20, gemm=128, repeats=2)
    assert all(1e8 < rate < 1e13 for _, rate in limits.copy)
    assert 1e7 < limits.gather < 1e13 and 1e8 < limits.flops < 1e14
    assert limits.to_dict()["stream_bytes_per_s"] == limits.stream
