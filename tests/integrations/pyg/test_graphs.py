"""The graph of an index tensor is found again, is never stale, and keeps nothing of the user's alive."""

import gc
import re
import threading
import weakref

import pytest
import torch
from torch_geometric import nn as gnn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.core.graphs import WHOLE, GraphStore
from gnn_sparse_backend.integrations.core.room import OFTEN, LostStructuresWarning, default_capacity, lost, reset_lost
from tests.integrations.pyg.pair import NODES, edges, features

SHAPE = (NODES, NODES)


def find(store, edge_index, shape=SHAPE):
    return store.find("coo", edge_index[1], edge_index[0], shape)


def agrees(graph, edge_index):
    row = torch.repeat_interleave(torch.arange(graph.shape[0]), graph.in_degrees.long())
    order = torch.arange(row.numel()) if graph.edge_ids is None else graph.edge_ids.long()
    return torch.equal(row, edge_index[1][order]) and torch.equal(graph.indices.long(), edge_index[0][order])


@pytest.fixture
def store():
    return GraphStore(10**7)


@pytest.mark.parametrize("name", ["random", "large", "none"])
def test_same_tensor_and_same_content_give_the_same_graph(store, name):
    edge_index = edges(name)
    graph = find(store, edge_index)
    assert agrees(graph, edge_index)
    assert find(store, edge_index) is graph
    assert find(store, edge_index.clone()) is graph
    assert find(store, edge_index, (NODES, NODES + 1)) is not graph
    assert find(store, edge_index, (NODES + 1, NODES)) is not graph
    assert len(store) == 3


def test_every_entry_of_a_large_graph_counts(store):
    """Contents that differ anywhere, sampled or not, are different graphs, in place or in a new tensor."""
    edge_index = edges("large")
    assert edge_index.shape[1] > WHOLE
    graph = find(store, edge_index)
    for position in (0, 1, 2, 3, 4, 5, 6, 350, 698, 699):
        for row in (0, 1):
            other = edge_index.clone()
            other[row, position] = (other[row, position] + 1) % NODES
            found = find(store, other)
            assert found is not graph and agrees(found, other)
    for position in (0, 1, 2, 699):
        edge_index[0, position] = (edge_index[0, position] + 1) % NODES
        found = find(store, edge_index)
        assert found is not graph and agrees(found, edge_index)


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.fill_(3),
        lambda e: e[0].copy_(e[1]),
        lambda e: e.copy_(e.flip(1)),
        lambda e: e.set_(e.flip(0).contiguous()),
        lambda e: setattr(e, "data", e.flip(1).contiguous()),
        lambda e: e.index_fill_(1, torch.tensor([1]), 5),
        lambda e: e.numpy().fill(2),
        lambda e: e.resize_(2, 600),
    ],
)
def test_changes_in_place_are_noticed(change):
    layer, x = gnn.SimpleConv(aggr="sum"), features(4).detach()
    edge_index = edges("large").clone()
    with gsb.enabled("pyg"):
        for _ in range(2):
            layer(x, edge_index)
        change(edge_index)
        actual = layer(x, edge_index)
    torch.testing.assert_close(actual, layer(x, edge_index))


def test_weights_are_never_remembered():
    layer, x, edge_index = gnn.SimpleConv(aggr="sum"), features(4).detach(), edges("large")
    w = torch.rand(700, dtype=torch.float64)
    with gsb.enabled("pyg"):
        before = layer(x, edge_index, w)
        w *= 2
        torch.testing.assert_close(layer(x, edge_index, w), 2 * before)


def test_views_share_provenance_but_not_content(store):
    whole = torch.cat([edges("large"), edges("large").flip(0)], dim=1)
    first, second = whole[:, :700], whole[:, 700:]
    assert agrees(find(store, first), first)
    assert agrees(find(store, second), second)
    assert agrees(find(store, whole), whole)
    assert agrees(find(store, whole.t().contiguous().t()), whole)


def test_inference_tensors_are_compared_by_content(store):
    with torch.inference_mode():
        edge_index = edges("large").clone()
        graph = find(store, edge_index)
        assert find(store, edge_index) is graph
        edge_index[0, 1] = (edge_index[0, 1] + 1) % NODES
        assert agrees(find(store, edge_index), edge_index)


def test_layers_that_make_new_edges_at_every_call_build_once(calls_to):
    from gnn_sparse_backend.integrations.core import graphs

    built = calls_to(graphs, "_build")
    model, x = gnn.GCN(4, 8, num_layers=3).double(), features(4)
    with gsb.enabled("pyg"):
        for _ in range(4):
            model(x, edges("large")).sum().backward()
    assert len(built) == 1


def test_tensors_of_the_user_are_not_kept_alive():
    layer, x, edge_index = gnn.SAGEConv(4, 4).double(), features(4), edges("large").clone()
    dead = [weakref.ref(x), weakref.ref(edge_index)]
    with gsb.enabled("pyg"):
        layer(x, edge_index)
        del x, edge_index
        gc.collect()
        assert [ref() for ref in dead] == [None, None]


def test_capacity_bounds_what_is_kept():
    store = GraphStore(10**5)
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        find(store, torch.randint(0, NODES, (2, 500), generator=generator))
        assert store.nbytes <= 10**5
    assert 2 <= len(store) < 30
    recent = torch.randint(0, NODES, (2, 500), generator=generator)
    graph = find(store, recent)
    assert find(store, recent.clone()) is graph
    store.clear()
    assert store.nbytes == len(store) == 0


def test_graph_larger_than_the_capacity_lives_as_long_as_its_tensor():
    store, edge_index = GraphStore(1000), edges("large").clone()
    graph = find(store, edge_index)
    assert find(store, edge_index) is graph
    assert (store.nbytes, len(store)) == (0, 1)
    other = find(store, edge_index.clone())
    assert other is not graph and agrees(other, edge_index)
    del edge_index
    gc.collect()
    assert len(store) == 0


@pytest.fixture
def none_lost():
    """Nothing was dropped or told yet."""
    reset_lost()
    yield
    reset_lost()


def tight(edge_index):
    """Room for copies of both indices, and not for their graph as well."""
    return 2 * edge_index.nbytes


def test_a_graph_that_never_fits_is_told_once_with_the_number_to_set(none_lost):
    edge_index = edges("large")
    store = GraphStore(tight(edge_index))
    with pytest.warns(
        LostStructuresWarning, match=r"are dropped and made again.*Set GSB_PYG_CACHE_BYTES=\d+MB"
    ) as told:
        for _ in range(OFTEN):
            find(store, edge_index.clone())
    assert len(told) == 1 and lost() == gsb.status().lost == gsb.status().to_dict()["lost"] >= OFTEN - 1
    assert f"dropped for want of room (GSB_PYG_CACHE_BYTES): {lost()} times" in str(gsb.status())


@pytest.mark.slow
def test_a_graph_too_large_to_be_copied_is_told_when_it_is_made_again_and_again(none_lost):
    edge_index = edges("large")
    store = GraphStore(edge_index.nbytes)
    with pytest.warns(LostStructuresWarning) as told:
        for _ in range(OFTEN + 2):
            find(store, edge_index.clone())
            gc.collect()
    assert len(told) == 1


def test_the_number_to_set_suffices(none_lost, recwarn):
    edge_index = edges("large")
    store = GraphStore(tight(edge_index))
    for _ in range(OFTEN):
        find(store, edge_index.clone())
    (told,) = [each for each in recwarn if each.category is LostStructuresWarning]
    needed = int(re.search(r"take about ([\d,]+) bytes", str(told.message))[1].replace(",", ""))
    reset_lost()
    enough = GraphStore(needed)
    for _ in range(3):
        find(enough, edge_index.clone())
    assert lost() == 0


def test_capacity_from_the_environment(monkeypatch):
    monkeypatch.setenv("GSB_PYG_CACHE_BYTES", "12345")
    assert default_capacity() == 12345
    monkeypatch.setenv("GSB_PYG_CACHE_BYTES", "1XB")
    with pytest.raises(ValueError, match="'1XB'"):
        default_capacity()
    monkeypatch.delenv("GSB_PYG_CACHE_BYTES")
    assert default_capacity() > 0


def test_errors_leave_nothing_behind(store):
    edge_index = edges("large").clone()
    edge_index[1, 5] = NODES
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"row\[5\] = {NODES} is out of range"):
            find(store, edge_index)
    assert len(store) == store.nbytes == 0


def test_threads_share_the_store(store):
    contents = [torch.randint(0, NODES, (2, 600), generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    wrong = []

    def work(start):
        for turn in range(60):
            edge_index = contents[(start + turn) % 4]
            if not agrees(find(store, edge_index if turn % 2 else edge_index.clone()), edge_index):
                wrong.append(turn)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(store) >= 4
