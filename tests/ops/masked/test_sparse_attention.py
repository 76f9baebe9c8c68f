"""``gsb.sparse_attention`` against dense masked attention in float64: values and gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gnn_sparse_backend as gsb
from tests.ops.masked.oracle import attention, keep_mask, operands

ROUNDING = {torch.float64: 1e-11, torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}


pytestmark = pytest.mark.usefixtures("one_thread")  # whose kernels the tests share


def some_mask(queries, keys, block, heads=1, seed=0, density=0.2):
    """Whole blocks, parts of some, none of others, and a query without any key."""
    generator = torch.Generator().manual_seed(seed)
    dense = torch.rand(heads, queries, keys, generator=generator) < density
    blocks = torch.rand(heads, -(-queries // block), -(-keys // block), generator=generator)
    blocks = blocks.repeat_interleave(block, 1).repeat_interleave(block, 2)[:, :queries, :keys]
    dense = (dense & (blocks < 0.7)) | (blocks < 0.2)
    dense[:, queries // 2] = False
    return gsb.masks.from_dense(dense, block=block, of="heads")


def check(mask, batch, heads, width, value_width, dtype, scale=None, **options):
    q, k, v, g = operands(mask, batch, heads, width, value_width, dtype)
    ours = [x.clone().requires_grad_() for x in (q, k, v)]
    theirs = [x.double().requires_grad_() for x in (q, k, v)]
    out = gsb.sparse_attention(*ours, mask, scale)
    expected = attention(*theirs, mask, scale)
    assert out.dtype is dtype and out.is_contiguous() and out.shape == expected.shape
    out.backward(g)
    expected.backward(g.double())
    bound = ROUNDING[dtype]
    for found, wanted in ((out, expected), *((x.grad, y.grad) for x, y in zip(ours, theirs))):
        torch.testing.assert_close(
            found.double(), wanted, rtol=bound, atol=bound * max(1.0, float(wanted.detach().abs().max()))
        )


@pytest.mark.parametrize("dtype", ROUNDING)
def test_matches_dense_attention_in_every_type(dtype):
    check(some_mask(70, 90, 16), 2, 3, 8, 8, dtype)


SIZES = [(8, 1, 1)]
SIZES += [pytest.param(*each, marks=pytest.mark.exhaustive) for each in [(20, 5, 7), (64, 64, 32), (128, 16, 3)]]
SIZES += [pytest.param(*each, marks=pytest.mark.exhaustive) for each in [(200, 4, 4), (1, 2, 3)]]


@pytest.mark.parametrize(("block", "width", "value_width"), SIZES)
def test_matches_whatever_block_and_width(block, width, value_width):
    check(some_mask(150, 131, block, seed=block), 1, 2, width, value_width, torch.float32, 0.3)


REACHING = [(64, 8, torch.float64, True)]
REACHING += [
    pytest.param(block, 12, dtype, padded, marks=pytest.mark.exhaustive)
    for block in (64, 100)
    for dtype in ROUNDING
    for padded in (False, True)
]


@pytest.mark.parametrize(("block", "value_width", "dtype", "padded"), REACHING)
def test_matches_where_groups_of_queries_reach_some_keys_of_a_block(block, value_width, dtype, padded):
    """Triangles, single rows and columns, groups of queries that reach nothing, and keys that are not there."""
    mask = gsb.masks.band(310, 70, 33, block=block, global_tokens=[3, 170])
    if padded:
        mask = mask & gsb.masks.padding(torch.arange(310)[None] % 5 != 3)
    check(mask, 1, 2, 8, value_width, dtype)


@settings(max_examples=2, deadline=None)
@given(st.data())
def test_matches_whatever_the_lengths(data):
    check_lengths(data)


@pytest.mark.exhaustive
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_matches_whatever_many_lengths(data):
    check_lengths(data)


def check_lengths(data):
    queries, keys = data.draw(st.integers(1, 70), "queries"), data.draw(st.integers(1, 70), "keys")
    heads = data.draw(st.sampled_from([1, 3]), "heads of the mask")
    mask = some_mask(queries, keys, 16, heads, data.draw(st.integers(0, 99)), data.draw(st.sampled_from([0.0, 0.1, 1])))
    batch = data.draw(st.integers(1, 3), "batch")
    if data.draw(st.booleans(), "padding"):
        mask = mask & gsb.masks.padding(torch.rand(batch, keys) < 0.6)
    check(mask, batch, 3, 8, 8, torch.float64)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_a_query_without_keys_is_zero_and_has_no_gradient(dtype):
    mask = some_mask(40, 40, 16)
    q, k, v, g = (x.requires_grad_() for x in operands(mask, 1, 2, 8, 8, dtype))
    out = gsb.sparse_attention(q, k, v, mask)
    out.backward(g)
    assert out[:, :, 19].any() and q.grad[:, :, 19].any()
    assert not out[:, :, 20].any() and not q.grad[:, :, 20].any()
    empty = gsb.masks.from_dense(torch.zeros(40, 40, dtype=torch.bool), block=16)
    out = gsb.sparse_attention(q, k, v, empty)
    assert not out.any() and not any(x.any() for x in torch.autograd.grad(out, (q, k, v), g))


def test_keys_that_nobody_may_attend_are_never_seen():
    dense = torch.rand(50, 50, generator=torch.Generator().manual_seed(1)) < 0.5
    dense[:, [0, 7, 31, 49]] = False
    mask = gsb.masks.from_dense(dense, block=16)
    mask = mask & gsb.masks.padding(torch.arange(50)[None] != 5)
    q, k, v, g = operands(mask, 1, 2, 8, 8)
    wanted = [x.clone().requires_grad_() for x in (q, k, v)]
    gsb.sparse_attention(*wanted, mask).backward(g)
    expected = gsb.sparse_attention(q, k, v, mask)
    for bad in (torch.nan, torch.inf, -torch.inf):
        spoilt = [x.clone() for x in (q, k, v)]
        for x in spoilt[1:]:
            x[:, :, [0, 5, 7, 31, 49]] = bad
        spoilt = [x.requires_grad_() for x in spoilt]
        out = gsb.sparse_attention(*spoilt, mask)
        torch.testing.assert_close(out, expected, rtol=0, atol=0)
        out.backward(g)
        for x, y in zip(spoilt, wanted):
            torch.testing.assert_close(x.grad, y.grad, rtol=0, atol=0)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_keys_outside_of_what_a_group_of_queries_reaches_are_never_seen(bad):
    """Queries 80 to 126 attend keys 100 to 106, so their results are spoilt; those of other groups are not, though they
    are of the same block. A group has 64 queries at most. Gradients are spoilt with the block.
    """
    mask = gsb.masks.band(256, 20, 20, block=128)
    q, k, v, g = (x.float() for x in operands(mask, 1, 1, 8, 8))
    results = []
    for value in (0.0, bad):
        given = [x.clone() for x in (q, k, v)]
        for x in given[1:]:
            x[:, :, 100:107] = value
        given = [x.requires_grad_() for x in given]
        out = gsb.sparse_attention(*given, mask)
        out.backward(g)
        results.append((out, given[0].grad))
    for found, wanted, before in zip(*reversed(results), (64, 0)):
        for whole in (slice(0, before), slice(128, 256)):
            torch.testing.assert_close(found[:, :, whole], wanted[:, :, whole], rtol=0, atol=0)
        assert not found[:, :, 80:127].isfinite().all(3).any()


def test_nan_of_a_key_reaches_those_who_may_attend_it():
    mask = gsb.masks.band(64, 4, 4, block=16)
    q, k, v, _ = operands(mask, 1, 1, 8, 8)
    k[:, :, 30] = torch.nan
    out = gsb.sparse_attention(q, k, v, mask)
    assert out[:, :, 26:35].isnan().all() and not out[:, :, :16].isnan().any()


def test_operands_of_any_strides():
    mask = some_mask(40, 40, 16)
    q, k, v, _ = operands(mask, 2, 3, 8, 8)
    expected = gsb.sparse_attention(q, k, v, mask)
    projected = torch.stack([q, k, v], 3).transpose(1, 2).contiguous()  # (batch, length, heads, 3, width)
    views = [x.transpose(1, 2) for x in projected.unbind(3)]
    assert not any(x.is_contiguous() for x in views)
    torch.testing.assert_close(gsb.sparse_attention(*views, mask), expected, rtol=0, atol=0)
    turned = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in (q, k, v)]
    torch.testing.assert_close(gsb.sparse_attention(*turned, mask), expected, rtol=0, atol=0)
    one = q[:1, :1].expand(2, 3, -1, -1)
    torch.testing.assert_close(
        gsb.sparse_attention(one, k, v, mask), gsb.sparse_attention(one.clone(), k, v, mask), rtol=0, atol=0
    )


@pytest.mark.parametrize(
    "dtype", [torch.float64, *(pytest.param(other, marks=pytest.mark.exhaustive) for other in [*ROUNDING][1:])]
)
def test_bits_do_not_depend_on_threads(dtype, set_threads):
    mask = some_mask(300, 300, 16)
    q, k, v, g = (x.requires_grad_() for x in operands(mask, 1, 3, 8, 8, dtype))
    found = []
    for threads in (1, 2):
        set_threads(threads)
        out = gsb.sparse_attention(q, k, v, mask)
        found.append((out, *torch.autograd.grad(out, (q, k, v), g)))
    for x, y in zip(*found):
        assert torch.equal(x, y)


@pytest.mark.parametrize("padding", [False, True])
def test_gradients_of_first_and_second_order(padding):
    mask = some_mask(20, 21, 16, 2)
    if padding:
        mask = mask & gsb.masks.padding(torch.arange(21)[None] % 4 != 1)
    q, k, v, _ = (x.requires_grad_() for x in operands(mask, 1, 2, 8, 8))
    assert torch.autograd.gradcheck(lambda q, k, v: gsb.sparse_attention(q, k, v, mask), (q, k, v), fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda q, k, v: gsb.sparse_attention(q, k, v, mask), (q, k, v), fast_mode=True)
    same = operands(some_mask(20, 20, 16), 1, 2, 8, 8)[0].requires_grad_()
    square = some_mask(20, 20, 16)
    assert torch.autograd.gradgradcheck(lambda x: gsb.sparse_attention(x, x, x, square), same, fast_mode=True)


def test_dropout_is_that_of_the_seed():
    mask = some_mask(60, 60, 16)
    q, k, v, g = operands(mask, 2, 3, 8, 8)
    ours = [x.clone().requires_grad_() for x in (q, k, v)]
    theirs = [x.clone().requires_grad_() for x in (q, k, v)]
    torch.manual_seed(3)
    out = gsb.sparse_attention(*ours, mask, dropout=0.3)
    torch.manual_seed(3)
    assert torch.equal(out, gsb.sparse_attention(*ours, mask, dropout=0.3))
    assert not torch.equal(out, gsb.sparse_attention(*ours, mask, dropout=0.3))
    torch.manual_seed(3)
    keep = keep_mask(torch.randint(0, 2**31, (2,)), 6, 60, 60, 0.3).view(2, 3, 60, 60)
    expected = attention(*theirs, mask, None, keep, 0.3)
    torch.testing.assert_close(out, expected)
    out.backward(g)
    expected.backward(g)
    for x, y in zip(ours, theirs):
        torch.testing.assert_close(x.grad, y.grad)

    def seeded(q, k, v):
        torch.manual_seed(3)
        return gsb.sparse_attention(q, k, v, mask, dropout=0.3)

    assert torch.autograd.gradgradcheck(seeded, tuple(ours), fast_mode=True)


def test_dropped_weights_are_independent():
    keep = keep_mask(torch.tensor([1, 2]), 4, 300, 300, 0.3).double()
    assert abs(keep.mean() - 0.7) < 0.003
    rest = keep - 0.7
    for other in (rest.roll(1, 0), rest.roll(1, 1), rest.roll(1, 2), rest.transpose(1, 2), rest.roll((1, 1), (1, 2))):
        assert abs((rest * other).mean()) < 0.002
    for line in (1, 2):
        assert abs(keep.mean(line).std() - (0.21 / 300) ** 0.5) < 0.003
    assert (keep_mask(torch.tensor([1, 3]), 4, 300, 300, 0.3) != keep.bool()).double().mean() > 0.4


def test_under_compile_autocast_and_fake_tensors():
    mask = some_mask(40, 40, 16) & gsb.masks.padding(torch.arange(40)[None] > 2)
    q, k, v, g = operands(mask, 2, 3, 8, 8)
    ours = [x.clone().requires_grad_() for x in (q, k, v)]
    eager = gsb.sparse_attention(*ours, mask)
    compiled = torch.compile(lambda q, k, v: gsb.sparse_attention(q, k, v, mask), fullgraph=True, backend="aot_eager")
    found = compiled(*ours)
    torch.testing.assert_close(found, eager)
    for x, y in zip(torch.autograd.grad(found, ours, g), torch.autograd.grad(eager, ours, g)):
        torch.testing.assert_close(x, y)
    with torch.autocast("cpu", torch.bfloat16):
        assert gsb.sparse_attention(q.float(), k.float(), v.float(), mask).dtype is torch.bfloat16
    arrays = (mask.indptr, mask.indices, mask.tile, mask.tiles, mask.padding, 40, 40, 1)
    torch.library.opcheck(torch.ops.gsb.masked_attention.default, (*arrays, *ours, None, 0.3, 0.0))
    torch.library.opcheck(torch.ops.gsb.masked_sddmm.default, (*arrays, *ours[:2]))
    values = gsb.masked_sddmm(mask, q, k).requires_grad_()
    torch.library.opcheck(torch.ops.gsb.masked_spmm.default, (*arrays, values, ours[2], False))


def test_scores_that_overflow_weigh_nothing():
    """Minus infinity beside a finite score has no weight, however large its value is; alone it gives 0."""
    q = torch.tensor([1e30, 1e30, 0.0]).view(1, 1, 3, 1)
    k = torch.tensor([-1e30, 0.0, -1e30]).view(1, 1, 3, 1)
    v = torch.tensor([1e38, 2.0, 3e38]).view(1, 1, 3, 1)
    allowed = torch.tensor([[True, True, True], [True, False, True], [False, True, False]])
    found = gsb.sparse_attention(q, k, v, gsb.masks.blocks(allowed, 1), scale=1.0)
    assert found.flatten().tolist() == [2.0, 0.0, 2.0]


def test_a_mask_of_each_sequence_is_not_taken_for_one_of_each_head():
    allowed = torch.rand(3, 10, 12, generator=torch.Generator().manual_seed(0)) < 0.5
    q, k = torch.randn(3, 3, 10, 8), torch.randn(3, 3, 12, 8)
    guessed, said = gsb.masks.from_dense(allowed, block=16), gsb.masks.from_dense(allowed, block=16, of="heads")
    for mask in (guessed, guessed & gsb.masks.padding(torch.ones(3, 12, dtype=torch.bool)), guessed | guessed):
        with pytest.raises(ValueError, match="as many sequences; say masks.from_dense"):
            gsb.sparse_attention(q, k, k, mask)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=allowed[None])
    torch.testing.assert_close(gsb.sparse_attention(q, k, k, said), expected.nan_to_num())
    one = gsb.sparse_attention(q[:1], k[:1], k[:1], guessed)  # there is nothing to be taken for another
    torch.testing.assert_close(one, expected[:1].nan_to_num())
    with pytest.raises(ValueError, match="of must be 'heads' or None, got 'batch'"):
        gsb.masks.from_dense(allowed, of="batch")
