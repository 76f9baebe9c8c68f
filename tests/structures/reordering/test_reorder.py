"""Orders are SciPy's, and what is computed in another order is what is computed without, put back."""

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse.csgraph import reverse_cuthill_mckee

import gnn_sparse_backend as gsb
from gnn_sparse_backend.structures.reordering.permutation import Permutation

NODES, EDGES = 40, 150


def random_graph(rows=NODES, cols=NODES, edges=EDGES, seed=0):
    """Self loops, repeated edges, and nodes without any, in no order."""
    rng = np.random.default_rng(seed)
    row, col = rng.integers(rows - 5, size=edges), rng.integers(2, max(cols - 3, 3), size=edges)
    row[:10], col[:10] = row[10:20], col[10:20]
    row[20:25] = col[20:25] = min(rows, cols) - 1
    return gsb.Graph.from_coo(row, col, (rows, cols))


def ends(graph):
    row = torch.repeat_interleave(torch.arange(graph.shape[0]), graph.in_degrees.long())
    at = graph.edge_numbers.long().argsort()
    return row[at], graph.indices.long()[at]


def matrix_of(graph):
    row, col = ends(graph)
    return scipy.sparse.coo_array((np.ones(len(row)), (row.numpy(), col.numpy())), shape=graph.shape).tocsr()


def is_order(permutation, count):
    return torch.equal(permutation.order.sort().values, torch.arange(count))


@pytest.mark.parametrize("seed", range(3))
def test_reverse_cuthill_mckee_is_that_of_scipy(seed):
    graph = random_graph(seed=seed)
    wanted = reverse_cuthill_mckee(matrix_of(graph), symmetric_mode=False)
    assert gsb.reorder(graph).nodes.order.tolist() == wanted.tolist()


def test_neighbours_stand_together_again():
    """A path of which the numbers were shuffled has a bandwidth of one."""
    label = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    path = gsb.Graph.from_coo(label[:-1], label[1:], (100, 100))
    row, col = ends(gsb.reorder(path, "rcm").graph)
    assert (row - col).abs().max() == 1


def test_nodes_of_most_edges_come_first():
    graph = random_graph()
    matrix = matrix_of(graph)
    degrees = matrix.sum(0) + matrix.sum(1)
    wanted = np.argsort(-degrees, kind="stable")
    assert gsb.reorder(graph, "degree").nodes.order.tolist() == wanted.tolist()


@pytest.mark.parametrize("method", ["rcm", "degree"])
@pytest.mark.parametrize("shape", [(NODES, NODES), (30, NODES), (NODES, 30)])
def test_edges_keep_their_numbers_and_columns_ascend(method, shape):
    graph = random_graph(*shape)
    new = gsb.reorder(graph, method)
    new.graph.validate()
    assert is_order(new.destinations, shape[0]) and is_order(new.sources, shape[1])
    assert (new.sources is new.destinations) == (shape[0] == shape[1])
    row, col = ends(new.graph)
    before = ends(graph)
    assert torch.equal(new.destinations.order[row], before[0]) and torch.equal(new.sources.order[col], before[1])
    for begin, end in zip(new.graph.indptr[:-1].tolist(), new.graph.indptr[1:].tolist()):
        assert (new.graph.indices[begin:end].diff() >= 0).all()


@pytest.mark.parametrize("method", ["rcm", "degree"])
@pytest.mark.parametrize("shape", [(NODES, NODES), (30, NODES)])
def test_results_and_gradients_are_those_from_before(method, shape):
    graph, rng = random_graph(*shape), torch.Generator().manual_seed(1)
    new = gsb.reorder(graph, method)
    leaves = [torch.randn(n, *rest, generator=rng, dtype=torch.float64) for n, rest in ((shape[1], (5,)), (EDGES, ()))]
    cotangent = torch.randn(shape[0], 5, generator=rng, dtype=torch.float64)
    found = []
    for run in (
        lambda x, w: gsb.spmm(graph, x, w),
        lambda x, w: new.destinations.undo(gsb.spmm(new.graph, new.sources.apply(x), w)),
    ):
        x, w = (leaf.clone().requires_grad_() for leaf in leaves)
        y = run(x, w)
        found.append((y.detach(), *torch.autograd.grad(y, (x, w), cotangent)))
    for before, after in zip(*found):
        torch.testing.assert_close(after, before, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", ["rcm", "degree"])
@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (7, 7), (0, 3), (3, 0), (2, 5)])
def test_graphs_without_edges(method, shape):
    none = torch.empty(0, dtype=torch.int64)
    new = gsb.reorder(gsb.Graph.from_coo(none, none, shape), method)
    assert new.graph.shape == shape and new.graph.num_edges == 0
    assert is_order(new.destinations, shape[0]) and is_order(new.sources, shape[1])


def test_one_node_with_loops():
    new = gsb.reorder(gsb.Graph.from_coo(torch.zeros(300).long(), torch.zeros(300).long(), (1, 1)))
    assert new.graph.num_edges == 300 and new.nodes.order.tolist() == [0]


def test_many_repeated_edges_do_not_vanish():
    """256 of them add up to nothing in a byte."""
    row, col = torch.tensor([0] * 256 + [2, 1]), torch.tensor([3] * 256 + [1, 3])
    new = gsb.reorder(gsb.Graph.from_coo(row, col, (4, 4)))
    row, col = ends(new.graph)
    assert (row - col).abs().max() == 1  # the path 0 - 3 - 1 - 2


def test_as_many_sources_as_destinations_may_be_other_nodes():
    graph = random_graph()
    new = gsb.reorder(graph, "degree", bipartite=True)
    matrix = matrix_of(graph)
    assert new.destinations.order.tolist() == np.argsort(-matrix.sum(1), kind="stable").tolist()
    assert new.sources.order.tolist() == np.argsort(-matrix.sum(0), kind="stable").tolist()
    with pytest.raises(ValueError, match="different nodes at both ends"):
        _ = new.nodes


def relational(types):
    rng = np.random.default_rng(3)
    source, destination, relation = (torch.from_numpy(rng.integers(n, size=60)) for n in (12, 12, 3))
    rel = gsb.RelGraph.from_triples(source, destination, relation, (12, 12))
    if types:
        data = pytest.importorskip("torch_geometric").data.HeteroData()
        data["a"].num_nodes, data["b"].num_nodes = 5, 7
        data["a", "r", "b"].edge_index = torch.stack([source % 5, destination % 7])
        data["b", "s", "a"].edge_index = torch.stack([source % 7, destination % 5])
        rel = gsb.RelGraph.from_pyg(data)
    return rel


@pytest.mark.parametrize("types", [False, True])
@pytest.mark.parametrize("method", ["rcm", "degree"])
def test_relational_graphs(types, method):
    rel = relational(types)
    new = gsb.reorder(rel, method)
    graph = new.graph
    assert torch.equal(new.nodes.order[graph.source.long()], rel.source.long())
    assert torch.equal(new.nodes.order[graph.destination.long()], rel.destination.long())
    assert torch.equal(graph.relation, rel.relation)
    for name in ("shape", "relations", "source_types", "destination_types", "edge_counts"):
        assert getattr(graph, name) == getattr(rel, name)
    if types:
        assert list(new.source_types) == ["a", "b"] and new.source_types["b"] is new.destination_types["b"]
        joined = torch.cat([new.source_types["a"].order, 5 + new.source_types["b"].order])
        assert torch.equal(new.nodes.order, joined)
    x, w = torch.randn(12, 4, dtype=torch.float64), torch.randn(rel.num_relations, 4, 3, dtype=torch.float64)
    after = new.nodes.undo(gsb.rgms(graph, new.nodes.apply(x), w))
    torch.testing.assert_close(after, gsb.rgms(rel, x, w), rtol=1e-12, atol=1e-12)


def test_what_cannot_be_reordered():
    graph = random_graph(30, 40)
    with pytest.raises(ValueError, match="method must be one of 'degree', 'rcm', got 'amd'"):
        gsb.reorder(graph, "amd")
    with pytest.raises(ValueError, match="method must be one of .*, got \\['rcm'\\]"):
        gsb.reorder(graph, ["rcm"])
    with pytest.raises(ValueError, match="bipartite=False .* there are 30 and 40"):
        gsb.reorder(graph, bipartite=False)
    with pytest.raises(TypeError, match="expected a gsb.Graph or gsb.RelGraph, got Tensor"):
        gsb.reorder(torch.zeros(2, 3))


class TestPermutation:
    order = Permutation(torch.tensor([2, 0, 1]))

    def test_there_and_back(self):
        x = torch.arange(6).view(2, 3)
        assert self.order.apply(x, 1).tolist() == [[2, 0, 1], [5, 3, 4]]
        assert torch.equal(self.order.undo(self.order.apply(x, -1), -1), x)
        assert self.order.places.tolist() == [1, 2, 0]

    @pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
    def test_numbers(self, dtype):
        nodes = torch.tensor([[0, 1], [2, 2]], dtype=dtype)
        found = self.order.renumber(nodes)
        assert found.dtype == dtype and found.tolist() == [[1, 2], [0, 0]]
        assert self.order.renumber(nodes[:0]).shape == (0, 2)

    def test_errors_quote_what_they_got(self):
        with pytest.raises(ValueError, match="expected 3 entries along dimension 0, got shape \\(4, 3\\)"):
            self.order.apply(torch.zeros(4, 3))
        with pytest.raises(ValueError, match="expected 3 entries along dimension 2"):
            self.order.undo(torch.zeros(3, 3), 2)
        with pytest.raises(TypeError, match="expected a torch tensor, got list"):
            self.order.apply([1, 2, 3])
        with pytest.raises(ValueError, match="= 3 is out of range"):
            self.order.renumber(torch.tensor([0, 3]))
        with pytest.raises(ValueError, match="= -1 is out of range"):
            self.order.renumber(torch.tensor([-1]))
        with pytest.raises(TypeError, match="nodes must hold integers, got torch.bool"):
            self.order.renumber(torch.tensor([True, False, True]))
