"""``gsb.load_features``: the file's rows, whoever reads them, and layers on features that stay in their file."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.chunked import slices
from gnn_sparse_backend.sampling import features as module
from tests.integrations.test_layers_by_rows import edges_without_loops, gradients, lambda_of
from tests.integrations.test_low_memory import network

ROWS, WIDTH = 120, 12


@pytest.fixture
def values():
    return np.random.default_rng(0).standard_normal((ROWS, WIDTH))


@pytest.fixture
def saved(tmp_path, values):
    np.save(tmp_path / "x.npy", values)
    return tmp_path / "x.npy"


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rows_in_any_order(saved, values, dtype):
    features = gsb.load_features(saved, threads=3)
    assert len(features) == ROWS and features.shape == (ROWS, WIDTH) and features.dtype is torch.float64
    assert np.array_equal(features.tensor.numpy(), values)
    rows = torch.randint(ROWS, (301,), generator=torch.Generator().manual_seed(0), dtype=dtype)
    assert np.array_equal(features[rows].numpy(), values[rows.numpy()])
    assert np.array_equal(features.ahead(rows[:2]).result().numpy(), values[rows[:2].numpy()])
    assert features[rows[:0]].shape == (0, WIDTH)
    features.read_ahead()
    features.read_ahead(ROWS - 1)


def test_raw_files(tmp_path, values):
    given = torch.from_numpy(values).bfloat16()
    given.view(torch.int16).numpy().tofile(tmp_path / "x.bin")
    for shape in ((ROWS, WIDTH), (-1, WIDTH), (5, WIDTH)):
        features = gsb.load_features(tmp_path / "x.bin", shape, "bfloat16")
        assert torch.equal(features.tensor, given[: len(features)]) and len(features) == (
            shape[0] if shape[0] > 0 else ROWS
        )


def test_who_writes_to_it_writes_to_memory(saved, values):
    gsb.load_features(saved).tensor.zero_()
    assert np.array_equal(np.load(saved), values)


@pytest.mark.parametrize("kind", ["sage", "gcn", "gat"])
def test_layers_read_the_file_in_order(saved, values, kind, monkeypatch):
    monkeypatch.setattr(slices, "CHUNK", 1 << 11)
    edges, read = edges_without_loops(), []
    ahead = module.Features.read_ahead
    monkeypatch.setattr(module.Features, "read_ahead", lambda self, *rows: (read.append(rows), ahead(self, *rows))[1])
    model = lambda_of(network("pyg", kind, (WIDTH, 16, 5)).double())
    torch.manual_seed(1)
    expected = gradients(model, torch.from_numpy(values), edges, False)
    gsb.enable("pyg", memory="low")
    gsb.checkpoint_layers(model)
    features = gsb.load_features(saved)
    torch.manual_seed(1)
    y = model(features.tensor, edges)
    found = torch.autograd.grad((y * torch.linspace(-1, 2, y.shape[1])).sin().sum(), list(model.parameters()))
    torch.testing.assert_close((y.detach(), *found), expected, rtol=1e-7, atol=1e-9)
    assert len(read) >= 2 and all(first < last <= ROWS or first == ROWS for first, last in read)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda path: gsb.load_features(path)[torch.tensor([0, ROWS])],
            IndexError,
            f"row {ROWS} is none of the {ROWS}",
        ),
        (lambda path: gsb.load_features(path)[torch.tensor([-1])], IndexError, "row -1 is none"),
        (lambda path: gsb.load_features(path)[torch.ones(2)], TypeError, "int32 or int64, got torch.float32"),
        (lambda path: gsb.load_features(path, (3, 4)), TypeError, "leave them out"),
        (lambda path: gsb.load_features(path.with_suffix(".bin")), TypeError, "give shape and dtype"),
        (lambda path: gsb.load_features(path, threads=0), ValueError, "at least 1, got 0"),
        (lambda path: gsb.load_features(path.with_suffix(".raw"), (9, 9), "whole"), ValueError, "got 'whole'"),
    ],
)
def test_refusals(saved, call, error, words):
    with pytest.raises(error, match=words):
        call(saved)


def test_files_that_hold_something_else(tmp_path):
    np.save(tmp_path / "f.npy", np.asfortranarray(np.ones((3, 4))))
    with pytest.raises(ValueError, match="C order"):
        gsb.load_features(tmp_path / "f.npy")
    np.save(tmp_path / "c.npy", np.array(["a", "b"]))
    with pytest.raises(ValueError, match="PyTorch has not"):
        gsb.load_features(tmp_path / "c.npy")
    (tmp_path / "x.bin").write_bytes(b"1234567")
    with pytest.raises(ValueError, match="with its 7 bytes"):
        gsb.load_features(tmp_path / "x.bin", (2, 1), torch.float32)
