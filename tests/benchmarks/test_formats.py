"""The benchmark of formats: right answers of every candidate, regret by hand, a run in pieces."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from benchmarks import formats
from benchmarks.planner import matrices
from benchmarks.planner.matrices import FITTED, HELD_OUT
from benchmarks.support.cells import Unable

SMALL = {
    "blocks": matrices.blocks(64, 96, 16, 0.25),
    "single": matrices.single(64, 96, 0.1),
    "mixed": matrices.mixed(64, 64, 8, 0.2, 0.02),
    "band": matrices.band(70, 3, 0.8),
}


def graph_of(name: str, seed: int = 3) -> gsb.Graph:
    return gsb.Graph.from_scipy(SMALL[name].make(seed))


@pytest.mark.parametrize("name, op, precision", [("mixed", "spmm", "float32"), ("single", "linear", "bfloat16")])
def test_every_candidate_is_right_and_a_wrong_one_is_seen(name, op, precision):
    product, able = formats.Product(graph_of(name), op, precision, 24, seed=3), set()
    for candidate in formats.candidates((2,)):
        try:
            call = product.call_of(candidate)
        except Unable as reason:
            assert str(reason)
            continue
        answer = call()
        assert product.mismatch(answer) is None, candidate
        assert product.mismatch(answer + 0.1 * answer.abs().max()).startswith("off by")
        able.add(candidate)
    assert {"dense", "csr", "bsr(8)", "bsr(8), tile of 2"} <= able


def test_matrices_are_of_their_kind_and_no_set_has_one_of_the_other():
    assert not set(HELD_OUT) & set(FITTED)
    band = SMALL["band"].make(0).tocoo()
    assert abs(band.row - band.col).max() == 3 and 0.7 < band.nnz / (70 * 7 - 12) < 0.9
    sides = SMALL["blocks"].make(0).toarray().reshape(4, 16, 6, 16).mean((1, 3))
    assert set(np.unique(sides)) == {0.0, 1.0}
    for name, recipe in SMALL.items():
        first, again, other = (recipe.make(seed).toarray() for seed in (0, 0, 1))
        assert (first == again).all() and (first != other).any(), name


@pytest.mark.parametrize(
    "candidate, why",
    [
        ("bsr(32)", "stores 32 values for each non-zero"),
        ("bsr(4) + csr", "is the same as csr"),
        ("csr, tile of 2", "goes through whole rows"),
        ("dense", "is predicted to take .* times as long as CSR"),
    ],
)
def test_what_cannot_win_or_is_another_is_not_made(candidate, why):
    diagonal = gsb.Graph.from_scipy(matrices.band(1024, 0).make(0))
    product = formats.Product(diagonal, "spmm", "float32", 64, 0)
    product.call_of("csr")
    with pytest.raises(Unable, match=why):
        product.call_of(candidate)


@pytest.mark.slow
def test_a_run_in_pieces(tmp_path, capsys, set_threads, monkeypatch):
    set_threads(1)
    monkeypatch.setitem(formats.SETS, "held-out", SMALL)
    given = ["--threads", "1", "--budget", "0.2", "--tuning", "0.01", "--widths", "16", "--precisions", "float32"]
    given += ["--tiles", "--out", str(tmp_path)]
    assert formats.main([*given, "--matrices", "blocks", "band", "--ops", "spmm", "linear"]) == 0
    assert formats.main([*given, "--matrices", "single", "--ops", "spmm", "--append", "--processor-time"]) == 0
    record = json.loads((tmp_path / "formats.json").read_text())
    found = {(cell["graph"], cell["op"]): cell for cell in record["cells"]}
    assert set(found) == {("blocks", "spmm"), ("blocks", "linear"), ("band", "spmm"), ("single", "spmm")}
    for cell in found.values():
        seconds = cell["seconds"]
        assert cell["complete"] and cell["best_seconds"] == min(seconds.values())
        assert cell["regret"] == seconds[cell["planned"]] / seconds[cell["best"]] - 1 >= 0
        assert cell["regret_of_rule"] == seconds[cell["rule"]] / seconds[cell["best"]] - 1
        assert cell["predicted"][cell["rule"]] == min(cell["predicted"].values())
    summary = record["summary"]
    regrets = [cell["regret"] for cell in record["cells"]]
    assert summary["cells"] == 4 and summary["mean_regret"] == pytest.approx(sum(regrets) / 4)
    assert summary["by_kind"]["blocks"]["cells"] == 2 and summary["by_op"]["spmm"]["cells"] == 3
    assert "Regret over 4 cells" in capsys.readouterr().out and torch.get_num_threads() == 1


def test_a_matrix_that_nobody_knows_is_quoted(capsys):
    with pytest.raises(SystemExit):
        formats.arguments(["--matrices", "circle"])
    assert "no matrix 'circle' is held-out" in capsys.readouterr().err
