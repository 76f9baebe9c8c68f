"""Masks of ours as PyTorch's ``BlockMask`` and back, and masks of sequences of different lengths."""

from __future__ import annotations

import functools
import re

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend import masks

flex = pytest.importorskip("torch.nn.attention.flex_attention")

OURS = {
    "band": lambda: masks.band(45, 7, 3, global_tokens=[4], block=16),
    "rectangular": lambda: masks.causal((29, 45), block=8),
    "whole blocks": lambda: masks.butterfly(64, 16),
    "none": lambda: masks.from_dense(torch.zeros(20, 33, dtype=torch.bool), block=8),
    "of heads": lambda: masks.heads([masks.band(45, 7, 3, block=16), masks.full(45, block=16)]),
}


def asked(block_mask) -> torch.Tensor:
    """What the function of a block mask says of each pair, where its lists of blocks have it."""
    batch, heads = block_mask.kv_num_blocks.shape[:2]
    at = [torch.arange(n) for n in (batch, heads, *block_mask.seq_lengths)]
    places = [x.view(*(-1 if d == n else 1 for d in range(4))) for n, x in enumerate(at)]
    found = block_mask.mask_mod(*torch.broadcast_tensors(*places))
    tall, wide = block_mask.BLOCK_SIZE
    listed = block_mask.to_dense().bool().repeat_interleave(tall, 2).repeat_interleave(wide, 3)
    return found & listed[:, :, : found.shape[2], : found.shape[3]]


@pytest.mark.parametrize("name", OURS)
def test_there_and_back(name):
    mask = OURS[name]()
    block_mask = masks.to_block_mask(mask)
    assert block_mask.shape == (1, mask.heads, *mask.shape)
    assert torch.equal(asked(block_mask)[0], mask.to_dense())
    back = masks.from_block_mask(block_mask)
    assert back.fingerprint == mask.fingerprint


def test_whole_blocks_are_listed_as_such():
    block_mask = masks.to_block_mask(masks.causal(64, block=16))
    assert block_mask.full_kv_num_blocks.flatten().tolist() == [0, 1, 2, 3]
    assert block_mask.kv_num_blocks.flatten().tolist() == [1, 1, 1, 1]


def test_padding_is_of_sequences():
    mask = masks.band(45, 20, 3, block=16) & masks.padding(torch.tensor([45, 19, 0]), 45)
    block_mask = masks.to_block_mask(mask)
    expected = mask.to_dense()[None] & mask.padding[:, None, None, :]
    assert torch.equal(asked(block_mask), expected)
    planes = masks.from_block_mask(block_mask)
    assert (planes.batch, planes.heads) == (3, 1) and torch.equal(planes.dense(), expected)
    assert torch.equal(masks.from_block_mask(masks.to_block_mask(planes)).dense(), expected)


@pytest.mark.parametrize("size", [(16, 16), (32, 16), (16, 48)])
def test_block_masks_of_pytorch(size):
    shift = torch.tensor([1, 9])
    allowed = lambda b, h, q, k: (q - k) % (h + 2) < shift[b]
    block_mask = flex.create_block_mask(allowed, 2, 3, 45, 50, device="cpu", BLOCK_SIZE=size)
    planes = masks.from_block_mask(block_mask)
    places = [torch.arange(n).view(*(-1 if d == m else 1 for d in range(4))) for m, n in enumerate((2, 3, 45, 50))]
    assert torch.equal(planes.dense(), allowed(*places))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [[7, 0, 30, 1, 1, 25], [64], [5] * 13, [], torch.tensor([40, 40])])
def test_documents(lengths, causal):
    mask = masks.documents(lengths, causal=causal, block=16)
    own = torch.repeat_interleave(torch.as_tensor(lengths, dtype=torch.int64))
    expected = own[:, None] == own
    expected = expected.tril() if causal else expected
    assert torch.equal(mask.to_dense()[0], expected)
    assert mask.fingerprint == masks.from_dense(expected, block=16).fingerprint


FORMS = "as it is", "lists as short as they can be", "whole blocks as others", "no lists of queries"


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_a_block_mask(form):
    """One mask, however PyTorch lists its blocks."""
    document = torch.arange(45).clamp(max=30) // 9
    either = lambda b, h, q, k: (q >= k) | (document[q] == document[k])
    given = flex.create_block_mask(either, 2, None, 45, 45, device="cpu", BLOCK_SIZE=16)
    partly, full = (given.kv_num_blocks, given.kv_indices), (given.full_kv_num_blocks, given.full_kv_indices)
    made = functools.partial(flex.BlockMask.from_kv_blocks, BLOCK_SIZE=16, mask_mod=either, seq_lengths=(45, 45))
    if form == FORMS[1]:
        short = [(count, at[..., : max(int(count.max()), 1)].contiguous()) for count, at in (partly, full)]
        given = made(*short[0], *short[1])
    elif form == FORMS[2]:
        given = made(torch.full((2, 1, 3), 3), torch.arange(3).expand(2, 1, 3, 3))
    elif form == FORMS[3]:
        given = made(*partly, *full, compute_q_blocks=False)
        assert given.q_indices is None
    at = torch.arange(45)
    assert torch.equal(masks.from_block_mask(given).dense()[1, 0], either(0, 0, at[:, None], at))


def test_a_row_of_a_block_mask():
    """PyTorch's way to decode: the row of blocks of a query, whose function is shifted to it."""
    at = 37
    causal = lambda b, h, q, k: q >= k
    row = flex.create_block_mask(causal, 2, None, 45, 45, device="cpu", BLOCK_SIZE=16)[:, :, at // 16]
    with pytest.raises(RuntimeError, match="sliced BlockMask"):
        masks.from_block_mask(row)
    row.mask_mod = lambda b, h, q, k: q + at >= k
    row.seq_lengths = 1, 45
    assert masks.from_block_mask(row).dense()[1, 0, 0].nonzero().flatten().tolist() == [*range(at + 1)]


@pytest.mark.parametrize("queries", [1, 3, 11])
def test_pages(queries):
    """Sequences of 23, 40 and 12 keys in pages of 8."""
    page, count, lengths = 8, 12, torch.tensor([23, 40, 12])
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    table = torch.full((3, 5), -1)
    for b, (first, used) in enumerate(((0, 3), (3, 5), (8, 2))):
        table[b, :used] = order[first : first + used]
    planes = masks.pages(table, lengths, page, count=count, queries=queries)
    expected = torch.zeros(3, 1, queries, count * page, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        for query in range(queries):
            for key in range(length - queries + query + 1):
                expected[b, 0, query, table[b, key // page] * page + key % page] = True
    assert torch.equal(planes.dense(), expected)
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(3, 4, queries, 6, generator=generator)
    k, v = (torch.randn(1, 2, count * page, 6, generator=generator) for _ in range(2))
    found = gsb.flex_attention(q, k, v, block_mask=planes, enable_gqa=True)
    own = [x.repeat_interleave(2, 1).expand(3, -1, -1, -1).double() for x in (k, v)]
    exact = torch.nn.functional.scaled_dot_product_attention(q.double(), *own, attn_mask=expected)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


def test_errors():
    table = torch.tensor([[0, 1]])
    for call, error, said in (
        (lambda: masks.from_block_mask(masks.causal(4)), TypeError, "block_mask must be PyTorch's BlockMask, got Mask"),
        (lambda: masks.to_block_mask(table), TypeError, "mask must be a gsb.masks.Mask or Planes, got Tensor"),
        (lambda: masks.documents([3, -1]), ValueError, "lengths"),
        (lambda: masks.documents([3], causal=1), TypeError, "causal must be True or False, got 1"),
        (lambda: masks.pages(table, torch.tensor([9]), 4, count=2), ValueError, "lengths"),
        (lambda: masks.pages(table, torch.tensor([8]), 4, count=1), ValueError, "table"),
        (lambda: masks.pages(table * 0, torch.tensor([8]), 4, count=2), ValueError, "a page twice"),
        (lambda: masks.pages(table.float(), torch.tensor([8]), 4, count=2), TypeError, "(1, 2) of torch.float32"),
    ):
        with pytest.raises(error, match=re.escape(said)):
            call()
