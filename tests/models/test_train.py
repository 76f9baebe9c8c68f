"""Training with and without the backend: the same numbers under both frameworks, and Cora's accuracy."""

from __future__ import annotations

import math

import pytest
import torch

from models import graphsage
from models.data import load
from models.train import Config, Run, disagreement, train

FRAMEWORKS = ["dgl", "pyg"]
MODULES = {"dgl": "dgl", "pyg": "torch_geometric"}
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def small():
    return load("generated", "pyg", nodes=3_000, edges=30_000, seed=1)


@pytest.mark.short(1)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_backend_changes_nothing_but_rounding(framework, device, small):
    pytest.importorskip(MODULES[framework])
    config = Config(hidden=33, layers=3, epochs=6, seed=5, device=device)
    off, on = train(framework, ["off", "on"], small, config)
    # each step amplifies the rounding of the one before: Adam divides small gradients by their own size
    torch.testing.assert_close(torch.tensor(on.losses), torch.tensor(off.losses), rtol=1e-3, atol=0)
    assert on.losses[0] == pytest.approx(off.losses[0], rel=1e-5)
    assert off.losses[-1] < 0.95 * off.losses[0]
    assert disagreement(off, on) is None


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_aggregation_runs_on_the_backend(framework, device, small):
    pytest.importorskip(MODULES[framework])
    off, on = train(framework, ["off", "on"], small, Config(epochs=2, device=device))
    assert (off.own_calls, off.framework_calls, off.own_share) == (0, 0, None)
    # two layers in two epochs and the evaluation; backward may count too
    assert on.own_calls >= 2 * 3 and on.own_share == 1


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_same_seed_same_run_another_seed_another(framework, small):
    pytest.importorskip(MODULES[framework])
    first, again, other = (
        train(framework, ["off"], small, Config(hidden=16, epochs=2, seed=seed))[0] for seed in (0, 0, 1)
    )
    assert first.losses == pytest.approx(again.losses, rel=1e-5)
    assert first.losses != pytest.approx(other.losses, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_cora(framework, device, gsb_data):
    pytest.importorskip(MODULES[framework])
    if not (gsb_data / "planetoid" / "ind.cora.x").exists():
        pytest.skip(f"{gsb_data}/planetoid has no Cora")
    dataset = load("cora", framework)
    assert (dataset.num_nodes, dataset.num_edges, dataset.num_classes) == (2_708, 10_556, 7)
    assert [int(mask.sum()) for mask in (dataset.train, dataset.val, dataset.test)] == [140, 500, 1_000]
    off, on = train(framework, ["off", "on"], dataset, Config(hidden=64, epochs=CORA_EPOCHS, device=device))
    assert off.test_accuracy >= 0.78 and on.test_accuracy >= 0.78
    assert disagreement(off, on) is None


# A fifth of what the script trains by default: the accuracy is there by then.
CORA_EPOCHS = 40


def test_both_frameworks_read_the_same_cora(gsb_data):
    pytest.importorskip("dgl")
    pytest.importorskip("torch_geometric")
    if not (gsb_data / "planetoid" / "ind.cora.x").exists():
        pytest.skip(f"{gsb_data}/planetoid has no Cora")
    dgl, pyg = load("cora", "dgl"), load("cora", "pyg")
    for name in ("labels", "train", "val", "test"):
        assert torch.equal(getattr(dgl, name), getattr(pyg, name)), name
    torch.testing.assert_close(dgl.features, pyg.features)
    edges = [set(zip(*d.edge_index.tolist())) for d in (dgl, pyg)]
    assert edges[0] == edges[1]


def _run(loss: float, accuracy: float, nodes: int = 1000) -> Run:
    return Run("pyg", "on", losses=[loss], seconds=[1.0], test_accuracy=accuracy, test_nodes=nodes)


@pytest.mark.parametrize(
    "on, message",
    [
        (_run(2.0, 0.8), None),
        (_run(2.0001, 0.804), None),
        (_run(2.001, 0.8), "loss of the first epoch: 2 .*2.001 with it"),
        (_run(math.nan, 0.8), "loss of the first epoch"),
        (_run(2.0, 0.79), "test accuracy: 0.8000 without the backend, 0.7900 with it"),
        (_run(2.0, math.nan), "test accuracy"),
    ],
)
def test_disagreement_is_flagged(on, message):
    import re

    found = disagreement(_run(2.0, 0.8), on)
    assert found is None if message is None else re.search(message, found)


def test_epoch_time_leaves_the_warm_up_of_each_turn_out():
    run = Run("dgl", "off", seconds=[90.0, 80.0, 1.0, 3.0, 70.0, 60.0, 2.0])
    assert run.timed(Config(turn=4, warmup=2)) == [2, 3, 6] and run.epoch_seconds(Config(turn=4, warmup=2)) == 2.0
    assert run.epoch_seconds(Config(turn=10, warmup=9)) == 2.0  # nothing left: the last epoch


def test_a_data_set_moves_as_a_whole(small):
    moved = small.to("meta")
    assert moved.name == small.name and moved.num_edges == small.num_edges
    assert {each.device.type for each in vars(moved).values() if isinstance(each, torch.Tensor)} == {"meta"}


def test_dgl_without_cuda_is_told_before_anything_is_trained(monkeypatch, capsys):
    dgl = pytest.importorskip("dgl")

    def to(graph, device):
        raise dgl.DGLError(
            "[03:27:37] runtime.cc:88: Check failed:\nDevice API cuda is not enabled. Please install the cuda version "
            "of dgl."
        )

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(dgl.DGLGraph, "to", to)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # which the script sets
    assert graphsage.main(["--framework", "dgl", "--device", "cuda"]) == 2
    said = capsys.readouterr().err
    assert (
        "error: --device cuda: this DGL has no CUDA (Device API cuda is not enabled" in said and "data.dgl.ai" in said
    )


def test_trainings_take_turns(small):
    pytest.importorskip("torch_geometric")
    seen = []
    train(
        "pyg", ["off", "on"], small, Config(hidden=4, epochs=5, turn=2, warmup=0), lambda run: seen.append(run.backend)
    )
    assert seen == ["off"] * 2 + ["on"] * 4 + ["off"] * 2 + ["off", "on"]


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"hidden": 0}, "hidden must be at least 1, got 0"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"device": "mps"}, "device must be 'cpu' or 'cuda', got 'mps'"),
        ({"lr": math.nan}, "lr must be positive, got nan"),
        ({"warmup": 10}, r"warmup must be in \[0, turn = 10\), got 10"),
    ],
)
def test_config_refuses(wrong, message):
    with pytest.raises(ValueError, match=message):
        Config(**wrong)
