"""Which neighbours are drawn, against exact chances of every outcome."""

import itertools
import math
from collections import Counter

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.sampling.draws import Relation, draw, stream_of

from .statistics import assert_distributed

TRIALS = 20_000


def star(neighbours):
    """Node 0 has so many neighbours; each of these is the user's edge of another number."""
    order = torch.arange(neighbours).flip(0)
    return gsb.Graph.from_coo(torch.zeros(neighbours, dtype=torch.int64), order + 1, (neighbours + 1, neighbours + 1))


def outcomes(neighbours, fanout, trials=TRIALS, **given):
    """How often each multiset of neighbours came. A tree of its own for each seed gives all trials at once."""
    graph = star(neighbours)
    sample = gsb.sample_neighbors(
        graph, torch.zeros(trials, dtype=torch.int64), [fanout], disjoint=True, seed=7, **given
    )
    assert torch.equal(sample.nodes[sample.destinations], torch.zeros_like(sample.edges))
    assert torch.equal(sample.nodes[sample.sources], neighbours - sample.edges)
    drawn = sample.nodes[sample.sources].view(trials, -1)
    return Counter(tuple(row) for row in drawn.sort(1).values.tolist())


@pytest.mark.parametrize("neighbours, fanout", [(5, 2), (6, 3), (7, 1), (40, 1), (9, 8)])
def test_without_replacement_all_sets_are_equally_likely(neighbours, fanout):
    found = outcomes(neighbours, fanout)
    sets = list(itertools.combinations(range(1, neighbours + 1), fanout))
    assert_distributed([found[each] for each in sets], [1 / len(sets)] * len(sets))


@pytest.mark.parametrize("neighbours, fanout", [(80, 30), (80, 70), (200, 190)])
def test_of_many_each_neighbour_and_pair_is_equally_likely(neighbours, fanout):
    """By comparisons, and by a visit to every neighbour."""
    trials = 2000
    found = outcomes(neighbours, fanout, trials)
    assert all(len(set(each)) == fanout for each in found)
    of_one, of_two = (
        sum(count for each, count in found.items() if {1, 2}.issubset(each)),
        sum(count for each, count in found.items() if 1 in each),
    )
    p = fanout * (fanout - 1) / neighbours / (neighbours - 1)
    assert_distributed([of_one, trials - of_one], [p, 1 - p])
    assert_distributed([of_two, trials - of_two], [fanout / neighbours, 1 - fanout / neighbours])


@pytest.mark.parametrize("neighbours, fanout", [(3, 2), (4, 3), (2, 5)])
def test_with_replacement(neighbours, fanout):
    found = outcomes(neighbours, fanout, replace=True)
    _assert_multisets(found, [1 / neighbours] * neighbours, fanout)


WEIGHTS = [0.5, 3.0, 1.0, 0.0, 2.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weighted_with_replacement(dtype):
    weights = torch.tensor(WEIGHTS, dtype=dtype)
    found = outcomes(5, 3, replace=True, weights=weights)
    chances = [each / sum(WEIGHTS) for each in reversed(WEIGHTS)]
    _assert_multisets(found, chances, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fanout", [1, 2, 3])
def test_weighted_without_replacement(dtype, fanout):
    """One after the other, each in proportion to its weight among those left."""
    found = outcomes(5, fanout, weights=torch.tensor(WEIGHTS, dtype=dtype))
    of_node = list(reversed(WEIGHTS))
    chances = Counter()
    for order in itertools.permutations(range(5), fanout):
        left, p = sum(WEIGHTS), 1.0
        for each in order:
            p *= of_node[each] / left
            left -= of_node[each]
        chances[tuple(sorted(each + 1 for each in order))] += p
    assert_distributed([found[each] for each in chances], list(chances.values()))


def test_weight_zero_fills_up():
    weights = torch.tensor([0.0, 1.0, 0.0, 2.0])
    found = outcomes(4, 3, 100, weights=weights)
    assert all({1, 3}.issubset(each) for each in found)


def test_times_limit_what_is_drawn():
    """Neighbour n has time 10 * n; the seed may have those until 35."""
    time = torch.arange(0, 70, 10)
    trials = TRIALS
    found = outcomes(6, 2, time=time, seed_time=torch.full((trials,), 35))
    sets = list(itertools.combinations((1, 2, 3), 2))
    assert set(found) == set(sets)
    assert_distributed([found[each] for each in sets], [1 / 3] * 3)
    edge_time = torch.arange(60, 0, -10)  # edge e is from node 6 - e
    assert outcomes(6, 2, edge_time=edge_time, seed_time=torch.full((trials,), 35)) == found
    last = outcomes(6, 2, 10, time=time, seed_time=torch.full((10,), 35), strategy="last")
    assert set(last) == {(2, 3)}
    none = gsb.sample_neighbors(star(6), torch.zeros(1, dtype=torch.int64), [2], time=time)
    assert len(none.edges) == 0  # node 0 has time 0


def test_rows_of_a_layer_are_drawn_independently():
    """The same node in another tree, and pairs of nodes that follow each other, draw without regard to each other."""
    trials = TRIALS
    sample = gsb.sample_neighbors(star(4), torch.zeros(trials, dtype=torch.int64), [1], disjoint=True, seed=3)
    drawn = sample.edges
    pairs = Counter(zip(drawn[::2].tolist(), drawn[1::2].tolist()))
    assert_distributed([pairs[each] for each in itertools.product(range(4), repeat=2)], [1 / 16] * 16)


def test_layers_and_seeds_are_drawn_independently():
    """A loop at node 0 and an edge from 1: what is drawn in the first layer says nothing of the second."""
    graph = gsb.Graph.from_coo(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]), (2, 2))
    counts = Counter()
    for seed in range(600):
        first, second = (gsb.sample_neighbors(graph, torch.tensor([0]), [1], seed=each).edges for each in (seed, ~seed))
        counts[(int(first), int(second))] += 1
    assert_distributed([counts[each] for each in itertools.product((0, 1), repeat=2)], [0.25] * 4)


def _assert_multisets(found, chances, fanout):
    expected = Counter()
    for order in itertools.product(range(len(chances)), repeat=fanout):
        expected[tuple(sorted(each + 1 for each in order))] += math.prod(chances[each] for each in order)
    assert_distributed([found[each] for each in expected], list(expected.values()))


@pytest.mark.parametrize("degree", [97, 1 << 16, (1 << 16) + 1])
def test_numbers_are_those_of_philox(degree):
    """Random123's known answer for zeros, and what a kernel draws with replacement, by Python's integers."""
    assert _philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    nodes, fanout, stream = 3, 6, stream_of(11, 2)
    indptr = torch.arange(0, degree * nodes + 1, degree)
    relation = Relation("", "", indptr, torch.arange(degree * nodes), degree * nodes)
    keys = torch.arange(nodes) + (7 << 33) * nodes
    drawn = draw(relation, keys, 0, fanout, stream, replace=True)
    for at, key in enumerate(keys.tolist()):
        for k in range(fanout):
            upper, lower = (
                _philox([key & _LOWER, key >> 32, k >> 2, part], [stream & _LOWER, stream >> 32 & _LOWER])[k & 3]
                for part in (0, 1)
            )
            number = upper << 32 | (lower if degree > 1 << 16 else 0)
            assert int(drawn.positions[at * fanout + k]) == at * degree + (number * degree >> 64)


_LOWER = 0xFFFFFFFF


def _philox(words, keys):
    for _ in range(10):
        first, second = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [second >> 32 ^ words[1] ^ keys[0], second & _LOWER, first >> 32 ^ words[3] ^ keys[1], first & _LOWER]
        keys = [keys[0] + 0x9E3779B9 & _LOWER, keys[1] + 0xBB67AE85 & _LOWER]
    return words
