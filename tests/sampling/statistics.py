"""Whether counts come from a distribution: Pearson's test. Seeds are fixed, so that a test passes or fails for good."""

import numpy as np
from scipy import stats

SIGNIFICANCE = 1e-4


def assert_distributed(counts, chances):
    """counts: of each outcome, how often it came. chances: of each, exactly; those of chance 0 must not have come."""
    counts, chances = np.asarray(counts, float), np.asarray(chances, float)
    assert abs(chances.sum() - 1) < 1e-9
    assert counts[chances == 0].sum() == 0
    possible = chances > 0
    expected = chances[possible] * counts.sum()
    assert expected.min() >= 5, "too few draws for the test"
    p = stats.chisquare(counts[possible], expected).pvalue
    assert p > SIGNIFICANCE, f"p = {p}: {counts[possible]} against {expected}"
