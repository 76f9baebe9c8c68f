"""Benchmarks on a GPU where there is none: the tables say so, and the contenders' answers are right."""
from __future__ import annotations

import json

import pytest
import torch
from rich.console import Console

from benchmarks import gpu, sddmm, spmm
from benchmarks.graphs import ONE_EDGE, BenchmarkGraph


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("module, name", [(spmm, "spmm"), (sddmm, "sddmm")])
def test_without_a_gpu_nothing_is_measured_and_every_cell_says_so(module, name, tmp_path, capsys):
    assert module.main(["--device", "cuda", "--graphs", "cora", "--features", "32", "64", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / f"{name}_cuda.json").read_text())
    assert [cell["features"] for cell in found["cells"]] == [32, 64]
    assert all(t == "not measured" for cell in found["cells"] for t in cell["times"].values())
    assert "not measured" in capsys.readouterr().out


@pytest.mark.parametrize("operator", ["spmm", "sddmm"])
def test_contenders_answer_alike(operator):
    generator = torch.Generator().manual_seed(0)
    row, col = (torch.randint(0, n, (50,), generator=generator).sort().values for n in (7, 9))
    indptr = torch.cat([torch.zeros(1), torch.bincount(row, minlength=7).cumsum(0)]).int()
    graph = BenchmarkGraph("small", "", indptr.numpy(), col.int().numpy(), (7, 9))
    calls, exact = gpu.contenders(operator, graph, 5, torch.device("cpu"), 0)
    assert tuple(calls) == gpu.PEERS[operator]
    for name, call in calls.items():
        try:
            assert gpu.right(call(), exact), name
        except (RuntimeError, NotImplementedError):
            assert name != gpu.OURS  # not every peer runs on a CPU
    assert not gpu.right(exact + 1, exact)


def test_a_peer_that_refuses_is_quoted(monkeypatch):
    def refuse():
        raise RuntimeError("not implemented for this\nand more")

    monkeypatch.setattr(gpu, "contenders", lambda *a: ({"torch CSR": refuse}, torch.zeros(1)))
    monkeypatch.setattr(gpu.graphs, "load_available", lambda *a: ([ONE_EDGE], {}))
    cell, = gpu.cells("spmm", ["cora"], [4], torch.device("cpu"), 0, Console())
    assert cell["times"]["torch CSR"] == "refused: not implemented for this" and cell["times"][gpu.OURS] == "not measured"
