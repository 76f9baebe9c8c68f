"""The functions of scores and the masks that people write, as PyTorch's own tests of FlexAttention have them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import and_masks, create_block_mask, noop_mask, or_masks
from torch.nn.functional import silu

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.masked.flex.evaluated import evaluate
from gnn_sparse_backend.ops.masked.flex.trace import traced
from gnn_sparse_backend.ops.masked.programs.modifier import slope
from tests.ops.masked.oracle import flex as dense

BATCH, HEADS, LENGTH, WIDTH, WINDOW = 2, 2, 40, 4, 3
SLOW = pytest.mark.slow
never = float("-inf")
_generator = torch.Generator().manual_seed(0)


def table(*shape: int) -> Tensor:
    return torch.randn(shape, generator=_generator, dtype=torch.float64).requires_grad_()


OF_HEADS, OF_BATCHES, OF_QUERIES, OF_KEYS = table(HEADS), table(BATCH), table(LENGTH), table(LENGTH)
OF_PAIRS, OF_ALL = table(LENGTH, LENGTH), table(BATCH, HEADS, LENGTH, LENGTH)
OF_BATCHES_AND_PAIRS, OF_HEADS_AND_PAIRS = table(BATCH, LENGTH, LENGTH), table(HEADS, LENGTH, LENGTH)
OF_DISTANCES, OF_WINDOW = table(2 * LENGTH), table(2 * WINDOW + 1)
OF_FOUR, OF_FOUR_FIRST = table(BATCH, HEADS, 4, LENGTH), table(4, BATCH, HEADS, LENGTH)
OF_ROWS = table(BATCH, HEADS, LENGTH, LENGTH // 8)
BATCHES_AND_QUERIES = table(BATCH, LENGTH)
WHICH, ONE = torch.tensor(1), torch.ones((), dtype=torch.int32)
SEQUENCE = torch.arange(LENGTH) >= LENGTH // 2
DOCUMENT = torch.tensor([0] * 10 + [1] * 7 + [2] * 23, dtype=torch.int32)
OFFSETS = torch.tensor([0, 10, 17], dtype=torch.int32)
BOTH_WAYS = torch.tensor([5, 17], dtype=torch.int32)
LENGTHS = torch.arange(BATCH, dtype=torch.int32) + 1
OTHER_PLACE = torch.randint(0, LENGTH, (LENGTH,), generator=_generator)
TRUTH = torch.ones(BATCH, 1, LENGTH, LENGTH, dtype=torch.bool).tril()


class Hidden(torch.autograd.Function):
    """A function of the user's with a derivative of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(score, allowed):
        return torch.where(allowed, score, never)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, gradient):
        return gradient.where(ctx.saved_tensors[0], 0.0), None


def neighbours(s, b, h, q, k):
    rows, columns = (q / 8 - k / 8).abs(), (q % 8 - k % 8).abs()
    return torch.where((rows <= WINDOW) | (columns <= WINDOW), s, never)


def both_ways(s, b, h, q, k):
    last = BOTH_WAYS[b]
    return torch.where(((q <= last) & (k <= last)) | (q >= k), s, never)


def within_documents(s, b, h, q, k):
    own, other = q - OFFSETS[DOCUMENT[q]], k - OFFSETS[DOCUMENT[k]]
    return torch.where(own >= other, s, never)


MODS: dict[str, tuple[Callable, tuple[Tensor, ...]]] = {
    "identity": (lambda s, b, h, q, k: s, ()),
    "times two": (lambda s, b, h, q, k: s * 2, ()),
    "squared": (lambda s, b, h, q, k: s * s, ()),
    "causal": (lambda s, b, h, q, k: torch.where(q >= k, s, never), ()),
    "inverse causal": (lambda s, b, h, q, k: torch.where(q <= k, s, never), ()),
    "distance": (lambda s, b, h, q, k: s + (q - k), ()),
    "causal distance": (lambda s, b, h, q, k: torch.where(q >= k, s + (q - k), never), ()),
    "alibi": (lambda s, b, h, q, k: s + (k - q) * torch.exp2(-((h + 1) * 8.0 / HEADS)), ()),
    "scale of heads": (lambda s, b, h, q, k: s * OF_HEADS[h], (OF_HEADS,)),
    "sines": (lambda s, b, h, q, k: torch.sin(torch.cos(s)) + torch.tan(b), ()),
    "product of sines": (lambda s, b, h, q, k: torch.cos(s) * torch.sin(s) + torch.tan(b), ()),
    "documents": (lambda s, b, h, q, k: torch.where((q >= k) & (DOCUMENT[q] == DOCUMENT[k]), s, never), ()),
    "index after index": (lambda s, b, h, q, k: s + BATCHES_AND_QUERIES[b][q], (BATCHES_AND_QUERIES,)),
    "indices in turns": (lambda s, b, h, q, k: s + OF_FOUR_FIRST[0][b, h][q], (OF_FOUR_FIRST,)),
    "index of a tensor": (lambda s, b, h, q, k: s + OF_FOUR[b][h][WHICH, q], (OF_FOUR,)),
    "all indices": (lambda s, b, h, q, k: s + OF_FOUR[b, h, WHICH, q], (OF_FOUR,)),
    "even keys": (lambda s, b, h, q, k: torch.where(k % 2 == 0, s, never), ()),
    "all biases": (
        lambda s, b, h, q, k: s + OF_QUERIES[q] + OF_BATCHES[b] + OF_HEADS[h],
        (OF_QUERIES, OF_BATCHES, OF_HEADS),
    ),
    "halves": (lambda s, b, h, q, k: torch.where(SEQUENCE[q] == SEQUENCE[k], s, never), ()),
    "bias of pairs": (lambda s, b, h, q, k: s + OF_PAIRS[q, k], (OF_PAIRS,)),
    "bias of pairs, index after index": (lambda s, b, h, q, k: s + OF_PAIRS[q][k], (OF_PAIRS,)),
    "bias of pairs, transposed": (lambda s, b, h, q, k: s + OF_PAIRS[k, q], (OF_PAIRS,)),
    "bias of batches": (lambda s, b, h, q, k: s + OF_BATCHES_AND_PAIRS[b, q, k], (OF_BATCHES_AND_PAIRS,)),
    "bias of heads, transposed": (lambda s, b, h, q, k: s + OF_HEADS_AND_PAIRS[h, k, q], (OF_HEADS_AND_PAIRS,)),
    "bias of all": (lambda s, b, h, q, k: s + OF_ALL[b, h, q, k], (OF_ALL,)),
    "bias of rows of keys": (lambda s, b, h, q, k: s + OF_ROWS[b, h, q, k // 8], (OF_ROWS,)),
    "relative bias": (lambda s, b, h, q, k: s + OF_DISTANCES[(q - k) + LENGTH], (OF_DISTANCES,)),
    "bias of distances": (lambda s, b, h, q, k: s + OF_DISTANCES[torch.abs(q - k)], (OF_DISTANCES,)),
    "bias of sums": (lambda s, b, h, q, k: s + OF_DISTANCES[q + k], (OF_DISTANCES,)),
    "bias of a window": (
        lambda s, b, h, q, k: s + OF_WINDOW[torch.clamp(q - k + WINDOW, 0, 2 * WINDOW)],
        (OF_WINDOW,),
    ),
    "bias of keys": (lambda s, b, h, q, k: s + OF_KEYS[k], (OF_KEYS,)),
    "one bias twice": (lambda s, b, h, q, k: s + OF_KEYS[q] + OF_KEYS[k], (OF_KEYS,)),
    "two biases": (lambda s, b, h, q, k: s + OF_QUERIES[q] + OF_KEYS[k], (OF_QUERIES, OF_KEYS)),
    "bias of another place": (lambda s, b, h, q, k: s + OF_QUERIES[OTHER_PLACE[q]], (OF_QUERIES,)),
    "scale of queries": (lambda s, b, h, q, k: s * OF_QUERIES[q], (OF_QUERIES,)),
    "gate of heads": (lambda s, b, h, q, k: s * torch.sigmoid(OF_HEADS[h].to(torch.float64)), (OF_HEADS,)),
    "both ways": (both_ways, ()),
    "neighbours in two dimensions": (neighbours, ()),
    "silu": (lambda s, b, h, q, k: silu(s), ()),
    "scores up to a length": (lambda s, b, h, q, k: torch.where(s <= LENGTHS[b], s, never), ()),
    "a number around": (lambda s, b, h, q, k: s + ONE, ()),
    "nested documents": (within_documents, ()),
    "a function of the user's": (lambda s, b, h, q, k: Hidden.apply(s, q <= k), ()),
    "truth": (lambda s, b, h, q, k: s + TRUTH[b, h.new_zeros(h.shape), q, k], ()),
}


OF_ALL_PAIRS: dict[str, Callable] = {
    "index after index": lambda s, b, h, q, k: s + BATCHES_AND_QUERIES[b, q],
    "indices in turns": lambda s, b, h, q, k: s + OF_FOUR_FIRST[0, b, h, q],
    "index of a tensor": lambda s, b, h, q, k: s + OF_FOUR[b, h, WHICH, q],
    "bias of pairs, index after index": lambda s, b, h, q, k: s + OF_PAIRS[q, k],
}
"""Functions whose indices are of one pair, as functions of all pairs at once."""


def causal(b, h, q, k):
    return q >= k


MASKS: dict[str, Callable] = {
    "all": noop_mask,
    "causal": causal,
    "inverse causal": lambda b, h, q, k: q <= k,
    "window": and_masks(causal, lambda b, h, q, k: q - k <= 5),
    "none": and_masks(causal, lambda b, h, q, k: q < k),
    "either": or_masks(causal, lambda b, h, q, k: q < k),
    "documents": lambda b, h, q, k: DOCUMENT[q] == DOCUMENT[k],
    "first queries": lambda b, h, q, k: q < LENGTH // 2,
    "prefix": or_masks(causal, lambda b, h, q, k: k < 7),
    "a tensor": lambda b, h, q, k: TRUTH[b, h.new_zeros(h.shape), q, k],
    "every other sequence": lambda b, h, q, k: (q >= k) & (b % 2 == 0),
    "lengths": lambda b, h, q, k: (q < BOTH_WAYS[b]) & (k < BOTH_WAYS[b]),
}


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
    torch.testing.assert_close(ours.expand_as(expected), expected.to(ours.dtype), rtol=1e-9, atol=1e-9)
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
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


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
