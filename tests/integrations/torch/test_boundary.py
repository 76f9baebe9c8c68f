"""Which draws are left to PyTorch, with which reason, and that all is put back."""

from __future__ import annotations

import inspect
import warnings
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch import _VF
from torch.nn.functional import dropout as imported_by_name

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.core import registry
from gnn_sparse_backend.integrations.torch import random
from gnn_sparse_backend.ops.random.draws import torch_draws_so

from .drawing import bits, counted, same, seeded, step

pytestmark = [
    pytest.mark.skipif(not torch_draws_so(), reason="PyTorch draws by MKL here"),
    pytest.mark.usefixtures("all_draws_ours"),
]


@pytest.mark.parametrize(
    ("reason", "operator", "run"),
    [
        ("dtype torch.complex64", "native_dropout", lambda: torch.native_dropout(torch.ones(9) * 1j, 0.0, False)),
        ("a probability for each number", "bernoulli_", lambda: torch.empty(9).bernoulli_(torch.full((9,), 0.5))),
        ("a probability for each number", "bernoulli", lambda: torch.bernoulli(torch.full((9,), 0.5))),
        ("the generator is not that of the CPU", "dropout", lambda: F.dropout(torch.ones(9, device="meta"))),
        ("missing, subclass or traced tensor", "bernoulli_", lambda: Subclass(torch.ones(9)).bernoulli_(0.5)),
        (
            "a torch.func transform is active",
            "dropout",
            lambda: torch.vmap(F.dropout, randomness="different")(torch.ones(9, 9)),
        ),
        ("a torch.func transform is active", "dropout", lambda: torch.func.grad(lambda x: F.dropout(x).sum())(ONES)),
        (
            "forward-mode differentiation is active",
            "dropout",
            lambda: forward_mode(lambda: F.dropout(torch.ones(9))),
        ),
        ("the tensor is sparse, nested or has names", "dropout", lambda: F.dropout(nested())),
    ],
)
def test_what_is_left_to_pytorch_is_counted_with_its_reason(reason, operator, run):
    expected, after = seeded(lambda: outcome(run))
    with gsb.enabled("some"):
        found, left = seeded(lambda: outcome(run))
    assert found == expected and torch.equal(left, after)
    assert counted(operator) == (0, {reason: 1})


ONES = torch.ones(9)


class Subclass(torch.Tensor):
    pass


def nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(4), torch.ones(5)])


def forward_mode(run):
    with torch.autograd.forward_ad.dual_level():
        return run()


def outcome(run):
    try:
        found = run()
    except (RuntimeError, NotImplementedError) as error:
        return str(error)
    if isinstance(found, tuple):
        found = found[0]
    return str(found)


def test_where_pytorch_draws_otherwise_all_is_left_to_it(monkeypatch):
    monkeypatch.setattr(random, "torch_draws_so", lambda: False)
    same(lambda: F.dropout(torch.ones(900)))
    assert counted("dropout") == (0, {"PyTorch draws otherwise on this processor": 1})


def test_other_draws_are_noticed(monkeypatch):
    """As MKL's, which takes one number of a generator for all."""
    from gnn_sparse_backend.ops.random import draws

    real = draws.draw_bernoulli
    for other in (
        lambda drawn, p, generator: real(drawn, 1 - p, generator),
        lambda drawn, p, generator: real(drawn, p, torch.Generator().manual_seed(19937)),
    ):
        monkeypatch.setattr(draws, "draw_bernoulli", other)
        assert not draws.torch_draws_so.__wrapped__()


def test_small_tensors_are_pytorchs_and_not_counted(monkeypatch):
    monkeypatch.setattr(random, "LEAST", 4096)
    same(lambda: (F.dropout(torch.ones(4095)), torch.empty(4095).bernoulli_(0.5), F.dropout1d(torch.ones(40, 50, 9))))
    assert gsb.status().rows == ()
    same(lambda: F.dropout(torch.ones(4096)), 0, "dropout")


def test_errors_are_pytorchs():
    def raised(run):
        with pytest.raises((RuntimeError, ValueError, TypeError, AttributeError)) as found:
            run()
        return str(found.value)

    calls = (
        lambda: torch.empty(9).bernoulli_(1.5),
        lambda: torch.bernoulli(torch.ones(9), -0.5),
        lambda: F.dropout(torch.ones(9), 2.0),
        lambda: torch.dropout(torch.ones(9), 2.0, True),
        lambda: F.feature_alpha_dropout(torch.ones(9), 0.5, training=True),
        lambda: torch.bernoulli([0.5]),
        lambda: torch.bernoulli(torch.ones(9), 0.5, 0.5),
        lambda: torch.bernoulli(torch.ones(9), 0.5, seed=3),
    )
    expected = [raised(run) for run in calls]
    with gsb.enabled("some"):
        assert [raised(run) for run in calls] == expected


@contextmanager
def _deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def test_deterministic_algorithms_are_the_same():
    with _deterministic():
        same(lambda: (step(torch.ones(900)), torch.empty(900).bernoulli_(0.3)), 1, "dropout")


def test_under_a_lazy_message_and_autocast():
    def run():
        with torch.autocast("cpu", torch.bfloat16):
            return F.dropout(torch.ones(30, 20) @ torch.ones(20, 30), 0.5)

    same(run, 1, "dropout")


def replaced():
    return [(owner, name, vars(owner).get(name)) for owner, name in PLACES]


KINDS = [f"{kind}dropout{inplace}" for kind in ("", "alpha_", "feature_", "feature_alpha_") for inplace in ("", "_")]
PLACES = [*((owner, name) for owner in (_VF, torch) for name in KINDS)]
PLACES += [(torch, "native_dropout"), (torch, "bernoulli")]
PLACES.append((torch.Tensor, "bernoulli_"))


def test_all_is_put_back_when_the_last_framework_is_disabled():
    registry.register("other", lambda: None, lambda: None)
    before, function = replaced(), F.dropout
    gsb.enable("some")
    gsb.enable("other")
    assert all(old is not new for (*_, old), (*_, new) in zip(before, replaced()))
    assert F.dropout is function and torch.nn.functional.dropout is imported_by_name
    gsb.disable("some")
    assert F.dropout(torch.ones(900)).shape == (900,) and counted("dropout")[0] == 1
    gsb.disable("other")
    assert replaced() == before and "bernoulli_" not in vars(torch.Tensor)
    F.dropout(torch.ones(900))
    torch.dropout(torch.ones(900), 0.5, True)
    assert counted("dropout")[0] == 1


def test_scripts_and_traces_have_pytorchs_operators():
    def function(x):
        found = F.dropout(x, 0.5, True), torch.bernoulli(x, 0.5), F.alpha_dropout(x, 0.5, True)
        return *found, torch.dropout(x, 0.5, True)

    expected, _ = seeded(lambda: function(torch.ones(900)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with gsb.enabled("some"):
            made = torch.jit.script(function), torch.jit.trace(function, torch.ones(900), check_trace=False)
    for each in made:
        for operator in ("dropout", "bernoulli", "alpha_dropout"):
            assert each.inlined_graph.findNode(f"aten::{operator}") is not None
        assert bits(seeded(lambda each=each: each(torch.ones(900)))[0]) == bits(expected)


@pytest.mark.slow
def test_a_compiled_model_is_as_without():
    """No break of the graph, the same graph, and the same numbers."""

    def function(x, y):
        both = F.dropout(x, 0.5) + torch.dropout(x, 0.5, True)
        return both + torch.bernoulli(x, 0.5) + y.bernoulli_(0.5) + torch.native_dropout(x, 0.5, True)[0]

    def compiled():
        graphs = []

        def keep(module, example):
            graphs.append(module.code)
            return module.forward

        torch._dynamo.reset()
        run = torch.compile(function, backend=keep, fullgraph=True)
        found = seeded(lambda: run(torch.ones(900), torch.ones(900)))
        return graphs, bits(found[0]), found[1]

    def traced_below():
        torch._dynamo.reset()
        x = torch.ones(900, requires_grad=True)
        y = torch.compile(lambda x: F.dropout(x.sin(), 0.5), fullgraph=True, backend="aot_eager")(x)
        return y.detach(), *torch.autograd.grad(y.sum(), x)

    graphs, numbers, state = compiled()
    with gsb.enabled("some"):
        assert (found := compiled())[:2] == (graphs, numbers) and torch.equal(found[2], state)
    same(traced_below)


def test_signatures_are_those_of_the_operators():
    for name in KINDS:
        assert list(inspect.signature(random.dropout_run(name)).parameters) == ["input", "p", "train"]
