"""The code of the kernels of composed matrices for a GPU: TVM makes it, nvcc takes it, nothing is spilled."""

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.formats import decompose
from tests.ops.composed.test_products import matrix, randn
from tests.ops.composed.test_products_cuda import blocks_of
from tests.ops.recorded_code import Kernels


def used(recorded_gpu, found, name, parts, dtype, features):
    values = randn(parts.nnz, dtype=dtype).requires_grad_()
    n = parts.shape[1]
    x, tokens = randn(n, features, dtype=dtype).requires_grad_(), randn(features, n, dtype=dtype).requires_grad_()
    for product, operand in ((gsb.composed_spmm, x), (gsb.composed_linear, tokens)):
        recorded_gpu.clear()
        product(parts, values, operand).sum().backward()
        found.add(f"{name}: {product.__name__}", recorded_gpu)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_all_formats(dtype, recorded_gpu, matmul_precision, tmp_path):
    """Forward and backward, on sm_80 and sm_90; blocks go to the Tensor Cores."""
    found, kind = Kernels(), getattr(torch, dtype)
    for side in (8, 32) if dtype == "float32" else (16, 32):
        parts = decompose(blocks_of(70, 99, (side, side)), [f"dbsr({side})"], fill=1.0)
        for features in (128, 33):
            used(recorded_gpu, found, f"blocks of {side}", parts, kind, features)
    assert found.programs(promised=True) == {"composed_blocks"}
    for formats in (["bsr(8)", "csr"], ["sr_bcrs(4, 2)", "dia"], ["dbsr(4)", "ell(2)", "csr"]):
        parts = decompose(matrix(70, 99), formats)
        for features in (128, 7):
            used(recorded_gpu, found, " + ".join(formats), parts, kind, features)
    found.check(dtype, "sm_80", tmp_path)


@pytest.mark.slow
def test_full_precision(recorded_gpu, matmul_precision, tmp_path):
    torch.set_float32_matmul_precision("highest")
    found = Kernels()
    parts = decompose(blocks_of(70, 99, (32, 32)), ["bsr(32)"], fill=1.0)
    used(recorded_gpu, found, "blocks of 32", parts, torch.float32, 128)
    assert not found.programs(promised=True) and "composed_blocks" in found.programs()
    found.check("float32", "sm_80", tmp_path)
