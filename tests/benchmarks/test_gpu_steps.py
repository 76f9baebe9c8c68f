"""Layers, networks and plans on a GPU where there is none: the tables say so, and what would be measured is compared first."""
from __future__ import annotations

import json

import pytest
import torch

from benchmarks import attention_layers, gpu_plans, gpu_steps, graphsage, layers, overhead, planner, rgcn, rgcn_graphs
from benchmarks.contenders import BACKEND
from benchmarks.turns import Switched
from models import data
from tests.ops.serial_gpu import serial_gpu  # noqa: F401

STEPS = {
    "attention_layers": (attention_layers, ["--graphs", "cora", "--layers", "gat", "--heads", "2", "4"]),
    "overhead": (overhead, ["--layers", "sage", "--hidden", "16", "--nodes", "100", "--edges", "300"]),
    "rgcn": (rgcn, ["--graphs", "aifb", "--features", "16"]),
    "graphsage": (graphsage, ["--layers", "2", "--nodes", "100", "--edges", "300"]),
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("name", STEPS)
def test_no_layer_is_measured_without_a_gpu(name, command, tmp_path, capsys):
    pytest.importorskip("torch_geometric")
    module, arguments = STEPS[name]
    assert command(module.main, "--device", "cuda", *arguments) == 0
    found = json.loads((tmp_path / f"{name}_cuda.json").read_text())
    assert "no GPU at hand" in found["device"] and "not measured" in capsys.readouterr().out
    assert found["cells"] and all(set(cell["contenders"].values()) == {"not measured"} for cell in found["cells"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_no_plan_is_measured_without_a_gpu(command, tmp_path):
    assert command(planner.main, "--device", "cuda", "--graphs", "cora", "--widths", "4", "64") == 0
    found = json.loads((tmp_path / "planner_cuda.json").read_text())["cells"]
    assert [(cell["op"], cell["width"]) for cell in found] == [(op, width) for op in gpu_plans.OPERATORS for width in (4, 64)]
    assert {cell["result"] for cell in found} == {"not measured"}


def a_cell(name: str) -> gpu_steps.Cell:
    """A cell of each benchmark, of PyG alone and with the backend."""
    names = ("pyg", "pyg" + BACKEND)
    if name == "attention_layers":
        graph = overhead.small_graph(100, 300, 0)
        return attention_layers.cell_on_gpu("small", graph, "gat", {"features": 8, "heads": 2, "width": 4, "seed": 0}, names)
    if name == "overhead":
        return overhead.cell_on_gpu("pyg", "sage", 16, "forward+backward", overhead.small_graph(100, 300, 0), 0)
    if name == "rgcn":
        return rgcn.cell_on_gpu("small", rgcn_graphs.ONE_EDGE, 8, "step", names, 0)
    options = graphsage.arguments(["--hidden", "8", "--layers", "2"])
    return graphsage.cell_on_gpu("pyg", 2, options, data.load("generated", "", nodes=100, edges=300))


@pytest.mark.parametrize("name", STEPS)
def test_contenders_are_made_on_the_device_and_compared(name, monkeypatch):
    pytest.importorskip("torch_geometric")
    cell, device = a_cell(name), torch.device("cpu")
    monkeypatch.setattr(gpu_steps, "times", lambda call, device: {"warm": 1.0})
    found = gpu_steps.measure(cell, device)["contenders"]
    assert tuple(found) == cell.names == ("pyg", "pyg" + BACKEND)
    assert not isinstance(found["pyg"], str) and found["pyg" + BACKEND]["ours"] > 0, found


def test_wrong_and_refused_answers_are_said(monkeypatch):
    right, wrong = torch.ones(3), torch.zeros(3)

    def cell(**answers):
        def make(name, device):
            if answers[name] is None:
                raise RuntimeError("no CUDA here\nat all")
            return Switched(lambda: (answers[name],))
        return gpu_steps.Cell({}, tuple(answers), make, lambda a, b: layers.disagreement(("y",), a, b))

    device = torch.device("cpu")
    found = gpu_steps.measure(cell(**{"dgl": None, "dgl+gsb": right}), device)["contenders"]
    assert found == {"dgl": "refused: no CUDA here", "dgl+gsb": "refused: the framework alone has no answer to compare with"}
    monkeypatch.setattr(gpu_steps, "times", lambda call, device: {})
    found = gpu_steps.measure(cell(**{"dgl": right, "dgl+gsb": wrong}), device)["contenders"]
    assert found["dgl+gsb"].startswith("wrong: y is off")


@pytest.mark.parametrize("width", [2, 64])
def test_candidates_compute_the_same(width, serial_gpu):  # noqa: F811
    graph = gpu_plans.Graph.from_edge_index(torch.randint(0, 9, (2, 120), generator=torch.Generator().manual_seed(0)), (9, 9))
    clock = iter(range(1, 100))
    found = gpu_plans.measure(graph, "weighted_sum", width, 0, lambda call, device, flush: float(next(clock)))
    assert len(found["seconds"]) >= 3 and not any(isinstance(taken, str) for taken in found["seconds"].values()), found
    assert found["best"] == found["chosen"] and found["regret"] == 0
