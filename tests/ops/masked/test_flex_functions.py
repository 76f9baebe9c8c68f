"""The functions of scores and the masks that people write, as PyTorch's own tests of FlexAttention have them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.masked.flex.evaluated import evaluate
from gnn_sparse_backend.ops.masked.flex.trace import traced
from gnn_sparse_backend.ops.masked.programs.modifier import slope
from tests.ops.masked.functions import BATCH, HEADS, LENGTH, MASKS, MODS, OF_ALL_PAIRS, OF_KEYS, WIDTH, causal
from tests.ops.masked.oracle import flex as dense

SLOW = pytest.mark.slow


@pytest.mark.parametrize("name", MODS)
def test_expressions(name):
    """What is read of a function computes what it does, and has its derivative."""
    function, _ = MODS[name]
    found = traced(function, torch.float64)
    generator = torch.Generator().manual_seed(3)
    score = torch.randn(60, generator=generator, dtype=torch.float64).requires_grad_()
    sizes = {"batch": BATCH, "head": HEADS, "query": LENGTH, "key": LENGTH}
    places = {place: torch.randint(0, size, (60,), generator=generator) for place, size in sizes.items()}
    expected = torch.stack([function(s, *at) for s, *at in zip(score, *places.values())])
    ours = evaluate(found.modifier.node, {"score": score, **places}, found.tensors)
    # PyTorch computes functions of whole numbers in float32
    torch.testing.assert_close(ours.expand_as(expected), expected.to(ours.dtype), rtol=1e-7, atol=1e-7)
    slopes = slope(found.modifier.node)
    (wanted,) = torch.autograd.grad(expected.sum(), score)
    ours = torch.zeros(()) if slopes is None else evaluate(slopes, {"score": score, **places}, found.tensors)
    torch.testing.assert_close(ours.double().expand_as(wanted), wanted, rtol=1e-9, atol=1e-9)


def operands() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    shape = BATCH, HEADS, LENGTH, WIDTH
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(3)]


def assert_dense(found: Tensor, given: list[Tensor], mod: Callable | None, captured=(), mask=None) -> None:
    expected, _ = dense(*given, mod, mask)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    flow = torch.randn(found.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    ours, theirs = (torch.autograd.grad(out, [*given, *captured], flow, retain_graph=True) for out in (found, expected))
    for one, other in zip(ours, theirs):
        scale = max(1.0, other.abs().max().item())  # slopes of inverses are steep
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8 * scale)


@pytest.mark.parametrize(
    "name", [name if name in ("sines", "relative bias") else pytest.param(name, marks=SLOW) for name in MODS]
)
def test_functions_of_scores(name):
    given, (function, captured) = operands(), MODS[name]
    assert_dense(gsb.flex_attention(*given, function), given, OF_ALL_PAIRS.get(name, function), captured)


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    """One kernel serves all of them."""
    given, mask = operands(), MASKS[name]
    blocks = create_block_mask(mask, BATCH, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=16)
    if name == "none":
        out = gsb.flex_attention(*given, block_mask=blocks)
        assert out.eq(0).all() and all(x.eq(0).all() for x in torch.autograd.grad(out.sum(), given))
        return
    assert_dense(gsb.flex_attention(*given, block_mask=blocks), given, None, mask=mask)


@pytest.mark.parametrize(
    "name", ["squared", *(pytest.param(n, marks=SLOW) for n in ("causal", "sines", "scale of heads"))]
)
def test_gradcheck(name):
    function, captured = MODS[name]
    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(1, 2, 5, 3, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(3)]

    def both(q, k, v, *_):
        return gsb.flex_attention(q, k, v, function, return_lse=True)

    assert torch.autograd.gradcheck(both, (*given, *captured))


def test_two_parts_of_the_keys_are_put_together_by_their_logarithms():
    given = operands()
    parts = [lambda b, h, q, k: (q >= k) & (q - k <= 9), lambda b, h, q, k: (q >= k) & (q - k > 9)]
    masks = [create_block_mask(mask, None, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=16) for mask in parts]
    (near, near_lse), (far, far_lse) = (gsb.flex_attention(*given, block_mask=mask, return_lse=True) for mask in masks)
    most = torch.maximum(near_lse, far_lse)
    near_part, far_part = ((lse - most).exp()[..., None] for lse in (near_lse, far_lse))
    found = (near * near_part + far * far_part) / (near_part + far_part)
    assert_dense(found, given, None, mask=causal)


def test_dropout_keeps_the_weights_of_its_seed():
    """Gradients of the function's tensors know which weights were dropped."""
    given, (function, captured) = operands(), MODS["scale of heads"]

    def attend(*_):
        torch.manual_seed(5)
        return gsb.flex_attention(*given, function, dropout=0.25)

    assert not torch.allclose(attend(), gsb.flex_attention(*given, function))
    assert torch.equal(attend(), attend())
    assert torch.autograd.gradcheck(attend, (*given, *captured), fast_mode=True)


def test_padding_counts_in_the_gradients_of_captured_tensors():
    given, (function, captured) = operands(), MODS["bias of keys"]
    present = torch.arange(LENGTH) < torch.tensor([[23], [40]])
    mask = gsb.masks.causal(LENGTH, block=16) & gsb.masks.padding(present)
    found = gsb.flex_attention(*given, function, mask)
    assert_dense(found, given, function, captured, lambda b, h, q, k: (q >= k) & present[b, k])


def test_scores_that_forget_their_products():
    """A function of places alone, which PyTorch compiles no backward pass of; a condition counts as 0 and 1."""
    given = operands()
    found = gsb.flex_attention(*given, lambda s, b, h, q, k: q >= k)
    assert_dense(found, given, lambda s, b, h, q, k: 0 * s + (q >= k).double())


def test_operands_that_lie_in_others():
    """Queries and keys are halves of one product, values columns; some keys are cut off."""
    generator = torch.Generator().manual_seed(1)
    both = torch.randn(BATCH, LENGTH, HEADS, 2 * WIDTH, generator=generator, dtype=torch.float64).requires_grad_()
    columns = torch.randn(BATCH, HEADS, WIDTH, LENGTH, generator=generator, dtype=torch.float64).requires_grad_()

    def attend(attention):
        q, k = (x.transpose(1, 2) for x in both.chunk(2, 3))
        out = attention(q, k[:, :, :-3], columns.transpose(2, 3)[:, :, :-3])
        return torch.autograd.grad(out.sin().sum(), (both, columns))

    found = attend(lambda q, k, v: gsb.flex_attention(q, k, v, MODS["times two"][0]))
    expected = attend(lambda q, k, v: dense(q, k, v, MODS["times two"][0])[0])
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_tensors_have_their_types(dtype):
    """They are summed up in float32 and rounded once."""
    given = [x.detach().to(dtype).requires_grad_() for x in operands()]
    bias = OF_KEYS.detach().to(dtype).requires_grad_()
    out = gsb.flex_attention(*given, lambda s, b, h, q, k: s + bias[k])
    exact = [x.detach().double().requires_grad_() for x in (*given, bias)]
    expected, _ = dense(*exact[:3], lambda s, b, h, q, k: s + exact[3][k])
    found, wanted = (
        torch.autograd.grad(x.double().square().sum(), y) for x, y in ((out, [*given, bias]), (expected, exact))
    )
    for one, other in zip(found, wanted):
        assert one.dtype is dtype
        torch.testing.assert_close(one.double(), other, rtol=2e-2, atol=2e-2 * other.abs().max().item())


def few(queries: int, of_keys: int = 1, keys: int = LENGTH) -> list[Tensor]:
    generator = torch.Generator().manual_seed(4)
    shapes = (HEADS * 2, queries, WIDTH), (of_keys, keys, WIDTH), (of_keys, keys, WIDTH)
    return [torch.randn(BATCH, *shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("of", ["all", "padding", "sequences"])
def test_few_queries_of_heads_that_share_keys(of):
    """They are computed together, whatever hides keys from them."""
    given = few(2)
    present = torch.arange(LENGTH) < torch.tensor([[23], [40]])
    mod = lambda s, b, h, q, k: 2 * torch.tanh(s / 2) + OF_KEYS[k]
    mask, hides = None, None
    if of == "padding":
        mask, hides = gsb.masks.band((2, LENGTH), 1, 30, block=16) & gsb.masks.padding(present), None
        hides = lambda b, h, q, k: (k >= q - 1) & (k <= q + 30) & present[b, k]
    elif of == "sequences":
        hides = lambda b, h, q, k: (k <= q + 20) & present[b, k]
        mask = create_block_mask(hides, BATCH, None, 2, LENGTH, device="cpu", BLOCK_SIZE=16)
    found = gsb.flex_attention(*given, mod, mask, enable_gqa=True)
    repeated = [given[0], *(x.repeat_interleave(4, 1) for x in given[1:])]
    expected, _ = dense(*repeated, mod, hides)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    flow = torch.randn(found.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    ours, theirs = (torch.autograd.grad(out, [*given, OF_KEYS], flow) for out in (found, expected))
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_few_queries_never_see_keys_that_are_away(dtype):
    """Keys and values are read in place; what is away may be NaN."""
    generator = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(2, h, n, 32, generator=generator).to(dtype) for h, n in ((6, 2), (2, 200), (2, 200)))
    present = torch.arange(200) < torch.tensor([[130], [200]])
    mask = gsb.masks.full((2, 200)) & gsb.masks.padding(present)
    expected, _ = dense(*(x.double() for x in (q, k, v)), None, lambda b, h, i, j: present[b, j] & (i >= 0))
    k[0, :, 130:] = v[0, :, 130:] = torch.nan
    found, _ = gsb.flex_attention(q, k, v, None, mask, enable_gqa=True, return_lse=True)
    rounding = 1e-5 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(found.double(), expected, rtol=rounding, atol=rounding)


def test_pages_of_a_cache():
    """Keys of all sequences lie in the pages of one cache, in the order in which they were taken."""
    paged = pytest.importorskip("torch.nn.attention.experimental._paged_attention")
    page, lengths = 16, (23, 40)
    q, k, v = (x.detach() for x in few(1, of_keys=HEADS * 2, keys=48))
    cache = paged.PagedAttention(8, page, BATCH, device="cpu")
    for taken in ((10, 20), (23, 40)):
        for b, length in enumerate(taken):
            cache.reserve(torch.tensor(b), torch.tensor(length))
    stored = [torch.zeros(1, HEADS * 2, 8 * page, WIDTH, dtype=torch.float64) for _ in range(2)]
    at = torch.arange(48)
    for b, length in enumerate(lengths):
        cache.assign(torch.tensor([b]), at[None, :length], *(x[b : b + 1, :, :length] for x in (k, v)), *stored)
    allowed = lambda b, h, q, k: k < torch.tensor(lengths)[b]
    logical = create_block_mask(allowed, BATCH, None, 1, 48, device="cpu", BLOCK_SIZE=page)
    mod = lambda s, b, h, q, k: s + 0.125 * k
    blocks, moved = cache.convert_logical_block_mask(logical), cache.get_score_mod(mod)
    found = gsb.flex_attention(q, *stored, moved, blocks)
    torch.testing.assert_close(found, dense(q, k, v, mod, allowed)[0], rtol=1e-9, atol=1e-9)
