"""Trainings that go on with other processes, or with halos that are late, and what is rounded on the wire."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.distributed import Dropout

from . import cases, training
from .processes import together, torchrun


def _parts(folder: Path, count: int) -> Path:
    gsb.distributed.partition(cases.whole("square"), count, folder, "range", progress=False)
    return folder


@pytest.mark.slow
def test_a_training_goes_on_with_other_processes(tmp_path):
    at = 0
    for count, to in ((2, 2), (3, 4), (1, 6)):  # dropout and Adam go on, too
        given = (_parts(tmp_path / str(count), count), at, to, tmp_path / "checkpoint.pt", 0.4)
        together(count, training.some_steps, tmp_path, *given)
        at = to


@pytest.mark.slow
def test_halos_of_the_step_before(tmp_path):
    together(3, training.delayed_halos, tmp_path, _parts(tmp_path / "parts", 3))


def test_a_process_alone_has_nothing_to_delay(tmp_path):
    training.delayed_halos(0, _parts(tmp_path, 1))


def test_a_step_leaves_nothing_behind(tmp_path):
    """No circle of references holds features until the collector runs."""
    part = gsb.distributed.DistGraph.load(_parts(tmp_path, 1))
    gc.collect()
    gc.disable()
    try:
        for reduce in ("sum", "max"):
            x = torch.ones(23, 2, requires_grad=True) * 2
            left = weakref.ref(x)
            gsb.spmm(part, x, reduce=reduce).sum().backward()
            del x
            assert left() is None, reduce
    finally:
        gc.enable()


@pytest.mark.slow
def test_bfloat16_on_the_wire(tmp_path):
    together(2, training.rounded_on_the_wire, tmp_path, _parts(tmp_path / "parts", 2))


@pytest.mark.slow
def test_torchrun_starts_again(tmp_path):
    _parts(tmp_path / "parts", 2)
    done = torchrun("tests.distributed.training", tmp_path, "--max-restarts", "1")
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"ended{rank}").read_text() for rank in range(2)] == ["1 2", "1 2"]


def test_dropout_is_of_nodes():
    torch.manual_seed(0)
    x = torch.rand(3000, 8) + 1
    whole = Dropout(torch.arange(3000), 0.3, seed=7)
    first, second = whole(x), whole(x)
    some = torch.randperm(3000)[:100]
    part = Dropout(some, 0.3, seed=7)
    assert torch.equal(part(x[some]), first[some]) and torch.equal(part(x[some]), second[some])
    assert torch.equal(first[first != 0], (x / 0.7)[first != 0]) or torch.allclose(
        first[first != 0] * 0.7, x[first != 0]
    )
    zeros = torch.stack([first == 0, second == 0, Dropout(torch.arange(3000), 0.3, seed=8)(x) == 0]).double()
    count = zeros[0].numel()
    assert ((zeros.mean((1, 2)) - 0.3).abs() < 5 * (0.3 * 0.7 / count) ** 0.5).all()
    chances = torch.corrcoef(torch.cat([zeros[0].T, zeros[1].T, zeros[2].T])) - torch.eye(24)
    assert chances.abs().max() < 5 / 3000**0.5  # of features, calls and seeds
    neighbours = torch.corrcoef(torch.stack([zeros[0][:-1].flatten(), zeros[0][1:].flatten()]))[0, 1]
    assert neighbours.abs() < 5 / count**0.5
    assert whole.eval()(x) is x and int(whole.state_dict()["calls"]) == 2 and "rows" not in whole.state_dict()


def test_dropout_draws_splitmix64():
    word, golden = 1 << 64, 0x9E3779B97F4A7C15

    def mixed(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % word
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % word
        return z ^ (z >> 31)

    assert mixed(golden) == 0xE220A8397B1DCDAF  # the first number of seed 0, as its authors have it
    key = mixed((mixed(11 * golden % word) + 0) % word)
    kept = [[mixed((key + (row * 3 + column) * golden) % word) >> 32 >= 2**31 for column in range(3)] for row in (0, 9)]
    assert torch.equal(Dropout(torch.tensor([0, 9]), 0.5, seed=11)(torch.ones(2, 3)) != 0, torch.tensor(kept))


@pytest.mark.parametrize(
    ("rows", "p", "told"),
    [(torch.arange(3), 1.0, r"p must be in \[0, 1\), got 1.0"), (torch.ones(3), 0.5, r"integers, got torch.float32")],
)
def test_what_dropout_refuses(rows, p, told):
    with pytest.raises(ValueError, match=told):
        Dropout(rows, p)
    with pytest.raises(ValueError, match=r"must have 3 rows, got shape \(2, 1\)"):
        Dropout(torch.arange(3))(torch.ones(2, 1))
