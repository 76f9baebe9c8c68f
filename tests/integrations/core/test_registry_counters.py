"""The counts and the table that show what ran where."""

import threading

import pytest

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.core import counters
from gnn_sparse_backend.integrations.core.counters import fallback, ours, reset_status


@pytest.fixture(autouse=True)
def zero(monkeypatch):
    monkeypatch.setattr(counters, "_ours", {})
    monkeypatch.setattr(counters, "_fallbacks", {})


def test_counts_by_framework_operator_and_reason():
    for _ in range(3):
        ours("dgl", "gspmm")
    fallback("dgl", "gspmm", "reduce max")
    fallback("dgl", "gspmm", "reduce max")
    fallback("dgl", "gspmm", "op add")
    fallback("pyg", "propagate", "hook")
    assert gsb.status().to_dict()["calls"] == {
        "dgl": {"gspmm": {"ours": 3, "fallbacks": {"reduce max": 2, "op add": 1}}},
        "pyg": {"propagate": {"ours": 0, "fallbacks": {"hook": 1}}},
    }
    reset_status()
    assert gsb.status().to_dict()["calls"] == {} and "no calls yet" in str(gsb.status())


def test_a_status_is_a_snapshot():
    ours("dgl", "gspmm")
    before = gsb.status()
    ours("dgl", "gspmm")
    fallback("dgl", "gspmm", "op add")
    assert (before.rows[0].ours, before.rows[0].fallbacks) == (1, {})


def test_the_table_shows_every_count_and_reason_without_terminal_codes():
    for _ in range(1234):
        ours("dgl", "gspmm")
    fallback("dgl", "gspmm", "reduce max")
    for _ in range(2):
        fallback("dgl", "gspmm", "dtype [int64]")  # brackets are not markup
    lines = str(gsb.status()).splitlines()
    assert lines[0] == f"enabled: {', '.join(gsb.status().enabled) or 'none'}"
    assert lines[1].split() == ["framework", "operator", "ours", "fell", "back", "reasons"]
    assert lines[3].split() == ["dgl", "gspmm", "1,234", "3", "dtype", "[int64]:", "2"]
    assert lines[4].split() == ["reduce", "max:", "1"]
    assert repr(gsb.status()) == str(gsb.status()) and "\x1b" not in str(gsb.status())


def test_no_count_is_lost_between_threads():
    def count():
        for _ in range(5000):
            ours("dgl", "gspmm")
            fallback("dgl", "gspmm", "op add")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gsb.status().to_dict()["calls"]["dgl"]["gspmm"] == {"ours": 20000, "fallbacks": {"op add": 20000}}
