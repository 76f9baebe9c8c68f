"""Derivatives of messages, up to the third, are those of the same message in plain PyTorch, whatever it depends on.

Where PyTorch has no gradient (None), because nothing depends on an operand, zeros are right too. Of zeros neither need
depend on anything: those of a rectifier's second derivative do in PyTorch.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._pytree import tree_leaves

import gnn_sparse_backend as gsb
from tests.ops.message_oracle import from_coo, messages, reduced

EDGES = from_coo([1, 0, 3, 1, 3, 3, 0], [0, 2, 1, 2, 1, 0, 2], (4, 3))
UNARY = {
    "neg": torch.neg,
    "exp": torch.exp,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "abs": torch.abs,
}
BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}
SHAPES = ((), (1,), (3,), (2, 1), (2, 3))
ROWS = {"u": 3, "v": 4, "e": 7}


@st.composite
def expressions(draw, count: int):
    """Draw (text, function of the operands), in which each operand occurs."""
    parts = [(f"x{n}", lambda *x, n=n: x[n]) for n in draw(st.permutations(range(count)))]
    for name in draw(st.lists(st.sampled_from(sorted(UNARY)), max_size=2)):
        at = draw(st.integers(0, count - 1))
        text, function = parts[at]
        parts[at] = f"{name}({text})", lambda *x, f=function, of=UNARY[name]: of(f(*x))
    text, function = parts[0]
    for other, its in parts[1:]:
        name = draw(st.sampled_from(sorted(BINARY)))
        text, function = f"{name}({text}, {other})", lambda *x, f=function, g=its, of=BINARY[name]: of(f(*x), g(*x))
    return text, function


@st.composite
def programs(draw):
    """(text of the message, tensors, which of them need gradients, our function of them, PyTorch's)."""
    count = draw(st.integers(1, 3))
    text, function = draw(expressions(count))
    places = draw(st.lists(st.sampled_from(("u", "v", "e", "all")), min_size=count, max_size=count))
    if set(places) == {"all"}:
        places[0] = "e"
    shapes = [draw(st.sampled_from(SHAPES)) for _ in places]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    rows = [() if place == "all" else (ROWS[place],) for place in places]
    tensors = [
        torch.randn((*count, *shape), generator=generator, dtype=torch.float64) for count, shape in zip(rows, shapes)
    ]
    # away from where division and kinks are, and the oracle is not differentiable
    tensors = [x.sign() * (x.abs() + 0.3) for x in tensors]
    needed = draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any))
    reduce = draw(st.sampled_from(("sum", "mean", "max", "min", "edges", "dots")))
    if reduce == "dots" and not any(shapes):
        reduce = "edges"

    def ours(*x: Tensor) -> Tensor:
        operands = list(zip(places, x))
        if reduce in ("edges", "dots"):
            return gsb.edge_map(EDGES.graph, text, operands, sum_last=reduce == "dots")
        return gsb.aggregate(EDGES.graph, text, operands, reduce)

    def plain(*x: Tensor) -> Tensor:
        found = messages(EDGES, function, places, x)
        found = found if "all" not in places else found.expand(len(EDGES.row), *found.shape[1:])
        if reduce == "dots":
            return found.sum(-1, keepdim=True)
        return found if reduce == "edges" else reduced(EDGES, found, reduce, "even", torch.float64)[0]

    return text, tensors, needed, ours, plain


def derivatives(function, tensors, needed, square: bool, order: int):
    """The result, and as many derivatives by the tensors that need them, as far as anything depends on these."""
    own = [x.clone().requires_grad_(need) for x, need in zip(tensors, needed)]
    wanted = [x for x in own if x.requires_grad]
    out = function(*own)
    value, found = (out * out if square else out).sum(), [out]
    for _ in range(order):
        gradients = [None] * len(wanted)
        if value.requires_grad:
            gradients = torch.autograd.grad(value, wanted, create_graph=True, allow_unused=True)
        gradients = [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, gradients)]
        found += gradients
        # of each component with a factor of its own, as of forces that are trained
        value = sum((x * torch.arange(1, x.numel() + 1).view(x.shape)).sum() for x in gradients)
    return [x.detach() for x in found]


def assert_same_derivatives(program, square: bool):
    _, tensors, needed, ours, plain = program
    found, expected = (derivatives(f, tensors, needed, square, 3) for f in (ours, plain))
    # a quotient of two zeros: NaN in one of both, where they group the terms otherwise
    assume(all(x is None or x.isfinite().all() for x in tree_leaves(expected)))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def assert_same_tangents(program):
    """Compare the tangents of the message and of its gradient."""
    _, tensors, _, ours, plain = program

    def tangents(function):
        given, along = tuple(tensors), tuple(x.cos() for x in tensors)
        gradient = torch.func.grad(lambda *x: function(*x).square().sum(), tuple(range(len(given))))
        return torch.func.jvp(function, given, along), torch.func.jvp(gradient, given, along)

    expected = tangents(plain)
    assume(all(x.isfinite().all() for x in tree_leaves(expected)))
    torch.testing.assert_close(tangents(ours), expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=5, deadline=None)
@given(programs(), st.booleans())
def test_some_messages(program, square):
    assert_same_derivatives(program, square)


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(programs())
def test_tangents_of_some_messages(program):
    assert_same_tangents(program)


@pytest.mark.exhaustive
@settings(max_examples=200, deadline=None)
@given(programs(), st.booleans())
def test_many_messages(program, square):
    assert_same_derivatives(program, square)
    assert_same_tangents(program)


@pytest.mark.parametrize("op", ["add", "sub"])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("shapes", [((4,), (4,)), ((4, 1), (1, 5))], ids=str)
def test_forces_of_a_message_that_is_a_sum(op, reduce, shapes):
    """Second gradients of what depends on its operands by the cotangent alone: None where PyTorch has none, too."""
    x, e = (torch.randn(count, *shape, dtype=torch.float64).requires_grad_() for count, shape in zip((3, 7), shapes))

    def trained(function):
        forces = torch.autograd.grad(function(x, e).square().sum(), x, create_graph=True)[0]
        linear = torch.autograd.grad((function(x, e) * e.sum()).sum(), x, create_graph=True)[0]
        found = torch.autograd.grad(forces.square().sum(), [x, e])
        return *found, *torch.autograd.grad(linear.sum(), [x, e], allow_unused=True)

    def plain(x, e):
        message = messages(EDGES, BINARY[op], ("u", "e"), (x, e))
        return reduced(EDGES, message, reduce, "even", torch.float64)[0]

    found, expected = trained(lambda x, e: gsb.gspmm(EDGES.graph, op, reduce, x, e)), trained(plain)
    assert [x is None for x in found] == [x is None for x in expected]
    torch.testing.assert_close([x for x in found if x is not None], [x for x in expected if x is not None])


@pytest.mark.short(2)
@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("add(mul(abs(x1), x2), x0)", lambda x, y, z: y.abs() * z + x),
        ("sub(x0, mul(x1, x2))", lambda x, y, z: x - y * z),
        ("mul(exp(x0), tanh(x1))", lambda x, y, z: x.exp() * y.tanh() + 0 * z),
    ],
)
def test_equal_messages_are_found_however_a_kernel_rounds_them(text, function, reduce):
    """A product that is added may be rounded with the sum, or before: what is compared is computed once."""
    places = ("u", "u", "u")
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(3, *shape, generator=generator, dtype=torch.float64) for shape in ((3,), (), ())]
    if "x2" not in text:
        places, tensors = places[:2], tensors[:2]
    given = [x.requires_grad_() for x in tensors]
    whole = function if len(given) == 3 else lambda x, y: function(x, y, 0)
    found = messages(EDGES, lambda *x: whole(*x), places, given)
    expected = reduced(EDGES, found, reduce, "even", torch.float64)[0]
    ours = gsb.aggregate(EDGES.graph, text, list(zip(places, given)), reduce)
    cotangent = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    for again in (False, True):
        one = torch.autograd.grad(ours, given, cotangent, retain_graph=True, create_graph=again)
        other = torch.autograd.grad(expected, given, cotangent, retain_graph=True)
        torch.testing.assert_close(one, other)
