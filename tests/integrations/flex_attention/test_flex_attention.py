"""PyTorch's FlexAttention on a CPU while it is enabled, eager and compiled, against dense attention in float64."""

from __future__ import annotations

import sys
import types

import pytest
import torch

import gnn_sparse_backend as gsb
from tests.ops.masked.oracle import flex as dense

flex = pytest.importorskip("torch.nn.attention.flex_attention")

SHAPE = 2, 4, 43, 6
SLOPES = torch.rand(4, generator=torch.Generator().manual_seed(0))


def alibi(score, b, h, q, k):
    return score + SLOPES[h] * (k - q)


def causal(b, h, q, k):
    return q >= k


def operands(gradients=True):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(SHAPE, generator=generator).requires_grad_(gradients) for _ in range(3)]


def causal_blocks():
    return flex.create_block_mask(causal, None, None, SHAPE[2], SHAPE[2], device="cpu", BLOCK_SIZE=16)


def assert_dense(found, given, mod, mask=None):
    exact = [x.detach().double().requires_grad_() for x in given]
    expected, lse = dense(*exact, mod, mask)
    flow = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(found.double(), expected, rtol=2e-4, atol=2e-4)
    if found.requires_grad:
        ours = torch.autograd.grad(found, given, flow)
        for one, other in zip(ours, torch.autograd.grad(expected, exact, flow.double())):
            torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-3)
    return lse


def counted():
    return gsb.status().to_dict()["calls"].get("flex_attention", {}).get("flex_attention")


@pytest.mark.parametrize("compiled", [False, True])
def test_forward_and_backward(compiled):
    given, mask = operands(), causal_blocks()
    with gsb.enabled("flex_attention"):
        function = torch.compile(flex.flex_attention, backend="eager") if compiled else flex.flex_attention
        assert_dense(function(*given, alibi, mask), given, alibi, causal)
        assert counted() == {"ours": 1, "fallbacks": {}}


def test_within_a_compiled_program():
    given, mask = operands(), causal_blocks()

    def program(q, k, v):
        return flex.flex_attention(q * 1.0, k, v, alibi, mask) + 0.0

    with gsb.enabled("flex_attention"):
        assert_dense(torch.compile(program, backend="eager")(*given), given, alibi, causal)
        assert counted() == {"ours": 1, "fallbacks": {}}


def test_who_has_imported_the_name_has_ours_until_it_is_disabled():
    original = flex.flex_attention
    user = types.ModuleType("user_of_flex_attention")
    user.attend = original
    sys.modules[user.__name__] = user
    try:
        before = dict(vars(flex))
        gsb.enable("flex_attention")
        assert user.attend is flex.flex_attention is not original
        user.late = flex.flex_attention
        gsb.disable("flex_attention")
        assert user.attend is user.late is original and vars(flex) == before
    finally:
        del sys.modules[user.__name__]
    with pytest.raises(NotImplementedError, match="backward"):
        flex.flex_attention(*operands(), alibi)


def no_expression(score, b, h, q, k):
    return score + SLOPES.sum() * (k - q)


@pytest.mark.parametrize("gradients", [True, False])
def test_what_is_no_expression_is_computed_without_us_and_counted(gradients):
    given, mask = operands(gradients), causal_blocks()
    with gsb.enabled("flex_attention"):
        assert_dense(flex.flex_attention(*given, no_expression, mask), given, no_expression, causal)
        (row,) = (row for row in gsb.status().rows if row.framework == "flex_attention")
    assert row.ours == 0 and sum(row.fallbacks.values()) == 1
    assert "aten.sum" in next(iter(row.found.values()))


@pytest.mark.skipif(not hasattr(flex, "AuxRequest"), reason="this PyTorch has no AuxRequest")
def test_logarithms_and_largest_scores():
    given, mask = operands(), causal_blocks()
    with gsb.enabled("flex_attention"):
        out, aux = flex.flex_attention(*given, alibi, mask, return_aux=flex.AuxRequest(lse=True))
        lse = assert_dense(out, given, alibi, causal)
        torch.testing.assert_close(aux.lse.double(), lse, rtol=1e-4, atol=1e-4)
        assert aux.max_scores is None and counted()["ours"] == 1
        out, aux = flex.flex_attention(*given, alibi, mask, return_aux=flex.AuxRequest(lse=True, max_scores=True))
        torch.testing.assert_close(aux.lse.double(), assert_dense(out, given, alibi, causal), rtol=1e-4, atol=1e-4)
        assert (aux.max_scores <= aux.lse).all()
        assert counted()["fallbacks"] == {"the largest scores are asked for": 1}


def test_errors_are_those_of_pytorch():
    q, k, v = operands()
    with gsb.enabled("flex_attention"):
        for given in ((q, k[:, :2], v[:, :2]), (q, k[..., :3], v)):
            with pytest.raises(ValueError, match="Expect"):
                flex.flex_attention(*given)
        assert counted() == {"ours": 0, "fallbacks": {"the shapes do not fit": 2}}


def test_one_sequence_of_keys_for_all():
    q, k, v = operands()
    given = [q, *(x[:1].detach().requires_grad_() for x in (k, v))]
    mask = flex.create_block_mask(causal, 2, None, SHAPE[2], SHAPE[2], device="cpu", BLOCK_SIZE=16)
    with gsb.enabled("flex_attention"):
        assert_dense(flex.flex_attention(*given, alibi, mask), given, alibi, causal)
        assert counted() == {"ours": 1, "fallbacks": {}}
