"""Generated graphs keep what was asked of them."""

import numpy as np
import pytest

from benchmarks.support.generators import power_law


def test_exact_size_no_duplicates_and_the_degree_limit():
    graph = power_law(2000, 20_000, 2.1, 150, seed=3, communities=10, locality=0.7)
    degrees = np.diff(graph.indptr)
    assert graph.shape == (2000, 2000) and graph.nnz == 20_000 and graph.indices.dtype == np.int32
    assert set(graph.data) == {1.0}
    assert degrees.max() <= 150 and degrees.max() > 4 * degrees.mean()
    assert graph.has_sorted_indices


def test_same_seed_same_graph():
    a, b, c = (power_law(500, 3000, 2.2, 60, seed=s, communities=5, locality=0.5) for s in (1, 1, 2))
    assert (a != b).nnz == 0 and (a != c).nnz > 0


def test_full_locality_keeps_edges_in_their_community():
    graph = power_law(1000, 8000, 2.3, 50, seed=0, communities=10, locality=1.0, shuffled=False).tocoo()
    assert (graph.row // 100 == graph.col // 100).all()
    loose = power_law(1000, 8000, 2.3, 50, seed=0, communities=10, locality=0.0, shuffled=False).tocoo()
    assert (loose.row // 100 == loose.col // 100).mean() < 0.3


def test_a_smaller_exponent_is_more_skewed():
    mild, steep = (np.diff(power_law(3000, 20_000, alpha, 1000, seed=0).indptr) for alpha in (3.5, 2.0))
    assert steep.max() > 2 * mild.max()


def test_source_skew_makes_hubs_of_sources():
    even, skewed = (power_law(3000, 20_000, 2.0, 500, seed=0, source_skew=s) for s in (0.0, 1.0))
    assert np.bincount(skewed.indices).max() > 3 * np.bincount(even.indices).max()


def test_a_complete_graph_is_reached():
    graph = power_law(20, 400, 2.0, 20, seed=0)
    assert (np.diff(graph.indptr) == 20).all()


@pytest.mark.parametrize(
    "arguments, match",
    [
        ((10, 101, 2.0, 10), "do not fit"),
        ((10, 0, 2.0, 10), "do not fit"),
        ((10, 20, 1.0, 10), "alpha"),
    ],
)
def test_refusals(arguments, match):
    with pytest.raises(ValueError, match=match):
        power_law(*arguments)


def test_full_locality_needs_room():
    with pytest.raises(ValueError, match="fewer communities"):
        power_law(1000, 8000, 2.0, 400, communities=100, locality=1.0)
