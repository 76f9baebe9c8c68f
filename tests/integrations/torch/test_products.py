"""Products of half types while a framework is enabled: what float64 says, rounded, and the gradients of that."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.torch import products
from gnn_sparse_backend.ops.grouped import half_products

from .drawing import counted

# of a number that is rounded once, and of sums in float32
ROUNDED = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
SHAPES = [((300, 64), 32), ((7, 40, 65), 33), ((37, 3000), 19), ((1, 70), 300), ((0, 8), 9), ((5, 1), 4), ((64,), 300)]


@pytest.fixture(autouse=True)
def products_ours(some_framework, monkeypatch):
    """Every size is ours, in several parts, as on a CPU without instructions for half types."""
    monkeypatch.setattr(products, "torch_has_products", lambda dtype: False)
    monkeypatch.setattr(products, "LEAST", 1)
    monkeypatch.setattr(half_products, "PART", 16)
    gsb.enable("some")
    gsb.integrations.reset_status()


def ours_of(operator: str) -> int:
    return counted(operator)[0]


def close(found, exact, dtype) -> None:
    """Within what rounding once and float32 sums of so many terms allow."""
    assert found.dtype is dtype and found.shape == exact.shape
    scale = exact.abs().amax() if exact.numel() else 0
    assert bool(((found.double() - exact).abs() <= exact.abs() * ROUNDED[dtype] + 1e-5 * scale).all())


@pytest.mark.parametrize("dtype", products.HALF)
@pytest.mark.parametrize(("shape", "width"), SHAPES)
@pytest.mark.parametrize("biased", [True, False])
def test_linear_and_its_gradients(dtype, shape, width, biased):
    torch.manual_seed(0)
    operands = [torch.randn(shape), torch.randn(width, shape[-1])] + [torch.randn(width)] * biased
    operands = [x.to(dtype).requires_grad_() for x in operands]
    exact = [x.detach().double().requires_grad_() for x in operands]
    y, wanted = F.linear(*operands), F.linear(*exact)
    close(y, wanted, dtype)
    cotangent = torch.randn(wanted.shape).to(dtype)
    found = torch.autograd.grad(y, operands, cotangent)
    for ours, theirs in zip(found, torch.autograd.grad(wanted, exact, cotangent.double())):
        close(ours, theirs, dtype)
    assert ours_of("linear") == bool(torch.Size(shape).numel())


@pytest.mark.parametrize("dtype", products.HALF)
def test_strides_of_any_kind(dtype):
    x, w = torch.randn(90, 120).to(dtype).t()[::2, 1::2], torch.randn(100, 45).to(dtype)[::3].t()
    for multiply in (torch.matmul, torch.mm):
        close(multiply(x, w), x.double() @ w.double(), dtype)
    assert ours_of("matmul") == 2


def test_infinities_and_nan_stay_in_their_rows():
    x = torch.randn(60, 20).bfloat16()
    x[3, 5], x[7, 1], x[9, 0] = torch.inf, -torch.inf, torch.nan
    w = torch.rand(8, 20).bfloat16() + 1
    y = F.linear(x, w)
    assert y[3].eq(torch.inf).all() and y[7].eq(-torch.inf).all() and y[9].isnan().all()
    assert y.isfinite().sum() == 57 * 8


def test_autocast_takes_its_type_and_gradients_theirs():
    layer, x = torch.nn.Linear(30, 20), torch.randn(50, 30, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
        with torch.autocast("cpu", enabled=False):
            assert layer(x).dtype is torch.float32
    close(y, F.linear(*(t.detach().bfloat16().double() for t in (x, layer.weight, layer.bias))), torch.bfloat16)
    y.float().square().sum().backward()
    assert x.grad.dtype is layer.weight.grad.dtype is layer.bias.grad.dtype is torch.float32
    assert ours_of("linear") == 1


def test_a_second_derivative():
    x, w, v = (torch.randn(s).bfloat16().requires_grad_() for s in ((40, 24), (16, 24), (40, 16)))
    (to_x,) = torch.autograd.grad(F.linear(x, w), x, v, create_graph=True)
    given = torch.randn(40, 24).bfloat16()
    to_w, to_v = torch.autograd.grad(to_x, (w, v), given)
    close(to_w, v.double().t() @ given.double(), torch.bfloat16)
    close(to_v, given.double() @ w.double().t(), torch.bfloat16)


def test_what_is_not_ours_is_pytorchs():
    wide, half = torch.randn(40, 30), torch.randn(40, 30).bfloat16()
    assert torch.equal(torch.matmul(wide, wide.t()), wide @ wide.t())
    out = torch.empty(40, 40, dtype=torch.bfloat16)
    assert torch.matmul(half, half.t(), out=out) is out
    assert torch.matmul(half[None], half.t()).shape == (1, 40, 40)
    for bad in (lambda: F.linear(half, wide), lambda: torch.mm(half, half), lambda: F.linear(half, half[:, 1:])):
        with pytest.raises(RuntimeError):
            bad()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.matmul(wide.double(), wide.double().t()).dtype is torch.float64
    assert ours_of("matmul") == ours_of("linear") == 0


def test_traced_programs_hold_pytorchs_own():
    layer, x = torch.nn.Linear(30, 20).bfloat16(), torch.randn(50, 30).bfloat16()
    expected = layer(x)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)(x)
    scripted = torch.jit.script(layer)(x)
    mapped = torch.func.vmap(lambda row: F.linear(row, layer.weight, layer.bias))(x)
    for found in (compiled, scripted, mapped):
        torch.testing.assert_close(found, expected, rtol=2.0**-7, atol=2.0**-7)
    assert ours_of("linear") == 1


def test_disable_puts_everything_back():
    replaced = F.linear, torch.matmul, torch.mm
    gsb.disable()
    for function, before in zip((F.linear, torch.matmul, torch.mm), replaced):
        assert function is not before and function.__module__ != products.__name__
    gsb.enable("some")
    assert (F.linear, torch.matmul, torch.mm) == replaced


def test_operands_that_do_not_fit_are_quoted():
    x = torch.randn(4, 3).bfloat16()
    with pytest.raises(ValueError, match=r"\(4, 3\) of torch.bfloat16 on cpu, \(4, 3\) of torch.float16"):
        torch.ops.gsb.half_product(x, x.half(), None)
