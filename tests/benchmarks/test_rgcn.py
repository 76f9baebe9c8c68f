"""The RGCN benchmark end to end on a tiny graph, and its arithmetic."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import rgcn
from benchmarks.layers.rgcn import graphs as rgcn_graphs
from benchmarks.layers.rgcn import memory as rgcn_memory
from benchmarks.layers.rgcn import models as rgcn_models
from benchmarks.layers.rgcn import orders as rgcn_orders
from benchmarks.layers.rgcn import report as rgcn_report
from benchmarks.layers.rgcn import turns as rgcn_turns
from benchmarks.layers.rgcn.graphs import of_triples
from benchmarks.layers.rgcn.work import network_work
from benchmarks.support import cli, memory

TINY = 60, 400, 8


@pytest.fixture
def frameworks():
    for requirement in cli.FRAMEWORKS.values():
        pytest.importorskip(requirement)


def tiny_graph(seed=0):
    nodes, edges, relations = TINY
    return of_triples("tiny", "generated", nodes, relations, *rgcn_graphs.rdf(nodes, edges, relations, seed))


@pytest.fixture(scope="module")
def tiny():
    return tiny_graph()


@pytest.mark.slow
def test_the_command_writes_a_full_report(frameworks, command, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(
        rgcn_graphs.RECIPES, "aifb", rgcn_graphs.Recipe(lambda seed: replace(tiny_graph(seed), name="aifb"), TINY[1])
    )
    peaks = {"dgl": 900, "pyg": 600, "dgl+gsb": 100, "pyg+gsb": 300}
    names = ["dgl", "pyg", "pyg-fast", "dgl+gsb", "pyg+gsb"]

    def child(function, name, graph, widths, modes, threads, longest):
        assert function is rgcn_memory.network_memory
        if name == "pyg-fast":
            return [{"error": "does not fit the memory"}] * (len(widths) * len(modes))
        return [{"step": peaks[name], "held": 1, "results": 2}] * (len(widths) * len(modes))

    # starting a process takes seconds
    monkeypatch.setattr(memory, "in_child", child)
    code = command(rgcn.main, "--quick", "--budget", "0.5", "--features", "8", "--contenders", *names)
    assert code == 0
    report = json.loads((tmp_path / "rgcn.json").read_text())
    assert (tmp_path / "rgcn.png").read_bytes().startswith(b"\x89PNG")
    assert [(c["graph"], c["features"], c["mode"]) for c in report["cells"]] == [
        ("aifb", 8, "inference"),
        ("aifb", 8, "step"),
    ]
    for cell in report["cells"]:
        medians = {name: timing["median"] for name, timing in cell["timings"].items()}
        assert set(medians) == set(names) - {"pyg-fast"} and not cell["wrong"]
        assert cell["unable"] == {"pyg-fast": "does not fit the memory"}
        assert cell["speedup"] == pytest.approx(
            min(medians["dgl"], medians["pyg"]) / min(medians["dgl+gsb"], medians["pyg+gsb"])
        )
        assert cell["memory_ratio"] == 6.0
        by_product = {product: set(seconds) for product, seconds in cell["orders"]["seconds"].items()}
        expected = {"product": {"planned", *rgcn_orders.ORDERS}}
        if cell["mode"] == "step":
            expected |= {"gradient of x": expected["product"], "gradient of W": {"planned", "rows", "columns"}}
        assert by_product == expected
        assert cell["orders"]["regret"] >= 0 and cell["reason"] and cell["roofline_compulsory"] > 0
        assert cell["evidence"]["ours"] > 0 and not cell["evidence"]["fallbacks"]
    printed = capsys.readouterr().out
    assert (
        "gradient of W" in printed
        and "does not fit the memory" in printed
        and report["summary"]["worst"][0]["where"] in printed
    )
    assert report["summary"]["modes"]["step"]["memory_ratio"]["mean"] == pytest.approx(6.0)
    command(
        rgcn.main,
        "--quick",
        "--budget",
        "0.1",
        "--features",
        "4",
        "--contenders",
        "dgl",
        "dgl+gsb",
        "--append",
        "--modes",
        "inference",
    )
    report = json.loads((tmp_path / "rgcn.json").read_text())
    assert [(c["features"], c["mode"]) for c in report["cells"]] == [(8, "inference"), (8, "step"), (4, "inference")]
    assert list(report["contenders"]) == names


def test_every_peer_has_the_same_answer(frameworks, tiny):
    *_, wrong, _ = rgcn.first_calls(rgcn_models.PEERS, tiny, 8, 0)
    assert wrong == {mode: {} for mode in rgcn.MODES}
    network = rgcn_models.Network("pyg", tiny, 8)
    answer = network.step()
    assert len(answer) == len(network.results)
    source, destination, relation = map(torch.from_numpy, (tiny.source, tiny.destination, tiny.relation))
    x = network._x.detach()
    for number, (w, loop, bias) in enumerate(rgcn_models.parameters(tiny.num_relations, 8, 0)):
        messages = torch.einsum("ei,eio->eo", x[source], w[relation]) * torch.from_numpy(tiny.norm)
        x = torch.zeros_like(x).index_add(0, destination, messages) + x @ loop + bias
        x = torch.relu(x) if number == 0 else x
    torch.testing.assert_close(answer[0], x, rtol=1e-4, atol=1e-4)


def test_a_wrong_answer_and_a_failure_are_named(frameworks, tiny, monkeypatch):
    original = rgcn_models.Network.step

    def broken(self):
        results = original(self)
        if len(broken.seen) == 0:
            broken.seen.append(results)
            return results
        raise RuntimeError("no kernel")

    broken.seen = []
    monkeypatch.setattr(rgcn_models.Network, "step", broken)
    *_, wrong, _ = rgcn.first_calls(["dgl", "pyg"], tiny, 8, 0)
    assert wrong["step"] == {"pyg": "RuntimeError: no kernel"} and not wrong["inference"]
    y, dx, *others = broken.seen[0]
    assert "y is off" in rgcn_turns.mismatch_of((y + 1, dx, *others), (y, dx, *others))
    assert "dx is off" in rgcn_turns.mismatch_of((y, dx * 1.01, *others), (y, dx, *others))
    assert "dx is off" in rgcn_turns.mismatch_of((y, dx * float("nan"), *others), (y, dx, *others))
    assert rgcn_turns.mismatch_of((y, dx, *others), (y, dx, *others)) is None


@pytest.mark.slow
def test_a_child_measures_what_results_leave(frameworks, tiny):
    found = memory.in_child(rgcn_memory.network_memory, "pyg+gsb", tiny, [8], rgcn.MODES, 1, 10.0)
    assert [set(entry) for entry in found] == [{"step", "held", "results"}] * 2
    assert found[0]["results"] == TINY[0] * 8 * 4


def test_what_fails_or_is_slow_at_a_width_is_left_out_at_larger_ones(tiny, monkeypatch):
    def fails(contender, graph, features, mode, seed):
        if mode == "step" and features > 8:
            return {"error": "does not fit the memory"}
        return {"step": features, "held": 0, "results": 0}

    monkeypatch.setattr(rgcn_memory, "_measure", fails)
    monkeypatch.setattr(rgcn_memory.resource, "setrlimit", lambda *_: None)
    found = rgcn_memory.network_memory("pyg", tiny, [8, 16, 32], rgcn.MODES, torch.get_num_threads(), 10.0)
    assert found[3] == {"error": "does not fit the memory"}
    assert found[5] == {"error": "does not fit the memory (at F = 16)"} and found[4]["step"] == 32


@pytest.mark.parametrize("name", ["aifb", "mutag"])
def test_generated_graphs_have_the_sizes_of_their_data_sets(name):
    graph = rgcn_graphs.RECIPES[name].load(0)
    assert graph.num_edges == rgcn_graphs.RECIPES[name].edges and (np.diff(graph.relation) >= 0).all()
    assert (
        graph.relation[-1] == graph.num_relations - 1 and max(graph.source.max(), graph.destination.max()) < graph.nodes
    )
    sizes = np.bincount(graph.relation)
    half = len(sizes) // 2
    assert np.array_equal(sizes[:half], sizes[half:]) and sizes.max() > 10 * np.median(sizes)
    triples = set(zip(graph.source.tolist(), graph.destination.tolist(), graph.relation.tolist()))
    assert len(triples) == graph.num_edges
    assert all((j, i, (r + half) % len(sizes)) in triples for i, j, r in list(triples)[::97])
    described = graph.describe()
    assert described["destination_pairs"] == len({(i, r) for _, i, r in triples})
    assert described["source_pairs"] == len({(j, r) for j, _, r in triples})


def test_work_counts_the_fewer_pairs():
    # two sources of relation 0 into three nodes: one product for each of the two; a layer has a self loop too
    graph = of_triples("four edges", "", 5, 1, np.array([0, 0, 1, 1]), np.array([2, 3, 3, 4]), np.zeros(4, np.int64))
    flops = network_work(graph, 8, backward=False).flops
    assert flops == 2 * (2 * 2 * 64 + 2 * 4 * 8 + 2 * 5 * 64)


def test_defaults_are_all_graphs_and_contenders():
    options = rgcn.arguments([])
    assert set(options.graphs) == {"debian", "wordnet", "aifb", "mutag", "bgs", "biokg", "am"}
    assert options.features == [16, 32, 64, 128] and options.threads == 2
    assert set(rgcn_models.PEERS) < set(options.contenders)


def test_every_order_has_the_same_answer(tiny):
    for product, calls in rgcn_orders.order_calls(tiny, 8, 0).items():
        planned, *others = [call() for call in calls.values()]
        assert len(others) >= 2 and all(torch.allclose(y, planned, atol=1e-4) for y in others), product


def test_regret_is_of_all_products():
    products = {"product": {"planned": 3.0, "gather": 2.0}, "gradient of x": {"planned": 1.0, "gather": 1.5}}
    assert rgcn_orders.regret(products) == pytest.approx(4 / 3 - 1)


@pytest.mark.parametrize("modes, rows", [(("inference",), 1), (("step",), 2), (("step", "inference"), 2)])
def test_orders_are_printed_for_whatever_modes_ran(modes, rows):
    product, gradient = {"planned": 1.0, "gather": 2.0}, {"planned": 2.0, "rows": 1.0}
    seconds = {"inference": {"product": product}, "step": {"product": product, "gradient of W": gradient}}
    table = rgcn_report._orders(
        {"name": "aifb"}, [{"features": 8, "mode": mode, "orders": {"seconds": seconds[mode]}} for mode in modes]
    )
    assert table.row_count == rows and [str(column.header) for column in table.columns][:4] == [
        "F",
        "of",
        "planned",
        "gather",
    ]


def test_ways_of_bases_by_themselves(tiny, monkeypatch, tmp_path, capsys):
    planned, *ways = [call() for call in rgcn_orders.basis_calls(tiny, 8, 2, 0)["product"].values()]
    assert len(ways) == 1 and all(torch.allclose(y, planned, atol=1e-4) for y in ways)
    monkeypatch.setattr(rgcn_orders, "load_available", lambda *_: [tiny, ("am", "not here")])
    monkeypatch.setattr(rgcn_orders.relational_rules, "WHOLE_BYTES", rgcn_orders.relational_rules.WHOLE_BYTES)
    assert (
        rgcn_orders.main(
            [
                "--graphs",
                "aifb",
                "--features",
                "8",
                "--bases",
                "2",
                "--budget",
                "0.1",
                "--out",
                str(tmp_path),
                "--threads",
                str(torch.get_num_threads()),
            ]
        )
        == 0
    )
    assert "2 bases, product: planned" in capsys.readouterr().out and (tmp_path / "rgcn_orders.json").is_file()
