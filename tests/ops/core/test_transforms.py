"""What else transforms functions, and what cannot be done right, which is said."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, functionalize, grad, hessian, jvp, vmap
from torch.utils.checkpoint import checkpoint

from gnn_sparse_backend.ops.attention.operators import ATTEND_BACKWARD
from gnn_sparse_backend.ops.core.operator import Operator
from tests.ops.differentiated import CASES, draw

SOME = ("spmm_weighted_mean", "attention", "rgms", "aggregate", "sparse_attention")
close = torch.testing.assert_close


class Layer(torch.nn.Module):
    def __init__(self, name: str):
        super().__init__()
        self.call, (_, *weights) = CASES[name]
        self.weights = torch.nn.ParameterList(weights)

    def forward(self, x):
        return self.call(x, *self.weights)


@pytest.mark.parametrize("name", SOME)
def test_gradients_of_each_sample(name):
    layer, x = Layer(name), CASES[name][1][0]
    weights, batch = dict(layer.named_parameters()), torch.stack([x, x + 0.5, x.cos()])

    def loss(weights, x):
        return functional_call(layer, weights, (x,)).sin().sum()

    found = vmap(grad(loss), (None, 0))(weights, batch)
    for at, each in enumerate(batch):
        expected = torch.autograd.grad(layer(each).sin().sum(), list(weights.values()))
        close([g[at] for g in found.values()], list(expected))


@pytest.mark.parametrize("name", SOME)
def test_checkpoint_functionalize_and_linearize(name):
    call, operands = CASES[name]
    recorded = [x.clone().requires_grad_() for x in operands]

    def derivatives(out):
        first = torch.autograd.grad(out.sin().sum(), recorded, create_graph=True)
        return *first, *torch.autograd.grad(sum(x.sin().sum() for x in first), recorded)

    close(derivatives(checkpoint(call, *recorded, use_reentrant=False)), derivatives(call(*recorded)))
    close(functionalize(call)(*operands), call(*operands))
    tangents = tuple(draw(*x.shape, seed=30) for x in operands)
    _, linear = torch.func.linearize(call, *operands)
    close(linear(*tangents), jvp(call, tuple(operands), tangents)[1])


@pytest.mark.slow
def test_hessian_of_a_compiled_program():
    """PyTorch leaves what it cannot trace to itself; where that is forbidden, it says what it was."""
    call, operands = CASES["spmm"]
    of = hessian(lambda x: call(x).sin().sum())
    torch.compiler.reset()
    close(torch.compile(of, backend="eager")(*operands), of(*operands))
    torch.compiler.reset()
    with pytest.raises(Exception, match="torch.compile knows no derivative"):
        torch.compile(of, backend="eager", fullgraph=True)(*operands)
    torch.compiler.reset()


def test_what_has_no_derivative_says_so():
    no_rule = Operator(
        "no_rule", lambda structure, operands, attributes: operands[0] * 2, record=lambda *call: (call[1][0] * 2, (), 0)
    )
    no_gradients = Operator("no_gradients", lambda structure, operands, attributes: operands[0] * 2)
    x = draw(3)
    for operator, words in ((no_rule, "not known under torch.func"), (no_gradients, "has no derivative")):
        with pytest.raises(RuntimeError, match=f"{operator.name}.*{words}"):
            jvp(lambda x, of=operator: of(None, (x,)), (x,), (x,))
        with forward_ad.dual_level(), pytest.raises(RuntimeError, match=f"{operator.name}.*{words}"):
            operator(None, (forward_ad.make_dual(x, x),))
    assert ATTEND_BACKWARD.gradients is None  # which nothing that is differentiated again calls
