"""The relational model: data sets of the frameworks' classes, mini-batches, and what a training reports."""

from __future__ import annotations

import urllib.error

import numpy as np
import pytest
import torch

from models import relational_data, rgcn_entities
from models.dataset import DataError
from models.rgcn_batches import PARTS, NeighbourSampler, batches
from models.train import INFERENCES, Config, disagreement, train

FRAMEWORKS = {"dgl": "dgl", "pyg": "torch_geometric"}
SIZES = {"nodes": 400, "edges": 3000, "seed": 0}
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def small():
    return relational_data.load("generated", "pyg", **SIZES)


# --- aifb, mutag, bgs and am, with an object in the place of what would be downloaded


def fake_dgl(monkeypatch, make):
    dgl_data = pytest.importorskip("dgl.data")
    monkeypatch.setattr(dgl_data, "AIFBDataset", make, raising=False)


def hetero_dataset():
    """Six persons among ten nodes, as DGL gives it: two node types, masks and labels on one of them."""
    import dgl

    graph = dgl.heterograph(
        {
            ("person", "knows", "person"): ([0, 1, 2], [1, 2, 3]),
            ("group", "has", "person"): ([0, 3], [4, 5]),
            ("person", "in", "group"): ([4, 5], [0, 3]),
        },
        num_nodes_dict={"group": 4, "person": 6},
    )
    data = graph.nodes["person"].data
    data["label"] = torch.tensor([2, 0, 1, -1, 1, 0]).double()
    data["train_mask"] = torch.tensor([1, 1, 0, 0, 1, 0])
    data["test_mask"] = torch.tensor([0, 0, 1, 0, 0, 1])
    dataset = [graph]
    return type(
        "Dataset", (), {"predict_category": "person", "num_classes": 3, "__getitem__": lambda _, i: dataset[i]}
    )()


def test_entities_of_dgl(monkeypatch):
    fake_dgl(monkeypatch, hetero_dataset)
    found = relational_data.load("aifb", "dgl", **SIZES)
    assert (found.num_nodes, found.num_relations, found.num_classes, found.name) == (10, 3, 3, "aifb")
    # groups stand first; relations in DGL's order, by name of type
    graph = hetero_dataset()[0]
    first = {"group": 0, "person": 4}
    for number, (source, name, destination) in enumerate(graph.canonical_etypes):
        u, v = graph.edges(etype=(source, name, destination))
        mine = found.edge_index[:, found.edge_type == number]
        assert mine.tolist() == [(u + first[source]).tolist(), (v + first[destination]).tolist()]
    assert found.labels.tolist() == [-1] * 4 + [2, 0, 1, -1, 1, 0]
    assert (found.train | found.val).nonzero().flatten().tolist() == [4, 5, 8] and not (found.train & found.val).any()
    assert found.test.nonzero().flatten().tolist() == [6, 9]


def test_entities_of_pyg(monkeypatch, tmp_path):
    datasets = pytest.importorskip("torch_geometric.datasets")
    from torch_geometric.data import Data

    data = Data(
        edge_index=torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]),
        edge_type=torch.tensor([2, 3, 0, 1]),
        num_nodes=5,
        train_idx=torch.tensor([4, 0, 1]),
        train_y=torch.tensor([1, 0, 2]),
        test_idx=torch.tensor([2]),
        test_y=torch.tensor([1]),
    )
    asked = []

    class Entities:
        num_relations = 4

        def __init__(self, root, name):
            asked.append((root, name))

        def __getitem__(self, index):
            return [data][index]

    monkeypatch.setattr(datasets, "Entities", Entities)
    found = relational_data.load("am", "pyg", **SIZES)
    assert asked == [(str(rgcn_entities._pyg_folder()), "AM")]
    assert found.edge_type.tolist() == [0, 1, 2, 3] and found.edge_index.tolist() == [[2, 3, 0, 1], [3, 2, 1, 0]]
    assert found.labels.tolist() == [0, 2, 1, -1, 1] and found.test.tolist() == [False, False, True, False, False]
    assert (found.train | found.val).tolist() == [True, True, False, False, True]


def raising(error):
    def make(*_, **__):
        raise error

    return make


@pytest.mark.parametrize(
    "error, words",
    [
        (
            urllib.error.URLError("no route to host"),
            "AIFB cannot be downloaded: .*no route to host.*with a network, or copy that folder",
        ),
        (RuntimeError("Failed downloading url"), "AIFB cannot be downloaded: Failed downloading url"),
        (
            ModuleNotFoundError("No module named 'rdflib'", name="rdflib"),
            "AIFB cannot be read without rdflib; try: pip install rdflib",
        ),
    ],
)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_download_that_fails_says_what_to_do(framework, error, words, monkeypatch):
    pytest.importorskip(FRAMEWORKS[framework])
    if framework == "dgl":
        fake_dgl(monkeypatch, raising(error))
    else:
        monkeypatch.setattr(pytest.importorskip("torch_geometric.datasets"), "Entities", raising(error))
    with pytest.raises(DataError, match=words):
        relational_data.load("aifb", framework, **SIZES)


# --- mini-batches


def edges_of(edge_index, kinds):
    return {(*ends, kind) for *ends, kind in zip(*edge_index.tolist(), kinds.tolist())}


def test_a_batch_is_a_part_of_the_graph(small):
    everything = edges_of(small.edge_index, small.edge_type)
    sampler, rng = NeighbourSampler(small, 4, 2), np.random.default_rng(0)
    seeds = np.array([7, 3, 250, 11])
    for _ in range(5):
        batch = sampler.draw(seeds, rng)
        assert batch.nodes[: batch.seeds].tolist() == seeds.tolist() and len(batch.nodes.unique()) == len(batch.nodes)
        real = edges_of(batch.nodes[batch.edge_index], batch.edge_type)
        assert real <= everything and len(real) == batch.edge_index.shape[1]  # no edge twice: the graph has none twice
        into = torch.bincount(batch.edge_index[1], minlength=len(batch.nodes))
        degree = torch.bincount(small.edge_index[1], minlength=small.num_nodes)[batch.nodes]
        assert torch.equal(into[:4], degree[:4].clamp(max=4)) and (into <= degree.clamp(max=4)).all()
        # the last nodes were reached by the last round alone
        assert batch.edge_index[0].max() == len(batch.nodes) - 1


def test_every_neighbour_is_drawn_as_often(small):
    node = int(torch.bincount(small.edge_index[1]).argmax())
    degree = int((small.edge_index[1] == node).sum())
    sampler, rng = NeighbourSampler(small, 3, 1), np.random.default_rng(1)
    drawn = torch.cat(
        [(lambda b: b.nodes[b.edge_index[0]])(sampler.draw(np.array([node]), rng)) for _ in range(40 * degree)]
    )
    expected = torch.bincount(small.edge_index[0][small.edge_index[1] == node], minlength=small.num_nodes) * 120.0
    found = torch.bincount(drawn, minlength=small.num_nodes)
    assert ((found - expected).abs() <= 6 * expected.sqrt()).all()  # six standard deviations, at least


@pytest.mark.parametrize("part", PARTS)
def test_an_epoch_has_every_node_once(part, small):
    drawn, seen = batches(small, Config(batch=30, fanout=3, model="rgcn"), lambda batch: batch), []
    for epoch in (0, 1):
        found = list(drawn(part, epoch))
        seen.append(torch.cat([batch.nodes[: batch.seeds] for batch, *_ in found]))
        assert sorted(seen[-1].tolist()) == getattr(small, part).nonzero().flatten().tolist()
        for batch, _, rows, labels in found:
            assert torch.equal(small.labels[batch.nodes[rows]], labels)
    assert not torch.equal(*seen)
    again = torch.cat([batch.nodes for batch, *_ in drawn(part, 1)])
    assert torch.equal(again, torch.cat([batch.nodes for batch, *_ in found]))
    moved = found[0][0].to("meta")
    assert moved.seeds == found[0][0].seeds
    assert {each.device.type for each in (moved.nodes, moved.edge_index, moved.edge_type)} == {"meta"}


# --- training


@pytest.mark.parametrize("batch, evaluate", [(0, "full"), (50, "batches"), (50, "full")])
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.slow
def test_backend_changes_nothing_but_rounding(framework, batch, evaluate, device, small):
    pytest.importorskip(FRAMEWORKS[framework])
    config = Config(
        hidden=8,
        epochs=3,
        model="rgcn",
        bases=4,
        batch=batch,
        fanout=5,
        dropout=0.2,
        evaluate=evaluate if batch and evaluate == "full" else "",
        device=device,
    )
    off, on = train(framework, ["off", "on"], small, config)
    torch.testing.assert_close(torch.tensor(on.losses), torch.tensor(off.losses), rtol=1e-3, atol=0)
    assert disagreement(off, on) is None and on.framework_calls == 0
    # two layers in each batch, or epoch, and in the passes of the evaluation
    count = lambda part: -(-int(getattr(small, part).sum()) // batch)
    steps = 3 * (count("train") if batch else 1)
    passes = INFERENCES * (count("val") + count("test") if evaluate == "batches" else 1)
    assert on.own_calls >= 2 * (steps + passes)
    assert on.val_accuracy == pytest.approx(off.val_accuracy, abs=2 / int(small.val.sum()))
    for run in (off, on):
        assert run.inference_seconds > 0 and len(run.seconds) == 3
        peaks = run.peak_bytes, run.inference_peak_bytes
        assert peaks == (None, None) or all(0 <= peak < 1 << 30 for peak in peaks)


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_batches_of_all_neighbours_see_what_the_whole_graph_shows(framework, small):
    pytest.importorskip(FRAMEWORKS[framework])
    given = {
        "hidden": 16,
        "epochs": 6,
        "model": "rgcn",
        "bases": 8,
        "batch": 64,
        "fanout": small.num_edges,
        "dropout": 0.0,
    }
    (full,), (batches,) = (
        train(framework, ["on"], small, Config(**given, evaluate=each)) for each in ("full", "batches")
    )
    assert full.losses == batches.losses
    for name in ("val", "test"):
        one, other = (getattr(run, f"{name}_accuracy") for run in (full, batches))
        assert other == pytest.approx(one, abs=1.5 / int(getattr(small, name).sum()))  # rounding may turn a node
        assert other > 2 / small.num_classes  # labels in another order would be a guess's


def test_batches_learn(small):
    pytest.importorskip("torch_geometric")
    (run,) = train("pyg", ["off"], small, Config(hidden=16, epochs=6, model="rgcn", bases=8, batch=64, dropout=0.0))
    assert run.losses[-1] < 0.8 * run.losses[0]


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"batch": -1}, "batch must be at least 1, or 0"),
        ({"fanout": 0}, "fanout must be at least 1"),
        ({"batch": 8, "evaluate": "all"}, "evaluate must be 'batches' or 'full', got 'all'"),
        ({"evaluate": "batches"}, "evaluate is 'batches', but batch is 0"),
    ],
)
def test_bad_sizes_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        Config(**wrong)
