"""Points near others, far from each other and in clusters, and walks, against brute force and chances."""

from __future__ import annotations

import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import torch_cluster as tc
from gnn_sparse_backend.structures.points import search


@st.composite
def clouds(draw):
    """(x, y, clouds of x, of y): whole coordinates, whose distances are exact, with equal points; some clouds are
    empty, and some points are far away."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    width, side = draw(st.sampled_from((1, 2, 3, 4, 9))), draw(st.integers(1, 6))
    sizes = [torch.randint(0, 12, (3,), generator=generator) for _ in range(2)]
    points = [torch.randint(0, side, (int(n.sum()), width), generator=generator).double() for n in sizes]
    beside = draw(st.sampled_from((0, 10**6, -(10**6))))
    for each in points:
        each += beside
        if draw(st.booleans()) and len(each):
            each[-1] += 1000
    return *points, *(torch.arange(3).repeat_interleave(n) for n in sizes)


def near(x, y, of_x, of_y):
    """(squared distances (M, N), whether a query and a point are of one cloud)."""
    return (y[:, None] - x).square().sum(2), of_y[:, None] == of_x


@settings(max_examples=40, deadline=None)
@given(clouds(), st.integers(1, 9), st.sampled_from((torch.float32, torch.float64)))
def test_nearest_points(cloud, k, dtype):
    x, y, of_x, of_y = cloud
    squares, same = near(x, y, of_x, of_y)
    found = tc.knn(x.to(dtype), y.to(dtype), k, of_x, of_y, batch_size=3)
    expected = []
    for row, (distances, fits) in enumerate(zip(squares.tolist(), same.tolist())):
        ranked = sorted((d, n) for n, (d, fit) in enumerate(zip(distances, fits)) if fit)
        expected += [(row, n) for _, n in ranked[:k]]
    assert list(map(tuple, found.t().tolist())) == expected


@settings(max_examples=40, deadline=None)
@given(clouds(), st.sampled_from((0.5, 1.0, 2.3, 1e7)), st.integers(1, 40), st.booleans())
def test_points_within_a_radius(cloud, r, most, first):
    """As many of them as are wanted, or the nearest, of those that there are."""
    x, y, of_x, of_y = cloud
    squares, same = near(x, y, of_x, of_y)
    found = tc.radius(x, y, r, of_x, of_y, most, batch_size=3, nearest_first=first)
    edges = list(map(tuple, found.t().tolist()))
    assert len(set(edges)) == len(edges) and found[0].tolist() == sorted(found[0].tolist())
    for row, fits in enumerate((squares < r * r) & same):
        mine, theirs = [n for q, n in edges if q == row], fits.nonzero().flatten().tolist()
        assert set(mine) <= set(theirs) and len(mine) == min(most, len(theirs))
        if first:
            assert mine == sorted(theirs, key=lambda n: (squares[row, n].item(), n))[:most]


def test_a_tree_finds_the_same_points(monkeypatch):
    torch.manual_seed(0)
    x, of = torch.randn(400, 3), torch.arange(4).repeat_interleave(100)
    expected = tc.knn(x, x[::7], 5, of, of[::7])
    monkeypatch.setattr(search, "_crowded", lambda *_: True)
    assert torch.equal(tc.knn(x, x[::7], 5, of, of[::7]), expected)
    x[:, 2] *= 0
    x[-1] += 10**6
    torch.testing.assert_close(tc.knn(x, x, 5), tc.knn(x, x, 5))


def test_neighbours_are_drawn_alike():
    """Each of 10 points is as likely to be one of 3, the seed repeats them, and threads change nothing."""
    x, y = torch.zeros(10, 2), torch.zeros(2000, 2)
    torch.manual_seed(3)
    first = tc.radius(x, y, 1.0, max_num_neighbors=3)
    assert scipy.stats.chisquare(torch.bincount(first[1], minlength=10)).pvalue > 1e-3
    torch.manual_seed(3)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    assert torch.equal(tc.radius(x, y, 1.0, max_num_neighbors=3), first)
    torch.set_num_threads(threads)


def test_graphs_of_points():
    x = torch.zeros(5, 2)
    for loop in (False, True):
        edges = tc.knn_graph(x, 2, loop=loop)
        assert torch.bincount(edges[1]).tolist() == [2] * 5
        assert loop or not bool((edges[0] == edges[1]).any())
        assert torch.equal(tc.knn_graph(x, 2, loop=loop, flow="target_to_source"), edges.flip(0))
        within = tc.radius_graph(x, 1.0, loop=loop)
        assert within.shape[1] == (25 if loop else 20)
    angles = torch.tensor([[1.0, 0.1], [50.0, 0.0], [0.1, 3.0], [0.0, 1.0]])
    assert tc.knn_graph(angles, 1, cosine=True).tolist() == [[1, 0, 3, 2], [0, 1, 2, 3]]
    assert tc.nearest(angles, angles[[1, 3]]).tolist() == [1, 0, 1, 1]
    assert tc.knn(x, torch.empty(0, 2), 3).shape == (2, 0)


@pytest.mark.parametrize("width", (1, 3, 11))
def test_points_far_from_each_other(width):
    """The first one, and then the furthest from all before, of two clouds of other sizes and an empty one."""
    torch.manual_seed(0)
    x = torch.randn(21, width, dtype=torch.float64)
    found = tc.fps(x, ptr=[0, 13, 13, 21], ratio=torch.tensor([0.5, 0.5, 0.25]), random_start=False)
    expected = []
    for begin, end, many in ((0, 13, 7), (13, 21, 2)):
        chosen = [begin]
        while len(chosen) < many:
            distances = (x[begin:end, None] - x[chosen]).square().sum(2).amin(1)
            chosen.append(begin + int(distances.argmax()))
        expected += chosen
    assert found.tolist() == expected
    firsts = torch.stack([tc.fps(x, ratio=0.01)[0] for _ in range(2000)])
    assert scipy.stats.chisquare(torch.bincount(firsts, minlength=21)).pvalue > 1e-3


def test_steps_of_walks_have_their_chances():
    """From node 1, which was come to from 0: back 1/p, to 2, a neighbour of 0, 1, and to 3, 1/q."""
    edges = torch.tensor([[0, 1], [0, 2], [1, 0], [1, 2], [1, 3], [2, 0], [2, 1], [3, 1]]).t()
    torch.manual_seed(0)
    for p, q in ((1.0, 1.0), (4.0, 0.5), (0.25, 2.0)):
        walks, passed = tc.random_walk(*edges, torch.zeros(6000, dtype=torch.int64), 2, p, q, return_edge_indices=True)
        assert bool((edges[1][passed] == walks[:, 1:]).all()) and bool((edges[0][passed] == walks[:, :-1]).all())
        third = torch.bincount(walks[walks[:, 1] == 1][:, 2], minlength=4)[[0, 2, 3]]
        chances = torch.tensor([1 / p, 1.0, 1 / q])
        expected = third.sum() * chances.double() / chances.double().sum()
        assert scipy.stats.chisquare(third.numpy(), expected.numpy()).pvalue > 1e-3, (p, q)


def test_pairs_are_neighbours_of_the_largest_weight():
    row, col = torch.tensor([[0, 1], [1, 0], [1, 2], [2, 1], [2, 3], [3, 2]]).t()
    for _ in range(5):
        assert tc.graclus_cluster(row, col, torch.tensor([1.0, 1.0, 9.0, 9.0, 1.0, 1.0]))[[1, 2]].tolist() in (
            [1, 1],
            [0, 2],
            [0, 1],
            [1, 2],
        )
        alone = tc.graclus_cluster(row, col, num_nodes=6)
        assert alone[4:].tolist() == [4, 5] and torch.bincount(alone).max() <= 2
    heavy = torch.tensor([0.0, 0.0, 9.0, 9.0])
    found = {tuple(tc.graclus_cluster(row[:4], col[:4], heavy).tolist()) for _ in range(40)}
    assert found == {(0, 0, 2), (0, 1, 1)}  # 0 begins, or 1 takes 2


def test_wrong_calls_are_told():
    x, nan = torch.zeros(3, 2), torch.tensor([[0.0, 1.0], [float("nan"), 0.0]])
    for call, told in (
        (lambda: tc.knn(x, nan, 1), r"y\[1\] = \[nan, 0.0\]: points must be finite"),
        (lambda: tc.radius(nan, x, 1.0), r"x\[1\].*must be finite"),
        (lambda: tc.knn(x, x[:, :1], 1), r"\(3, 2\) and \(3, 1\)"),
        (lambda: tc.knn(x, x, 1, torch.tensor([0, 1, 0]), torch.zeros(3).long()), "batch_x must ascend"),
        (lambda: tc.knn(x, x, 1, torch.tensor([0, 1, 1])), "no batch_y"),
        (lambda: tc.radius_graph(x, 1.0, flow="up"), "'up'"),
        (lambda: tc.fps(x, ratio=2.0), "from 0 to 1, got"),
        (lambda: tc.random_walk(*torch.tensor([[0], [1]]), torch.tensor([0]), 2, p=0.0), "above 0, got 0.0"),
        (lambda: tc.grid_cluster(x, torch.ones(3)), "2 numbers"),
        (lambda: tc.graclus_cluster(*torch.tensor([[0], [5]]), num_nodes=3), "from 0 to 2"),
        (lambda: tc.neighbor_sampler(torch.tensor([4]), torch.tensor([0, 1]), 2), "from 0 to 0"),
    ):
        with pytest.raises(ValueError, match=told):
            call()


def test_it_is_given_by_its_name():
    with gsb.enabled("torch_cluster"):
        import torch_cluster
        from torch_cluster.rw import random_walk  # noqa: F401

        torch_cluster.knn(torch.zeros(3, 2), torch.zeros(1, 2), 1)
        assert gsb.status().to_dict()["calls"]["torch_cluster"]["knn"]["ours"] == 1
