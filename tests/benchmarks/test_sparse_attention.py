"""The benchmark of sparse attention: right answers of every contender, wrong ones noticed, pieces put together."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import sparse_attention
from benchmarks.masked import contenders, memory, page
from benchmarks.masked.contenders import CONTENDERS, OURS, WIDENED, Unable
from benchmarks.masked.problem import MASKS, OPS, Place, Problem

SMALL = dict(tokens=512, heads=2, width=16)
COMPILED = "flex"  # a minute of compiling
MINE = {
    # (mask, operator): who computes it beside us
    ("band", "forward"): {"sdpa", "chunks", "gathered"},
    ("global", "step"): {"sdpa", "chunks"},
    ("butterfly", "step"): {"sdpa", "gathered"},
    ("causal", "forward"): {"sdpa"},
    ("prefix", "forward"): {"sdpa"},
    ("soft cap", "forward"): {"plain"},
    ("alibi", "step"): {"sdpa"},
    ("band", "sddmm"): {"dense", "csr"},
    ("butterfly", "spmm"): {"dense", "bsr", "csr"},
}


def answer_of(name: str, problem: Problem):
    call = contenders.call_of(name, problem)
    return getattr(call, "in_our_order", lambda answer: answer)(call())


@pytest.mark.parametrize(("mask", "op"), MINE)
def test_every_contender_is_right(mask, op):
    problem, able = Problem(Place(mask, op, "float32", **SMALL)), set()
    for name in CONTENDERS:
        if name == COMPILED:
            continue
        try:
            answer = answer_of(name, problem)
        except Unable as reason:
            assert str(reason)
            continue
        able.add(name)
        assert problem.mismatch(answer) is None, name
        spoilt = (*answer[:-1], answer[-1] + 0.01 * answer[-1].abs().max())
        assert "is off by" in problem.mismatch(spoilt)
    assert able == {OURS} | MINE[mask, op]


@pytest.mark.parametrize(("mask", "op"), MINE)
def test_peers_by_way_of_float32_are_right(mask, op):
    problem = Problem(Place(mask, op, "bfloat16", **SMALL))
    for name, peer in WIDENED.items():
        if peer == COMPILED or peer not in MINE[mask, op]:
            continue
        answer = answer_of(name, problem)
        assert problem.mismatch(answer) is None, name
        assert all(x.dtype is torch.bfloat16 for x in contenders.call_of(name, problem)()), name


def test_memory_is_compared_with_results():
    entries = {OURS: {"step": 2, "held": 9, "results": 100}, "sdpa": {"error": "why"}}
    assert memory.compared(entries) == {OURS: 102}


@pytest.mark.slow
def test_flex_attention_is_right():
    problem = Problem(Place("global", "forward", "float32", **SMALL))
    assert problem.mismatch(answer_of(COMPILED, problem)) is None
    with pytest.raises(Unable, match="no backward"):
        contenders.call_of(COMPILED, Problem(Place("global", "step", "float32", **SMALL)))


def test_work():
    pairs = Problem(Place("butterfly", "forward", "bfloat16", **SMALL)).mask.num_pairs
    work = {op: Problem(Place("butterfly", op, "bfloat16", **SMALL)).work() for op in OPS}
    assert pairs == 8 * 4 * 64 * 64
    assert work["forward"].flops == 2 * work["sddmm"].flops == 2 * work["spmm"].flops == 4 * pairs * 2 * 16
    assert work["step"].flops == 3 * work["forward"].flops
    assert work["forward"].compulsory == 4 * 512 * 2 * 16 * 2
    assert all(each.gather >= each.compulsory for each in work.values())


@pytest.mark.parametrize("mask", MASKS)
def test_blocks_and_matrices_are_the_same(mask):
    problem = Problem(Place(mask, "spmm", "float32", **SMALL))
    dense = problem.dense_values(1, torch.float64)
    assert torch.equal(problem.in_blocks(dense), problem.values[0, 1].double())
    assert not dense[~problem.allowed].any()


@pytest.mark.slow
def test_a_run_in_pieces(tmp_path, capsys, set_threads):
    set_threads(1)
    given = ["--quick", "--threads", "1", "--budget", "0.1", "--masks", "butterfly", "--precisions", "float32"]
    given += ["--contenders", "gsb", "sdpa", "dense", "--out", str(tmp_path)]
    assert sparse_attention.main([*given, "--ops", "forward"]) == 0
    assert sparse_attention.main([*given, "--ops", "sddmm", "--append"]) == 0
    assert sparse_attention.main([*given, "--ops", "forward", "--append", "--parts", "memory"]) == 0
    record = json.loads((tmp_path / "sparse_attention.json").read_text())
    cells = {cell["op"]: cell for cell in record["cells"]}
    assert set(cells) == {"forward", "sddmm"}
    assert set(cells["forward"]["timings"]) == {"gsb", "sdpa"} and cells["forward"]["speedup"] > 0
    assert cells["forward"]["memory"]["gsb"]["step"] >= 0 and not cells["sddmm"]["memory"]
    assert "Geometric mean" in capsys.readouterr().out


def test_the_cases_that_matter_come_first():
    options = sparse_attention.arguments(["--flex"])
    wanted = sparse_attention.flex_places(options)
    assert len(wanted) == len(set(map(str, wanted))) == 2 + 2 * (3 * 8 + 3 * 7)
    assert [place.op for place in wanted[:2]] == ["decode", "decode"]
    assert {(place.op, place.tokens) for place in wanted[2:32]} == {("forward", 4096), ("step", 4096)}
    named = {"causal", "window", "documents", "prefix", "alibi", "soft cap", "relative"}
    for tokens in (1024, 4096, 16384):
        for precision in ("float32", "bfloat16"):
            at = [x for x in wanted if (x.op, x.tokens, x.precision) == ("forward", tokens, precision)]
            assert named <= {x.mask_name for x in at}
            for place in at:
                peers = sparse_attention.flex_peers(place, options.contenders)
                assert ("flex" in peers) == (place.mask_name != "dense") and "gsb" in peers
                assert ("sdpa" in peers) == (place.mask_name in ("causal", "dense"))


def test_tables_of_a_page():
    timings = {name: {"median": seconds} for name, seconds in (("gsb", 0.010), ("flex", 0.025), ("sdpa", 0.008))}
    cell = {"op": "forward", "precision": "float32", "width": 4096, "memory": {}, "speedup": 0.8}
    cells = [{**cell, "graph": name, "timings": timings} for name in ("alibi", "dense")]
    step = {**cell, "graph": "alibi", "op": "step", "speedup": 3.0, "timings": {"gsb": {"median": 0.1}}}
    step["memory"] = {"gsb": {"step": 2**20, "held": 0, "results": 2**20}}
    found = page.page([*cells, step])
    assert "| alibi | 4,096 | 10 | 25 | 8 | 2.50 | 0.80 | 2.00 |" in found
    assert "| dense | 4,096 | 10 | 25 | 8 | 2.50 | 0.80 | 0.89 |" in found
    assert "| alibi | step | float32 | 4,096 | 2.0 | 512 |" in found and "| alibi | 4,096 | 100 | 1.20 |" in found


@pytest.mark.slow
def test_cells_of_a_gpu_are_compared_before_they_are_timed(made_up_times):
    """On a CPU in the place of a GPU, with times that are made up; a wrong answer has none."""
    from benchmarks.layers import gpu_steps
    from benchmarks.masked import gpu

    cell = gpu.cell_on_gpu(Place("band", "forward", "float32", **SMALL), ("sdpa", "dense", gpu.OURS))
    found = gpu_steps.measure(cell, torch.device("cpu"))
    assert found["contenders"]["sdpa"]["warm"] == found["contenders"][gpu.OURS]["warm"] == 1.0
    assert found["contenders"]["dense"].startswith("refused: computes products") and found["ratio"] == [1.0, 1.0]
    answer = contenders.call_of("sdpa", Problem(Place("band", "forward", "float32", **SMALL)))()
    assert cell.mismatch(answer, ()) is None and "is off by" in cell.mismatch((answer[0] + 1, *answer[1:]), ())
