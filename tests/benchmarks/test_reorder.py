"""The benchmark of orders measures the same graph in each, and shows what it measured."""

import json

import pytest
import torch

import gnn_sparse_backend as gsb
from benchmarks import reorder
from benchmarks.support import graphs


def test_every_order_is_the_same_graph():
    graph = graphs.load("citeseer")
    found, seconds = reorder.orders(graph, 0)
    assert set(seconds) == {"rcm", "degree"} and set(found) == {"as given", "shuffled", *seconds}
    ones = torch.ones(graph.shape[1], 1)
    wanted = gsb.spmm(found["as given"], ones).sort(0).values
    for each in found.values():
        assert torch.equal(gsb.spmm(each, ones).sort(0).values, wanted)


@pytest.mark.slow
def test_the_command(tmp_path, capsys):
    arguments = ["--graphs", "citeseer", "--features", "4", "--budget", "0.1", "--out", str(tmp_path)]
    assert reorder.main(arguments) == 0
    report = json.loads((tmp_path / "reorder.json").read_text())
    assert len(report["cells"]) == 1 and set(report["cells"][0]["timings"]) == {"as given", "shuffled", "rcm", "degree"}
    assert "citeseer" in capsys.readouterr().out
