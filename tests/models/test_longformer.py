"""The Longformer-style encoder: its task, its attention against PyTorch's, its training, and the script."""

from __future__ import annotations

import json

import pytest
import torch

from models import longformer
from models.sequences import task
from models.sequences.network import Encoder, positions
from models.sequences.train import Config, train
from tests.models.test_scripts import call

__all__ = ["call"]
pytestmark = pytest.mark.usefixtures("one_thread")
TINY = ("--length", "64", "--start", "32", "--window", "4", "--width", "16", "--heads", "2", "--batch", "2")


def test_the_needle_is_the_one_marked_token():
    drawn = task.draw(5, 40, torch.Generator().manual_seed(0))
    assert drawn.marks.sum(1).tolist() == [1] * 5
    for row, needle in enumerate(drawn.needle.tolist()):
        assert needle > 0 and drawn.marks[row, needle] == 1 and drawn.symbols[row, needle] == drawn.answer[row]
    assert (drawn.symbols[:, 0] == task.FIRST).all() and (drawn.symbols[:, 1:] < task.SYMBOLS).all()


def test_windows_reach_as_far_as_they_add_up():
    """What a token knows of the needle is in its gradient: nothing beyond the reach of windows, all with a global
    token.
    """
    drawn = task.draw(1, 100, torch.Generator().manual_seed(1))
    near = task.reached(drawn, 2 * 4)
    assert 0 < near.sum() < 20
    for global_token, expected in ((False, near), (True, torch.ones_like(near))):
        torch.manual_seed(0)
        network = Encoder(16, 2, 2, 4, global_token)
        found = [network(drawn.symbols, marks) for marks in (drawn.marks, torch.zeros_like(drawn.marks))]
        assert torch.equal((found[0] != found[1]).any(-1), expected)
    best = near.double().mean().item()
    assert task.best_within(drawn, 8) == pytest.approx(best + (1 - best) / task.SYMBOLS)


def test_the_dense_network_is_the_same():
    drawn = task.draw(2, 50, torch.Generator().manual_seed(0))
    networks = []
    for dense in (False, True):
        torch.manual_seed(0)
        networks.append(Encoder(16, 2, 2, 4, dense=dense).double())
    outputs = [network(drawn.symbols, drawn.marks) for network in networks]
    torch.testing.assert_close(*outputs)
    for output in outputs:
        output.square().sum().backward()
    for one, other in zip(*(network.parameters() for network in networks)):
        torch.testing.assert_close(one.grad, other.grad)


def test_positions_are_sines():
    found = positions(10, 6, torch.zeros(1, dtype=torch.float64))
    assert found.shape == (10, 6) and found[0].tolist() == [0, 1] * 3
    assert found[7, 0].item() == pytest.approx(torch.tensor(7.0).sin().item())


@pytest.mark.slow
def test_sequences_grow():
    config = Config(length=100, start=20, batch=2)
    assert config.lengths == [25, 50, 100] and [config.sequences(n) for n in config.lengths] == [8, 4, 2]
    run = train("global", Config(length=32, start=16, window=4, width=16, heads=2, steps=2, batch=1))
    assert run.lengths == [16, 16, 32, 32] and len(run.losses) == len(run.seconds) == 4 and run.peak_bytes is not None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--start", "1"], "start must be from 2 to length = 64, got 1"),
        (["--heads", "3"], "heads must divide the width 16, got 3"),
        (["--steps", "0"], "steps must be at least 1, got 0"),
        (["--lr", "0"], "lr must be positive, got 0.0"),
        (["--threads", "0"], "--threads must be at least 1, got 0"),
    ],
)
def test_bad_options_are_refused_in_words(given, words, call, tmp_path):
    status, _, errors = call(longformer.main, *TINY, *given, "--out", str(tmp_path))
    assert status == 2 and words in errors


@pytest.mark.slow
def test_what_has_not_learned_says_so(call, tmp_path):
    few = ("--steps", "2", "--threads", "1", "--arms", "global", "dense")
    status, said, _ = call(longformer.main, *TINY, *few, "--out", str(tmp_path))
    assert status == 1 and "every pair by PyTorch" in said
    record = json.loads((tmp_path / "longformer.json").read_text())
    one, other = record["runs"]
    assert one["losses"] == pytest.approx(other["losses"], abs=1e-3)
    assert (tmp_path / "longformer.png").stat().st_size > 5000


@pytest.mark.slow
def test_quick(call, tmp_path):
    """A global token makes it; windows alone do not."""
    status, said, _ = call(longformer.main, "--quick", "--threads", "1", "--out", str(tmp_path))
    assert status == 0 and "beyond windows" in said
    record = json.loads((tmp_path / "longformer.json").read_text())
    found = {run["name"]: run for run in record["runs"]}
    assert found["global"]["far_accuracy"] > 0.95 and found["window"]["far_accuracy"] < 0.25
    assert found["window"]["accuracy"] < record["most_by_windows"] + 0.05
