"""Benchmarks on a GPU where there is none: the tables say so, and the contenders' answers are right."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from rich.console import Console

from benchmarks import sddmm, spmm
from benchmarks.operators import gpu_peers
from benchmarks.operators.suite import CannotDo
from benchmarks.support.gpu import device as gpu
from benchmarks.support.gpu import timing as gpu_timing
from benchmarks.support.graphs import ONE_EDGE, BenchmarkGraph


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("module, name", [(spmm, "spmm"), (sddmm, "sddmm")])
def test_without_a_gpu_nothing_is_measured_and_every_cell_says_so(module, name, tmp_path, capsys):
    assert (
        module.main(
            [
                "--device",
                "cuda",
                "--graphs",
                "cora",
                "--features",
                "32",
                "64",
                "--modes",
                next(iter(gpu.MODES[name])),
                "--out",
                str(tmp_path),
            ]
        )
        == 0
    )
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


@pytest.mark.parametrize(
    "operator, mode", [(operator, mode) for operator, modes in gpu.MODES.items() for mode in modes]
)
def test_contenders_answer_alike(operator, mode):
    problem = gpu_peers.Problem.of(small(), gpu.MODES[operator][mode], 16, torch.float32, torch.device("cpu"), 0)
    exact = problem.exact()
    assert len(exact) == len(gpu.MODES[operator][mode].results)
    ran = []
    for name, make in gpu_peers.PEERS[operator].items():
        try:
            answer = make(problem)()
        except (CannotDo, RuntimeError, NotImplementedError, ValueError):
            assert name != gpu.OURS  # not every peer runs on a CPU
            continue
        ran.append(name)
        for y, expected in zip(answer, exact, strict=True):
            assert y.shape == expected.shape and gpu.right(y, expected), name
            assert not gpu.right(y + 1 + expected.abs().max(), expected)
    assert len(ran) >= 2, "somebody to compare with"


@pytest.mark.parametrize(
    "operator, mode",
    [(operator, mode) for operator, modes in gpu.MODES.items() for mode in modes if modes[mode].backward],
)
def test_the_reference_has_pytorchs_gradients(operator, mode):
    problem = gpu_peers.Problem.of(small(), gpu.MODES[operator][mode], 3, torch.float64, torch.device("cpu"), 0)
    peer = {"spmm": gpu_peers.gather_and_scatter, "sddmm": gpu_peers.gather_at_edges}[operator]
    for y, expected in zip(peer(problem)(), problem.exact(), strict=True):
        torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)


def test_a_peer_that_refuses_is_quoted(monkeypatch):
    def refuse(problem):
        raise RuntimeError("not implemented for this\nand more")

    def cannot(problem):
        raise CannotDo("sums alone")

    monkeypatch.setitem(gpu.PEERS, "spmm", {"torch CSR": refuse, "CuPy": cannot})
    monkeypatch.setattr(gpu.graphs, "load_available", lambda *a: ([ONE_EDGE], {}))
    (cell,) = gpu.cells("spmm", ["cora"], [4], ["weighted forward"], "float32", torch.device("cpu"), 0, Console())
    assert (
        cell["times"] == {"torch CSR": "refused: not implemented for this", "CuPy": "sums alone"}
        and cell["ratio"] is None
    )


def test_the_table_has_ratios_shares_and_means(named_gpu, wide_terminal, monkeypatch, tmp_path, capsys):
    """On a CPU that is taken for a GPU, with times that are made up."""
    clock = itertools.cycle([1e-3, 2e-3, 3e-3, 3e-3])
    monkeypatch.setattr(gpu_timing, "seconds", lambda call, device, flush: next(clock))
    monkeypatch.setattr(
        gpu, "PEERS", {"spmm": {name: gpu_peers.SPMM[name] for name in (gpu.OURS, "gather and scatter")}}
    )
    monkeypatch.setattr(gpu.graphs, "load_available", lambda *a: ([small()], {}))
    assert (
        gpu.main(
            "spmm",
            [
                "--graphs",
                "cora",
                "--features",
                "4",
                "--modes",
                "unweighted forward",
                "weighted forward+backward",
                "--out",
                str(tmp_path),
                "--threads",
                str(torch.get_num_threads()),
            ],
        )
        == 0
    )
    found, said = json.loads((tmp_path / "spmm_cuda.json").read_text()), " ".join(capsys.readouterr().out.split())
    assert [cell["ratio"] for cell in found["cells"]] == [pytest.approx([3.0, 1.5])] * 2
    assert all(len(each) == 2 for cell in found["cells"] for each in cell["share"].values())
    assert found["summary"]["flushed"]["by_mode"] == {
        "unweighted forward": pytest.approx(1.5),
        "weighted forward+backward": pytest.approx(1.5),
    }
    assert "time, cache flushed, best peer over ours, 2 cells: geometric mean 1.50, least 1.50" in said


def test_half_types_leave_out_gradients_of_maxima():
    arguments = gpu._arguments("spmm", ["--dtype", "bfloat16"])
    assert gpu.FLOAT32_ALONE not in arguments.modes and gpu.FLOAT32_ALONE in gpu._arguments("spmm", []).modes
