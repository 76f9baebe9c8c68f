"""``gsb.RelGraph``: where it comes from, and what it and ``rgms`` refuse."""

import copy
import gc

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb

SOURCE, DESTINATION, RELATION = torch.tensor([0, 2, 1, 2]), torch.tensor([1, 0, 1, 1]), torch.tensor([2, 0, 2, 0])


def edges_of(rel):
    return rel.source.tolist(), rel.destination.tolist(), rel.relation.tolist()


def test_all_sources_give_the_same_graph():
    wanted = SOURCE.tolist(), DESTINATION.tolist(), RELATION.tolist()
    graph = gsb.Graph.from_coo(DESTINATION, SOURCE, (2, 3))
    made = [
        gsb.RelGraph.from_triples(SOURCE, DESTINATION, RELATION, (2, 3)),
        gsb.RelGraph.from_triples(SOURCE.numpy().astype(np.uint8), DESTINATION.int(), RELATION, (2, 3)),
        gsb.RelGraph.from_graph(graph, RELATION),
        gsb.RelGraph.from_edge_index(torch.stack([SOURCE, DESTINATION]), RELATION, (3, 2)),
    ]
    for rel in made:
        assert edges_of(rel) == wanted and rel.shape == (2, 3) and rel.num_relations == 3 and rel.num_edges == 4
        assert rel.source.dtype == torch.int32
    assert "2 destinations, 3 sources, 4 edges, 3 relations" in repr(made[0])
    assert copy.deepcopy(made[0]) is copy.copy(made[0]) is made[0]
    assert gsb.RelGraph.from_triples(SOURCE, DESTINATION, RELATION, (2, 3), 7).num_relations == 7


def test_the_arrays_of_a_live_graph_stand_for_it():
    rel = gsb.RelGraph.from_triples(SOURCE, DESTINATION, RELATION, (2, 3))
    arrays = rel.source, rel.destination, rel.relation
    assert gsb.RelGraph._find_live(*arrays, 3, 2, 3) is rel
    assert all(gsb.RelGraph._find_live(*arrays, *sizes) is None for sizes in ((4, 2, 3), (3, 4, 3), (3, 2, 4)))
    del rel
    gc.collect()
    assert gsb.RelGraph._find_live(*arrays, 3, 2, 3) is None


def test_the_arrays_are_its_own():
    source = SOURCE.clone()
    rel = gsb.RelGraph.from_triples(source, DESTINATION, RELATION, (2, 3))
    source.zero_()
    assert rel.source.tolist() == SOURCE.tolist()
    with pytest.raises(AttributeError, match="immutable"):
        rel.shape = (1, 1)


def hetero_oracle(data, w, edges):
    """edges: {(source type, name, destination type): (sources, destinations)}, in the order of the relations."""
    out = {}
    for matrix, ((source, _, destination), (u, v)) in zip(w, edges.items()):
        sums = out.setdefault(destination, torch.zeros(len(data[destination]), w.shape[2], dtype=w.dtype))
        out[destination] = sums.index_add(0, v, data[source][u] @ matrix)
    return out


HETERO = {
    ("user", "likes", "item"): ([0, 2, 2], [1, 0, 1]),
    ("item", "liked", "user"): ([1, 0], [0, 2]),
    ("user", "knows", "user"): ([], []),
}
COUNTS = {"item": 2, "user": 3}


def hetero_case():
    edges = {
        k: (torch.tensor(u, dtype=torch.int64), torch.tensor(v, dtype=torch.int64)) for k, (u, v) in HETERO.items()
    }
    x = {kind: torch.randn(count, 4, dtype=torch.float64) for kind, count in COUNTS.items()}
    return edges, x, torch.randn(3, 4, 5, dtype=torch.float64)


def assert_agrees(rel, edges, x, w):
    edges = {relation: edges[relation] for relation in rel.relations}
    assert rel.edge_counts == tuple(len(u) for u, _ in edges.values())
    out, expected = gsb.rgms(rel, x, w), hetero_oracle(x, w, edges)
    assert list(out) == list(rel.destination_types)
    for kind, y in out.items():
        torch.testing.assert_close(y, expected.get(kind, torch.zeros_like(y)))
    weights = {relation: torch.full((len(u),), 2.0, dtype=torch.float64) for relation, (u, _) in edges.items()}
    torch.testing.assert_close(gsb.rgms(rel, x, w, weights), {kind: 2 * y for kind, y in out.items()})
    with pytest.raises(ValueError, match="x must have an entry for every source type .*'user' is missing"):
        gsb.rgms(rel, {"item": x["item"]}, w)
    with pytest.raises(ValueError, match=r"x\['item'\] must be a tensor with 2 rows, got \(3, 4\)"):
        gsb.rgms(rel, {"item": x["user"], "user": x["user"]}, w)


def test_heterogeneous_graph_of_dgl():
    dgl = pytest.importorskip("dgl")
    edges, x, w = hetero_case()
    graph = dgl.heterograph(edges, num_nodes_dict=COUNTS)
    assert_agrees(gsb.RelGraph.from_dgl(graph), edges, x, w)
    with pytest.raises(ValueError, match="etype is for graphs with one edge type; this one has 3"):
        gsb.RelGraph.from_dgl(graph, RELATION)


def test_homogeneous_graph_of_dgl():
    dgl = pytest.importorskip("dgl")
    rel = gsb.RelGraph.from_dgl(dgl.graph((SOURCE, DESTINATION)), RELATION)
    assert edges_of(rel) == (SOURCE.tolist(), DESTINATION.tolist(), RELATION.tolist()) and rel.shape == (3, 3)
    with pytest.raises(TypeError, match="expected a DGL graph or block, got int"):
        gsb.RelGraph.from_dgl(3)


def test_data_of_pyg():
    data = pytest.importorskip("torch_geometric.data")
    edges, x, w = hetero_case()
    hetero = data.HeteroData()
    for kind, count in COUNTS.items():
        hetero[kind].num_nodes = count
    for relation, ends in edges.items():
        hetero[relation].edge_index = torch.stack(ends)
    assert_agrees(gsb.RelGraph.from_pyg(hetero), edges, x, w)
    one = data.Data(edge_index=torch.stack([SOURCE, DESTINATION]), edge_type=RELATION, num_nodes=4)
    assert gsb.RelGraph.from_pyg(one).shape == (4, 4)
    hetero["user", "likes", "item"].edge_index = torch.tensor([[0], [2]])
    with pytest.raises(ValueError, match=r"edge_index\[1\]\[0\] = 2 is out of range: there are 2 nodes of type 'item'"):
        gsb.RelGraph.from_pyg(hetero)
    hetero["user", "likes", "item"].edge_index = torch.tensor([[2, 0, -7], [1, 1, 0]])
    with pytest.raises(
        ValueError, match=r"data\[\('user', 'likes', 'item'\)\]\.edge_index\[0\]\[2\] = -7 is out of range"
    ):
        gsb.RelGraph.from_pyg(hetero)
    del hetero["user", "likes", "item"].edge_index
    with pytest.raises(
        ValueError, match=r"edge_index, which \('user', 'likes', 'item'\) of this HeteroData has not got$"
    ):
        gsb.RelGraph.from_pyg(hetero)
    hetero["user", "likes", "item"].adj_t = torch.eye(COUNTS["item"], COUNTS["user"]).to_sparse_csr()
    with pytest.raises(
        ValueError, match=r"'item'\) of this HeteroData has not got; it has adj_t: ToSparseTensor\(remove_edge"
    ):
        gsb.RelGraph.from_pyg(hetero)
    with pytest.raises(TypeError, match="expected a HeteroData, or a Data with edge_index and edge_type"):
        gsb.RelGraph.from_pyg(data.Data(edge_index=torch.stack([SOURCE, DESTINATION])))


MADE = {
    "relation": (
        (SOURCE, DESTINATION, RELATION, (2, 3), 2),
        ValueError,
        r"relation\[0\] = 2 is out of range: there are 2 relat",
    ),
    "negative": ((SOURCE, DESTINATION, RELATION - 1, (2, 3)), ValueError, r"relation\[1\] = -1 is out of range"),
    "source": (
        (SOURCE, DESTINATION, RELATION, (2, 2)),
        ValueError,
        r"source\[1\] = 2 is out of range: there are 2 sources",
    ),
    "destination": ((SOURCE, DESTINATION, RELATION, (1, 3)), ValueError, r"destination\[0\] = 1 is out of range"),
    "lengths": ((SOURCE, DESTINATION, RELATION[:3], (2, 3)), ValueError, "one entry per edge, got 4, 4 and 3"),
    "floats": (
        (SOURCE, DESTINATION, RELATION.float(), (2, 3)),
        TypeError,
        "relation must hold integers, got torch.float32",
    ),
    "count": ((SOURCE, DESTINATION, RELATION, (2, 3), 2.5), TypeError, "num_relations must be an int, got 2.5"),
    "fewer": ((SOURCE, DESTINATION, RELATION, (2, 3), -1), ValueError, "num_relations must not be negative, got -1"),
}


@pytest.mark.parametrize("case", MADE)
def test_refuses_edges(case):
    arguments, error, words = MADE[case]
    with pytest.raises(error, match=words):
        gsb.RelGraph.from_triples(*arguments)
    with pytest.raises(TypeError, match="make a RelGraph with"):
        gsb.RelGraph()


REL = gsb.RelGraph.from_triples(SOURCE, DESTINATION, RELATION, (2, 3))
X, W = torch.zeros(3, 4), torch.zeros(3, 4, 2)
CALLS = {
    "graph": (
        (gsb.Graph.from_coo(DESTINATION, SOURCE, (2, 3)), X, W),
        TypeError,
        "rel_graph must be a gsb.RelGraph, got Graph",
    ),
    "rows": ((REL, X[:2], W), ValueError, r"x must have shape \(n_src, F_in\) with n_src = 3, .* got \(2, 4\)"),
    "relations": ((REL, X, W[:2]), ValueError, r"weight must have shape \(3, F_in, F_out\) .* got \(2, 4, 2\)"),
    "features": ((REL, X, W[:, :3]), ValueError, "do not fit: 4 against 3"),
    "blocks": ((REL, X, torch.zeros(3, 2, 3, 2)), ValueError, "do not fit: 4 against 6"),
    "comp": (
        (REL, X, (torch.zeros(3, 2), W)),
        ValueError,
        r"comp must have shape \(relations, bases\) = \(3, 3\), got \(3, 2\)",
    ),
    "edge weight": (
        (REL, X, W, torch.zeros(3)),
        ValueError,
        r"edge_weight must have shape \(4,\) or \(4, 1\), .* got \(3,\)",
    ),
    "types": ((REL, X, W.double()), TypeError, "one type, got x of torch.float32, weight of torch.float64"),
    "integers": ((REL, X.long(), W), TypeError, "x must be float32"),
    "reduce": ((REL, X, W, None, "max"), ValueError, "reduce"),
    "no types": ((REL, {"a": X}, W), ValueError, "x is a dict, but the nodes and edges of this graph have no types"),
}


@pytest.mark.parametrize("case", CALLS)
def test_refuses_operands(case):
    arguments, error, words = CALLS[case]
    with pytest.raises(error, match=words):
        gsb.rgms(*arguments)
