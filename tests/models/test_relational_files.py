"""The real relational graphs of $GSB_DATA, as the models load them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from models.relational_data import load

FOLDER = Path(os.environ.get("GSB_DATA", "/nonexistent"))


@pytest.mark.parametrize("name", ["debian", "wordnet"])
@pytest.mark.parametrize("framework", ["dgl", "pyg"])
def test_the_file_and_its_inverse_edges(name, framework):
    if not (FOLDER / f"{name}.npz").exists():
        pytest.skip(f"{name}.npz is not in GSB_DATA")
    with np.load(FOLDER / f"{name}.npz") as arrays:
        src, dst, kinds, labels = (arrays[key].astype(np.int64) for key in ("src", "dst", "etype", "label"))
    dataset = load(name, framework, nodes=0, edges=0, seed=0)
    count = int(kinds.max()) + 1
    assert (dataset.num_nodes, dataset.num_edges, dataset.num_relations) == (len(labels), 2 * len(src), 2 * count)
    assert dataset.num_classes == labels.max() + 1 and torch.equal(dataset.labels, torch.from_numpy(labels))
    # as many edges as in the file, relation by relation, and every one with its inverse
    (source, destination), relation = dataset.edge_index.numpy(), dataset.edge_type.numpy()
    assert (np.diff(relation) >= 0).all()

    def key(s, d, r):
        return np.sort((r * len(labels) + s) * len(labels) + d)

    forward = relation < count
    assert np.array_equal(key(source[forward], destination[forward], relation[forward]), key(src, dst, kinds))
    assert np.array_equal(
        key(destination[~forward], source[~forward], relation[~forward] - count), key(src, dst, kinds)
    )
    # labelled nodes alone are split, each once, half of them for training
    split = dataset.train.int() + dataset.val.int() + dataset.test.int()
    assert torch.equal(split == 1, dataset.labels >= 0) and split.max() == 1
    assert int(dataset.train.sum()) == int((dataset.labels >= 0).sum()) // 2
