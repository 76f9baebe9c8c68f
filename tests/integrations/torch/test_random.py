"""PyTorch's dropouts and draws while a framework is enabled: the bits, gradients and state that they have without."""

from __future__ import annotations

import inspect
import warnings
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import _VF
from torch.nn.functional import dropout as imported_by_name
from torch.utils.checkpoint import checkpoint

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.core import registry
from gnn_sparse_backend.integrations.torch import random
from gnn_sparse_backend.ops.random import dropout as formulas
from gnn_sparse_backend.ops.random.draws import torch_draws_so

pytestmark = pytest.mark.skipif(not torch_draws_so(), reason="PyTorch draws by MKL here")

TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
OTHERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
PROBABILITIES = (0.0, 1.0, 0.1, 0.5, 0.9999)
SIZES = (0, 1, 311, 312, 313, 623, 624, 625, 100_003)
DROPOUTS = (F.dropout, F.alpha_dropout, F.feature_alpha_dropout, F.dropout1d, F.dropout2d, F.dropout3d)


@pytest.fixture(autouse=True)
def some_framework(monkeypatch):
    """One that replaces nothing; every size is ours, and both ways to a dropout are met by these sizes."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(random, "LEAST", 1)
    monkeypatch.setattr(formulas, "ONE_PASS", 400)
    registry.register("some", lambda: None, lambda: None)
    yield
    gsb.disable()


def counted(operator: str) -> tuple[int, dict]:
    """(ours, fallbacks by reason) of an operator of PyTorch's."""
    found = gsb.status().to_dict()["calls"].get("torch", {}).get(operator, {"ours": 0, "fallbacks": {}})
    return found["ours"], found["fallbacks"]


def seeded(run, words=0, seed=5):
    """(what ``run`` gives, the default generator's state behind it), a number of words into a sequence."""
    torch.manual_seed(seed)
    if words:
        torch.rand(words)
    return run(), torch.get_rng_state()


def bits(x):
    """A tensor as integers, all NaN alike."""
    if isinstance(x, (tuple, list)):
        return [bits(each) for each in x]
    if not x.is_floating_point():
        return x.dtype, x.stride(), x.tolist()
    kind = {8: torch.int64, 4: torch.int32, 2: torch.int16}[x.element_size()]
    x = torch.where(x.isnan(), torch.full_like(x, torch.nan), x).detach()
    return x.dtype, x.stride(), x.view(kind).tolist()


def same(run, words=0, operator=None):
    """That ``run`` gives the same bits and leaves the same state with a framework as without, where it is ours if an
    operator is named.
    """
    expected, after = seeded(run, words)
    before = counted(operator) if operator else None
    with gsb.enabled("some"):
        found, left = seeded(run, words)
    assert bits(found) == bits(expected)
    assert torch.equal(left, after)
    if operator:
        assert counted(operator)[0] > before[0] and counted(operator)[1] == {}


def numbers(dtype, *shape):
    """Normal numbers, with infinities, NaN and zeros of both signs among them."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    flat = x.view(-1)
    for at, value in enumerate((torch.inf, -torch.inf, torch.nan, 0.0, -0.0)):
        flat[at :: max(1, flat.numel() // 7)][:3] = value
    return x.to(dtype)


def step(x, p=0.5, function=F.dropout, **keywords):
    """Output and gradient of a dropout, for a cotangent that is no constant."""
    x = x.detach().clone().requires_grad_()
    y = function(x * 1, p, training=True, **keywords)
    y.backward(torch.linspace(-2, 3, y.numel(), dtype=torch.float32).view(y.shape).to(y.dtype))
    return y.detach(), x.grad


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", SIZES)
def test_dropout_and_its_gradient(dtype, size):
    x = numbers(dtype, size)
    for words, p in enumerate(PROBABILITIES):
        drawn = "dropout" if size and 0 < p < 1 else None
        same(lambda p=p: F.dropout(x, p), words, drawn)
        same(lambda p=p: step(x, p), words, drawn)
        same(lambda p=p: F.dropout(x.clone(), p, inplace=True), words, drawn and "dropout_")
        same(lambda p=p: F.dropout(x, p, training=False), words)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 3000), st.integers(0, 1300), st.floats(0, 1), st.sampled_from(TYPES), st.booleans())
def test_of_any_size_from_any_word(size, words, p, dtype, inplace):
    x = torch.ones(size, dtype=dtype)
    same(lambda: F.dropout(x.clone(), p, inplace=inplace), words)


@pytest.mark.parametrize("function", DROPOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("inplace", [False, True])
def test_every_dropout(function, inplace):
    name = {"dropout1d": "feature_dropout", "dropout2d": "feature_dropout", "dropout3d": "feature_dropout"}
    operator = name.get(function.__name__, function.__name__) + "_" * inplace
    shape = {"dropout1d": (9, 50, 3), "dropout3d": (9, 50, 2, 1, 2)}.get(function.__name__, (9, 50, 2, 3))
    for dtype in TYPES:
        x = numbers(dtype, *shape)
        for p in (0.1, 0.5):
            same(lambda x=x, p=p: step(x, p, function, inplace=inplace), 1, operator)
            same(lambda x=x, p=p: function(x.clone(), p, training=True, inplace=inplace), 2, operator)


@pytest.mark.parametrize("dtype", TYPES)
def test_native_dropout(dtype):
    x = numbers(dtype, 50, 20)

    def both(p, train=True):
        given = x.clone().requires_grad_()
        y, mask = torch.native_dropout(given, p, train)
        return y.detach(), mask, *torch.autograd.grad(y, given, torch.linspace(-2, 3, 1000).view(50, 20).to(dtype))

    for p in (0.0, 0.123, 0.5, 0.9999):
        same(lambda p=p: both(p), 3, "native_dropout")
    for p, train in ((1.0, True), (0.5, False), (0.5, None)):
        same(lambda p=p, train=train: torch.native_dropout(x, p, train))


@pytest.mark.parametrize("dtype", (*TYPES, *OTHERS))
def test_bernoulli(dtype):
    for words, p in enumerate(PROBABILITIES):
        for size in SIZES[1:]:
            same(lambda p=p, size=size: torch.empty(size, dtype=dtype).bernoulli_(p), words, "bernoulli_")
        x = torch.empty(40, 30, dtype=dtype).t()
        same(lambda x=x, p=p: torch.bernoulli(x, p), words, "bernoulli")
        same(lambda x=x, p=p: torch.bernoulli(x, p=p), words, "bernoulli")
    same(lambda: torch.empty(500, dtype=dtype).bernoulli_(), 0, "bernoulli_")
    same(lambda: torch.empty(0, dtype=dtype).bernoulli_(0.3))


def layouts():
    base = torch.randn(12, 10, 14, generator=torch.Generator().manual_seed(2))
    return {
        "contiguous": base,
        "transposed": base.transpose(0, 2),
        "sliced": base[:, ::2, 3:9],
        "sliced and permuted": base[1:, ::3, 1:].permute(1, 2, 0),
        "channels last": base[:, :8].reshape(12, 2, 4, 14).to(memory_format=torch.channels_last),
        "offset": base.view(-1)[3:1003],
        "one wide": base[:, :, 2:3],
        "scalar": base[0, 0, 0],
    }


@pytest.mark.parametrize("name", layouts())
def test_the_order_of_elements_in_memory(name):
    x = layouts()[name]

    def written(run):
        base = torch.zeros(4000)
        run(view := base.as_strided(x.shape, x.stride(), 7))
        return base, view

    same(lambda: F.dropout(x, 0.3), 1, "dropout")
    same(lambda: step(x), 1, "dropout")
    same(lambda: written(lambda view: view.bernoulli_(0.3)), 1, "bernoulli_")
    same(lambda: written(lambda view: F.dropout(view.add_(1), 0.3, inplace=True)), 1, "dropout_")


def test_expanded_and_overlapping():
    same(lambda: F.dropout(torch.arange(60.0)[:, None].expand(60, 20), 0.3), 1, "dropout")
    overlapping = torch.zeros(200).as_strided((100, 3), (1, 2))
    same(lambda: overlapping.clone().bernoulli_(0.3), 0, "bernoulli_")
    before = counted("bernoulli_")
    same(lambda: overlapping.bernoulli_(0.3))
    assert counted("bernoulli_") == before  # which of two draws stays is a question of their order
    with gsb.enabled("some"), pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(10, 1).expand(10, 50).bernoulli_(0.3)


def test_between_other_draws():
    def mixed():
        found = []
        for _ in range(3):
            found += [torch.randn(3), torch.randn(1, dtype=torch.float64), F.dropout(torch.ones(777), 0.3)]
            found += [torch.rand(5), torch.randn(40), torch.randperm(9), torch.empty(500).bernoulli_(0.2)]
        return found

    same(mixed, 3, "dropout")


def test_own_generators():
    def of(generator):
        generator.manual_seed(9)
        torch.randn(1, generator=generator)
        drawn = [torch.empty(999).bernoulli_(0.4, generator=generator), torch.empty(50, 9, dtype=torch.bool)]
        drawn[1].bernoulli_(0.1, generator=generator)
        drawn.append(torch.bernoulli(drawn[0], 0.3, generator=generator))
        return [*drawn, generator.get_state()]

    same(lambda: of(torch.Generator()), 1, "bernoulli_")


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_draw_twice_the_same(reentrant):
    def run():
        x = numbers(torch.float32, 60, 20).nan_to_num().requires_grad_()
        y = checkpoint(lambda x: F.dropout(x.sin(), 0.4) * 2, x, use_reentrant=reentrant, preserve_rng_state=True)
        y.square().sum().backward()
        return y.detach(), x.grad

    same(run, 1, "dropout")


def test_forked_generators():
    def run():
        first = F.dropout(torch.ones(500), 0.5)
        with torch.random.fork_rng():
            inside = F.dropout(torch.ones(500), 0.5)
        return first, inside, F.dropout(torch.ones(500), 0.5)

    same(run, 1, "dropout")
    with gsb.enabled("some"):
        _, inside, after = run()
        assert torch.equal(inside, after)


def test_second_gradients_hooks_and_inference():
    def second():
        x = torch.linspace(-1, 1, 900, dtype=torch.float64, requires_grad=True)
        (first,) = torch.autograd.grad(F.dropout(x**3, 0.3).sum(), x, create_graph=True)
        return first.detach(), *torch.autograd.grad(first.square().sum(), x)

    def offloaded():
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x.clone(), lambda x: x):
            found = step(torch.ones(900))
        assert packed
        return found

    def inference():
        with torch.inference_mode():
            return F.dropout(torch.ones(900), 0.3), torch.empty(900).bernoulli_(0.2)

    for run in (second, offloaded, inference):
        same(run, 1, "dropout")


def test_layers_and_what_modules_have_imported():
    layers = torch.nn.Dropout(0.3), torch.nn.AlphaDropout(0.3), torch.nn.Dropout1d(0.3)
    same(lambda: [layer(torch.ones(30, 20, 2)) for layer in layers], 1, "dropout")
    same(lambda: imported_by_name(torch.ones(900)), 1, "dropout")
    for layer in layers:
        layer.eval()
    same(lambda: [layer(torch.ones(30, 20, 2)) for layer in layers])


def test_a_gradient_is_the_mask_and_the_scale():
    with gsb.enabled("some"):
        x = torch.full((5000,), 3.0, requires_grad=True)
        y = F.dropout(x, 0.25)
        y.sum().backward()
    assert torch.equal(x.grad, y.detach() / 3) and torch.equal(x.grad.unique(), torch.tensor([0.0, 1 / 0.75]))


def test_writes_are_seen_by_autograd():
    with gsb.enabled("some"):
        x = torch.ones(900, requires_grad=True)
        for write in (lambda: x.bernoulli_(0.5), lambda: F.dropout(x, 0.5, inplace=True)):
            with pytest.raises(RuntimeError, match="leaf Variable"):
                write()
        y = x.exp()
        F.dropout(y, 0.5, inplace=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
        z = torch.ones(900)
        version = z._version
        z.bernoulli_(0.5)
        assert z._version == version + 1


def test_drawing_into_what_has_a_gradient_is_pytorchs():
    def run():
        x = torch.ones(900, requires_grad=True)
        y = (x * 2).bernoulli_(0.5)
        return y.detach(), *torch.autograd.grad(y.sum(), x)

    same(run)
    assert counted("bernoulli_") == (0, {"a gradient of the numbers drawn may be asked for": 1})


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
PLACES = [*((_VF, name) for name in KINDS), *((torch, n) for n in ("native_dropout", "bernoulli"))]
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
    assert counted("dropout")[0] == 1


def test_scripts_and_traces_have_pytorchs_operators():
    def function(x):
        return F.dropout(x, 0.5, True), torch.bernoulli(x, 0.5), F.alpha_dropout(x, 0.5, True)

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
        return F.dropout(x, 0.5) + torch.bernoulli(x, 0.5) + y.bernoulli_(0.5) + torch.native_dropout(x, 0.5, True)[0]

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
