"""A cell's reason must come from its own numbers, the largest part first."""

import pytest

from benchmarks.operators.work import Work
from benchmarks.support import cells, reasons
from benchmarks.support.reasons import Evidence, explain
from benchmarks.support.roofline import Roofline

LIMITS = Roofline(2, ((1000, 100.0), (100_000, 100.0)), 1.0, flops=50.0)


def distance(work, seconds):
    return LIMITS.distance(work, seconds)


def test_calling_leads_where_it_takes_most():
    text = explain(Evidence(overhead=8e-5, rest=9e-5), distance(Work(0, 1e-3, 0), 1e-4), 1e-4, 9e-5)
    assert text == "calling alone (one edge) takes 80 us of 100 us"


def test_dense_work_gives_the_ratio_that_free_message_passing_would():
    text = explain(Evidence(overhead=1e-4, rest=0.06), distance(Work(1, 2, 0), 0.1), 0.1, 0.09)
    assert text.startswith("what has no edges (dense products, element-wise) takes 60 ms of 100 ms")
    assert "the ratio would be 1.50" in text and "calling" not in text


def test_memory_that_binds_says_how_much_of_the_bandwidth():
    text = explain(Evidence(overhead=0.5), distance(Work(300, 900, 0), 10.0), 10.0, 9.0)
    assert text.startswith("binds by memory: 30 % of the measured bandwidth") and "90 % counting a row per edge" in text


def test_arithmetic_that_binds():
    text = explain(Evidence(), distance(Work(1, 2, 400), 10.0), 10.0, None)
    assert text == "binds by arithmetic at 80 % of the measured peak"


def test_what_nothing_explains_is_said():
    text = explain(Evidence(overhead=0.1, rest=0.5), distance(Work(10, 50, 0), 10.0), 10.0, 9.0)
    assert "100 times the bound by memory, 20 times" in text


def test_disturbance_and_fallbacks_are_said():
    found = Evidence(ours=6, fallbacks={"softmax: not covered": 2})
    text = explain(found, distance(Work(500, 500, 0), 10.0), 10.0, 9.0, uncertainty=0.4)
    assert "known to 40 % only" in text
    assert text.endswith("2 of 8 operator calls were the framework's own (softmax: not covered)")
    assert "disturbed" in explain(Evidence(rest=11.0), distance(Work(1, 1, 0), 10.0), 10.0, 9.0)


def test_durations_have_their_unit():
    assert [reasons.duration(s) for s in (2.5e-5, 0.0123, 4.0)] == ["25 us", "12.3 ms", "4.00 s"]


def test_calls_are_counted_by_difference():
    import gnn_sparse_backend as gsb
    from gnn_sparse_backend.integrations.core import counters

    before = gsb.status().to_dict()
    counters.ours("dgl", "gspmm")
    counters.fallback("dgl", "gspmm", "old reason of a test")

    def call():
        counters.ours("dgl", "gspmm")
        counters.ours("pyg", "propagate")
        counters.fallback("dgl", "gspmm", "reason of a test")
        return "result"

    assert reasons.count_calls("dgl", call) == ("result", 1, {"gspmm: reason of a test": 1})
    assert before != gsb.status().to_dict()


def timing(median):
    return {"median": median, "uncertainty": 0.0}


def test_a_cell_is_rated_by_the_best_of_each_side():
    timings = {"dgl": timing(3.0), "dgl+gsb": timing(2.5), "pyg": timing(4.0), "pyg+gsb": timing(2.0)}
    work = {"dgl+gsb": Work(10, 20, 0), "pyg+gsb": Work(100, 150, 0)}
    evidence = {"dgl+gsb": Evidence(), "pyg+gsb": Evidence(overhead=1.5)}
    cell = cells.rate("here", timings, ("dgl+gsb", "pyg+gsb"), LIMITS, work, evidence=evidence)
    assert (cell["best_ours"], cell["best_peer"], cell["speedup"]) == ("pyg+gsb", "dgl", 1.5)
    assert cell["bytes_compulsory"] == 100 and cell["roofline_compulsory"] == pytest.approx(0.5)
    assert cell["reason"].startswith("calling alone") and cell["wrong"] == {}


def test_a_cell_without_ours_has_no_ratio():
    cell = cells.rate("here", {"dgl": timing(3.0)}, ("gsb",), LIMITS, Work(10, 20, 0), wrong={"gsb": "y is off"})
    assert cell["speedup"] is None and cell["best_peer"] == "dgl" and cell["reason"] is None
    assert cell["roofline_gather"] is None and cell["wrong"] == {"gsb": "y is off"}
