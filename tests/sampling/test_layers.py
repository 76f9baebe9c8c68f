"""What a sample must be, whatever was drawn: against a plain reading of its edges."""

import warnings

import pytest
import torch

import gnn_sparse_backend as gsb


def random_graph(rows, columns, edges, seed, index=None):
    generator = torch.Generator().manual_seed(seed)
    row = torch.randint(rows, (edges,), generator=generator)
    column = torch.randint(columns, (edges,), generator=generator)
    return gsb.Graph.from_coo(row, column, (rows, columns)), row, column


def check_sample(sample, row, column, seeds, fanouts, replace=False):
    """Every edge is one of the graph, between the right numbers; layers grow from the one before, by the rules."""
    nodes, edges = sample.nodes, sample.edges
    assert torch.equal(nodes[: len(seeds)], seeds)
    assert torch.equal(row[edges], nodes[sample.destinations])
    assert torch.equal(column[edges], nodes[sample.sources])
    assert sum(sample.num_nodes) == len(nodes) and sum(sample.num_edges) == len(edges)
    if sample.trees is not None:
        assert torch.equal(sample.trees[: len(seeds)], torch.arange(len(seeds)))
        assert torch.equal(sample.trees[sample.sources], sample.trees[sample.destinations])
        pairs = torch.stack([sample.trees, nodes], 1)[len(seeds) :]
        assert len(pairs.unique(dim=0)) == len(pairs)
    else:
        assert len(nodes.unique()) == len(nodes) - len(seeds) + len(seeds.unique())
    degrees = torch.bincount(row, minlength=int(nodes.max()) + 1)
    counts = torch.bincount(sample.destinations, minlength=len(nodes))
    begin, first_edge, met = 0, 0, sample.num_nodes[0]
    for fanout, new, drawn in zip(fanouts, sample.num_nodes[1:], sample.num_edges):
        degree = degrees[nodes[begin:met]]
        wanted = degree if fanout < 0 else (degree > 0) * fanout if replace else degree.clamp(max=fanout)
        assert torch.equal(counts[begin:met], wanted)
        of_layer = slice(first_edge, first_edge + drawn)
        assert drawn == int(wanted.sum())
        # new nodes are numbered in the order in which edges meet them
        sources = sample.sources[of_layer]
        fresh = sources[sources >= met].tolist()
        assert list(dict.fromkeys(fresh)) == list(range(met, met + new))
        if not replace:
            pairs = torch.stack([sample.destinations[of_layer], edges[of_layer]], 1)
            assert len(pairs.unique(dim=0)) == drawn
        begin, met, first_edge = met, met + new, first_edge + drawn
    assert int(counts[begin:].sum()) == 0


@pytest.mark.parametrize("given", [{}, {"replace": True}, {"disjoint": True}, {"disjoint": True, "replace": True}])
@pytest.mark.parametrize("fanouts", [[], [3], [4, 2, 3], [-1, 2], [0, 5], [2, -1]])
@pytest.mark.parametrize("weighted", [False, True])
def test_samples_are_grown_by_the_rules(fanouts, given, weighted):
    graph, row, column = random_graph(60, 60, 300, 1)
    seeds = torch.tensor([3, 59, 3, 0, 17])
    weights = torch.rand(300, dtype=torch.float64) + 0.1 if weighted else None
    sample = gsb.sample_neighbors(graph, seeds, fanouts, weights=weights, seed=5, **given)
    check_sample(sample, row, column, seeds, fanouts, given.get("replace", False))


def test_tables_by_hashes_give_the_same_numbers(monkeypatch):
    from gnn_sparse_backend.sampling import numbers

    graph, _, _ = random_graph(5000, 5000, 40_000, 2)
    seeds = torch.arange(0, 5000, 50)
    direct = gsb.sample_neighbors(graph, seeds, [5, 5], seed=9)
    monkeypatch.setattr(numbers, "DIRECT", 0)
    monkeypatch.setattr(numbers, "PART", 0.1)
    hashed = gsb.sample_neighbors(graph, seeds, [5, 5], seed=9)
    for name in ("nodes", "sources", "destinations", "edges"):
        assert torch.equal(getattr(direct, name), getattr(hashed, name)), name


@pytest.mark.parametrize("given", [{}, {"disjoint": True}, {"replace": True}])
def test_a_seed_gives_one_sample_for_any_number_of_threads(given):
    graph, _, _ = random_graph(3000, 3000, 60_000, 3)
    weights = torch.rand(60_000)
    before = torch.get_num_threads()
    try:
        for of in (None, weights):
            found = []
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                found.append(gsb.sample_neighbors(graph, torch.arange(500), [8, 4], weights=of, seed=-1, **given))
            for other in found[1:]:
                assert torch.equal(found[0].edges, other.edges) and torch.equal(found[0].nodes, other.nodes)
    finally:
        torch.set_num_threads(before)


def test_what_is_drawn_for_a_node_depends_on_no_other_seed():
    graph, _, _ = random_graph(300, 300, 6000, 4)
    alone = gsb.sample_neighbors(graph, torch.tensor([7]), [5], seed=2)
    among = gsb.sample_neighbors(graph, torch.tensor([9, 7, 8]), [5], seed=2)
    assert torch.equal(alone.edges, among.edges[among.destinations == 1])


def test_torch_begins_the_numbers_where_no_seed_is_given():
    graph, _, _ = random_graph(300, 300, 6000, 4)

    def sampled():
        return gsb.sample_neighbors(graph, torch.arange(30), [3]).edges

    torch.manual_seed(1)
    first, second = sampled(), sampled()
    torch.manual_seed(1)
    assert torch.equal(sampled(), first) and not torch.equal(first, second)


def test_the_graph_of_a_sample():
    graph, _, _ = random_graph(100, 100, 700, 5)
    sample = gsb.sample_neighbors(graph, torch.arange(10), [4, 4], seed=1)
    x = torch.randn(len(sample.nodes), 3, dtype=torch.float64)
    expected = torch.zeros_like(x).index_add_(0, sample.destinations, x[sample.sources])
    torch.testing.assert_close(gsb.spmm(sample.graph, x), expected)
    assert sample.graph.edge_ids is None
    sample.graph.validate()


def test_induced_samples_have_all_edges_between_their_nodes():
    graph, row, column = random_graph(80, 80, 600, 6)
    seeds = torch.arange(6)
    drawn = gsb.sample_neighbors(graph, seeds, [3, 3], seed=4)
    sample = gsb.sample_neighbors(graph, seeds, [3, 3], seed=4, directed=False)
    assert torch.equal(drawn.nodes, sample.nodes)
    met = torch.zeros(80, dtype=torch.bool)
    met[sample.nodes] = True
    assert torch.equal(sample.edges.sort().values, (met[row] & met[column]).nonzero().view(-1))
    assert torch.equal(sample.nodes[sample.destinations], row[sample.edges])
    assert torch.equal(sample.nodes[sample.sources], column[sample.edges])


@pytest.mark.parametrize("of_edges", [False, True])
def test_times_of_trees(of_edges):
    """Of every tree no node or edge is later than its seed, and as many are drawn as there are or as wanted."""
    graph, row, column = random_graph(50, 50, 900, 7)
    time = torch.randint(20, (900 if of_edges else 50,))
    seeds, until = torch.arange(20), torch.randint(20, (20,))
    given = {"edge_time" if of_edges else "time": time, "seed_time": until}
    of_edge = time if of_edges else time[column]
    for strategy in ("uniform", "last"):
        sample = gsb.sample_neighbors(graph, seeds, [3, 2], strategy=strategy, seed=1, **given)
        limit = until[sample.trees[sample.destinations]]
        assert (of_edge[sample.edges] <= limit).all()
        for number in range(20):
            allowed = of_edge[(row == seeds[number]) & (of_edge <= until[number])]
            mine = of_edge[sample.edges[sample.destinations == number]]
            assert len(mine) == min(len(allowed), 3)
            if strategy == "last":
                assert torch.equal(mine.sort().values, allowed.sort().values[-len(mine) :] if len(mine) else allowed)


def test_several_types():
    graphs, ends = {}, {}
    for at, (source, destination, rows, columns) in enumerate(
        [("paper", "author", 30, 50), ("author", "paper", 50, 30), ("paper", "paper", 50, 50)]
    ):
        kind = (source, f"r{at}", destination)
        graphs[kind], *ends[kind] = random_graph(rows, columns, 200, at)
    seeds = {"paper": torch.tensor([1, 2, 30])}
    for disjoint in (False, True):
        sample = gsb.sample_neighbors(graphs, seeds, [3, 2], disjoint=disjoint, seed=1)
        assert torch.equal(sample.nodes["paper"][:3], seeds["paper"])
        for kind, (row, column) in ends.items():
            edges = sample.edges[kind]
            assert torch.equal(row[edges], sample.nodes[kind[2]][sample.destinations[kind]])
            assert torch.equal(column[edges], sample.nodes[kind[0]][sample.sources[kind]])
            counts = torch.bincount(sample.destinations[kind], minlength=len(sample.nodes[kind[2]]))
            degree = torch.bincount(row, minlength=graphs[kind].shape[0])[sample.nodes[kind[2]]]
            hops = sample.num_nodes[kind[2]]
            fanout = torch.tensor([3, 2, 0]).repeat_interleave(torch.tensor(hops))
            assert torch.equal(counts, torch.minimum(degree, fanout))
            sample.graphs[kind].validate()
            assert sample.graphs[kind].num_edges == len(edges)
            if disjoint:
                trees = sample.trees[kind[0]][sample.sources[kind]]
                assert torch.equal(trees, sample.trees[kind[2]][sample.destinations[kind]])


def test_weights_that_were_written_to_are_read_again():
    graph, row, _ = random_graph(10, 10, 200, 8)
    weights = torch.zeros(200)
    chosen = torch.stack([(row == node).nonzero()[0, 0] for node in range(10)])
    weights[chosen] = 1
    seeds = torch.arange(10)
    for _ in range(2):
        assert torch.equal(gsb.sample_neighbors(graph, seeds, [1], weights=weights).edges, chosen)
    weights.zero_()
    chosen = torch.stack([(row == node).nonzero()[-1, 0] for node in range(10)])
    weights[chosen] = 1
    assert torch.equal(gsb.sample_neighbors(graph, seeds, [1], weights=weights).edges, chosen)


GRAPH = random_graph(10, 10, 40, 9)[0]
SEEDS = torch.arange(3)


@pytest.mark.parametrize(
    "arguments, given, error, words",
    [
        ((3, SEEDS, [2]), {}, TypeError, "got int"),
        ((random_graph(4, 5, 6, 0)[0], SEEDS, [2]), {}, ValueError, r"shape \(4, 5\)"),
        (({("a", "b"): GRAPH}, {"a": SEEDS}, [2]), {}, TypeError, r"got \('a', 'b'\)"),
        (({("a", "to", "a"): 3}, {"a": SEEDS}, [2]), {}, TypeError, "got int"),
        (({("a", "to", "a"): GRAPH}, SEEDS, [2]), {}, TypeError, "got Tensor"),
        (({("a", "to", "a"): GRAPH}, {"b": SEEDS}, [2]), {}, ValueError, r"seeds\['b'\]"),
        ((GRAPH, torch.tensor([0, 10]), [2]), {}, IndexError, "node 10, but there are 10"),
        ((GRAPH, torch.tensor([-1]), [2]), {}, IndexError, "node -1"),
        ((GRAPH, torch.rand(3), [2]), {}, ValueError, "float32"),
        ((GRAPH, SEEDS, 2), {}, TypeError, "got 2"),
        ((GRAPH, SEEDS, [2, -2]), {}, ValueError, "got -2"),
        ((GRAPH, SEEDS, [2]), {"weights": torch.rand(39)}, ValueError, r"\(39,\)"),
        ((GRAPH, SEEDS, [2]), {"weights": torch.full((40,), -1.0)}, ValueError, "has -1.0"),
        ((GRAPH, SEEDS, [2]), {"weights": torch.full((40,), float("nan"))}, ValueError, "has nan"),
        ((GRAPH, SEEDS, [2]), {"weights": torch.zeros(40), "replace": True}, ValueError, "nothing above 0"),
        ((GRAPH, SEEDS, [2]), {"time": torch.arange(9)}, ValueError, r"\(9,\)"),
        ((GRAPH, SEEDS, [2]), {"edge_time": torch.arange(40)}, ValueError, "seed_time"),
        ((GRAPH, SEEDS, [2]), {"seed_time": SEEDS}, ValueError, "without time"),
        ((GRAPH, SEEDS, [2]), {"strategy": "first"}, ValueError, "'first'"),
        ((GRAPH, SEEDS, [2]), {"disjoint": True, "directed": False}, ValueError, "choose one"),
        ((GRAPH, SEEDS, [2]), {"time": torch.arange(10), "weights": torch.rand(40)}, ValueError, "one of them"),
    ],
)
def test_errors_quote_what_they_got(arguments, given, error, words):
    with pytest.raises(error, match=words):
        gsb.sample_neighbors(*arguments, **given)


class Tagged(torch.Tensor):
    """A subclass that changes nothing."""


def held_in_another(x):
    """As PyG's index classes hold their numbers."""
    index = pytest.importorskip("torch_geometric").Index
    return index(x) if x.dtype in (torch.int64, torch.int32) else x


def read_only(x):
    array = x.numpy().copy()
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(array)


GIVEN = {
    "every second": lambda x: x.repeat_interleave(2)[::2],
    "a column": lambda x: torch.stack((x, x), 1)[:, 0],
    "flipped": lambda x: x.flip(0).flip(0),
    "offset": lambda x: torch.cat((x[:1], x))[1:],
    "at an odd address": lambda x: torch.frombuffer(
        bytearray(b"0") + bytearray(x.numpy().tobytes()), dtype=x.dtype, offset=1, count=x.numel()
    ),
    "a subclass": lambda x: x.as_subclass(Tagged),
    "held in another": held_in_another,
    "read only": read_only,
}


@pytest.mark.parametrize("way", GIVEN)
def test_arrays_of_every_layout_and_class_give_one_sample(way):
    graph, row, column = random_graph(50, 50, 300, 0)
    seeds, view = torch.tensor([3, 9, 3, 41]), GIVEN[way]
    numbers = {
        "weights": torch.rand(300, generator=torch.Generator().manual_seed(1)),
        "time": torch.randint(9, (50,), generator=torch.Generator().manual_seed(2)),
        "edge_time": torch.randint(9, (300,), generator=torch.Generator().manual_seed(3)),
        "seed_time": torch.tensor([8, 7, 6, 5]),
    }
    for names in ((), ("weights",), ("time",), ("time", "seed_time"), ("edge_time", "seed_time")):
        plain = {name: numbers[name] for name in names}
        expected = gsb.sample_neighbors(graph, seeds, [3, 2], **plain, seed=0)
        given = gsb.Graph.from_coo(view(row), view(column), (50, 50))
        found = gsb.sample_neighbors(given, view(seeds), [3, 2], **{k: view(x) for k, x in plain.items()}, seed=0)
        assert type(found.nodes) is torch.Tensor
        assert torch.equal(found.nodes, expected.nodes)
        assert torch.equal(found.edges, expected.edges)


def test_nothing_to_sample():
    for graph in (GRAPH, gsb.Graph.from_coo(SEEDS[:0], SEEDS[:0], (10, 10))):
        for disjoint in (False, True):
            sample = gsb.sample_neighbors(graph, SEEDS[:0], [3, 3], disjoint=disjoint)
            assert len(sample.nodes) == len(sample.edges) == 0 and sample.num_nodes == [0, 0, 0]
        sample = gsb.sample_neighbors(graph, SEEDS, [0])
        assert torch.equal(sample.nodes, SEEDS) and sample.num_edges == [0]
