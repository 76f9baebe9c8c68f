"""Attention over parts of rows for a GPU: machine code without spills, nothing that one block waits for in another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gnn_sparse_backend.ops.attention import schedules_cuda as attention
from gnn_sparse_backend.ops.attention.programs.attention import AttentionSpec, Attribute
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand
from gnn_sparse_backend.planner.cuda.rows import TeamPlan
from tests.compiler.cuda_code import ARCHITECTURES, check_machine_code, needs_nvcc, source


def _dot(dtype: str) -> AttentionSpec:
    full = [Operand(at, (4, 32), dtype) for at in ("row", "column", "column")]
    score = Attribute(parse("mul(x0, x1)"), tuple(full[:2]), (4, 32))
    return AttentionSpec(score, (False, True), Attribute(parse("x0"), tuple(full[2:]), (4, 32)), (4, 1), dtype)


def _gat() -> AttentionSpec:
    ends = tuple(Operand(at, (8,), "float32") for at in ("row", "column"))
    score = Attribute(parse("leaky_relu(add(x0, x1), 0.2)"), ends, (8,))
    return AttentionSpec(
        score, (False,), Attribute(parse("x0"), (Operand("column", (8, 8), "float32"),), (8, 8)), (8, 1)
    )


@needs_nvcc
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("spec", [_dot("bfloat16"), _gat()], ids=["dot_bfloat16", "gat"])
def test_attention_of_parts(spec, arch):
    text = source(
        lambda arch: attention.attention_kernel(replace(spec, parts=True), TeamPlan(arch)),
        arch,
    )
    kernel = text.split('extern "C"')[-1]
    for word in ("__shared__", "__syncthreads", "atomicAdd("):
        assert word not in kernel
    assert "float* __restrict__ C_ptr" in kernel  # sums of a part are not rounded
    check_machine_code(text, arch)
