"""Data sets of the example scripts: what is generated, what is read, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models import generated
from models.data import load, load_npz
from models.dataset import DataError


@pytest.fixture(scope="module")
def dataset():
    return load("generated", "pyg", nodes=8_000, edges=80_000, seed=3)


def test_generated_sizes_are_exact_and_edges_distinct(dataset):
    assert (dataset.num_nodes, dataset.num_edges, dataset.num_classes) == (8_000, 80_000, generated.CLASSES)
    assert torch.unique(dataset.edge_index, dim=1).shape[1] == 80_000
    assert dataset.features.shape == (8_000, generated.WIDTH) and dataset.features.dtype == torch.float32


def test_generated_degrees_have_a_heavy_tail(dataset):
    degrees = torch.bincount(dataset.edge_index[1], minlength=8_000)
    assert degrees.max() > 20 * degrees.float().mean()
    assert degrees.median() < degrees.float().mean()


def test_generated_communities_are_the_labels(dataset):
    source, destination = dataset.labels[dataset.edge_index]
    same = (source == destination).float().mean().item()
    # locality 0.6, and a sixteenth of the other edges by chance
    assert same == pytest.approx(0.6 + 0.4 / generated.CLASSES, abs=0.05)
    assert torch.bincount(dataset.labels).unique().numel() == 1


def test_aggregation_tells_more_of_the_class_than_own_features(dataset):
    def accuracy(x):
        """Of the nearest class mean, the means taken from the training nodes."""
        means = torch.stack([x[dataset.train & (dataset.labels == c)].mean(0) for c in range(dataset.num_classes)])
        guess = torch.cdist(x[dataset.test], means).argmin(1)
        return (guess == dataset.labels[dataset.test]).float().mean().item()

    source, destination = dataset.edge_index
    neighbours = torch.zeros_like(dataset.features).index_add_(0, destination, dataset.features[source])
    neighbours /= torch.bincount(destination, minlength=8_000).clamp(min=1)[:, None]
    own, aggregated = accuracy(dataset.features), accuracy(neighbours)
    assert 1.5 / generated.CLASSES < own < 0.4
    assert aggregated > own + 0.15


def test_split_is_disjoint_and_covers_all(dataset):
    assert (dataset.train.int() + dataset.val.int() + dataset.test.int() == 1).all()
    assert [int(mask.sum()) for mask in (dataset.train, dataset.val, dataset.test)] == [4_000, 2_000, 2_000]


def test_seed_decides_everything(dataset):
    again, other = (load("generated", "dgl", nodes=8_000, edges=80_000, seed=seed) for seed in (3, 4))
    for name in ("edge_index", "features", "labels", "train", "val", "test"):
        assert torch.equal(getattr(again, name), getattr(dataset, name)), name
        assert not torch.equal(getattr(other, name), getattr(dataset, name)), name


def test_default_sizes():
    dataset = load("generated", "pyg")
    assert (dataset.num_nodes, dataset.num_edges) == (100_000, 1_000_000)


# rows are destinations: 1 -> 0, 3 -> 0, 0 -> 2, 2 -> 4
INDPTR, INDICES = np.array([0, 2, 2, 3, 3, 4]), np.array([1, 3, 0, 2])


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_npz_with_features_and_labels(tmp_path, index):
    features, labels = np.arange(15.0).reshape(5, 3), np.array([0, 2, 1, 0, -1])
    np.savez(
        tmp_path / "mine.npz",
        indptr=INDPTR.astype(index),
        indices=INDICES.astype(index),
        features=features,
        labels=labels,
    )
    dataset = load(str(tmp_path / "mine.npz"), "pyg")
    assert dataset.name == "mine" and "generated" not in dataset.origin
    assert dataset.edge_index.tolist() == [[1, 3, 0, 2], [0, 0, 2, 4]]
    assert dataset.features.tolist() == features.tolist() and dataset.features.dtype == torch.float32
    assert dataset.labels.tolist() == labels.tolist() and dataset.num_classes == 3
    assert not (dataset.train | dataset.val | dataset.test)[4]


def test_npz_without_features_and_labels_says_that_they_are_generated(tmp_path):
    np.savez(tmp_path / "bare.npz", indptr=INDPTR, indices=INDICES)
    first, second = (load_npz(tmp_path / "bare.npz", seed=1) for _ in range(2))
    assert "generated: features and labels" in first.origin
    assert first.features.shape == (5, generated.WIDTH) and torch.equal(first.features, second.features)


def test_generated_labels_are_shared_by_neighbours():
    matrix, _ = generated.graph(4_000, 40_000, 0)
    labels = generated.smooth_labels(matrix.indptr, matrix.indices, np.random.default_rng(0))
    destination = np.repeat(np.arange(4_000), np.diff(matrix.indptr))
    shuffled = np.random.default_rng(1).permutation(labels)
    same, chance = ((l[destination] == l[matrix.indices]).mean() for l in (labels, shuffled))
    assert same > chance + 0.1


def test_npz_edge_list(tmp_path):
    np.savez(tmp_path / "edges.npz", src=np.array([2, 1, 3]), dst=np.array([0, 3, 0]), label=np.array([0, 1, 1, 0, 1]))
    dataset = load_npz(tmp_path / "edges.npz", seed=0)
    assert dataset.num_nodes == 5  # more labels than nodes with edges
    assert sorted(zip(*dataset.edge_index.tolist())) == [(1, 3), (2, 0), (3, 0)]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"indices": None}, r"has the arrays .*needed are 'indptr' and 'indices'"),
        ({"indptr": np.array([0, 2, 1, 3, 3, 4])}, r"indptr\[1\] = 2 but indptr\[2\] = 1"),
        ({"indices": np.array([1, 3, 0, 5])}, r"indices\[3\] = 5 is out of range"),
        ({"indices": INDICES.astype(float)}, "indices must hold integers, got .*float64"),
        ({"labels": np.zeros(4, int)}, r"labels must be \(5,\) integers, got \(4,\)"),
        ({"labels": np.zeros(5)}, r"labels must be \(5,\) integers, got \(5,\) float64"),
        ({"labels": np.full(5, -1)}, "no label is known"),
        ({"features": np.zeros((4, 2))}, r"features must be \(5, F\) numbers, got \(4, 2\)"),
        ({"features": np.zeros((5, 0))}, r"features must be \(5, F\) numbers, got \(5, 0\)"),
        ({"indptr": np.array([0, 0]), "indices": np.zeros(0, int)}, "1 nodes: too few"),
    ],
)
def test_npz_refused_in_words(tmp_path, change, message):
    arrays = {"indptr": INDPTR, "indices": INDICES} | change
    path = tmp_path / "bad.npz"
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    with pytest.raises(DataError, match=message) as error:
        load_npz(path, seed=0)
    assert str(path) in str(error.value)


def test_file_that_is_none_or_no_archive(tmp_path):
    with pytest.raises(DataError, match="absent.npz is not a file"):
        load(str(tmp_path / "absent.npz"), "pyg")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(DataError, match="text.npz"):
        load(str(tmp_path / "text.npz"), "pyg")
    np.save(tmp_path / "array.npy", INDPTR)
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    with pytest.raises(DataError, match="not an .npz archive"):
        load(str(tmp_path / "array.npz"), "pyg")
    np.savez(tmp_path / "pickled.npz", indptr=np.array([None]), indices=INDICES)
    with pytest.raises(DataError, match="pickled.npz cannot be read"):
        load(str(tmp_path / "pickled.npz"), "pyg")


def test_unknown_name_and_impossible_size():
    with pytest.raises(DataError, match="unknown data set 'citeseer'.*'generated', 'cora'"):
        load("citeseer", "pyg")
    with pytest.raises(DataError, match="no graph of 10 nodes and 1000 edges"):
        load("generated", "pyg", nodes=10, edges=1000)
