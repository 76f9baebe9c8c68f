"""Operators in every type on a GPU without one: the schedules for CUDA, run serially, against the CPU's kernels."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from tests.ops.operators import OPERATORS, RGMS, ROUNDING, some_graph, step


def some_relations() -> gsb.RelGraph:
    """The edges of the graph in three relations."""
    return gsb.RelGraph.from_graph(some_graph(), torch.arange(40) % 3, 3)


# Of both half types programs and schedules differ in the type alone. Of float32 and float64, whose own test has all
# operators, they do too, but where Tensor Cores multiply.
SOME = "spmm_weighted_mean", "gspmm_last_max", "attention", "rgms", "segment_mm"


@pytest.mark.short(9)
@pytest.mark.parametrize(
    "name, dtype",
    [
        *((name, torch.bfloat16) for name in sorted({**OPERATORS, **RGMS})),
        *((name, torch.float32) for name in sorted({*SOME, "gather_mm", *RGMS})),
        *((name, torch.float16) for name in SOME),
    ],
    ids=lambda x: str(x).removeprefix("torch."),
)
def test_types_with_sums_in_float32(name, dtype, request, matmul_precision):
    """As the CPU's kernels, whose own tests have float64 beside them; on the Tensor Cores operands of float32 are
    rounded to tf32.
    """
    torch.manual_seed(0)
    make = some_relations if name in RGMS else some_graph
    # not near zero, by which some divide
    operands = [
        (x.detach().float().sign() * (0.5 + torch.rand(x.shape))).to(dtype).requires_grad_()
        for x in {**OPERATORS, **RGMS}[name].operands(make(), dtype)
    ]
    expected = step(name, make(), operands)
    launched = request.getfixturevalue("serial_gpu")
    found = step(name, make(), operands)
    assert launched
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype == dtype
        torch.testing.assert_close(a, b, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])
