"""The byte and operation counts against counts by hand, and the bounds they give."""

import numpy as np
import pytest

from benchmarks.roofline import Roofline, Work, aggregation_work, measure, sddmm_work, spmm_work

# 3 destinations, 4 sources; sources 0 and 3 used, destination 1 empty.
INDPTR, INDICES, SHAPE = np.array([0, 2, 2, 3]), np.array([0, 3, 3]), (3, 4)


def test_unweighted_forward_by_hand():
    work = aggregation_work(INDPTR, INDICES, SHAPE, 8, weighted=False, backward=False)
    structure, output = (4 + 3) * 4, 3 * 8 * 4
    assert work == Work(structure + output + 2 * 32, structure + output + 3 * 32, 3 * 8)


def test_weighted_forward_adds_the_weights_and_the_multiplications():
    work = aggregation_work(INDPTR, INDICES, SHAPE, 8, weighted=True, backward=False)
    structure, output = (4 + 3) * 4 + 3 * 4, 3 * 8 * 4
    assert work == Work(structure + output + 2 * 32, structure + output + 3 * 32, 2 * 3 * 8)


def test_backward_adds_the_transposed_product_and_the_weight_gradient():
    forward = spmm_work(3, 3, 2, 8, weighted=True)
    transposed = spmm_work(4, 3, 2, 8, weighted=True)
    structure = (4 + 3) * 4 + 3 * 4
    dots = Work(structure + (3 + 2) * 32, structure + (3 + 3) * 32, 2 * 3 * 8)
    assert sddmm_work(3, 3, 2, 8) == dots
    assert aggregation_work(INDPTR, INDICES, SHAPE, 8, weighted=True, backward=True) == forward + transposed + dots
    unweighted = aggregation_work(INDPTR, INDICES, SHAPE, 8, weighted=False, backward=True)
    assert unweighted == spmm_work(3, 3, 2, 8, weighted=False) + spmm_work(4, 3, 2, 8, weighted=False)


def test_bounds_take_the_slower_of_memory_and_arithmetic():
    limits = Roofline(2, ((1000, 100.0), (100_000, 10.0)), 1.0, flops=50.0)
    assert limits.bounds(Work(1000, 3000, 0)) == pytest.approx((10.0, 30.0))
    assert limits.bounds(Work(1000, 3000, 1000)) == pytest.approx((20.0, 30.0))
    assert limits.bandwidth(10_000) == pytest.approx(55.0)
    assert limits.bandwidth(1) == 100.0 and limits.bandwidth(1e12) == limits.stream == 10.0


def test_measured_limits_are_plausible():
    limits = measure(1, largest=4 << 20, gemm=128, repeats=2)
    assert all(1e8 < rate < 1e13 for _, rate in limits.copy)
    assert 1e7 < limits.gather < 1e13 and 1e8 < limits.flops < 1e14
