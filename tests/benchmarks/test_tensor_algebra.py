"""The benchmark of tensor algebra: right answers of every contender, wrong ones noticed, TACO only where it is."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import scipy.sparse

from benchmarks import tensor_algebra
from benchmarks.algebra import contenders, studies, taco
from benchmarks.algebra.inputs import SMALL, Input, of_keys
from benchmarks.algebra.problem import OPERATIONS, Place, Problem
from benchmarks.support.cells import Unable

GIVEN = {name: load(0) for name, load in SMALL.items()}
PLACES = [
    Place(op, given, operation.widths[0])
    for op, operation in OPERATIONS.items()
    for given in GIVEN.values()
    if given.order in operation.expressions
]
TACO = pytest.mark.skipif("GSB_TACO" not in os.environ, reason="GSB_TACO does not say where TACO was built")


def answer_of(name: str, problem: Problem):
    call = contenders.call_of(name, problem)
    return getattr(call, "in_our_order", lambda answer: answer)(call())


@pytest.mark.short(12)
@pytest.mark.parametrize("name", ["gsb", "scipy", "torch", pytest.param("taco", marks=TACO)])
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_every_contender_is_right(place, name):
    problem = Problem(place)
    try:
        answer = answer_of(name, problem)
    except Unable as reason:
        assert name == "torch" and place.op == "multiply" and str(reason)
        return
    assert problem.mismatch(answer) is None
    spoilt = answer.copy()
    at = spoilt.data if scipy.sparse.issparse(spoilt) else spoilt.reshape(-1)
    at[0] += 0.01 * np.abs(at).max()
    assert "is off by" in problem.mismatch(spoilt)
    assert "is of shape" in problem.mismatch(spoilt[:-1])


def test_the_answer_in_float64_is_that_of_a_dense_tensor():
    for op, given, einsum in (
        ("mttkrp", "small-tensor", "ijk,jr,kr->ir"),
        ("mttkrp", "small-of-4", "ijkl,jr,kr,lr->ir"),
    ):
        problem = Problem(Place(op, GIVEN[given], 32))
        dense = np.zeros(problem.input.shape)
        dense[tuple(problem.input.coordinates)] = problem.input.values
        want = np.einsum(einsum, dense, *(factor.astype(np.float64) for factor in problem.factors))
        np.testing.assert_allclose(problem.wanted, want, rtol=1e-10, atol=1e-10)


def test_levels_are_those_of_csf():
    given = Input("", "", (3, 2, 4), np.array([[0, 0, 2], [0, 1, 1], [3, 0, 2]], np.int32), np.ones(3, np.float32))
    expected = [([0, 2], [0, 2]), ([0, 2, 3], [0, 1, 1]), ([0, 1, 2, 3], [3, 0, 2])]
    assert [(offsets.tolist(), found.tolist()) for offsets, found in given.levels] == expected


def test_work_is_counted():
    given = of_keys("", "", (4, 5), np.array([0, 6, 7, 13]), 0)
    spmm, sddmm = (Problem(Place(op, given, 32)).work() for op in ("spmm", "sddmm"))
    # offsets, coordinates and values; rows of the result; rows of the factor
    assert spmm.gather == 4 * (5 + 4 + 4) + 4 * 32 * 4 + 4 * 32 * 4 and spmm.flops == 2 * 4 * 32
    assert sddmm.flops == 2 * 4 * 32


def test_taco_says_where_it_is_missing(monkeypatch, tmp_path):
    problem = Problem(PLACES[0])
    monkeypatch.delenv("GSB_TACO", raising=False)
    with pytest.raises(Unable, match="GSB_TACO is not set"):
        taco.call_of(problem)
    monkeypatch.setenv("GSB_TACO", str(tmp_path))
    with pytest.raises(Unable, match="bin/taco does not exist"):
        taco.call_of(problem)


@pytest.mark.slow
def test_the_command(tmp_path, capsys):
    arguments = ["--quick", "--ops", "spmv", "add", "--budget", "0.2", "--out", str(tmp_path)]
    assert tensor_algebra.main(arguments) == 0
    report = json.loads((tmp_path / "tensor_algebra.json").read_text())
    assert [cell["op"] for cell in report["cells"]] == ["spmv", "add"]
    assert all({"gsb", "scipy", "torch"} <= set(cell["timings"]) for cell in report["cells"])
    assert "small-matrix" in capsys.readouterr().out


@pytest.mark.slow
def test_schedules_of_the_studies_are_right(tmp_path):
    arguments = ["--parts", "studies", "--scale", "0.01", "--budget", "0.2", "--out", str(tmp_path)]
    assert tensor_algebra.main(arguments) == 0
    assert (tmp_path / "tensor_algebra_studies.png").stat().st_size > 10_000
    found = json.loads((tmp_path / "tensor_algebra_studies.json").read_text())
    assert set(found["studies"]) == set(studies.STUDIES) and set(found["gpu"]) == {"sm_80", "sm_90"}
    for name, cells in found["studies"].items():
        for cell in cells:
            assert set(cell["seconds"]) == set(studies.STUDIES[name].schedules)
            assert cell["wrong"] == cell["unable"] == {} and cell["winner"] in cell["seconds"]


@pytest.mark.slow
def test_code_of_an_operation_beside_that_of_taco(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("GSB_TACO", raising=False)
    arguments = ["--parts", "code", "--ops", "multiply", "--out", str(tmp_path)]
    assert tensor_algebra.main(arguments) == 0
    (row,) = json.loads((tmp_path / "tensor_algebra_code.json").read_text())["kernels"]
    assert row["op"] == "multiply" and row["gsb"]["seconds"] > 0 and row["gsb"]["libraries"] > 0
    assert row["gsb"]["code_bytes"] > 1000 and "GSB_TACO is not set" in row["taco"]["unable"]
    assert "not measured: taco: GSB_TACO is not set" in capsys.readouterr().out
