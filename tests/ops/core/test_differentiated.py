"""Derivatives of every operator in both modes, one at a time and in batches, against numerical ones and each other."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad, functional, gradcheck, gradgradcheck
from torch.func import grad, jacfwd, jacrev, jvp

from tests.ops.differentiated import CASES, draw

close = torch.testing.assert_close


@pytest.fixture(params=CASES)
def case(request):
    """(operator, operands, tangents of these)."""
    call, operands = CASES[request.param]
    return call, tuple(operands), tuple(draw(*x.shape, seed=10 + n) for n, x in enumerate(operands))


def recorded(operands):
    return [x.clone().requires_grad_() for x in operands]


def energy(call):
    """A number whose gradient depends on everything."""
    return lambda *operands: call(*operands).sin().sum()


def along(jacobian, tangents, dims):
    """What a Jacobian, one for each operand, makes of tangents."""
    return sum(j.flatten(dims) @ t.flatten() for j, t in zip(jacobian, tangents))


def test_first_derivatives_are_numerical_ones(case):
    call, operands, _ = case
    checks = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    assert gradcheck(call, recorded(operands), **checks)


@pytest.mark.short(5)
def test_second_derivatives_are_numerical_ones(case):
    """In reverse mode, and of gradients in forward mode, for random directions."""
    call, operands, _ = case
    assert gradgradcheck(
        call, recorded(operands), check_fwd_over_rev=True, check_batched_grad=True, fast_mode=True, atol=1e-4
    )


def test_jacobians(case):
    call, operands, tangents = case
    every = tuple(range(len(operands)))
    expected = functional.jacobian(call, operands)
    close(jacrev(call, every)(*operands), expected)
    close(jacfwd(call, every)(*operands), expected)
    close(functional.jacobian(call, operands, vectorize=True), expected)
    close(functional.jacobian(call, operands, vectorize=True, strategy="forward-mode"), expected)
    out, tangent = jvp(call, operands, tangents)
    close(out, call(*operands))
    close(tangent, along(expected, tangents, out.dim()))
    with forward_ad.dual_level():
        dual = call(*map(forward_ad.make_dual, recorded(operands), tangents))
        tangent_of_dual = forward_ad.unpack_dual(dual).tangent
        close(tangent_of_dual, tangent)
    batch = [torch.stack([x, x + 0.5]) for x in operands]
    apart = [jvp(call, of_one, tangents) for of_one in zip(*batch)]
    close(torch.vmap(lambda *x: jvp(call, x, tangents))(*batch), tuple(map(torch.stack, zip(*apart))))


@pytest.mark.slow  # kernels of four derivatives
def test_hessians(case):
    """In all orders of the modes."""
    call, operands, tangents = case
    of, every = energy(call), tuple(range(len(operands)))
    expected = functional.hessian(of, operands)
    close(functional.hessian(of, operands, vectorize=True, outer_jacobian_strategy="forward-mode"), expected)
    for outer, inner in ((jacfwd, jacrev), (jacrev, jacfwd), (jacfwd, jacfwd)):
        close(outer(inner(of, every), every)(*operands), expected)
    products = [along(row, tangents, x.dim()) for row, x in zip(expected, operands)]
    close(list(jvp(grad(of, every), operands, tangents)[1]), products)
    with forward_ad.dual_level():
        duals = list(map(forward_ad.make_dual, recorded(operands), tangents))
        found = torch.autograd.grad(of(*duals), duals)
        assert not any(x.requires_grad for x in found)
        close([forward_ad.unpack_dual(x).tangent for x in found], products)


@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
def test_cotangents_with_tangents_and_in_batches(case, again):
    """Results that were recorded before anything is transformed have right tangents."""
    call, operands, _ = case
    operands = recorded(operands)
    out = call(*operands)
    cotangent, tangent = draw(*out.shape, seed=20), draw(*out.shape, seed=21)

    def gradients(cotangent, **how):
        found = torch.autograd.grad(out, operands, cotangent, retain_graph=True, create_graph=again, **how)
        return tuple(found)

    expected = gradients(tangent)
    with forward_ad.dual_level():
        found = gradients(forward_ad.make_dual(cotangent, tangent))
        close(tuple(forward_ad.unpack_dual(x).tangent for x in found), expected)
    close(jvp(gradients, (cotangent,), (tangent,))[1], expected)
    batch = torch.stack([cotangent, tangent])
    apart = tuple(map(torch.stack, zip(gradients(cotangent), expected)))
    close(gradients(batch, is_grads_batched=True), apart)
    close(torch.vmap(gradients)(batch), apart)
