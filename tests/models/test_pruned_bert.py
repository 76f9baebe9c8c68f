"""The encoder that is pruned step by step: its task, its masks, its training on sparse layers, and the script."""

from __future__ import annotations

import json

import pytest
import torch
from torch.nn import Linear

from gnn_sparse_backend.nn import SparseLinear
from models import pruned_bert
from models.pruning import measure, report, task
from models.pruning.masks import Pruner, cubic, finish
from models.pruning.train import Config, train
from tests.covering import covering
from tests.models.test_scripts import call

__all__ = ["call"]
pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = dict(
    at_least=0.0,
    width=32,
    heads=2,
    inner=64,
    layers=1,
    length=8,
    batch=4,
    block=8,
    density=0.1,
    rounds=1,
    layer_tokens=0,
)
STEPS = dict(steps=4, prune_steps=6, tune_steps=3, every=2)
TINY = [f"--{name.replace('_', '-')}={value}" for name, value in {**SMALL, **STEPS}.items()]


def test_answers_follow_from_facts_and_the_table():
    drawn, table = task.draw(6, 20, torch.Generator().manual_seed(0)), task.table()
    assert drawn.asked.sum(1).tolist() == [10] * 6
    for row in range(6):
        facts = {int(k): int(v) for k, v in zip(drawn.keys[row], drawn.seconds[row]) if v < task.VALUES}
        assert sorted(facts) == list(range(10))
        for at in drawn.asked[row].nonzero().flatten().tolist():
            operation, key = int(drawn.seconds[row, at]) - task.VALUES, int(drawn.keys[row, at])
            assert table[operation, facts[key]] == drawn.answers[row, at]
    assert all(sorted(row) == list(range(task.VALUES)) for row in table.tolist()) and len(set(map(tuple, table))) > 1


def test_density_falls_as_a_cube():
    found = [cubic(step, 10, 0.1) for step in (0, 5, 10, 11)]
    assert found == pytest.approx([1.0, 0.1 + 0.9 / 8, 0.1, 0.1]) and cubic(0, 0, 0.3) in (0.3, 1.0)


@pytest.mark.parametrize("block", [1, 4])
def test_the_largest_weights_stay(block):
    layer = Linear(16, 8)
    before = layer.weight.detach().clone()
    pruner = Pruner([layer], "magnitude", block)
    pruner.keep(0.5)
    pruner.keep(0.25)
    sizes = before.square().unflatten(1, (-1, block)).unflatten(0, (-1, block)).mean((1, 3))
    few = sizes >= sizes.flatten().topk(sizes.numel() // 4).values[-1]
    expected = before * few.repeat_interleave(block, 0).repeat_interleave(block, 1)
    finish([layer])
    assert pruner_density(layer) == 0.25 and torch.equal(layer.weight, expected)


def pruner_density(layer: Linear) -> float:
    return float((layer.weight != 0).double().mean())


def test_weights_stay_that_move_away_from_zero():
    layer = Linear(4, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[5.0, 1.0, -1.0, -5.0]]))
    pruner = Pruner([layer], "movement", 1)
    slope = torch.tensor([1.0, -1.0, 1.0, -1.0])  # the middle ones grow, the others shrink
    layer(slope[None]).sum().backward()
    pruner.watch()
    pruner.keep(0.5)
    assert layer.weight_mask.tolist() == [[0, 1, 1, 0]]
    layer.weight_orig.grad = -1e3 * layer.weight_orig.detach()
    pruner.watch()
    pruner.keep(0.5)
    assert layer.weight_mask.tolist() == [[0, 1, 1, 0]], "what is pruned stays pruned"


@pytest.mark.slow
@pytest.mark.parametrize(
    "structure, criterion", covering({"structure": ["blocks", "single"], "criterion": ["magnitude", "movement"]})
)
def test_masked_and_sparse_layers_learn_the_same(structure, criterion):
    config = Config(**SMALL, **STEPS, structure=structure, criterion=criterion)
    result = train(config)
    runs = result.runs
    assert runs["masked"].losses == pytest.approx(runs["sparse"].losses, abs=1e-4)
    assert runs["start"].losses[0] == pytest.approx(2.77, abs=0.3) and report.difference(result) < 1e-4
    assert {run.name: len(run.losses) for run in runs.values()} == {
        "start": 4, "pruning": 6, "dense": 9, "masked": 3, "sparse": 3,
    }  # fmt: skip
    assert sum(len(run.losses) for run in runs.values()) == config.total(False)
    assert sorted(runs["pruning"].densities, reverse=True) == runs["pruning"].densities
    assert "layers.0.query" in result.decisions.replaced and "read.1" not in result.decisions.replaced
    for name, weight in result.pruned.items():
        if name.startswith("layers.0") and weight.dim() == 2:
            kept = weight != 0
            blocks = kept.unflatten(1, (-1, config.side)).unflatten(0, (-1, config.side)).sum((1, 3))
            assert ((blocks == 0) | (blocks == config.side**2)).all()
            assert float(kept.double().mean()) == pytest.approx(0.1, abs=0.03)
    if structure == "blocks":  # single weights may be stored in blocks with zeros
        assert result.costs["sparse"].weights < result.costs["dense"].weights
    again = train(Config(**{**SMALL, **STEPS, "tune_steps": 0}, structure=structure), result.pruned)
    assert again.runs["sparse"].accuracy == runs["sparse"].accuracy and list(again.runs) == ["masked", "sparse"]


@pytest.mark.parametrize("block", [1, 8])
def test_one_layer_costs_something(block, monkeypatch):
    compared = {}
    monkeypatch.setattr(measure, "compare", lambda models, loss, rounds: compared.update(models=models, loss=loss))
    measure.of_layer(24, 0.1, block, 1, (32, 2, 64))
    models = compared["models"]
    losses = [compared["loss"](model) for model in models.values()]
    torch.testing.assert_close(*losses)
    assert isinstance(models["sparse"].query, SparseLinear) and type(models["dense"].query) is Linear
    assert measure.of_layer(0, 0.1, block, 1) == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--block", "7"], "block must divide width 32 and inner 64, got 7"),
        (["--heads", "3"], "heads must divide the width 32, got 3"),
        (["--prune-steps", "0"], "prune_steps must be at least 1, got 0"),
        (["--tune-steps", "-1"], "tune_steps must be at least 0, got -1"),
        (["--density", "0"], "density must be above 0 and at most 1, got 0.0"),
        (["--length", "1"], "length must be at least 2, a fact and a question, got 1"),
        (["--lr", "0"], "lr must be positive, got 0.0"),
        (["--threads", "0"], "--threads must be at least 1, got 0"),
        (["--load", "nowhere.pt"], "--load: no file nowhere.pt"),
    ],
)
def test_bad_options_are_refused_in_words(given, words, call, tmp_path):
    status, _, errors = call(pruned_bert.main, *TINY, *given, "--out", str(tmp_path))
    assert status == 2 and words in errors


@pytest.mark.slow
@pytest.mark.parametrize("library", ["safetensors", None])
def test_weights_are_written_and_read(library, call, tmp_path, monkeypatch):
    if library is None:
        monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: None)
    else:
        pytest.importorskip(library)
    kind = "pt" if library is None else "safetensors"
    status, said, _ = call(pruned_bert.main, *TINY, "--layer-tokens", "16", "--out", str(tmp_path))
    assert status == 0 and f"pruned_bert.{kind}" in said and "One layer of BERT's size" in said
    record = json.loads((tmp_path / "pruned_bert.json").read_text())
    assert set(record["costs"]) == {"dense", "masked", "sparse"} and set(record["layer"]) == {"dense", "sparse"}
    assert (tmp_path / "pruned_bert.png").stat().st_size > 5000
    saved = str(tmp_path / f"pruned_bert.{kind}")
    status, said, _ = call(pruned_bert.main, *TINY, "--load", saved, "--out", str(tmp_path / "again"))
    assert status == 0 and "–" in said
    _, _, errors = call(pruned_bert.main, *TINY, "--width", "64", "--load", saved, "--out", str(tmp_path))
    assert "the network that was loaded has other sizes" in errors and "size mismatch" in errors


@pytest.mark.slow
def test_quick(call, tmp_path):
    """Of a fifth of the weights the network answers as well as of all of them, nearly."""
    status, said, _ = call(pruned_bert.main, "--quick", "--threads", "1", "--out", str(tmp_path))
    assert status == 0 and "pruned, sparse layers" in said
    runs = {run["name"]: run for run in json.loads((tmp_path / "pruned_bert.json").read_text())["runs"]}
    accuracy = {name: run["accuracies"][-1][1] for name, run in runs.items()}
    assert accuracy["dense"] > 0.95 and accuracy["sparse"] > 0.8
    assert runs["sparse"]["densities"][-1] < 0.21
