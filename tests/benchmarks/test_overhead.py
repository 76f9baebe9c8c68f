"""The overhead benchmark end to end on a tiny graph."""

import itertools
import json

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from benchmarks import overhead
from benchmarks.layers import call_overhead
from benchmarks.support import cli
from benchmarks.support.gpu import host_share
from gnn_sparse_backend import Graph
from gnn_sparse_backend.runtime import devices


@pytest.mark.slow
@pytest.mark.parametrize("framework, layers", [("dgl", ("sage", "gat")), ("pyg", ("gcn",))])
def test_the_command_writes_a_report(framework, layers, command, tmp_path, capsys, monkeypatch):
    pytest.importorskip(cli.FRAMEWORKS[framework])
    monkeypatch.setattr(call_overhead, "sampled_graph", lambda seed: overhead.small_graph(300, 3_000, seed))
    monkeypatch.setattr(host_share, "calls", lambda calls=host_share.calls: itertools.islice(calls(), 1))
    code = command(
        overhead.main,
        "--budget",
        "0.1",
        "--nodes",
        "100",
        "--edges",
        "300",
        "--first-nodes",
        "300",
        "--frameworks",
        framework,
        "--calls",
        "2",
        "--hidden",
        "16",
        "--layers",
        *layers,
    )
    assert code == 0
    report = json.loads((tmp_path / "overhead.json").read_text())
    assert (tmp_path / "overhead.png").read_bytes().startswith(b"\x89PNG")
    assert {(c["layer"], c["mode"]) for c in report["cells"]} == {
        (layer, mode) for layer in layers for mode in overhead.MODES
    }
    for cell in report["cells"]:
        medians = {name: timing["median"] for name, timing in cell["timings"].items()}
        assert set(medians) == {framework, framework + "+gsb"} and not cell["wrong"]
        assert cell["speedup"] == pytest.approx(medians[framework] / medians[framework + "+gsb"])
        evidence = cell["evidence"]
        assert evidence["overhead"] > 0 and evidence["ours"] + sum(evidence["fallbacks"].values()) > 0
    assert len(report["summary"]["worst"]) == min(5, len(report["cells"])) and all(
        cell["reason"] for cell in report["summary"]["worst"]
    )
    check_calls(report["calls"], framework)
    first = report["first calls"]
    assert [row["contender"] for row in first] == [framework, framework + "+gsb"]
    for row in first:
        peaks = [call["peak"] for call in row["calls"]]
        assert len(peaks) == 5 and peaks == sorted(peaks) and all(call["seconds"] > 0 for call in row["calls"])
    assert [(row["call"], row["launches"]) for row in report["host"]] == [("spmm, sum", 1)]
    said = capsys.readouterr().out
    assert (
        "one edge" in said
        and "The first calls of a process" in said
        and "What a call costs beside its kernel" in said
        and "The host's share of a call" in said
    )


def check_calls(rows, framework):
    """A row for each call and fan-out, in which what is over the kernel is what was measured."""
    assert [(row["fan_out"], row["call"]) for row in rows] == [
        (fan_out, call)
        for fan_out in (10, 25)
        for call in (*(f"gsb.spmm, {op}" for op in ("sum", "weighted", "mean", "max")), framework)
    ]
    for row in rows:
        assert 0 < row["kernel"] and 0 < row["calling_known"] <= row["calling_fresh"] and row["making"] > 0
        assert row["fresh_over"] < row["fresh"] and row["known_over"] < row["known"]
        assert ("alone_fresh" in row) == ("one_edge_fresh" in row) == (row["call"] == framework)


def test_blocks_are_sampled_in_edges():
    graph = overhead.small_graph(500, 8_000, 0)
    rng = np.random.default_rng(0)
    outer, inner = call_overhead.sample(graph, 20, (3, 5), rng)
    seeds = np.random.default_rng(0).permutation(500)[:20]
    assert outer.shape[0] == 20 and inner.shape[0] == outer.shape[1] <= inner.shape[1]
    assert (
        np.array_equal(outer.indptr.diff().numpy(), np.minimum(np.diff(graph.indptr)[seeds], 3))
        and inner.indptr.diff().max() <= 5
    )
    for block in (outer, inner):
        assert (
            block.indptr[-1] == block.indices.numel()
            and 0 <= block.indices.min()
            and block.indices.max() == block.shape[1] - 1
        )


@pytest.mark.parametrize("before", [1, 2, 3])
def test_kernels_are_recorded_and_left_out(before):
    """Also those that a graph keeps ready, which it does from the second call on."""
    graph, x = Graph.from_coo(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), (2, 2)), torch.tensor([[1.0], [2.0]])
    for _ in range(before):  # the first makes the kernel
        gsb.spmm(graph, x)
    with call_overhead.recorded() as calls:
        assert gsb.spmm(graph, x).tolist() == [[3.0], [2.0]]
    ((entry, arguments),) = calls
    arguments[-1].zero_()
    entry(*arguments)
    assert arguments[-1].tolist() == [[3.0], [2.0]]
    with call_overhead.recorded(left_out=True) as calls:
        gsb.spmm(graph, x)
    assert not calls
    assert gsb.spmm(graph, x).tolist() == [[3.0], [2.0]]


def test_the_hosts_share_is_that_of_the_whole_dispatch(monkeypatch):
    """Operators of one launch, of several, and of many arguments; the stand-in is gone afterwards."""
    wanted = {
        "attention": 1,
        "spmm, weighted, a long row": 2,
        "spmm, weighted, buckets": 2,
        "spmm, sum, chunks": 3,
        "rgms, float16": 2,
    }
    monkeypatch.setattr(
        host_share, "calls", lambda calls=host_share.calls: (case for case in calls() if case[0] in wanted)
    )
    rows = {row["call"]: row for row in host_share.run(0.0)}
    assert {name: row["launches"] for name, row in rows.items()} == wanted
    assert all(0 < row["bare"] < row["least"] <= row["whole"] for row in rows.values())
    # sizes, three arrays of each of ten buckets, the operands; then what adds up the parts of rows
    assert rows["spmm, weighted, buckets"]["arguments"] > 3 * 10 + 10
    assert devices.arch_of(torch.device("cpu")) == "" and devices.on_cpu(torch.device("cpu"))
    graph = host_share.graph()
    assert torch.equal(gsb.spmm(graph, torch.ones(graph.shape[1], 3))[:, 0].int(), graph.in_degrees)


def test_hidden_must_suit_the_heads(capsys):
    with pytest.raises(SystemExit):
        overhead.arguments(["--hidden", "10"])
    assert "multiples of the 4 heads" in capsys.readouterr().err
    assert overhead.arguments(["--hidden", "10", "--layers", "gcn"]).hidden == [10]


def test_the_small_graph_has_its_size():
    graph = overhead.small_graph(3_000, 10_000, 0)
    assert graph.shape == (3_000, 3_000) and graph.num_edges == 10_000
