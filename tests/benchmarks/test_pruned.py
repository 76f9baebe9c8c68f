"""The benchmark of pruned layers: right answers of every contender, wrong ones noticed, pieces put together."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import pruned
from benchmarks.pruned_layers import bert, contenders
from benchmarks.pruned_layers.contenders import CONTENDERS, OURS, Unable
from benchmarks.pruned_layers.problem import EMPTY_ROWS, TWO_OF_FOUR, Place, Problem
from gnn_sparse_backend.planner import composed

SMALL = dict(rows=128, columns=64, density=0.25, tokens=24)
SPARSE, TORCH = {"gsb csr", "gsb bsr", "gsb dbsr"}, {"torch bsr", "torch csr"}


@pytest.mark.parametrize(
    "pattern, op, able",
    [
        ("blocks", "forward", {OURS, "dense"} | SPARSE | TORCH),
        ("blocks", "step", {OURS, "dense"} | SPARSE),
        ("unstructured", "forward", {OURS, "dense", "gsb csr", "torch csr"}),
    ],
)
def test_every_contender_is_right(pattern, op, able):
    problem, found = Problem(Place(pattern, op, "float32", **SMALL)), set()
    for name in CONTENDERS:
        try:
            call = contenders.call_of(name, problem)
        except Unable as reason:
            assert str(reason)
            continue
        found.add(name)
        answer = getattr(call, "in_our_order", lambda answer: answer)(call())
        assert problem.mismatch(answer) is None, name
        assert "is off by" in problem.mismatch((*answer[:-1], answer[-1] + 0.01 * answer[-1].abs().max()))
    assert found == able


def test_blocks_are_whole_and_leave_rows_empty():
    kept = Problem(Place("blocks", "forward", "float32", **SMALL)).kept.view(4, 32, 2, 32).transpose(1, 2)
    share = kept.float().mean((2, 3))
    assert set(share.unique().tolist()) == {0.0, 1.0} and share.mean() == 0.25
    assert int((share.sum(1) == 0).sum()) >= EMPTY_ROWS * 4


def test_work():
    one, step = (Problem(Place("unstructured", op, "bfloat16", **SMALL)).work() for op in ("forward", "step"))
    assert step.flops == 3 * one.flops == 3 * 2 * 2048 * 24
    assert one.compulsory == 24 * (128 + 64) * 2 + 2048 * 6 + 128 * 4 and one.gather > one.compulsory


@pytest.mark.parametrize("op", ["forward", "step"])
def test_an_encoder_layer_is_the_same_in_all_three(op, monkeypatch):
    monkeypatch.setattr(composed, "WITH_AVX512", {})  # every processor replaces the same layers
    problem = bert.BertProblem(Place("blocks", op, "float32", 256, 64, 0.25, 32), heads=2, length=16)
    assert problem.report.replaced == ("query", "key", "value", "output", "up", "down")
    for name in bert.NOTES:
        answer = problem.call_of(name)()
        assert problem.mismatch(answer) is None, name
        assert "is off by" in problem.mismatch((answer[0] * 1.01,))
    assert problem.work().flops == (1 if op == "forward" else 3) * 2 * 32 * 12 * 64 * 64 // 4


def test_loss_is_that_of_the_format_taken():
    timings = {"dense": {"median": 2.0}, OURS: {"median": 9.0}}
    variants = {"gsb csr": {"median": 3.0}, "gsb bsr": {"median": 4.0}}
    assert [pruned.loss(taken, timings, variants) for taken in ("dense", "csr", "bsr(32)")] == [0.0, 0.5, 1.0]
    assert pruned.loss("bsr(16)", timings, variants) == 3.5 and pruned.loss("csr", timings, {}) == 3.5
    assert pruned.loss(None, timings, variants) is None


@pytest.mark.slow
def test_a_run_in_pieces(tmp_path, capsys, set_threads):
    set_threads(1)
    given = ["--quick", "--threads", "1", "--budget", "0.1", "--patterns", "blocks", "--precisions", "float32"]
    given += ["--ops", "forward", "--out", str(tmp_path)]
    assert pruned.main([*given, "--parts", "layers"]) == 0
    assert pruned.main([*given, "--parts", "curve", "bert", "--append", "--processor-time"]) == 0
    record = json.loads((tmp_path / "pruned.json").read_text())
    cells = {(cell["kind"], cell["density"]): cell for cell in record["cells"]}
    assert set(cells) == {("layers", 0.07), ("curve", 0.05), ("curve", 0.5), ("bert", 0.06)}
    layer = cells["layers", 0.07]
    assert set(layer["timings"]) == {OURS, "dense", "torch bsr", "torch csr"} and layer["speedup"] > 0
    assert layer["conversion"][OURS] > 0 and set(layer["variants"]) == SPARSE
    assert cells["curve", 0.5]["loss"] >= 0 and cells["curve", 0.5]["speedup"] is None
    assert record["summary"]["dbsr"]["mean"] > 0 and "Geometric mean" in capsys.readouterr().out
    assert torch.get_num_threads() == 1


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["blocks", TWO_OF_FOUR])
def test_cells_of_a_gpu_are_compared_before_they_are_timed(pattern, made_up_times):
    """On a CPU in the place of a GPU, with times that are made up; of weights that are no blocks no blocks are made."""
    from benchmarks.layers import gpu_steps
    from benchmarks.pruned_layers import gpu

    cell = gpu.cell_on_gpu(Place(pattern, "step", "float32", **(SMALL | {"density": 0.5})))
    found = gpu_steps.measure(cell, torch.device("cpu"))["contenders"]
    timed = {name for name, each in found.items() if not isinstance(each, str)}
    assert {"dense", "auto+gsb", "csr+gsb"} <= timed and ("bsr+gsb" in timed) == (pattern == "blocks")
    assert found["torch 2:4"].startswith("refused: ")
    kept = Problem(Place(TWO_OF_FOUR, "forward", "float32", **(SMALL | {"density": 0.5}))).kept
    assert bool((kept.unflatten(1, (-1, 4)).sum(-1) == 2).all())
