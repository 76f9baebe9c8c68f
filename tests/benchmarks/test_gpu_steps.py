"""Layers, networks and plans on a GPU where there is none: the tables say so, and what would be measured is compared
first.
"""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import attention_layers, graphsage, overhead, rgcn
from benchmarks.layers import attention_gpu, gpu_steps, layers
from benchmarks.layers.contenders import BACKEND
from benchmarks.layers.rgcn import gpu as rgcn_gpu
from benchmarks.layers.rgcn import graphs as rgcn_graphs
from benchmarks.layers.rgcn import models as rgcn_models
from benchmarks.operators.work import Work
from benchmarks.planner import __main__ as planner
from benchmarks.planner import gpu_plans, gpu_ratings
from benchmarks.support.gpu import timing as gpu_timing
from benchmarks.support.roofline import Roofline
from benchmarks.support.turns import Switched
from gnn_sparse_backend.planner.cpu.listed import FEW
from models import data
from tests.ops.serial_gpu import serial_gpu  # noqa: F401

LIMITS = Roofline(0, ((1, 1e12),), 1e12, 1e12)
STEPS = {
    "attention_layers": (attention_layers, ["--graphs", "cora", "--layers", "gat", "--heads", "2", "4"]),
    "overhead": (overhead, ["--layers", "sage", "--hidden", "16", "--nodes", "100", "--edges", "300"]),
    "rgcn": (rgcn, ["--graphs", "aifb", "--features", "16"]),
    "graphsage": (graphsage, ["--layers", "2", "--nodes", "100", "--edges", "300"]),
}


@pytest.fixture(autouse=True)
def no_graph_is_few():
    """Small graphs stand for large ones, which are not left to a framework."""
    FEW.set(0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("name", STEPS)
def test_no_layer_is_measured_without_a_gpu(name, command, tmp_path, capsys):
    pytest.importorskip("torch_geometric")
    module, arguments = STEPS[name]
    assert command(module.main, "--device", "cuda", *arguments) == 0
    found = json.loads((tmp_path / f"{name}_cuda.json").read_text())
    assert "no GPU at hand" in found["device"] and "not measured" in capsys.readouterr().out
    assert found["cells"] and all(set(cell["contenders"].values()) == {"not measured"} for cell in found["cells"])
    assert (
        all(cell[key] is None for cell in found["cells"] for key in ("ratio", "memory_ratio", "share"))
        and found["roofline"] is None
    )
    assert {each["geometric_mean"] for each in found["summary"].values()} == {None}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_no_plan_is_measured_without_a_gpu(command, tmp_path):
    assert command(planner.main, "--device", "cuda", "--graphs", "cora", "--widths", "4", "64") == 0
    found = json.loads((tmp_path / "planner_cuda.json").read_text())["cells"]
    assert [(cell["op"], cell["width"]) for cell in found] == [
        (op, width) for op in gpu_plans.OPERATORS for width in (4, 64)
    ]
    assert {cell["result"] for cell in found} == {"not measured"}


def a_cell(name: str) -> gpu_steps.Cell:
    """A cell of each benchmark, of PyG alone and with the backend."""
    names = ("pyg", "pyg" + BACKEND)
    if name == "attention_layers":
        graph = overhead.small_graph(100, 300, 0)
        return attention_gpu.cell_on_gpu(
            "small", graph, "gat", {"features": 8, "heads": 2, "width": 4, "seed": 0}, names
        )
    if name == "overhead":
        return overhead.cell_on_gpu("pyg", "sage", 16, "forward+backward", overhead.small_graph(100, 300, 0), 0)
    if name == "rgcn":
        return rgcn_gpu.cell_on_gpu("small", rgcn_graphs.ONE_EDGE, 8, "step", names, 0)
    options = graphsage.arguments(["--hidden", "8", "--layers", "2"])
    return graphsage.cell_on_gpu("pyg", 2, options, data.load("generated", "", nodes=100, edges=300))


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_contenders_are_made_on_the_device_and_compared(name, made_up_times):
    pytest.importorskip("torch_geometric")
    cell, device = a_cell(name), torch.device("cpu")
    measured = gpu_steps.measure(cell, device, LIMITS)
    found = measured["contenders"]
    assert tuple(found) == cell.names == ("pyg", "pyg" + BACKEND)
    assert not isinstance(found["pyg"], str) and found["pyg" + BACKEND]["ours"] > 0, found
    assert measured["ratio"] == [1.0, 1.0] and measured["memory_ratio"] == 1.0
    assert all(len(each) == 2 and min(each) > 0 for each in measured["share"].values())


def test_ratios_are_of_the_best_peer_and_the_best_of_ours():
    """Whichever framework these are of; shares are those of the fastest of ours, of the limits."""
    times = {
        "dgl": {"warm": 8.0, "flushed": 9.0, "peak": 100},
        "pyg": {"warm": 6.0, "flushed": 12.0, "peak": 300},
        "dgl+gsb": {"warm": 4.0, "flushed": 2.0, "peak": 50},
        "pyg+gsb": {"warm": 2.0, "flushed": 3.0, "peak": 60},
    }
    ours = ("dgl+gsb", "pyg+gsb")
    work = {"dgl+gsb": Work(100, 400, 1000), "pyg+gsb": Work(200, 500, 3000)}
    found = gpu_ratings.rate(times, ours, work, Roofline(0, ((1, 100.0),), 1.0, 1000.0))
    assert found["ratio"] == [6 / 2, 9 / 2] and found["memory_ratio"] == 2.0
    assert found["share"] == {"memory": [1.0, 0.5], "gather": [2.5, 2.0], "arithmetic": [1.5, 0.5]}
    alone = gpu_ratings.rate({name: times[name] for name in ours}, ours, work, LIMITS)
    assert alone["ratio"] is None and alone["memory_ratio"] is None and alone["share"]
    theirs = gpu_ratings.rate({"dgl": times["dgl"]}, ours, work, LIMITS)
    assert theirs == gpu_ratings.NO_RATINGS


def test_means_are_geometric_overall_and_by_label():
    cells = [
        {"mode": mode, "ratio": ratio, "memory_ratio": memory}
        for mode, ratio, memory in (
            ("a", [1.0, 4.0], 2.0),
            ("a", [4.0, 4.0], None),
            ("b", [0.5, 1.0], 8.0),
            ("b", None, None),
        )
    ]
    found = gpu_ratings.summarise(cells, ["mode"])
    assert found["warm"] == {
        "geometric_mean": pytest.approx(2 ** (1 / 3)),
        "cells": 3,
        "least": 0.5,
        "least_at": {"mode": "b"},
        "by_mode": {"a": pytest.approx(2.0), "b": 0.5},
    }
    assert found["memory"]["geometric_mean"] == pytest.approx(4.0) and found["memory"]["cells"] == 2


def test_limits_are_measured_in_the_type_at_hand(monkeypatch):
    types = []

    def seconds(call, device, flush):
        out = call()
        types.append(out.dtype)
        return 0.5

    monkeypatch.setattr(gpu_timing, "seconds", seconds)
    monkeypatch.setattr(gpu_timing, "COPIED_BYTES", 1 << 20)
    found = gpu_ratings.limits(torch.device("cpu"), torch.bfloat16, gemm=64)
    assert types == [torch.bfloat16, torch.uint8, torch.float32]
    assert (
        found.flops == 2 * 64**3 / 0.5 and found.stream == 2 * (1 << 20) / 0.5 and found.gather == 2 * (1 << 18) / 0.5
    )


def test_long_calls_are_taken_fewer_times():
    assert not gpu_timing.enough([1.0] * (gpu_timing.FEWEST - 1)) and gpu_timing.enough([1.0] * gpu_timing.FEWEST)
    assert not gpu_timing.enough([1e-3] * (gpu_timing.SAMPLES - 1)) and gpu_timing.enough([1e-3] * gpu_timing.SAMPLES)


@pytest.fixture
def pretended_gpu(named_gpu, made_up_times, monkeypatch):
    """The CPU in the place of a GPU, and times that are made up: those of PyG are thrice ours."""

    def turn(name, call, device):
        factor = 1.0 if name.endswith(BACKEND) else 3.0
        return {key: factor * value for key, value in made_up_times.items()}

    monkeypatch.setattr(gpu_steps, "turn", turn)


@pytest.mark.parametrize("name", ["graphsage"])
def test_the_table_has_ratios_shares_and_means(name, pretended_gpu, command, tmp_path, capsys):
    pytest.importorskip("torch_geometric")
    module, arguments = STEPS[name]
    assert command(module.main, "--device", "cuda", "--frameworks", "pyg", *arguments) == 0
    found, said = json.loads((tmp_path / f"{name}_cuda.json").read_text()), " ".join(capsys.readouterr().out.split())
    assert found["device"] == "a stand-in" and all(
        cell["ratio"] == pytest.approx([3.0, 3.0]) for cell in found["cells"]
    )
    for what in ("warm", "flushed", "memory"):
        assert found["summary"][what]["geometric_mean"] == pytest.approx(3.0)
    assert (
        "peak memory, best peer over ours" in said
        and "geometric mean 3.00, least 3.00" in said
        and "matrix product 1 TFLOP/s" in said
    )


@pytest.mark.slow
@pytest.mark.parametrize("precision", [["--dtype", "bfloat16"], ["--tf32"]], ids=lambda given: given[-1])
def test_relational_networks_in_every_precision(precision, pretended_gpu, command, monkeypatch, tmp_path):
    """Every contender, PyTorch's own operators too, against float64; each precision has a file of its own."""
    pytest.importorskip("torch_geometric")
    triples = torch.randint(0, 40, (3, 300), generator=torch.Generator().manual_seed(0))
    graph = rgcn_graphs.of_triples("small", "", 40, 3, triples[0].numpy(), triples[1].numpy(), (triples[2] % 3).numpy())
    monkeypatch.setattr(rgcn_gpu, "load_available", lambda *given: [graph])
    before = torch.get_float32_matmul_precision()
    assert (
        command(
            rgcn.main,
            "--device",
            "cuda",
            "--graphs",
            "aifb",
            "--features",
            "16",
            "--contenders",
            "pyg",
            "torch",
            "pyg+gsb",
            *precision,
        )
        == 0
    )
    name = precision[-1].removeprefix("--")
    found = json.loads((tmp_path / f"rgcn_{name}_cuda.json").read_text())
    assert found["precision"] == name and torch.get_float32_matmul_precision() == before
    for cell in found["cells"]:
        assert not any(isinstance(each, str) for each in cell["contenders"].values()), cell
        assert cell["contenders"]["pyg+gsb"]["ours"] > 0 and cell["ratio"] == pytest.approx([3.0, 3.0])


@pytest.mark.slow
def test_an_answer_unlike_the_reference_is_wrong(pretended_gpu, monkeypatch):
    make = rgcn_models._gather_and_scatter
    cell = rgcn_gpu.cell_on_gpu("small", rgcn_graphs.ONE_EDGE, 8, "step", ("pyg", "pyg" + BACKEND), 0, "bfloat16")
    pytest.importorskip("torch_geometric")

    def other(peer, w, *rest):
        return make(peer, 1.5 * w, *rest)

    monkeypatch.setattr(rgcn_models, "_gather_and_scatter", other)
    found = gpu_steps.measure(cell, torch.device("cpu"), LIMITS)
    assert all(each.startswith("wrong: y is off") for each in found["contenders"].values())


@pytest.mark.parametrize(
    "given, message",
    [
        (["--tf32"], "--tf32 is measured with --device cuda alone"),
        (["--dtype", "float16"], "--dtype float16 is measured with"),
        (["--contenders", "torch"], "--contenders torch is measured with"),
        (["--device", "cuda", "--tf32", "--dtype", "bfloat16"], "a way to multiply float32, not bfloat16"),
    ],
    ids=lambda given: "",
)
def test_precisions_that_are_none_are_refused(given, message, capsys):
    with pytest.raises(SystemExit):
        rgcn.arguments(given)
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attention_layers_in_half_types(dtype, made_up_times):
    """The framework's own answer is the measure, by norms; the least that must move is about half."""
    pytest.importorskip("torch_geometric")
    graph, names = overhead.small_graph(100, 300, 0), ("pyg", "pyg" + BACKEND)
    shape = {"features": 8, "heads": 2, "width": 4, "seed": 0}
    cell = attention_gpu.cell_on_gpu("small", graph, "gat", shape, names, dtype)
    found = gpu_steps.measure(cell, torch.device("cpu"), LIMITS)["contenders"]
    assert not isinstance(found["pyg"], str) and found["pyg" + BACKEND]["ours"] > 0, found
    full = attention_gpu.cell_on_gpu("small", graph, "gat", shape, names)
    assert 0.4 < cell.work("pyg" + BACKEND).compulsory / full.work("pyg" + BACKEND).compulsory < 0.8
    answer = cell.make("pyg", torch.device("cpu")).call()
    assert {each.dtype for each in answer} == {dtype}
    assert "y is off by" in cell.mismatch(tuple(2 * each for each in answer), answer)


def test_attention_in_half_types_is_measured_on_a_gpu_alone(capsys):
    with pytest.raises(SystemExit):
        attention_layers.arguments(["--dtype", "bfloat16"])
    assert "--dtype bfloat16 is measured with --device cuda alone" in capsys.readouterr().err


@pytest.mark.slow
def test_wrong_and_refused_answers_are_said(made_up_times):
    right, wrong = torch.ones(3), torch.zeros(3)

    def cell(**answers):
        def make(name, device):
            if answers[name] is None:
                raise RuntimeError("no CUDA here\nat all")
            return Switched(lambda: (answers[name],))

        return gpu_steps.Cell(
            {}, tuple(answers), make, lambda a, b: layers.disagreement(("y",), a, b), lambda name: Work(1, 1, 1)
        )

    device = torch.device("cpu")
    found = gpu_steps.measure(cell(**{"dgl": None, "dgl+gsb": right}), device)["contenders"]
    assert found == {
        "dgl": "refused: no CUDA here",
        "dgl+gsb": "refused: the framework alone has no answer to compare with",
    }
    found = gpu_steps.measure(cell(**{"dgl": right, "dgl+gsb": wrong}), device)["contenders"]
    assert found["dgl+gsb"].startswith("wrong: y is off")


@pytest.mark.parametrize("width", [2, 64])
def test_candidates_compute_the_same(width, serial_gpu):  # noqa: F811
    graph = gpu_plans.Graph.from_edge_index(
        torch.randint(0, 9, (2, 120), generator=torch.Generator().manual_seed(0)), (9, 9)
    )
    clock = iter(range(1, 100))
    found = gpu_plans.measure(graph, "weighted_sum", width, 0, lambda call, device, flush: float(next(clock)))
    assert len(found["seconds"]) >= 3 and not any(isinstance(taken, str) for taken in found["seconds"].values()), found
    assert found["best"] == found["chosen"] and found["regret"] == 0
