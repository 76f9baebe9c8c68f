"""``gsb.explain`` names the ways that a plan can run, and a call takes one of them."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.core.ran import note_operator
from gnn_sparse_backend.ops.message.calls import variants_of
from gnn_sparse_backend.planner.cpu.spmm import USED_AGAIN
from gnn_sparse_backend.planner.cuda.plan import CudaPlan
from gnn_sparse_backend.tuning.tuning_tasks import OPS, Task, tasks_of
from tests.ops.operators import some_graph


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("op", OPS)
def test_a_call_takes_one_of_those_that_are_explained(op, dtype):
    graph = some_graph(20, 30, 200)
    for task in tasks_of(graph, (op,), (16,), dtype, True):
        explained = gsb.explain(graph, op, 16, dtype=dtype, backward=task.direction == "backward")
        note_operator("aggregate")  # which a task does without
        task.runner()()
        step = gsb.last_run().steps[-1]
        assert step.variant in (explained.variants or {"": ""})
        assert all(f"\n  {name}: {when}" in str(explained) for name, when in explained.variants.items())
        assert ("variants" in str(explained)) == bool(explained.variants)
        assert any("bf16x2" in name for name in explained.variants) == step.variant.endswith("bf16x2")


@pytest.mark.parametrize("op", OPS)
def test_operands_are_described_as_they_are(op):
    for direction in ("forward", "backward"):
        task = Task(op, direction, some_graph(7, 5, 30), 4, torch.float16)
        if task.message_op is None or (direction == "backward" and OPS[op].reduce is None):
            continue
        given = task.described()
        assert [x is None for x in given] == [place == "number" for place in task.message_op.places]
        if direction == "backward":
            for mine, real in zip(given, Task._gradient_operands(task), strict=True):
                assert (mine is None and real is None) or (mine.shape[1:], mine.dtype) == (real.shape[1:], real.dtype)


def test_orders_of_rows_are_taken_from_some_call_on(monkeypatch):
    graph, x = some_graph(20, 30, 200), torch.randn(30, 2)
    monkeypatch.setattr("gnn_sparse_backend.ops.message.executables.one_pass.pays_in_order", lambda *sizes: True)
    explained = gsb.explain(graph, "sum", 2)
    taken = []
    for _ in range(USED_AGAIN + 1):
        gsb.spmm(graph, x)
        taken.append(gsb.last_run().steps[-1].variant)
    assert list(dict.fromkeys(taken)) == list(explained.variants) and taken.index(taken[-1]) == USED_AGAIN - 1


def test_plans_of_a_gpu_have_ways_too():
    graph = some_graph()
    task = Task("sum", "forward", graph, 4, torch.float32)
    plan = CudaPlan(arch="sm_80", longest_part=32, buckets=True, cached=True)
    assert list(variants_of(task.message_op, graph, task.described(), plan)) == ["rows", "parts of rows"]
