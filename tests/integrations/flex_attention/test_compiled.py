"""FlexAttention in whole programs of ``torch.compile``, without a graph break, against dense attention in float64."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import gnn_sparse_backend as gsb
from tests.ops.masked.oracle import flex as dense

flex = pytest.importorskip("torch.nn.attention.flex_attention")

BATCH, HEADS, LENGTH, WIDTH = 2, 4, 43, 6
_generator = torch.Generator().manual_seed(0)
SLOPES = torch.rand(HEADS, generator=_generator)
DOCUMENT = torch.randint(0, 3, (BATCH, LENGTH), generator=_generator).sort(1).values
MASKS: dict[str, tuple[Callable | None, int | None, int | None]] = {
    "all": (None, None, None),
    "causal": (lambda b, h, q, k: q >= k, None, None),
    "documents": (lambda b, h, q, k: DOCUMENT[b, q] == DOCUMENT[b, k], BATCH, None),
    "of both": (lambda b, h, q, k: (q - k) % (h + b + 2) == 0, BATCH, HEADS),
}


def operands(of_keys: int = HEADS, queries: int = LENGTH) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = (HEADS, queries, WIDTH), (of_keys, LENGTH, WIDTH), (of_keys, LENGTH, WIDTH + 2)
    return [torch.randn(BATCH, *shape, generator=generator).requires_grad_() for shape in shapes]


def blocks(name: str, queries: int = LENGTH):
    function, *sizes = MASKS[name]
    if function is None:
        return None
    return flex.create_block_mask(function, *sizes, queries, LENGTH, device="cpu", BLOCK_SIZE=16)


def assert_gradients(found, expected, given, exact, rounding=2e-4):
    torch.testing.assert_close(found.double(), expected, rtol=rounding, atol=rounding)
    flow = torch.randn(found.shape, generator=torch.Generator().manual_seed(2))
    ours = torch.autograd.grad(found, given, flow)
    for one, other in zip(ours, torch.autograd.grad(expected, exact, flow.double())):
        scale = max(1.0, other.abs().max().item())
        torch.testing.assert_close(one.double(), other, rtol=4 * rounding, atol=4 * rounding * scale)


def counted():
    return gsb.status().to_dict()["calls"]["flex_attention"]["flex_attention"]


@pytest.mark.parametrize(
    ("name", "backend", "of_keys", "queries"),
    [
        ("all", "aot_eager", HEADS, LENGTH),
        ("documents", "eager", 2, LENGTH),
        ("of both", "aot_eager", 2, 29),
        ("causal", "aot_eager", 1, 2),
        pytest.param("causal", "inductor", HEADS, LENGTH, marks=pytest.mark.slow),
    ],
)
def test_a_whole_program(name, backend, of_keys, queries):
    """The block mask is an operand, and the function reads a tensor that the program computes."""
    given, mask = operands(of_keys, queries), blocks(name, queries)
    table = torch.randn(HEADS, 2 * LENGTH, generator=torch.Generator().manual_seed(3)).requires_grad_()

    def program(q, k, v, mask, table):
        bias = 2 * table

        def mod(score, b, h, i, j):
            return score + bias[h, i - j + LENGTH] * SLOPES[h]

        return flex.flex_attention(q * 1.0, k, v, mod, mask, enable_gqa=of_keys != HEADS) + 0.0

    exact = [x.detach().double().requires_grad_() for x in (*given, table)]
    biased = lambda score, b, h, i, j: score + 2 * exact[3][h, i - j + LENGTH] * SLOPES[h].double()
    expected, _ = dense(*exact[:3], biased, MASKS[name][0])
    with gsb.enabled("flex_attention"):
        compiled = torch.compile(program, backend=backend, fullgraph=True)
        found = compiled(*given, mask, table)
        assert_gradients(found, expected, [*given, table], exact)
        if mask is not None:  # a mask like it is found again, another is not taken for it
            other = flex.create_block_mask(MASKS[name][0], BATCH, HEADS, queries, LENGTH, device="cpu", BLOCK_SIZE=16)
            assert torch.allclose(compiled(*given, other, table), found, atol=1e-5)
        assert counted() == {"ours": 1 if mask is None else 2, "fallbacks": {}}


def test_what_a_mask_reads_may_be_written_to():
    q, k, v = (x.detach() for x in operands())
    document = DOCUMENT[0].clone()
    within = lambda b, h, i, j: document[i] == document[j]
    mask = flex.BlockMask.from_kv_blocks(
        torch.full((1, 1, 3), 3), torch.arange(3).expand(1, 1, 3, 3), BLOCK_SIZE=16, mask_mod=within,
        seq_lengths=(LENGTH, LENGTH),
    )  # fmt: skip
    with gsb.enabled("flex_attention"):
        attend = torch.compile(flex.flex_attention, backend="aot_eager", fullgraph=True)
        for _ in range(2):
            expected, _ = dense(*(x.double() for x in (q, k, v)), None, within)
            torch.testing.assert_close(attend(q, k, v, block_mask=mask).double(), expected, rtol=2e-4, atol=2e-4)
            document.copy_(document.flip(0))
            document[:7] = 1
        assert counted() == {"ours": 2, "fallbacks": {}}


def no_expression(score, b, h, i, j):
    return score + SLOPES.sum() * torch.erf(score)


def test_what_is_no_expression_has_a_gradient_and_is_counted():
    given = operands()
    exact = [x.detach().double().requires_grad_() for x in given]
    with gsb.enabled("flex_attention"):
        attend = torch.compile(lambda *x: flex.flex_attention(*x, no_expression), backend="eager", fullgraph=True)
        assert_gradients(attend(*given), dense(*exact, no_expression)[0], given, exact)
        assert counted() == {"ours": 0, "fallbacks": {"score_mod is no expression of scores that kernels have": 1}}


@pytest.mark.slow
def test_several_calls_in_one_program():
    given, other = operands(), [x.detach() for x in operands()[1:]]
    exact = [x.detach().double().requires_grad_() for x in given]
    distance = lambda score, b, h, i, j: score + (i - j)
    hidden = lambda score, b, h, i, j: torch.where(i >= j, score, -torch.inf)

    def program(attend, q, k, v, k2, v2):
        q = attend(q, k, v, distance)[..., :WIDTH]
        q = attend(q, k2, v2, hidden)[..., :WIDTH]
        return attend(q, k, v, distance)

    with gsb.enabled("flex_attention"):
        compiled = torch.compile(functools.partial(program, flex.flex_attention), backend="aot_eager", fullgraph=True)
        expected = program(lambda *x: dense(*x)[0], *exact, *(x.double() for x in other))
        assert_gradients(compiled(*given, *other), expected, given, exact)
        assert counted() == {"ours": 3, "fallbacks": {}}


def test_lengths_of_any_size():
    """A program for all lengths and numbers of sequences is traced once."""
    slopes = SLOPES.clone()
    frames = CompileCounterWithBackend("aot_eager")
    mod = lambda score, b, h, i, j: score + slopes[h] * (j - i)
    with gsb.enabled("flex_attention"):
        compiled = torch.compile(flex.flex_attention, backend=frames, fullgraph=True, dynamic=True)
        for batch, length in ((2, 43), (3, 29), (4, 50)):
            generator = torch.Generator().manual_seed(1)
            given = [torch.randn(batch, HEADS, length, WIDTH, generator=generator).requires_grad_() for _ in range(3)]
            exact = [x.detach().double().requires_grad_() for x in given]
            mask = flex.create_block_mask(MASKS["causal"][0], None, None, length, length, device="cpu", BLOCK_SIZE=16)
            expected, _ = dense(*exact, lambda *x: mod(*x), MASKS["causal"][0])
            assert_gradients(compiled(*given, mod, mask), expected, given, exact)
        assert counted() == {"ours": 3, "fallbacks": {}}
    assert frames.frame_count == 1


def test_logarithms():
    given, mask = operands(), blocks("causal")
    exact = [x.detach().double().requires_grad_() for x in given]

    def program(q, k, v):
        out, lse = flex.flex_attention(q, k, v, block_mask=mask, return_lse=True)
        return out * lse[..., None]

    with gsb.enabled("flex_attention"):
        found = torch.compile(program, backend="aot_eager", fullgraph=True)(*given)
        out, lse = dense(*exact, None, MASKS["causal"][0])
        assert_gradients(found, out * lse[..., None], given, exact)
        assert counted() == {"ours": 1, "fallbacks": {}}


def test_pytorchs_kernel_is_put_back():
    kernels = flex.flex_attention_hop.py_kernels
    before = dict(kernels)
    with gsb.enabled("flex_attention"):
        assert kernels != before
    assert kernels == before
    q, k, v = (x.detach() for x in operands())
    found = torch.compile(flex.flex_attention, backend="aot_eager")(q, k, v)
    torch.testing.assert_close(found, dense(q, k, v)[0], rtol=2e-4, atol=2e-4)
