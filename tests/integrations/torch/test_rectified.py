"""A rectified linear unit with a dropout behind it: what is seen of either is what PyTorch's own give, bit for bit."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo import trace_rules
from torch.utils.checkpoint import checkpoint

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.torch import rectified
from gnn_sparse_backend.ops.random.draws import torch_draws_so

from .drawing import TYPES, bits, numbers, same, seeded

pytestmark = [
    pytest.mark.skipif(not torch_draws_so(), reason="PyTorch draws by MKL here"),
    pytest.mark.usefixtures("all_draws_ours"),
]


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    monkeypatch.setattr(rectified, "LEAST", 1)


@pytest.fixture
def joined(calls_to):
    """One entry for each pass over a gradient that was that of both."""
    return calls_to(rectified, "_of_both")


def cotangent(x):
    return torch.linspace(-2, 3, x.numel()).view(x.shape).to(x.dtype)


def step(loss, dtype=torch.float32, size=700):
    """A loss of numbers with signs, zeros and what is not finite among them, and their gradient."""

    def run():
        x = numbers(dtype, size).requires_grad_()
        y = loss(x * 1)
        y.backward(cotangent(y))
        return y.detach(), x.grad

    return run


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "unit",
    [lambda x: torch.relu(x), F.relu, torch.nn.ReLU()],
    ids=["relu", "F.relu", "ReLU"],
)
def test_both_are_one_pass_on_the_way_back(joined, unit, dtype):
    same(step(lambda x: F.dropout(unit(x), 0.3), dtype), 0, "dropout")
    assert len(joined) == 1


def test_a_transposed_operand(joined):
    def run():
        x = numbers(torch.float32, 40, 30).requires_grad_()
        y = F.dropout(torch.relu((x * 1).t()))
        y.backward(cotangent(y))
        return y.detach(), x.grad

    same(run)
    assert len(joined) == 1


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: F.dropout(unit := torch.relu(x)) + unit,
        lambda x: (unit := torch.relu(x)) * 3 + F.dropout(unit),
        lambda x: F.dropout(torch.relu(x)[3:]),
        lambda x: F.dropout(torch.relu(x), training=False),
        lambda x: torch.relu(x) * 2,
    ],
    ids=["a use after", "a use before", "a part", "no training", "no dropout"],
)
def test_where_the_dropout_is_not_all(loss):
    same(step(loss))


def test_twice_the_same_unit(joined):
    same(step(lambda x: F.dropout(unit := torch.relu(x)) + F.dropout(unit)))
    assert len(joined) == 2


def test_the_gradient_between_them_is_seen():
    def run():
        seen = []
        x = numbers(torch.float32, 700).requires_grad_()
        kept, hooked = torch.relu(x * 1), torch.relu(x * 2)
        kept.retain_grad()
        hooked.register_hook(lambda grad: seen.append(grad.clone()) or grad * 2)
        total = F.dropout(kept) + F.dropout(hooked)
        total.backward(cotangent(total))
        unit = torch.relu(x * 3)
        y = F.dropout(unit)
        return *seen, kept.grad, x.grad, *torch.autograd.grad(y, (unit, x), cotangent(y))

    same(run)


def test_who_asks_for_it_may_go_on_with_it():
    x = torch.randn(700, requires_grad=True)
    with gsb.enabled("some"):
        unit = torch.relu(x * 1)
        y = F.dropout(unit)
        (grad,) = torch.autograd.grad(y, unit, cotangent(y))
        assert type(grad) is torch.Tensor
        F.dropout(x).backward(grad)
    assert type(grad * 2) is torch.Tensor and x.grad.count_nonzero() > 0


def test_checkpoints():
    same(step(lambda x: checkpoint(lambda y: F.dropout(torch.relu(y * 2)), x, use_reentrant=False)))


def test_second_gradients_and_batches():
    def run():
        x = torch.randn(700, generator=torch.Generator().manual_seed(1)).requires_grad_()
        y = F.dropout(torch.relu(x * x)) ** 3
        (grad,) = torch.autograd.grad(y, x, cotangent(y), create_graph=True)
        (second,) = torch.autograd.grad(grad.square().sum(), x)
        y = F.dropout(torch.relu(x * x))
        batch = torch.stack([cotangent(y), -cotangent(y)])
        return grad.detach(), second, *torch.autograd.grad(y, x, batch, is_grads_batched=True)

    same(run)


def test_a_result_that_is_written_to_is_an_error():
    def run():
        x = torch.randn(700, requires_grad=True)
        unit = torch.relu(x * 1)
        y = F.dropout(unit)
        with torch.no_grad():
            unit.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
        return y.detach()

    same(run)


def test_compiled_programs_hold_pytorchs_own():
    def loss(x):
        return F.dropout(torch.relu(x), 0.5)

    def run():
        x = torch.randn(5000, generator=torch.Generator().manual_seed(1)).requires_grad_()
        torch._dynamo.reset()
        y = torch.compile(loss, backend="aot_eager", fullgraph=True)(x)
        y.backward(cotangent(y))
        return y.detach(), x.grad

    with gsb.enabled("some"):
        found, _ = seeded(run)
        eager, _ = seeded(lambda: step(loss)())
    assert all(x.isfinite().all() for x in found) and eager[0].shape == (700,)


class BetweenLayers(torch.nn.Module):
    """As a framework's layers that end a program, in a loop that PyTorch does not trace."""

    def __init__(self):
        super().__init__()
        self.dropout, self.unit = torch.nn.Dropout(0.5), torch.nn.ReLU()

    def forward(self, x):
        for layer in range(2):
            torch._dynamo.graph_break()
            x = self.dropout(torch.relu(x * 2) if layer else self.unit(x))
        return x


@pytest.mark.parametrize("again", [False, True])
def test_between_layers_of_a_compiled_model_they_are_as_in_eager_programs(joined, again):
    x = torch.randn(700, requires_grad=True)
    for _ in range(2 if again else 1):
        with gsb.enabled("some"):
            torch.compile(BetweenLayers(), backend="aot_eager")(x).sum().backward()
            assert len(joined) == 2
            traced = torch.compile(lambda x: torch.nn.Dropout()(torch.relu(x)), backend="aot_eager", fullgraph=True)
            traced(x).sum().backward()
            assert len(joined) == 2  # one program, as before
        joined.clear()


@pytest.mark.parametrize("x", [torch.ones(9), torch.ones(9, dtype=torch.int64), torch.ones(9).to_sparse()])
def test_the_rest_is_pytorchs(x):
    with gsb.enabled("some"):
        found = torch.relu(x)
    assert found.grad_fn is None and bits(found.to_dense()) == bits(torch.relu(x).to_dense())


def test_programs_know_pytorchs_own_afterwards(some_framework):
    """PyTorch 2.4 looks its functions up by name once, maybe while ours are there."""
    trace_rules.get_torch_obj_rule_map.cache_clear()
    x = torch.randn(9)
    for enabled in (True, False):
        torch._dynamo.reset()
        with gsb.enabled("some") if enabled else nullcontext():
            found = torch.compile(lambda x: 2 - torch.relu(x), backend="aot_eager", fullgraph=True)(x)
        assert torch.equal(found, 2 - x.relu())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "function",
    [
        torch.relu,
        lambda x: F.dropout(torch.relu(x), 0.3),
        lambda x: F.dropout(F.relu(x.view(70, 10).t()), 0.3),
        lambda x: (unit := torch.relu(x)) + F.dropout(unit, 0.3),
    ],
    ids=["unit", "both", "both, transposed", "both, unit read twice"],
)
def test_bits_in_the_place_of_what_is_kept(function, dtype):
    run = step(function, dtype)
    expected = seeded(run)[0]
    with gsb.enabled("some", memory="low"):
        found = seeded(run)[0]
    assert bits(found) == bits(expected)


def test_in_bits_a_result_may_be_written_to():
    x = torch.randn(700, requires_grad=True)
    with gsb.enabled("some", memory="low"):
        unit = torch.relu(x * 1)
        (expected,) = torch.autograd.grad(unit.sum(), x, retain_graph=True)
        with torch.no_grad():
            unit.zero_()
        assert torch.equal(torch.autograd.grad(unit.sum(), x)[0], expected)
