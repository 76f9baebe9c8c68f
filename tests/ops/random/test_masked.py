"""The masked product against PyTorch's own product, with gradients, and as an operator of ``torch.library``."""

from __future__ import annotations

import pytest
import torch

from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.ops.random.masked import AFTER, BEHIND, DEAD, masked, masked_product, rectified

TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SPECIAL = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-30, -3.0, 60000.0])


def product(x, mask, scale):
    """PyTorch's, whose factor is rounded to the type of x, as the scales of dropout are."""
    return x * (mask.to(x.dtype) * torch.tensor(scale, dtype=x.dtype))


def same_bits(x, y):
    assert x.dtype is y.dtype and x.stride() == y.stride() and torch.equal(x.isnan(), y.isnan())
    assert torch.equal(x.nan_to_num(nan=1.0), y.nan_to_num(nan=1.0))
    assert torch.equal(x.signbit() & ~x.isnan(), y.signbit() & ~y.isnan())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 1000])
def test_bits_are_those_of_a_product(dtype, count):
    x = torch.cat([SPECIAL, torch.randn(1000)])[:count].to(dtype)
    for fill in (0, 1, None):
        mask = torch.randint(0, 2, x.shape, dtype=torch.uint8) if fill is None else torch.full_like(x, fill).byte()
        same_bits(masked(None, (x, mask), (1.25, False)), product(x, mask, 1.25))


def test_whatever_lies_between_the_elements():
    base = torch.randn(40, 30, 20)
    for x in (base.transpose(0, 2), base[:, ::2, 3:7], base[:1].expand(5, 30, 20), base.view(torch.complex64).imag):
        mask = torch.empty_like(x, dtype=torch.uint8).random_(0, 2)
        y = masked(None, (x, mask), (2.0, False))
        assert torch.equal(y, x * mask * 2) and y.stride() == mask.stride()
    negated, mask = torch._neg_view(base), torch.ones(base.shape, dtype=torch.uint8)
    assert negated.is_neg() and torch.equal(masked(None, (negated, mask), (1.0, False)), -base)


def test_gradients_are_the_same_product():
    x = torch.randn(37, 5, dtype=torch.float64, requires_grad=True)
    mask = torch.randint(0, 2, (37, 5), dtype=torch.uint8)
    g = torch.randn(37, 5, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(masked(None, (x, mask), (2.5, False)), x, g)
    same_bits(gradient, product(g, mask, 2.5))
    (gradient,) = torch.autograd.grad(masked(None, (x, mask), (2.5, False)).sum(), x)  # a cotangent that is expanded
    assert torch.equal(gradient, mask * 2.5)

    def run(x):
        return masked(None, (x, mask), (2.5, False))

    assert torch.autograd.gradcheck(run, x) and torch.autograd.gradgradcheck(run, x, fast_mode=True)
    expected = torch.diag((mask * 2.5).flatten().double()).reshape(37, 5, 37, 5)
    for vectorize in (False, True):
        assert torch.equal(torch.autograd.functional.jacobian(run, x.detach(), vectorize=vectorize), expected)


def test_it_is_an_operator_of_torch_library():
    x, mask = torch.randn(6, 4, requires_grad=True), torch.randint(0, 2, (6, 4), dtype=torch.uint8)
    torch.library.opcheck(torch.ops.gsb.masked.default, (x, mask, 2.0, False))
    with pytest.raises(ValueError, match=r"mask uint8 of x's shape \(6, 4\).* of shape \(6, 3\)"):
        torch.ops.gsb.masked(x, mask[:, :3].contiguous(), 2.0, False)
    with pytest.raises(ValueError, match="no gaps"):
        torch.ops.gsb.masked(x[:, :3], mask[:, :3], 2.0, False)
    with pytest.raises(TypeError, match="float32, float64"):
        torch.ops.gsb.masked(x.detach().int(), mask, 2.0, False)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [0, 1, 33, 1000])
def test_a_rectified_unit_before_it_is_pytorchs(dtype, count):
    x = torch.cat([SPECIAL, torch.randn(1000)])[:count].to(dtype)
    for drawn in (torch.zeros(count), torch.ones(count), torch.randint(0, 2, (count,))):
        drawn = drawn.to(torch.uint8)
        mask = drawn.clone()
        # equal, and not of the same bits: PyTorch's unit leaves zeros negative by their type and place
        torch.testing.assert_close(
            rectified(x, mask, 1.25), product(x.relu(), drawn, 1.25), rtol=0, atol=0, equal_nan=True
        )
        assert torch.equal(mask, drawn + DEAD * (x <= 0))
        g = torch.cat([torch.randn(count - min(count, 8)), SPECIAL[: min(count, 8)]]).to(dtype)
        gradient = torch.where(x <= 0, torch.zeros_like(g), product(g, drawn, 1.25))
        same_bits(masked(None, (g, mask), (1.25, True)), gradient)


def test_gradients_of_a_dead_unit_are_the_same_product():
    x = torch.randn(9, 5, dtype=torch.float64, requires_grad=True)
    mask = torch.randint(0, 4, (9, 5), dtype=torch.uint8)

    def run(x):
        return masked(None, (x, mask), (2.5, True))

    assert torch.autograd.gradcheck(run, x) and torch.autograd.gradgradcheck(run, x, fast_mode=True)


@pytest.mark.parametrize("unit", ["", AFTER, BEHIND])
def test_the_program_means_it(unit):
    mask, x = torch.randint(0, 2 if unit != BEHIND else 4, (70,), dtype=torch.uint8), torch.randn(70)
    expected = {"": x * mask * 2, AFTER: x.relu() * mask * 2, BEHIND: x * (mask == 1) * 2}[unit]
    given = {"Scale": torch.tensor([2.0]).numpy(), "blocks": 2, "rest": 6}
    for name, each in (("X", x), ("Mask", mask), ("Y", x)):
        given |= {name: each[:64].view(2, 32).numpy(), f"{name}_rest": each[64:].numpy()}
    found = interpret(masked_product("float32", unit), given)

    def joined(name):
        return torch.cat([torch.as_tensor(found[name]).flatten(), torch.as_tensor(found[f"{name}_rest"])])

    assert torch.equal(joined("Y").float(), expected)
    if unit == AFTER:
        assert torch.equal(joined("Mask"), mask + DEAD * (x <= 0))
