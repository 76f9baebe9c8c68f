"""The tables of the paper: counts against the formats, the simulated cache against a plain one, rules by hand."""

from __future__ import annotations

import json
from collections import OrderedDict

import numpy as np
import pytest
import scipy.sparse
import torch

import gnn_sparse_backend as gsb
from benchmarks.layers.rgcn.graphs import of_triples
from benchmarks.paper import caches, counters, durations, misses, padding, sheets, thresholds
from benchmarks.paper.__main__ import arguments, main
from benchmarks.paper.caches import Caches
from benchmarks.paper.thresholds import Decision
from benchmarks.support.generators import power_law
from benchmarks.support.graphs import BenchmarkGraph


def graph_of(rows: int = 60, nnz: int = 400, seed: int = 1) -> BenchmarkGraph:
    return BenchmarkGraph.of("made up", "generated", power_law(rows, nnz, 2.0, 30, seed))


@pytest.mark.parametrize("word", [*padding.PLAIN, "bsr(8, 2)", "hyb(1, 0)", "hyb(1, 3)", "hyb(3, 2)", "hyb(7, 5)"])
def test_counted_values_are_those_that_a_format_stores(word):
    graph = graph_of()
    kind, numbers = padding.parse(word)
    given = torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices), graph.shape
    numbers = numbers if kind == "hyb" else (numbers * (2 if len(numbers) == 1 else 1),) if numbers else ()
    made = padding.CLASSES[kind].from_csr(*given, *numbers)
    assert padding.slots(word, graph) == made.num_slots
    assert padding.nbytes(word, graph) == made.nbytes + 4 * made.num_slots


def test_a_format_that_refuses_has_values_but_no_bytes(monkeypatch):
    graph = BenchmarkGraph.of("line", "", scipy.sparse.eye(3000, format="csr", dtype=np.float32)[:, ::-1].tocsr())
    assert padding.slots("dia", graph) == 3000 * 3000 and padding.nbytes("dia", graph) is None
    monkeypatch.setattr(padding, "MOST_STORED", 10)
    found = padding.measure(graph, ["csr", "ell"])["formats"]
    assert found["csr"] == {"stored": 3000, "padding": 0.0, "bytes": None} and found["ell"]["padding"] == 0.0


@pytest.mark.parametrize("c, k", [(1, 0), (1, 2), (3, 1), (4, 4)])
def test_a_hyb_for_each_relation_is_a_hyb_of_all_rows_of_relations(c, k):
    rng = np.random.default_rng(0)
    triples = np.unique(rng.integers(0, (20, 20, 3), (200, 3)), axis=0).T
    graph = of_triples("made up", "", 20, 3, *triples)
    rows = graph.relation * 20 + graph.destination
    stacked = scipy.sparse.coo_matrix((np.ones(len(rows), np.float32), (rows, graph.source)), (60, 20)).tocsr()
    stacked = BenchmarkGraph.of("stacked", "", stacked)
    counted = padding.measure_relational(graph, [c], [k])["formats"][f"hyb({c}, {k})"]["stored"]
    made = gsb.formats.HybFormat.from_csr(
        torch.from_numpy(stacked.indptr), torch.from_numpy(stacked.indices), (60, 20), c, k
    )
    assert counted == made.num_slots


def plain_misses(lines, sets: int, ways: int) -> list[int]:
    """A cache by the book, line after line."""
    held = [OrderedDict() for _ in range(sets)]
    missed = []
    for line in map(int, lines):
        ways_of_set = held[line % sets]
        if line in ways_of_set:
            ways_of_set.move_to_end(line)
            continue
        missed.append(line)
        ways_of_set[line] = None
        if len(ways_of_set) > ways:
            ways_of_set.popitem(last=False)
    return missed


def test_the_cache_is_a_plain_one_and_its_chosen_sets_are_exact():
    cache = Caches(((8, 2), (16, 4)))
    lines = np.random.default_rng(2).zipf(1.3, 4000) % 300
    first = plain_misses(lines, 8, 2)
    assert cache.misses(lines) == (len(first), len(plain_misses(first, 16, 4)))
    assert cache.sampled(8).all() and cache.sampled(3).sum() == 3
    chosen = cache.sampled(3)
    some = lines[chosen[lines % 8]]
    expected = [line for line in first if chosen[line % 8]]
    beyond = [line for line in plain_misses(first, 16, 4) if chosen[line % 8]]
    assert cache.misses(some) == (len(expected), len(beyond))


def test_sets_that_do_not_nest_are_refused():
    with pytest.raises(ValueError, match=r"multiple of those of the first, got \(\(64, 8\), \(96, 4\)\)"):
        Caches(((64, 8), (96, 4)))


def test_caches_are_read_where_the_system_says_them(tmp_path):
    assert caches.of_machine(tmp_path) == Caches()
    said = {"type": "Data", "level": 1, "number_of_sets": 32, "ways_of_associativity": 4, "coherency_line_size": 128}
    for number, change in enumerate(({}, {"type": "Instruction", "number_of_sets": 7}, {"level": 3})):
        (tmp_path / f"index{number}").mkdir()
        for name, value in (said | change).items():
            (tmp_path / f"index{number}" / name).write_text(f"{value}\n")
    assert caches.of_machine(tmp_path) == Caches(((32, 4), (1024, 16)), 128)


@pytest.mark.parametrize("width, partitions", [(16, 1), (5, 3), (32, 4)])
def test_a_trace_is_what_a_loop_over_rows_touches(width, partitions):
    graph = graph_of(12, 50)
    everything = np.ones(8, bool)
    expected: list[int] = []
    side = -(-12 // partitions)

    def touch(array: int, begin: int, size: int) -> None:
        begin += array * misses._FAR
        expected.extend(range(begin // 64, (begin + size - 1) // 64 + 1))

    position = 0
    for part in range(partitions):
        for row in range(12):
            touch(1, 4 * (part * 12 + row), 4)
            for column in graph.indices[graph.indptr[row] : graph.indptr[row + 1]]:
                if column // side == part:
                    touch(2, 4 * position, 4)
                    touch(3, 4 * width * int(column), 4 * width)
                    position += 1
            touch(4, 4 * width * row, 4 * width)
    assert position == 50
    assert misses.trace(graph, width, partitions, 64, everything).tolist() == expected
    some = np.arange(8) % 3 == 0
    assert misses.trace(graph, width, partitions, 64, some).tolist() == [e for e in expected if some[e % 8]]


def test_counters_count_or_say_why_not():
    try:
        counter = counters.Counter(counters.PAGE_FAULTS)
    except counters.Unavailable as reason:
        pytest.skip(str(reason))
    with counter.counting():
        np.ones(1 << 24).sum()  # 128 MiB of fresh pages, be they of 2 MiB each
    touched = counter.read()
    with counter.counting():
        pass
    assert counter.read() < 60 < touched
    counter.close()
    why = counters.why_none()
    if why is None:
        assert counters.count(lambda: None)["loads"] >= 0
    else:
        assert "perf_event_open" in why
        with pytest.raises(counters.Unavailable):
            counters.count(lambda: None)


def test_rules_decide_by_features_and_by_how_uneven_rows_are():
    assert [str(thresholds.decided(n, d, 1.0)) for n, d in ((4, 0.5), (4, 2.0), (5, 1.0), (64, 1.1))] == [
        "PR-RB",
        "PR-WB",
        "SR-RB",
        "SR-WB",
    ]
    assert thresholds.decided(1, 9.0, float("inf")) == Decision(True, False)


def cell(features: int, deviation: float, ours: float, theirs: dict[str, float]) -> dict:
    best = min(ours, *theirs.values())
    times = {"ours_seconds": ours, "best_seconds": best, "theirs": theirs, "ours": "o", "best": "b", "mean_row": 3.0}
    return {"graph": "g", "features": features, "deviation": deviation, "complete": True, **times}


def test_the_rule_has_the_best_bound_in_hindsight():
    cells = [
        cell(32, 4.0, 1.0, {"SR-RB": 2.0, "SR-WB": 1.5}),
        cell(2, 0.1, 1.2, {"PR-RB": 1.0, "PR-WB": 3.0}),
    ]
    found = thresholds.summarise([*cells, cells[0] | {"complete": False}])
    assert found["left_out"] == 1 and found["regrets"]["ours"]["mean"] == pytest.approx(0.1)
    assert found["regrets"]["inf"] == {"mean": pytest.approx(0.5), "worst": pytest.approx(1.0), "cells": 2}
    assert found["regrets"]["0"]["worst"] == pytest.approx(2.0)
    assert found["best_bound"] == "0.25" and found["regrets"]["0.25"]["mean"] == pytest.approx(0.25)
    rows = thresholds.sheets(cells)[0].rows
    assert [row[4] for row in rows] == ["SR-WB", "PR-RB"] and rows[0][-2:] == ["50 %", "0 %"]


def test_means_over_each_peer_are_of_cells_that_have_both():
    def timed(**seconds: float) -> dict:
        return {"timings": {name.replace("_", " "): {"median": value} for name, value in seconds.items()}}

    found = durations.over([timed(gsb=1.0, dgl=4.0, gsb_csr=2.0), timed(gsb=1.0, dgl=1.0, pyg=3.0)])
    assert found == {"gsb": pytest.approx({"dgl": 2.0, "pyg": 3.0}), "gsb csr": {"dgl": 2.0, "pyg": None}}


def test_a_page_has_its_tables_and_its_figure(tmp_path):
    sheet = sheets.Sheet("Times", ["graph", "ms"], [["a|b", "1"]], notes=["Note."])
    said = {"cpu": "C", "cores": 2, "usable_cores": 2, "threads": 1, "libraries": {}, "python": "3"}
    described = said | {"load_average": [0.1], "date": "2026-01-02T03:04:05"}
    given = "Title", "python -m page", "About.", described, [sheet], tmp_path / "page.svg"
    text = sheets.write(tmp_path / "page.md", *given).read_text()
    assert "`python -m page`, 2026-01-02, Python 3." in text and "**" not in text
    busy = *given[:3], described | {"load_average": [9.0]}, *given[4:]
    assert "**The load average was 9.0 at the start" in sheets.write(tmp_path / "page.md", *busy).read_text()
    assert "| graph | ms |\n| --- | ---: |\n| a\\|b | 1 |\n\nNote.\n" in text and "![Title](page.svg)" in text


@pytest.mark.slow
def test_a_small_run_has_all_parts(command, small_pubmed, tmp_path):
    given = ["--graphs", "pubmed", "--relational", "--budget", "0.5", "--features", "8", "--widths", "4"]
    assert command(main, *given, "--partitions", "1", "4", "--formats", "csr", "bsr(4)", "dia") == 0
    found = {path.stem: json.loads(path.read_text())["cells"] for path in tmp_path.glob("*.json")}
    assert {name: len(cells) for name, cells in found.items()} == {
        "paper_padding": 1,
        "paper_misses": 2,
        "paper_durations": 1,
        "paper_thresholds": 1,
    }
    timed = found["paper_durations"][0]
    assert {"gsb", "gsb csr", "gsb bsr(4)", "torch-i32"} <= timed["timings"].keys() | timed["unable"].keys()
    assert timed["speedup"] > 0 and not timed["wrong"] and found["paper_thresholds"][0]["complete"]
    for name in found:
        page = tmp_path / f"{name.replace('_', '-')}.md"
        assert page.exists() and page.with_suffix(".svg").name in page.read_text()


def test_numbers_that_no_format_has_are_quoted(capsys):
    with pytest.raises(SystemExit):
        arguments(["--exponents", "31"])
    assert "from 0 to 30, got [31]" in capsys.readouterr().err
