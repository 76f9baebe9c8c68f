"""Dropout in traced programs: the bits, the gradients and the generator's state of the eager program."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.random.draws import torch_draws_so

pytestmark = pytest.mark.skipif(not torch_draws_so(), reason="PyTorch draws by MKL here")
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INDEX = torch.tensor([[0, 1, 2, 2], [1, 0, 0, 2]])


def summed(x: torch.Tensor) -> torch.Tensor:
    """A sum over edges."""
    return torch.zeros_like(x).index_add(0, INDEX[1], x[INDEX[0]])


def written_between(x: torch.Tensor) -> torch.Tensor:
    x = summed(x) * 1
    rectified = torch.relu(x)
    x.neg_()
    return F.dropout(rectified, 0.5) + x


def without_gradient(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        rectified = torch.relu(x)
    return F.dropout(rectified, 0.5) * summed(x)


PROGRAMS = {
    "written between": written_between,
    "without gradient": without_gradient,
    "dropout": lambda x: F.dropout(summed(x), 0.4),
    "no edges": lambda x: F.dropout(torch.relu(x), 0.4),
    "module": lambda x: nn.Dropout(0.25)(x) + summed(x),
    "twice": lambda x: F.dropout(x, 0.5) + 2 * F.dropout(x, 0.5) + summed(x),
    "rectified": lambda x: F.dropout(torch.relu(summed(x)), 0.5),
    "method": lambda x: summed(F.dropout(x.relu(), 0.5)),
    "wanted twice": lambda x: (lambda r: F.dropout(r, 0.5) + r)(F.relu(summed(x))),
    "not in training": lambda x: F.dropout(torch.relu(summed(x)), 0.5, training=False),
}


def outcome(run, x: torch.Tensor) -> tuple:
    x = x.detach().clone().requires_grad_()
    torch.manual_seed(7)
    y = run(x)
    (gradient,) = torch.autograd.grad(y, x, torch.linspace(-2, 3, y.numel()).view_as(y).to(y.dtype))
    return y.detach(), gradient, torch.get_rng_state()


def programs_of(run) -> tuple[list, object]:
    """(the graphs that are compiled, the compiled program)."""
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph

    return graphs, gsb.compile(run, backend=keep, fullgraph=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_of_the_eager_program(name):
    x = torch.randn(3, 50, generator=torch.Generator().manual_seed(3))
    expected = outcome(PROGRAMS[name], x)
    found = outcome(gsb.compile(PROGRAMS[name], backend="aot_eager", fullgraph=True), x)
    for ours, theirs in zip(found, expected):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("p", [0.1, 0.9999])
def test_every_type_and_special_numbers(dtype, p):
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 2.0, -2.0]).repeat(3, 40).to(dtype)
    for rectified in (True, False):

        def run(x, rectified=rectified):
            return F.dropout(torch.relu(x) if rectified else x, p) + summed(x) * 0

        for ours, theirs in zip(outcome(gsb.compile(run, backend="aot_eager"), x), outcome(run, x)):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def test_a_unit_of_its_own_goes_into_the_dropout():
    for name, wanted in (("rectified", (1, 0)), ("wanted twice", (1, 1)), ("not in training", (0, 1))):
        graphs, compiled = programs_of(PROGRAMS[name])
        compiled(torch.randn(3, 8))
        called = [str(node.target) for node in graphs[0].graph.nodes]
        assert (sum("gsb.dropped" in each for each in called), sum("relu" in each for each in called)) == wanted
        assert not any("function dropout" in each for each in called) or name == "not in training"


@pytest.mark.parametrize("name, count", [("rectified", 1), ("no edges", 1), ("twice", 2), ("not in training", 0)])
def test_calls_are_counted_once_forward_and_not_backward(name, count):
    compiled = gsb.compile(PROGRAMS[name], backend="aot_eager", fullgraph=True)
    for calls in (1, 2):
        outcome(compiled, torch.randn(3, 50))
        counted = gsb.status().to_dict()["calls"].get("torch", {})
        assert counted == ({"dropout": {"ours": calls * count, "fallbacks": {}}} if count else {})


def test_sizes_that_are_symbols():
    run = PROGRAMS["rectified"]
    compiled = gsb.compile(run, backend="aot_eager", dynamic=True)
    for rows in (3, 9, 3001):
        x = torch.randn(rows, 5)
        assert all(torch.equal(a, b) for a, b in zip(outcome(compiled, x), outcome(run, x)))


@pytest.mark.slow
def test_training_by_inductor():
    gsb.enable("pyg")
    try:
        torch.manual_seed(0)
        layer = nn.Linear(16, 16)

        def run(x):
            return F.dropout(torch.relu(layer(summed(x))), 0.5)

        x = torch.randn(3, 16)
        compiled = torch.compile(run)
        for ours, theirs in zip(outcome(compiled, x), outcome(run, x)):
            torch.testing.assert_close(ours, theirs)
    finally:
        gsb.disable("pyg")
