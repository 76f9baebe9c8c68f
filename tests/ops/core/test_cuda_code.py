"""The code of every kernel that operators launch on a GPU by default: it is generated, and nvcc takes it, without a
GPU.

Operators run through the very dispatch, forward and backward, on a stand-in that is told what to build
(`recorded_gpu`).
"""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from tests.ops.operators import OPERATORS, RGMS, some_graph, step
from tests.ops.recorded_code import Kernels

TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
EVERY = (*OPERATORS, *RGMS)
WIDE = ("spmm", "spmm_weighted_mean", "gspmm_mul_max", "gspmm_last_max", "gsddmm_div", "sddmm", "segment_reduce_max")
# (rows, columns, edges), sizes, operators
CASES = {
    # vectors; products that fit Tensor Cores
    "whole vectors": ((9, 12, 40), {"heads": 4, "width": 32, "out": 64}, EVERY),
    # edges in stretches, or shared out to lanes; no vectors, and less than a lane for each feature
    "long rows, odd widths": ((8, 9, 400), {"heads": 3, "width": 5, "out": 4}, EVERY),
    # more features than a team accumulates at once
    "several passes": ((9, 12, 40), {"heads": 1, "width": 1100, "out": 4}, WIDE),
    # four arrays of 32 features a lane
    "wide heads": ((9, 12, 40), {"heads": 1, "width": 1024, "out": 4}, ("gatv2_attention",)),
}


def some_relations(rows: int, columns: int, edges: int) -> gsb.RelGraph:
    """Several edges for each pair of a row and a relation."""
    generator = torch.Generator().manual_seed(0)
    source, destination, relation = (
        torch.randint(0, n, (5 * edges,), generator=generator) for n in (columns, rows - 1, 3)
    )
    return gsb.RelGraph.from_triples(source, destination, relation, (rows, columns), 3)


def kernels_of(recorded_gpu, case: str, dtype: str) -> Kernels:
    """All of a case, each with the operators that launch it, in an order that the type does not change."""
    shape, sizes, operators = CASES[case]
    found = Kernels()
    for name in operators:
        graph = some_relations(*shape) if name in RGMS else some_graph(*shape)
        recorded_gpu.clear()
        step(name, graph, {**OPERATORS, **RGMS}[name].operands(graph, TYPES[dtype], **sizes))
        found.add(name, recorded_gpu)
    return found


# of both half types programs and schedules differ in the type alone (`test_cuda_plans` has float16); for bfloat16 sm_80
# has fewer instructions than sm_90
@pytest.mark.slow
@pytest.mark.parametrize(
    "case, dtype, arch",
    [
        ("whole vectors", "float32", "sm_80"),
        ("whole vectors", "bfloat16", "sm_80"),
        ("long rows, odd widths", "float32", "sm_80"),
        ("several passes", "float32", "sm_80"),
        ("wide heads", "float32", "sm_80"),
    ],
)
def test_every_kernel_of_the_default_plans(case, dtype, arch, recorded_gpu, matmul_precision, tmp_path):
    """Forward and backward. What is promised to the Tensor Cores goes to them."""
    found = kernels_of(recorded_gpu, case, dtype)
    programs = found.programs()
    assert "aggregate" in programs
    if CASES[case][2] is EVERY:
        assert {"edge_softmax", "edge_softmax_gradient", "attention", "attention_gradient", "sums"} <= programs
    if case == "whole vectors":
        assert found.programs(promised=True) == {"grouped_tiles", "grouped_sum_tiles", "rgms_tiles", "rgms_sum_tiles"}
    found.check(dtype, arch, tmp_path, registers=255 if case == "wide heads" else 128)
