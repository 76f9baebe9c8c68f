"""Files of a partition, and what is wrong with them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.distributed import DistGraph

from . import cases


def test_every_edge_and_row_is_in_one_part(tmp_path):
    graph = cases.whole("bipartite")
    features, labels = torch.rand(17, 3), torch.arange(11)
    report = gsb.distributed.partition(graph, 3, tmp_path, "random", features=features, labels=labels)

    def read(name):
        return [np.load(tmp_path / f"part{part}" / f"{name}.npy") for part in range(3)]

    for name, count in (("rows", 11), ("columns", 17), ("edges", 120)):
        assert sorted(np.concatenate(read(name))) == list(range(count))
    for column_ids, x, row_ids, y in zip(read("columns"), read("features"), read("rows"), read("labels")):
        assert np.array_equal(x, features[column_ids]) and np.array_equal(y, row_ids)
    assert report.edges == tuple(len(edges) for edges in read("edges")) and sum(report.edges) == 120
    assert report.halo == tuple(len(halo) for halo in read("halo")) and 0 < report.edge_cut < 1
    assert "random" in str(report) and (tmp_path / "report.png").stat().st_size


@pytest.mark.parametrize(
    ("changed", "error", "told"),
    [
        (dict(parts=0), ValueError, "parts must be a number"),
        (dict(method="cut"), ValueError, "method must be one of"),
        (dict(features=torch.ones(3, 2)), ValueError, "features must have 17 rows"),
        (dict(bipartite=False), ValueError, "is bipartite"),
        (dict(graph="graph"), TypeError, "must be a gsb.Graph or gsb.RelGraph, got str"),
    ],
)
def test_what_cannot_be_cut_is_refused(changed, error, told, tmp_path):
    with pytest.raises(error, match=told):
        gsb.distributed.partition(
            **(dict(graph=cases.whole("bipartite"), parts=2, folder=tmp_path, method="range") | changed)
        )


def test_files_that_changed_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="make it by gsb.distributed.partition"):
        DistGraph.load(tmp_path)
    gsb.distributed.partition(cases.whole("square"), 1, tmp_path, "range")
    np.save(tmp_path / "part0" / "row.npy", np.zeros(120, np.int64))
    with pytest.raises(ValueError, match=r"row.npy is not what its manifest says"):
        DistGraph.load(tmp_path)
    gsb.distributed.partition(cases.whole("square"), 2, tmp_path, "range")
    with pytest.raises(ValueError, match="2 parts, but torch.distributed has 1"):
        DistGraph.load(tmp_path)
