"""Reports measured piece by piece."""

import pytest

from benchmarks.support import merging

MACHINE = {"cpu": "c", "cores": 2, "threads": 2, "date": "then"}


def report(cells, **more):
    return {
        "machine": MACHINE,
        "cells": [{"graph": graph, "mode": "sum", "features": width, "ratio": ratio} for graph, width, ratio in cells],
        **more,
    }


def test_cells_of_both_and_those_measured_again_once():
    before = report(
        [("a", 1, 1.0), ("a", 2, 1.0)],
        skipped={"b": "missing", "c": "missing"},
        growth=[{"edges": 1, "width": 2}],
        per_call={"sum": {"x": 1.0}},
        summary="old",
    )
    now = report([("a", 2, 3.0), ("b", 1, 3.0)], skipped={}, growth=[], per_call={"max": {"x": 2.0}})
    now["machine"] = {**MACHINE, "date": "now"}
    merged = merging.merge(before, now)
    assert [(cell["graph"], cell["features"], cell["ratio"]) for cell in merged["cells"]] == [
        ("a", 1, 1.0),
        ("a", 2, 3.0),
        ("b", 1, 3.0),
    ]
    assert merged["skipped"] == {"c": "missing"} and merged["growth"] == before["growth"]
    assert merged["per_call"] == {"sum": {"x": 1.0}, "max": {"x": 2.0}}
    assert merged["machine"]["date"] == "now" and "summary" not in merged
    assert merging.merge(None, now) == now


def test_another_machine_is_refused():
    with pytest.raises(ValueError, match="threads 2.*threads.*|'?threads'? 2.*1"):
        merging.merge(report([]), {**report([]), "machine": {**MACHINE, "threads": 1}})


def test_no_report_yet(tmp_path):
    assert merging.read(tmp_path / "none.json") is None


def test_reports_of_another_allocator_are_refused():
    kept = {**report([]), "machine": {**MACHINE, "reused_memory": True}}
    with pytest.raises(ValueError, match="reused_memory False, and this one with True"):
        merging.merge(report([]), kept)
    assert merging.merge(report([]), {**report([]), "machine": {**MACHINE, "reused_memory": False}})["cells"] == []
    assert merging.merge(kept, kept) == kept
