"""``gsb.flex_attention`` is dense attention in float64, with its gradients, for scores and masks of any kind."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.masked.flex.evaluated import evaluate
from gnn_sparse_backend.ops.masked.flex.recognition import Unknown, contents_of
from gnn_sparse_backend.ops.masked.flex.trace import Untraceable, traced
from tests.ops.masked.oracle import flex as dense

BATCH, HEADS, LENGTH, WIDTH = 2, 4, 43, 6
ROUNDING = {torch.float64: 1e-9, torch.float32: 2e-4, torch.bfloat16: 5e-2}
_numbers = torch.Generator().manual_seed(0)
SLOPES = torch.rand(HEADS, generator=_numbers, dtype=torch.float64).requires_grad_()
BIAS = torch.randn(HEADS, 2 * LENGTH, generator=_numbers, dtype=torch.float64).requires_grad_()
DOCUMENT = torch.randint(0, 3, (BATCH, LENGTH), generator=_numbers).sort(1).values

MODS: dict[str, tuple[Callable | None, tuple[Tensor, ...]]] = {
    "plain": (None, ()),
    "alibi": (lambda s, b, h, q, k: s + SLOPES[h] * (k - q), (SLOPES,)),
    "soft cap": (lambda s, b, h, q, k: 2 * torch.tanh(s / 2), ()),
    "relative": (lambda s, b, h, q, k: s + BIAS[h, q - k + LENGTH], (BIAS,)),
}
MASKS: dict[str, tuple[Callable | None, bool, bool]] = {
    "all": (None, False, False),
    "causal": (lambda b, h, q, k: q >= k, False, False),
    "some none": (lambda b, h, q, k: (q % 5 != 0) & (k <= q), False, False),
    "documents": (lambda b, h, q, k: DOCUMENT[b, q] == DOCUMENT[b, k], True, False),
    "of heads": (lambda b, h, q, k: (q - k) % (h + 2) == 0, False, True),
    "of both": (lambda b, h, q, k: (q - k) % (h + b + 2) == 0, True, True),
}


def block_mask(name: str, size: tuple[int, int] = (16, 16), queries: int = LENGTH):
    mask, of_batch, of_head = MASKS[name]
    if mask is None:
        return None
    given = (BATCH if of_batch else None), (HEADS if of_head else None)
    return create_block_mask(mask, *given, queries, LENGTH, device="cpu", BLOCK_SIZE=size)


def operands(of_keys: int = HEADS, dtype=torch.float64, queries: int = LENGTH) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = (HEADS, queries, WIDTH), (of_keys, LENGTH, WIDTH), (of_keys, LENGTH, WIDTH + 3)
    made = [torch.randn(BATCH, *shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    return [x.requires_grad_() for x in made]


def assert_dense(mod: str, mask: str, of_keys: int = HEADS, dtype=torch.float64, size=(16, 16), queries=LENGTH) -> None:
    function, captured = MODS[mod]
    q, k, v = operands(of_keys, dtype, queries)
    given = block_mask(mask, size, queries)
    found = gsb.flex_attention(q, k, v, function, given, enable_gqa=of_keys != HEADS, return_lse=True)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = dense(*exact, function, MASKS[mask][0])
    close = {"rtol": ROUNDING[dtype], "atol": ROUNDING[dtype]}
    assert found[0].dtype is dtype and found[0].is_contiguous()
    for ours, theirs in zip(found, expected):
        torch.testing.assert_close(ours.double(), theirs, **close)
    there = expected[1].isfinite()
    generator = torch.Generator().manual_seed(2)
    flows = [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in expected]

    def total(results):
        out, lse = results
        return (out.double() * flows[0]).sum() + (torch.where(there, lse.double(), 0.0) * flows[1]).sum()

    ours = torch.autograd.grad(total(found), [q, k, v, *captured])
    theirs = torch.autograd.grad(total(expected), [*exact, *captured])
    for one, other in zip(ours, theirs):
        scale = max(1.0, other.abs().max().item())
        torch.testing.assert_close(one.double(), other, rtol=4 * close["rtol"], atol=4 * close["atol"] * scale)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("mod", "mask", "of_keys", "size"),
    [
        ("alibi", "documents", 2, (16, 16)),
        ("alibi", "of both", HEADS, (16, 16)),
        ("alibi", "of heads", 2, (16, 32)),
        ("alibi", "some none", 2, (32, 16)),
        ("soft cap", "causal", 1, (16, 16)),
        pytest.param("plain", "some none", HEADS, (16, 16), marks=SLOW),
        pytest.param("relative", "documents", HEADS, (16, 16), marks=SLOW),
    ],
)
def test_scores_and_masks(mod, mask, of_keys, size):
    assert_dense(mod, mask, of_keys, size=size)


@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, marks=SLOW), torch.bfloat16])
def test_types(dtype):
    assert_dense("soft cap", "causal", 2, dtype)


def test_other_queries_than_keys():
    assert_dense("alibi", "causal", queries=29)


@SLOW
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("mod", MODS)
@pytest.mark.parametrize("of_keys", [HEADS, 2])
def test_grid(mod, mask, of_keys):
    for dtype in (torch.float64, torch.float32):
        assert_dense(mod, mask, of_keys, dtype)


def test_a_mask_of_ours_and_what_has_no_pairs():
    q, k, v = operands()
    window = gsb.masks.band(LENGTH, 5, 0, block=16)
    out = gsb.flex_attention(q, k, v, MODS["alibi"][0], window)
    expected, _ = dense(q, k, v, MODS["alibi"][0], lambda b, h, q, k: (k <= q) & (q - k <= 5))
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    none, lse = gsb.flex_attention(q * torch.inf, k[:, :, :0], v[:, :, :0], return_lse=True)
    assert none.eq(0).all() and lse.eq(-torch.inf).all() and none.requires_grad
    assert gsb.flex_attention(q[:, :, :0], k, v * torch.inf).shape == (BATCH, HEADS, 0, WIDTH + 3)


def test_memory_grows_with_the_lengths_alone():
    """What a step allocates in all, of causal masks that are known."""
    function, _ = MODS["soft cap"]

    def allocated(length: int) -> int:
        q, k, v = (torch.randn(1, 2, length, WIDTH, dtype=torch.float64).requires_grad_() for _ in range(3))
        mask = gsb.masks.causal(length, block=16)
        for _ in range(2):  # what is derived of the mask is there at the second
            with torch.profiler.profile(profile_memory=True) as profile:
                gsb.flex_attention(q, k, v, function, mask).sum().backward()
        return sum(max(event.self_cpu_memory_usage, 0) for event in profile.key_averages())

    few, many = allocated(256), allocated(1024)
    assert 2 * 1024 * WIDTH * 8 < many < 5 * few


EXPRESSIONS: dict[str, Callable] = {
    "arithmetic": lambda s, b, h, q, k: (s * 2 - 1) / (q + 1) + s**3 - abs(s) + (b // 2 + q % 3),
    "reversed": lambda s, b, h, q, k: torch.rsub(s, 3.0, alpha=2) + (1 - s),
    "comparisons": lambda s, b, h, q, k: torch.where((q >= k) & ~(h == 1) | (s > 0.5), s, -s),
    "bounds": lambda s, b, h, q, k: s.clamp(-0.5, 0.5) + torch.maximum(s, s * s) - torch.minimum(s, 0 * s).relu(),
    "functions": lambda s, b, h, q, k: s.exp().log() + s.sigmoid() * torch.tanh(s) + (s * s + 1).sqrt() + torch.exp2(s),
    "roots": lambda s, b, h, q, k: torch.rsqrt(s * s + 1) + (s + 9) ** -2 + (s * s + 1) ** 0.5,
    "elements": lambda s, b, h, q, k: s * SLOPES[h] + BIAS[h, q] - BIAS[h][k] + DOCUMENT[0][q].to(s.dtype),
    "conversions": lambda s, b, h, q, k: (s.float() * (q > k)).to(s.dtype) + torch.zeros_like(s),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_traced_expressions(name):
    """What is read from the function computes what the function does, and its derivative is PyTorch's."""
    function = EXPRESSIONS[name]
    found = traced(function, torch.float64)
    generator = torch.Generator().manual_seed(3)
    count = 200
    score = torch.randn(count, generator=generator, dtype=torch.float64).requires_grad_()
    sizes = {"batch": BATCH, "head": HEADS, "query": LENGTH, "key": LENGTH}
    places = {place: torch.randint(0, size, (count,), generator=generator) for place, size in sizes.items()}
    expected = torch.stack([function(s, *at) for s, *at in zip(score, *places.values())])
    ours = evaluate(found.modifier.node, {"score": score, **places}, found.tensors)
    torch.testing.assert_close(ours, expected.to(ours.dtype), rtol=1e-6, atol=1e-6)
    from gnn_sparse_backend.ops.masked.programs.modifier import slope

    slopes = evaluate(slope(found.modifier.node), {"score": score, **places}, found.tensors)
    (wanted,) = torch.autograd.grad(expected.sum(), score)
    torch.testing.assert_close(slopes.expand_as(wanted), wanted, rtol=1e-6, atol=1e-6)


def _limit() -> float:
    return LIMIT


LIMIT = 3.0


def test_functions_are_told_apart_by_what_they_read(monkeypatch):
    def capped(limit):
        return lambda s, b, h, q, k: limit * torch.tanh(s / limit)

    assert contents_of(capped(2.0)) == contents_of(capped(2.0)) != contents_of(capped(3.0))
    reads = lambda s, b, h, q, k: s * _limit()
    before = contents_of(reads)
    monkeypatch.setitem(globals(), "LIMIT", 4.0)
    assert contents_of(reads) != before
    table = torch.ones(3)
    of_table = lambda s, b, h, q, k: s * table[h]
    before = contents_of(of_table)
    table.add_(1)
    assert contents_of(of_table) != before
    assert contents_of(functools.partial(capped, 2.0)) != contents_of(functools.partial(capped, 3.0))
    holder = type("Holder", (), {"factor": 2.0})()
    with pytest.raises(Unknown):
        contents_of(lambda s, b, h, q, k: s * holder.factor)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda s, b, h, q, k: s + SLOPES.sum(), "score_mod calls aten.sum.default"),
        (lambda s, b, h, q, k: s if s > 0 else -s, "score_mod cannot be traced"),
        (lambda s, b, h, q, k: s + SLOPES, "computes with all of a tensor (4,)"),
        (lambda s, b, h, q, k: torch.erf(s), "score_mod calls aten.erf.default"),
        (lambda s, b, h, q, k: s**1.7, "to the power 1.7"),
    ],
)
def test_what_is_no_expression_is_quoted(function, said):
    q, k, v = operands()
    with pytest.raises(Untraceable, match=re.escape(said)):
        gsb.flex_attention(q, k, v, function)


def test_errors():
    q, k, v = operands(2)
    for arguments, error, said in (
        ((q, k, v), ValueError, "query has 4 heads and key 2; give enable_gqa=True"),
        ((q[0], k, v), ValueError, "query must have shape (batch, heads, length, width), got (4, 43, 6)"),
        ((q, k, v.float()), TypeError, "float32"),
        ((q[:, :3], k, v, None, None, None, True), ValueError, "the 3 heads of query must be a multiple of the 2"),
        ((q, k, v, None, "causal", None, True), TypeError, "block_mask must be PyTorch's BlockMask"),
        ((q, k, v, None, gsb.masks.causal(8), None, True), ValueError, "does not fit query (2, 4, 43, 6)"),
    ):
        with pytest.raises(error, match=re.escape(said)):
            gsb.flex_attention(*arguments)
    q, k, v = operands()
    (first,) = torch.autograd.grad(gsb.flex_attention(q, k, v, MODS["soft cap"][0]).sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        torch.autograd.grad(first.sum(), k)
