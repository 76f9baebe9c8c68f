"""Sampled batches with relations under PyG: nothing is compiled after the first, no memory is kept, and what is kept
counts.
"""

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as gnn
from torch_geometric.data import HeteroData

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.core import graphs, room
from gnn_sparse_backend.integrations.core.graphs import GraphStore
from gnn_sparse_backend.integrations.pyg.host import GRAPHS
from gnn_sparse_backend.structures.relational.sources import Parts
from tests.integrations.pyg.pair import calls
from tests.mini_batches import CLASSES, NODES, WIDTH, check_steady, edges, features, sampled

KINDS = 3
RELATIONS = 6
NAMES = {(a, b): (f"t{a}", "to", f"t{b}") for a in range(KINDS) for b in range(KINDS)}


def with_types(draw):
    """(nodes, edge_index, the type of each edge, by the nodes at its ends) of batches."""
    for nodes, edge_index in draw:
        yield nodes, edge_index, (nodes[edge_index[0]] * 7 + nodes[edge_index[1]]) % RELATIONS


def hetero(draw, widths=(WIDTH,) * KINDS):
    """Batches as ``HeteroData``: the type of a node is its number modulo 3, its features the first of those of its
    number.
    """
    x = features()
    for nodes, edge_index in draw:
        data, kind, place = HeteroData(), nodes % KINDS, torch.empty_like(nodes)
        for number in range(KINDS):
            mine = (kind == number).nonzero().flatten()
            place[mine] = torch.arange(len(mine))
            data[f"t{number}"].x, data[f"t{number}"].number = x[nodes[mine], : widths[number]], nodes[mine]
        for (a, b), name in NAMES.items():
            chosen = (kind[edge_index[0]] == a) & (kind[edge_index[1]] == b)
            data[name].edge_index = place[edge_index[:, chosen]]
        yield data


def of_edges():
    torch.manual_seed(0)
    layers = torch.nn.ModuleList([gnn.RGCNConv(WIDTH, 8, RELATIONS, num_bases=2), gnn.RGCNConv(8, CLASSES, RELATIONS)])
    x = features()

    def output(batch):
        nodes, edge_index, kinds = batch
        return layers[1](layers[0](x[nodes], edge_index, kinds).relu(), edge_index, kinds)

    return with_types(sampled(edges(), 20, (5, 5), 0)), output, lambda batch: batch[0]


def of_types(widths=(WIDTH,) * KINDS, hidden=(8,) * KINDS):
    torch.manual_seed(0)
    layers = torch.nn.ModuleList(
        gnn.HeteroConv({name: gnn.SAGEConv((of[a], of[b]), out[b]) for (a, b), name in NAMES.items()})
        for of, out in ((widths, hidden), (hidden, (CLASSES,) * KINDS))
    )

    def output(data):
        h = data.x_dict
        for layer in layers:
            h = layer(h, data.edge_index_dict)
        return h["t0"]

    return hetero(sampled(edges(), 20, (5, 5), 0), widths), output, lambda data: data["t0"].number


def of_widths():
    return of_types((16, 5, 16), (8, 8, 6))


@pytest.mark.slow
@pytest.mark.parametrize("make, batches_then", [(of_edges, 200), (of_types, 30), (of_widths, 30)])
def test_many_batches(make, batches_then, monkeypatch):
    monkeypatch.setattr(graphs, "MOST", 60)  # small contents are kept until there are so many: three for each batch
    draw, output, numbers = make()
    labels = torch.randint(0, CLASSES, (NODES,))

    def step():
        batch = next(draw)
        F.cross_entropy(output(batch), labels[numbers(batch)]).backward()

    with gsb.enabled("pyg"):
        check_steady(step, then=batches_then)
        assert 0 < GRAPHS.nbytes < 64 << 20
    assert set(calls()) == {"rgms"} and isinstance(calls()["rgms"], int)


@pytest.mark.short(1)
@pytest.mark.parametrize("make", [of_edges, of_widths])
def test_batches_are_right(make):
    draw, output, _ = make()
    for _, batch in zip(range(20), draw):
        expected = output(batch)
        with gsb.enabled("pyg"):
            torch.testing.assert_close(output(batch), expected, rtol=1e-4, atol=1e-5)


def derived_bytes(value, seen):
    """Bytes of all tensors that a structure holds, each once."""
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        known, _ = ("storage", storage.data_ptr()) in seen, seen.add(("storage", storage.data_ptr()))
        return 0 if known else storage.nbytes()
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, dict):
        return sum(derived_bytes(each, seen) for each in value.values())
    if isinstance(value, (tuple, list)):
        return sum(derived_bytes(each, seen) for each in value)
    names = {name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())}
    names |= getattr(value, "__dict__", {}).keys()
    return sum(derived_bytes(getattr(value, name), seen) for name in names - {"__weakref__"} if hasattr(value, name))


@pytest.mark.parametrize("reduce, weighted", [("sum", False), ("mean", True)])
@pytest.mark.parametrize("relations, width", [(3, 8), (40, 64)])
def test_what_is_charged_for_a_graph_is_what_it_takes(relations, width, reduce, weighted):
    source, destination = edges()
    store = GraphStore(1 << 30)
    rel = store.find_relations(source, destination, (source * 7 + destination) % relations, (NODES, NODES), relations)
    x, w = torch.randn(NODES, width, requires_grad=True), torch.randn(relations, width, width, requires_grad=True)
    a = torch.rand(len(source), requires_grad=True) if weighted else None
    gsb.rgms(rel, x, w, a, reduce).sum().backward()
    taken = derived_bytes(rel, set())
    assert 0.3 * room.bytes_of(rel) < taken < 1.05 * room.bytes_of(rel)


@pytest.mark.parametrize("widths", [(16, 16, 16), (16, 5, 16)], ids=str)
def test_what_is_charged_for_a_graph_of_types_is_what_it_takes(widths):
    counts = {f"t{number}": len(range(number, NODES, KINDS)) for number in range(KINDS)}
    source, destination = edges()
    chosen = [(source % KINDS == a) & (destination % KINDS == b) for a, b in NAMES]
    parts = Parts(
        counts,
        counts,
        tuple(NAMES.values()),
        [
            (name[0], source[mask] // KINDS, name[2], destination[mask] // KINDS)
            for name, mask in zip(NAMES.values(), chosen)
        ],
    )
    rel = GraphStore(1 << 30).find_parts(parts)
    x = {kind: torch.randn(count, width, requires_grad=True) for (kind, count), width in zip(counts.items(), widths)}
    w = {name: torch.randn(widths[a], 8, requires_grad=True) for (a, _), name in NAMES.items()}
    sum(y.sum() for y in gsb.rgms(rel, x, w, reduce="mean").values()).backward()
    assert 0.3 * room.bytes_of(rel) < derived_bytes(rel, set()) < 1.05 * room.bytes_of(rel)


def test_graphs_with_relations_count_against_the_capacity(monkeypatch):
    draw, output, _ = of_edges()
    monkeypatch.setattr(GRAPHS, "capacity", 300_000)
    with gsb.enabled("pyg"):
        for _, batch in zip(range(20), draw):
            output(batch)
            assert 0 < GRAPHS.nbytes <= 300_000
        assert len(GRAPHS) < 20
        keep, output = next(draw), output
        expected = output(keep)
        GRAPHS.clear()
        assert GRAPHS.nbytes == 0 and torch.equal(output(keep), expected)


def test_a_graph_goes_with_any_of_its_indices():
    source, destination = (end[:2000].clone() for end in edges())
    kinds = source % 4
    store = GraphStore(1 << 30)
    rel = store.find_relations(source, destination, kinds, (NODES, NODES), 4)
    assert store.find_relations(source.clone(), destination.clone(), kinds.clone(), (NODES, NODES), 4) is rel
    assert store.find_relations(source, destination, kinds, (NODES, NODES), 5) is not rel
    other = kinds.clone()
    other[7] = 3 - other[7]
    assert store.find_relations(source, destination, other, (NODES, NODES), 4) is not rel
    for index in (kinds, source):
        with store._lock:
            store._drop(store._index(index, None))
        assert store.find_relations(source, destination, kinds, (NODES, NODES), 4) is not rel
        rel = store.find_relations(source, destination, kinds, (NODES, NODES), 4)
    with store._lock:
        for index in (source, destination, kinds, other):
            store._drop(store._index(index, None))
    assert store.nbytes == 0 and len(store) == 0


def test_bad_relations_leave_nothing_behind():
    source, destination = (end[:2000].clone() for end in edges())
    store = GraphStore(1 << 30)
    with pytest.raises(ValueError, match="relation.*out of range"):
        store.find_relations(source, destination, torch.full_like(source, 9), (NODES, NODES), 4)
    assert store.nbytes == 0 and len(store) == 0
