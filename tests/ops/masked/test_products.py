"""``gsb.masked_sddmm`` and ``gsb.masked_spmm`` against dense products."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from tests.ops.masked.oracle import operands
from tests.ops.masked.test_sparse_attention import ROUNDING, some_mask

pytestmark = pytest.mark.usefixtures("one_thread")


def dense_of(mask, values, heads):
    """(batch, heads, queries, keys) of values by blocks."""
    batch, side = values.shape[0], mask.block
    out = values.new_zeros(batch, heads, mask.block_rows * side, mask.block_columns * side)
    lines = torch.repeat_interleave(mask.indptr.diff())
    for z, (line, column) in enumerate(zip(lines.tolist(), mask.indices.tolist())):
        which = slice(None) if mask.heads == 1 else slice(line // mask.block_rows, line // mask.block_rows + 1)
        row = line % mask.block_rows * side
        out[:, which, row : row + side, column * side : (column + 1) * side] = values[:, :, z]
    return out[:, :, : mask.shape[0], : mask.shape[1]]


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("of_mask", [1, 3])
def test_products_match_dense_ones(dtype, of_mask):
    mask = some_mask(50, 61, 16, of_mask)
    a, b, v, g = operands(mask, 2, 3, 8, 8, dtype)
    bound = {"rtol": ROUNDING[dtype], "atol": 20 * ROUNDING[dtype]}
    values = gsb.masked_sddmm(mask, a, b)
    assert values.shape == (2, 3 // of_mask, mask.num_blocks, 16, 16) and values.dtype is dtype
    dense = dense_of(mask, values, 3).double()
    expected = torch.where(mask.to_dense(), a.double() @ b.double().transpose(2, 3), 0.0)
    torch.testing.assert_close(dense, expected, **bound)
    # what stands beside the pairs is not looked at
    hidden = torch.cat([mask.tiles.new_ones(1, 16, 16), mask.tiles])[mask.tile.long() + 1] == 0
    spoilt = values.masked_fill(hidden, torch.nan)
    torch.testing.assert_close(gsb.masked_spmm(mask, spoilt, v).double(), dense @ v.double(), **bound)
    turned = gsb.masked_spmm(mask, spoilt, g, transposed=True)
    torch.testing.assert_close(turned.double(), dense.transpose(2, 3) @ g.double(), **bound)


def test_products_on_large_blocks():
    mask = some_mask(230, 150, 140)
    a, b, v, _ = operands(mask, 1, 2, 8, 8, torch.float32)
    values = gsb.masked_sddmm(mask, a, b)
    expected = torch.where(mask.to_dense(), a @ b.transpose(2, 3), 0.0)
    torch.testing.assert_close(dense_of(mask, values, 2), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gsb.masked_spmm(mask, values, v), expected @ v, rtol=1e-4, atol=1e-3)


def test_no_features():
    mask = some_mask(20, 21, 16)
    q, k, v, g = (x.requires_grad_() for x in operands(mask, 1, 2, 0, 8))
    out = gsb.sparse_attention(q, k, v, mask)
    likely = torch.where(mask.to_dense(), 1.0, 0.0).double()
    torch.testing.assert_close(out, likely / likely.sum(2, keepdim=True).clamp(min=1) @ v)
    assert [x.shape for x in torch.autograd.grad(out, (q, k, v), g)] == [x.shape for x in (q, k, v)]
    assert not gsb.masked_sddmm(mask, q, k).any()


def test_gradients_of_products():
    mask = some_mask(20, 21, 16)
    a, b, v, g = (x.requires_grad_() for x in operands(mask, 1, 2, 8, 8))
    values = gsb.masked_sddmm(mask, a, b).detach().requires_grad_()
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda a, b: gsb.masked_sddmm(mask, a, b), (a, b), fast_mode=True)
        assert check(lambda x, v: gsb.masked_spmm(mask, x, v), (values, v), fast_mode=True)
        assert check(lambda x, g: gsb.masked_spmm(mask, x, g, True), (values, g), fast_mode=True)


def test_a_mask_without_blocks():
    mask = gsb.masks.from_dense(torch.zeros(20, 21, dtype=torch.bool), block=16)
    a, b, v, _ = operands(mask, 1, 2, 8, 8)
    values = gsb.masked_sddmm(mask, a, b)
    assert values.shape == (1, 2, 0, 16, 16)
    assert not gsb.masked_spmm(mask, values, v).any()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda m, q, k, v: gsb.sparse_attention(q, k, v, None),
            TypeError,
            "mask must be a gsb.masks.Mask, got NoneType",
        ),
        (lambda m, q, k, v: gsb.sparse_attention(q[0], k, v, m), ValueError, r"q must have shape .* got \(2, 20, 8\)"),
        (lambda m, q, k, v: gsb.sparse_attention(q, k[:, :, :5], v, m), ValueError, r"21 keys .* got \(1, 2, 5, 8\)"),
        (lambda m, q, k, v: gsb.sparse_attention(q, k[..., :5], v, m), ValueError, "same width"),
        (lambda m, q, k, v: gsb.sparse_attention(q, k, v[:, :1], m), ValueError, "sequences and heads of q"),
        (lambda m, q, k, v: gsb.sparse_attention(q, k.float(), v, m), TypeError, "k of torch.float32"),
        (lambda m, q, k, v: gsb.sparse_attention(q.int(), k, v, m), TypeError, "q must be float32"),
        (lambda m, q, k, v: gsb.sparse_attention(q, k, v, m, dropout=1.0), ValueError, "dropout must be .* got 1.0"),
        (lambda m, q, k, v: gsb.sparse_attention(q, k, v, m, scale="1"), ValueError, "scale must be .* got '1'"),
        (
            lambda m, q, k, v: gsb.sparse_attention(q, k, v, some_mask(20, 21, 16, 3)),
            ValueError,
            "the mask has 3 heads, so q",
        ),
        (
            lambda m, q, k, v: gsb.sparse_attention(
                q, k, v, m & gsb.masks.padding(torch.ones(3, 21, dtype=torch.bool))
            ),
            ValueError,
            "is for 3 sequences",
        ),
        (lambda m, q, k, v: gsb.masked_sddmm(m, q, v[..., :3]), ValueError, "a and b must have the same"),
        (lambda m, q, k, v: gsb.masked_spmm(m, q, v), ValueError, r"values must be \(1, 2, "),
    ],
)
def test_errors_quote_what_is_wrong(call, error, words):
    mask = some_mask(20, 21, 16)
    q, k, v, _ = operands(mask, 1, 2, 8, 8)
    with pytest.raises(error, match=words):
        call(mask, q, k, v)
