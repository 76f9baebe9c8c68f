"""Samples by the names of pyg-lib: on a ring of nodes everything that chance leaves open can be said."""

from __future__ import annotations

import pytest
import scipy.stats
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.pyg_lib import classes, distributed, sampler

NODES = 6
ROWPTR = torch.arange(0, 2 * NODES + 1, 2)
COL = torch.stack([(torch.arange(NODES) - 1) % NODES, (torch.arange(NODES) + 1) % NODES], 1).flatten()
BY_TIME = COL.view(-1, 2).sort(1).values.flatten()
SEED = torch.tensor([2, 3])


def check_edges(row, other, nodes, edges, col=COL):
    """Both ends of each edge are those of the graph."""
    names = nodes if nodes.dim() == 1 else nodes[:, 1]
    assert torch.equal(names[other], col[edges]) and torch.equal(names[row], edges // 2)
    if nodes.dim() == 2:
        assert torch.equal(nodes[row, 0], nodes[other, 0])


def test_all_neighbours_are_numbered_as_they_are_met():
    row, other, nodes, edges, by_node, by_edge = sampler.neighbor_sample(ROWPTR, COL, SEED, [-1, -1])
    assert row.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and other.tolist() == [2, 1, 0, 3, 4, 0, 1, 5]
    assert nodes.tolist() == [2, 3, 1, 4, 0, 5] and edges.tolist() == [4, 5, 6, 7, 2, 3, 8, 9]
    assert (by_node, by_edge) == ([2, 2, 2], [4, 4])
    assert sampler.neighbor_sample(ROWPTR, COL, SEED, [1], return_edge_id=False)[3] is None


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"disjoint": True}, {"csc": True}, {"directed": False}])
def test_options_of_a_sample(options):
    for _ in range(5):
        row, other, nodes, edges, by_node, by_edge = sampler.neighbor_sample(ROWPTR, COL, SEED, [1, 2], **options)
        row, other = (other, row) if "csc" in options else (row, other)
        check_edges(row, other, nodes, edges)
        assert sum(by_node) == len(nodes) and sum(by_edge) == len(edges)
        if "directed" in options:
            assert len(edges) == sum(int(COL[e] in nodes) for n in nodes for e in (2 * n, 2 * n + 1))


def test_trees_share_no_nodes():
    row, other, nodes, edges, _, _ = sampler.neighbor_sample(ROWPTR, COL, SEED, [2, 2], disjoint=True)
    assert row.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert other.tolist() == [2, 3, 4, 5, 6, 0, 0, 7, 8, 1, 1, 9]
    assert nodes.flatten().tolist() == [0, 2, 1, 3, 0, 1, 0, 3, 1, 2, 1, 4, 0, 0, 0, 4, 1, 1, 1, 5]
    check_edges(row, other, nodes, edges)


@pytest.mark.parametrize(("fanouts", "strategy"), [([2, 2], "uniform"), ([1, 2], "last")])
def test_neighbours_until_the_time_of_a_node(fanouts, strategy):
    found = sampler.neighbor_sample(
        ROWPTR, BY_TIME, SEED, fanouts, torch.arange(NODES), disjoint=True, temporal_strategy=strategy
    )
    assert found[0].tolist() == [0, 1, 2, 2, 3, 3] and found[1].tolist() == [2, 3, 4, 0, 5, 1]
    assert found[2].flatten().tolist() == [0, 2, 1, 3, 0, 1, 1, 2, 0, 0, 1, 1]
    assert found[3].tolist() == [4, 6, 2, 3, 4, 5]


def test_edges_until_the_time_of_a_seed():
    given = {"edge_time": torch.arange(2 * NODES), "disjoint": True}
    found = sampler.neighbor_sample(ROWPTR, COL, SEED, [2, 2], seed_time=torch.tensor([5, 6]), **given)
    assert found[0].tolist() == [0, 0, 1, 2, 2, 4, 4] and found[3].tolist() == [4, 5, 6, 2, 3, 4, 5]
    none = sampler.neighbor_sample(ROWPTR, COL, SEED, [1, 1], seed_time=torch.tensor([-1, -1]), **given)
    assert none[0].numel() == 0 and none[2].tolist() == [[0, 2], [1, 3]]


def test_edges_by_their_weights():
    weights = torch.tensor([3.0, 1.0]).repeat(NODES)
    seeds = torch.zeros(4000, dtype=torch.int64)
    found = sampler.neighbor_sample(ROWPTR, COL, seeds, [1], edge_weight=weights, disjoint=True)
    counts = torch.bincount(found[3], minlength=2)[:2]
    assert scipy.stats.chisquare(counts.numpy(), [3000, 1000]).pvalue > 1e-4
    only = sampler.neighbor_sample(
        ROWPTR, COL, torch.arange(NODES), [1], edge_weight=torch.tensor([1.0, 0]).repeat(NODES)
    )
    assert only[3].tolist() == list(range(0, 2 * NODES, 2))


@pytest.mark.parametrize("csc", [False, True])
def test_several_types(csc):
    """Papers and authors: rows of "writes" are authors, or papers with ``csc``; papers have rows in "cites" too."""
    writes, cites = ("author", "writes", "paper"), ("paper", "cites", "paper")
    rowptr = {
        writes: torch.tensor([0, 2, 3, 3]) if not csc else torch.tensor([0, 1, 3, 3, 3]),
        cites: torch.tensor([0, 1, 1, 1, 1]),
    }
    col = {writes: torch.tensor([0, 3, 1]) if not csc else torch.tensor([0, 0, 1]), cites: torch.tensor([3])}
    seeds = {"author": torch.tensor([0, 1])} if not csc else {"paper": torch.tensor([1, 0])}
    row, other, nodes, edges, by_node, by_edge = sampler.hetero_neighbor_sample(
        rowptr, col, seeds, {writes: [-1, -1], cites: [-1, -1]}, csc=csc
    )
    for kind in (writes, cites):
        first, second = (other[kind], row[kind]) if csc else (row[kind], other[kind])
        near, far = (kind[2], kind[0]) if csc else (kind[0], kind[2])
        place = torch.searchsorted(rowptr[kind], edges[kind], right=True) - 1
        assert torch.equal(nodes[near][first], place) and torch.equal(nodes[far][second], col[kind][edges[kind]])
        assert sum(by_edge[kind]) == edges[kind].numel()
    assert {kind: sum(each) for kind, each in by_node.items()} == {kind: len(each) for kind, each in nodes.items()}
    if csc:
        assert edges[writes].tolist() == [1, 2, 0] and nodes["paper"].tolist() == [1, 0, 3]
    else:
        assert edges[writes].tolist() == [0, 1, 2] and nodes["paper"].tolist() == [0, 3, 1]


def test_trees_of_several_types_come_in_the_order_of_the_seeds():
    """With their times: type "b" is given first, and its seed alone is late enough for its neighbour."""
    edge_types = [("a", "to", "b"), ("b", "to", "a")]
    rowptr, col = ({kind: each.clone() for kind in edge_types} for each in (torch.tensor([0, 1]), torch.tensor([0])))
    zero = torch.tensor([0])
    _, _, nodes, _, _, by_edge = sampler.hetero_neighbor_sample(
        rowptr,
        col,
        {"b": zero, "a": zero},
        {kind: [1] for kind in edge_types},
        {"a": torch.tensor([5]), "b": torch.tensor([5])},
        None,
        {"b": torch.tensor([9]), "a": torch.tensor([1])},
        disjoint=True,
    )
    assert by_edge == {edge_types[0]: [0], edge_types[1]: [1]}
    assert nodes["b"].tolist() == [[0, 0]] and nodes["a"].tolist() == [[1, 0], [0, 0]]
    graphs = {kind: gsb.Graph.from_csr(torch.tensor([0, 1]), torch.tensor([0]), (1, 1)) for kind in edge_types}
    sample = gsb.sample_neighbors(
        graphs,
        {"b": zero, "a": zero},
        [1],
        time={"a": torch.tensor([5]), "b": torch.tensor([5])},
        seed_time={"b": torch.tensor([9]), "a": torch.tensor([1])},
    )
    assert sum(len(each) for each in sample.edges.values()) == 1


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"seed": torch.tensor([6])}, IndexError, "from 0 to 5"),
        ({"col": COL + 1}, IndexError, "1 to 6"),
        ({"node_time": torch.arange(NODES)}, ValueError, "disjoint=True"),
        ({"node_time": torch.rand(NODES), "disjoint": True}, ValueError, "float32"),
        ({"edge_time": torch.arange(12), "disjoint": True}, ValueError, "Seed time"),
        ({"temporal_strategy": "first"}, ValueError, "'first'"),
        ({"directed": False, "disjoint": True}, ValueError, "choose one"),
        (
            {"node_time": torch.arange(NODES), "disjoint": True, "edge_weight": torch.ones(12)},
            ValueError,
            "weights or times",
        ),
    ],
)
def test_what_cannot_be_sampled_is_told(options, error, told):
    given = {"rowptr": ROWPTR, "col": COL, "seed": SEED, "num_neighbors": [1]} | options
    with pytest.raises(error, match=told):
        sampler.neighbor_sample(**given)


def test_a_budget_goes_on_to_those_that_have_neighbours():
    """One seed has a neighbour, and another one three: each seed may have two, both together four."""
    rowptr, col = torch.tensor([0, 1, 4, 4, 4, 4]), torch.tensor([2, 2, 3, 4])
    found = classes.NeighborSampler(rowptr, col).sample([2], torch.tensor([1, 0]))
    assert sorted(found[3].tolist()) == [0, 1, 2, 3] and found[6] == [0, 4] and found[4].tolist() == [0] * 5
    apart = classes.NeighborSampler(rowptr, col).sample([2], torch.tensor([1, 0]), disjoint=True)
    assert len(apart[3]) == 3 and 0 in apart[3] and len(set(apart[3].tolist())) == 3
    first = [classes.NeighborSampler(rowptr, col).sample([1], torch.tensor([1]))[3].item() for _ in range(900)]
    counts = torch.bincount(torch.tensor(first))[1:]
    assert scipy.stats.chisquare(counts.numpy()).pvalue > 1e-4
    timed = classes.NeighborSampler(rowptr, col, None, None, torch.arange(4))
    late = timed.sample([1], torch.tensor([1]), torch.tensor([2]), True, "last")
    assert late[3].tolist() == [2]


def test_places_of_keys():
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.int16, torch.int32, torch.int64):
        key = torch.randperm(500, generator=generator)[:200].to(dtype) - 100
        found = classes.CPUHashMap(key, 16)
        query = torch.arange(-150, 450, dtype=dtype)
        places = {value: place for place, value in enumerate(key.tolist())}
        assert found.get(query).tolist() == [places.get(value, -1) for value in query.tolist()]
        assert found.size() == 200 and found.keys().dtype == dtype
    assert classes.CPUHashMap(torch.empty(0, dtype=torch.int64)).get(torch.tensor([1])).tolist() == [-1]
    with pytest.raises(ValueError, match="7 comes twice"):
        classes.CPUHashMap(torch.tensor([7, 1, 7]))


def test_samples_of_a_graph_in_parts():
    """Two parts answer for the nodes that they have, and together they are one layer of a sample."""
    seed, part = torch.tensor([2, 3, 5, 0]), [0, 1, 1, 0]
    asked = [seed[[0, 3]], seed[[1, 2]]]
    found = [distributed.dist_neighbor_sample(ROWPTR, COL, each, -1) for each in asked]
    nodes, edges, ends = found[0]
    assert nodes.tolist() == [2, 0, 1, 3, 5, 1] and edges.tolist() == [4, 5, 0, 1] and ends == [2, 4, 6]
    batch = torch.arange(4)
    near, edges, trees, counts = distributed.merge_sampler_outputs(
        *([each[at] for each in found] for at in range(3)), part, [0, 0, 1, 1], 2, -1, batch, True
    )
    assert near.tolist() == [1, 3, 2, 4, 4, 0, 5, 1] and edges.tolist() == [4, 5, 6, 7, 10, 11, 0, 1]
    assert counts == [2, 2, 2, 2] and trees.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    row, other = distributed.relabel_neighborhood(seed, near, counts, NODES)
    expected = sampler.neighbor_sample(ROWPTR, COL, seed, [-1])
    assert torch.equal(row, expected[0]) and torch.equal(other, expected[1])
    row, other = distributed.relabel_neighborhood(seed, near, counts, NODES, trees, csc=True, disjoint=True)
    expected = sampler.neighbor_sample(ROWPTR, COL, seed, [-1], csc=True, disjoint=True)
    assert torch.equal(row, expected[0]) and torch.equal(other, expected[1])


def test_numbers_of_several_types_and_layers():
    """What two layers of a sample drew, given as it came, is numbered as that sample numbered it."""
    kinds = [("a", "to", "b"), ("b", "to", "a")]
    rowptr = {kind: torch.tensor([0, 2, 3, 5]) for kind in kinds}
    col = {kinds[0]: torch.tensor([0, 2, 1, 2, 0]), kinds[1]: torch.tensor([1, 2, 0, 0, 1])}
    seeds = {"a": torch.tensor([1, 2]), "b": torch.tensor([0])}
    row, other, _, edges, by_node, _ = sampler.hetero_neighbor_sample(
        rowptr, col, seeds, {kind: [-1, -1] for kind in kinds}
    )
    drawn, counts = {}, {}
    for kind in kinds:
        many = torch.bincount(row[kind], minlength=sum(by_node[kind[0]][:2])).split(by_node[kind[0]][:2])
        counts["__".join(kind)] = [each.tolist() for each in many]
        drawn[kind[2]] = col[kind][edges[kind]]
    rows, columns = distributed.hetero_relabel_neighborhood(
        ["a", "b"], kinds, seeds, drawn, counts, {"a": 3, "b": 3}, None, False, False
    )
    for kind in kinds:
        assert torch.equal(rows["__".join(kind)], row[kind]) and torch.equal(columns["__".join(kind)], other[kind])


@pytest.mark.parametrize("csc", (False, True))
def test_a_part_draws_neighbours_of_another_type(csc):
    """Rows are of one type, and columns of one that has more nodes."""
    rowptr, col = torch.tensor([0, 2, 3]), torch.tensor([7, 0, 4])
    nodes, edges, begins = distributed.dist_neighbor_sample(rowptr, col, torch.tensor([1, 0]), -1, csc=csc)
    assert nodes.tolist() == [1, 0, 4, 7, 0] and edges.tolist() == [2, 0, 1] and begins == [2, 3, 5]
