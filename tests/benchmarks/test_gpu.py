"""Benchmarks on a GPU where there is none: the tables say so, and the contenders' answers are right."""
from __future__ import annotations

import json

import pytest
import torch
from rich.console import Console

from benchmarks import gpu, gpu_peers, sddmm, spmm
from benchmarks.graphs import ONE_EDGE, BenchmarkGraph
from benchmarks.suite import CannotDo


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("module, name", [(spmm, "spmm"), (sddmm, "sddmm")])
def test_without_a_gpu_nothing_is_measured_and_every_cell_says_so(module, name, tmp_path, capsys):
    assert module.main(["--device", "cuda", "--graphs", "cora", "--features", "32", "64", "--modes", gpu.MODES[name][0], "--out",
                        str(tmp_path)]) == 0
    found = json.loads((tmp_path / f"{name}_cuda.json").read_text())
    assert [cell["features"] for cell in found["cells"]] == [32, 64]
    assert all(t == "not measured" for cell in found["cells"] for t in cell["times"].values())
    assert "not measured" in " ".join(capsys.readouterr().out.split())


def small() -> BenchmarkGraph:
    """A row without edges, and parallel ones."""
    generator = torch.Generator().manual_seed(0)
    row, col = (torch.randint(0, n, (50,), generator=generator).sort().values for n in (7, 9))
    row[row == 3] = 4
    indptr = torch.cat([torch.zeros(1), torch.bincount(row, minlength=7).cumsum(0)]).int()
    return BenchmarkGraph("small", "", indptr.numpy(), col.int().numpy(), (7, 9))


@pytest.mark.parametrize("operator, mode", [(operator, mode) for operator, modes in gpu.MODES.items() for mode in modes])
def test_contenders_answer_alike(operator, mode):
    problem = gpu_peers.Problem.of(small(), mode, 16, torch.float32, torch.device("cpu"), 0)
    exact = problem.spmm_exact() if operator == "spmm" else problem.sddmm_exact()
    ran = []
    for name, make in gpu_peers.PEERS[operator].items():
        try:
            assert gpu.right(make(problem)(), exact), name
            ran.append(name)
        except (CannotDo, RuntimeError, NotImplementedError, ValueError):
            assert name != gpu.OURS  # not every peer runs on a CPU
    assert len(ran) >= 2, "somebody to compare with"
    assert not gpu.right(exact + 1, exact)


def test_a_peer_that_refuses_is_quoted(monkeypatch):
    def refuse(problem):
        raise RuntimeError("not implemented for this\nand more")

    def cannot(problem):
        raise CannotDo("sums alone")

    monkeypatch.setitem(gpu.PEERS, "spmm", {"torch CSR": refuse, "CuPy": cannot})
    monkeypatch.setattr(gpu.graphs, "load_available", lambda *a: ([ONE_EDGE], {}))
    cell, = gpu.cells("spmm", ["cora"], [4], ["sum"], "float32", torch.device("cpu"), 0, Console())
    assert cell["times"] == {"torch CSR": "refused: not implemented for this", "CuPy": "sums alone"} and cell["ratio"] is None


def test_ratios_are_to_the_best_peer_warm_and_flushed():
    times = {gpu.OURS: (1e-3, 2e-3), "torch CSR": (3e-3, 3e-3), "CuPy": (2e-3, 8e-3), "Triton blocks": "sums alone"}
    found = gpu.rated(times, 4_000_000, 8e9)
    assert found["ratio"] == pytest.approx([2.0, 1.5]) and found["share"] == pytest.approx([0.5, 0.25])
    assert gpu.rated({gpu.OURS: (1.0, 1.0)}, 1, 1.0)["ratio"] is None
    assert gpu.rated({"torch CSR": (1.0, 1.0)}, 1, 1.0) == {"ratio": None, "share": None}
