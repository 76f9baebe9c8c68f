"""The code of the kernels on masks for a GPU: TVM makes it, nvcc takes it for sm_80 and sm_90, nothing is spilled."""

import pytest
import torch

import gnn_sparse_backend as gsb
from tests.ops.masked.oracle import operands
from tests.ops.masked.test_sparse_attention import some_mask
from tests.ops.recorded_code import Kernels

CASES = {
    "vectors, dropout": (16, 64, 64, 0.1, False),
    "padding": (64, 64, 32, 0.0, True),
    "wide heads": (128, 256, 256, 0.0, False),
    "odd widths": (20, 5, 7, 0.1, True),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype, cases",
    [
        ("float32", tuple(CASES)),
        ("bfloat16", tuple(CASES)),
    ],
    ids=["float32", "bfloat16"],
)
def test_every_kernel(dtype, cases, recorded_gpu, tmp_path):
    """Attention and both products, forward and backward."""
    found = Kernels()
    for case in cases:
        block, width, value_width, dropout, padded = CASES[case]
        mask = some_mask(150, 131, block)
        if padded:
            mask = mask & gsb.masks.padding(torch.arange(131)[None] < 100)
        q, k, v, _ = (x.requires_grad_() for x in operands(mask, 1, 2, width, value_width, getattr(torch, dtype)))
        recorded_gpu.clear()
        gsb.sparse_attention(q, k, v, mask, dropout=dropout).sum().backward()
        gsb.masked_spmm(mask, gsb.masked_sddmm(mask, q, k), v).sum().backward()
        found.add(case, recorded_gpu)
    assert found.programs() == {
        "masked_forward",
        "masked_backward_queries",
        "masked_backward_keys",
        "masked_dots",
        "masked_sums",
        "masked_sums_transposed",
    }
    found.check(dtype, "sm_80", tmp_path, registers=255 if "wide heads" in cases else 128)
