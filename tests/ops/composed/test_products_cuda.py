"""Products of composed matrices as on a GPU, their kernels run serially on the CPU, against float64."""

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.formats import decompose
from gnn_sparse_backend.ops.composed import executables_cuda
from tests.ops.composed.test_products import close, matrix, randn


def blocks_of(m, n, side, keep=0.4, seed=0):
    """Full blocks, rows of blocks without any, and borders that no block divides."""
    rng = torch.Generator().manual_seed(seed)
    rows, columns = m // side[0], n // side[1]
    kept = (torch.rand(rows, columns, generator=rng) < keep) & (torch.arange(rows)[:, None] != 1)
    found = torch.zeros(m, n, dtype=torch.float64)
    full = kept.repeat_interleave(side[0], 0).repeat_interleave(side[1], 1)
    found[: rows * side[0], : columns * side[1]] = torch.randn(full.shape, dtype=torch.float64, generator=rng) * full
    return found


THREE = ["composed_spmm", "composed_blocks", "composed_blocks"]


@pytest.mark.parametrize(
    "dtype, precision, formats, side, features, launched",
    [
        (torch.float16, "high", ["bsr(16)"], (16, 16), 40, ["composed_blocks"]),
        (torch.bfloat16, "high", ["dbsr(32)"], (32, 32), 70, ["composed_blocks"]),
        (torch.float32, "high", ["bsr(8)"], (8, 8), 33, ["composed_blocks"]),
        (torch.bfloat16, "high", ["bsr(16)", "csr"], (16, 16), 9, ["composed_spmm", "composed_blocks"]),
        (torch.float32, "highest", ["bsr(16)", "bsr(8)", "csr"], (16, 16), 129, THREE),
        (torch.float32, "highest", ["dbsr(24)"], (24, 24), 5, ["composed_blocks"]),
        (torch.float64, "highest", ["bsr(8)", "csr"], (8, 8), 130, ["composed_spmm"]),
        (torch.float16, "high", ["bsr(12)"], (12, 12), 8, ["composed_spmm"]),
    ],
    ids=str,
)
def test_blocks(dtype, precision, formats, side, features, launched, serial_gpu, matmul_precision):
    """Full blocks go to blocks of warps, one launch for each piece, what is left to teams."""
    torch.set_float32_matmul_precision(precision)
    m, n = 3 * side[0] + 5, 4 * side[1] + 3
    dense = blocks_of(m, n, side)
    if "csr" in formats:
        dense[-1, ::3] = 1.5
    if "bsr(8)" in formats:
        dense[side[0] : side[0] + 8, :8] = 0.5
    parts = decompose(dense, formats, fill=1.0)
    values = parts.values_of(dense).to(dtype).requires_grad_()
    exact = parts.to_dense(values.detach().double()).requires_grad_()
    x, tokens = (randn(*shape, dtype=dtype).requires_grad_() for shape in ((n, features), (features, n)))
    u = randn(m, features, dtype=dtype)
    y = gsb.composed_spmm(parts, values, x)
    assert serial_gpu == launched
    close(y.detach(), (exact @ x.double()).detach(), dtype)
    close(gsb.composed_linear(parts, values, tokens).detach(), (tokens.double() @ exact.T).detach(), dtype)
    close(gsb.composed_sddmm(parts, u, x).detach(), parts.values_of(u.double() @ x.detach().double().T), dtype)
    g = randn(m, features, seed=5, dtype=dtype)
    to_values, to_x = torch.autograd.grad(y, (values, x), g)
    close(to_values, parts.values_of(g.double() @ x.detach().double().T), dtype)
    close(to_x, exact.detach().T @ g.double(), dtype)


@pytest.mark.parametrize(
    "formats",
    [["csr"], ["bsr(8)", "ell(2)", "csr"], ["sr_bcrs(4, 2)"], ["dia", "csr"], ["hyb(1, 2)", "csr"]],
    ids=str,
)
def test_an_infinity_stays_in_its_column(formats, serial_gpu):
    dense = matrix(29, 23, 0.2)
    parts = decompose(dense, formats)
    values, x = parts.values_of(dense).float(), randn(23, 6, dtype=torch.float32)
    x[20, 1], x[3, 2] = torch.inf, torch.nan
    want = torch.stack([row[row != 0] @ x.double()[row != 0] for row in parts.to_dense(values.double())])
    close(gsb.composed_spmm(parts, values, x), want, torch.float32)


@pytest.mark.parametrize("formats, side", [(["bsr(8)"], 8), (["bsr(4)", "csr"], 4)], ids=str)
def test_batches_beyond_a_grid(formats, side, serial_gpu, monkeypatch):
    """A grid has room for some matrices of a batch: others are launches of their own."""
    monkeypatch.setattr(executables_cuda, "MOST", 4)
    dense = blocks_of(20, 30, (side, side))
    parts = decompose(dense, formats, fill=1.0)
    values, x = randn(5, parts.nnz, dtype=torch.float32), randn(5, 30, 150, dtype=torch.float32)
    want = torch.stack([parts.to_dense(own.double()) for own in values]) @ x.double()
    close(gsb.composed_spmm(parts, values, x), want, torch.float32)
    assert len(serial_gpu) > 1
    u = randn(5, 20, 150, dtype=torch.float32)
    want = torch.stack([parts.values_of(a.double() @ b.double().T) for a, b in zip(u, x)])
    close(gsb.composed_sddmm(parts, u, x), want, torch.float32)
    monkeypatch.setattr(executables_cuda, "MOST", 1)
    with pytest.raises(ValueError, match="has room for 1 tiles of columns, got"):
        gsb.composed_spmm(parts, values, x)
