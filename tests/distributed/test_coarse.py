"""Groups that METIS is shown in the place of nodes: their graph, their limits, and what is cut by them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import gnn_sparse_backend as gsb
from gnn_sparse_backend.distributed.coarse import Undirected, by_groups, contracted, propagated
from gnn_sparse_backend.distributed.methods import owners

from . import cases


def _of(dense: np.ndarray, weighted: bool, sizes: np.ndarray) -> Undirected:
    matrix = scipy.sparse.csr_array(dense)
    return Undirected(matrix.indptr, matrix.indices, matrix.data if weighted else None, sizes)


def _cliques(count: int, size: int) -> np.ndarray:
    """Cliques in a ring, an edge from each to the next; its last node is isolated."""
    nodes = count * size
    dense = np.zeros((nodes + 1, nodes + 1), np.int32)
    dense[:nodes, :nodes] = np.kron(np.eye(count, dtype=np.int32), np.ones((size, size), np.int32))
    for first in range(0, nodes, size):
        dense[first, (first - 1) % nodes] = dense[(first - 1) % nodes, first] = 1
    np.fill_diagonal(dense, 0)
    return dense


@pytest.mark.parametrize("weighted", [False, True])
def test_groups_become_nodes(weighted):
    random = np.random.default_rng(0)
    dense = np.triu(random.integers(0, 2 + 3 * weighted, (40, 40)), 1).astype(np.int32)
    dense, group = dense + dense.T, np.append(np.arange(7), random.integers(7, size=33)).astype(np.int32)
    found = contracted(_of(dense, weighted, np.arange(40)), group)
    belongs = np.eye(7, dtype=np.int32)[group]
    wanted = belongs.T @ dense @ belongs
    np.fill_diagonal(wanted, 0)
    got = scipy.sparse.csr_array((found.weights, found.others, found.starts), shape=(7, 7))
    assert np.array_equal(got.toarray(), wanted)
    assert np.array_equal(found.sizes, belongs.T @ np.arange(40))


@pytest.mark.parametrize("weighted", [False, True])
def test_cliques_are_groups(weighted):
    dense = _cliques(12, 10)
    graph = _of(dense * (1 + weighted), weighted, np.ones(121, np.int64))
    label = propagated(graph, np.arange(121, dtype=np.int32), 10, 8, np.random.default_rng(0))
    assert np.bincount(label).max() <= 10 and label[120] == 120
    assert sum(len(set(label[first : first + 10])) == 1 for first in range(0, 120, 10)) >= 8


def test_parts_are_improved_within_the_limit():
    graph = _of(_cliques(2, 10), False, np.ones(21, np.int64))
    part = np.repeat(np.array([0, 1, 0], np.int32), (10, 10, 1))
    mixed = part.copy()
    mixed[[3, 14]] = 1, 0
    assert np.array_equal(propagated(graph, mixed, 12, 3, np.random.default_rng(0)), part)
    assert np.array_equal(propagated(graph, mixed, 10, 3, np.random.default_rng(0))[:20], mixed[:20])  # no room


def test_nodes_of_one_turn_share_what_room_there_is():
    star = np.zeros((65, 65), np.int32)
    star[0, 1:] = star[1:, 0] = 1
    label = propagated(_of(star, False, np.ones(65, np.int64)), np.arange(65), 7, 4, np.random.default_rng(0))
    assert np.bincount(label).max() == 7


def test_a_graph_that_is_small_or_does_not_shrink_is_cut_as_it_is():
    seen = []

    def cut(graph: Undirected) -> np.ndarray:
        seen.append(graph)
        return np.zeros(graph.sizes.size, np.int32)

    small = _of(_cliques(3, 4), False, np.ones(13, np.int64))
    by_groups(small, 2, 0, cut, small.others.size)
    by_groups(small, 2, 0, cut, 0)  # 13 nodes in groups of one
    assert len(seen) == 2 and all(each is small for each in seen)


@pytest.mark.parametrize("parts", [2, 4])
def test_the_cut_is_near_that_of_all_nodes(parts):
    pytest.importorskip("pymetis")
    random, nodes, community = np.random.default_rng(0), 4096, 32
    number = random.permutation(nodes)  # communities are no ranges
    row = random.integers(nodes, size=60_000)
    near = row - row % community + random.integers(community, size=row.size)
    col = np.where(random.random(row.size) < 0.9, near, random.integers(nodes, size=row.size))
    row, col = number[row], number[col]
    cut = []
    for coarsen in (False, True):
        part, _ = owners("metis", row, col, (nodes, nodes), parts, True, 0, 1.0, coarsen)
        assert np.bincount(part, minlength=parts).max() <= 1.03 * nodes / parts + 1
        cut.append((part[row] != part[col]).mean())
    assert cut[1] <= 1.1 * cut[0]


def test_another_coarsen_is_refused(tmp_path):
    with pytest.raises(ValueError, match="coarsen must be True, False or None, got 'yes'"):
        gsb.distributed.partition(cases.whole("square"), 2, tmp_path, "range", coarsen="yes")
