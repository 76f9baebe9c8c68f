"""PyTorch's dropouts and draws while a framework is enabled: the bits, gradients and state that they have without."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import dropout as imported_by_name
from torch.utils.checkpoint import checkpoint

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.random.draws import torch_draws_so

from .drawing import DROPOUTS, OTHERS, PROBABILITIES, SIZES, TYPES, counted, numbers, same, seeded, step

pytestmark = [
    pytest.mark.skipif(not torch_draws_so(), reason="PyTorch draws by MKL here"),
    pytest.mark.usefixtures("all_draws_ours"),
]


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


@settings(max_examples=15, deadline=None)
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
@pytest.mark.parametrize("rows", [10, 50])
def test_native_dropout(dtype, rows):
    x = numbers(dtype, rows, 20)
    cotangent = torch.linspace(-2, 3, 20 * rows).view(rows, 20).to(dtype)

    def both(p, train=True):
        given = x.clone().requires_grad_()
        y, mask = torch.native_dropout(given, p, train)
        return y.detach(), mask, *torch.autograd.grad(y, given, cotangent)

    for p in (0.0, 0.1, 0.123, 0.5, 0.77, 0.9999):
        same(lambda p=p: both(p), 3, "native_dropout")
    for p, train in ((1.0, True), (0.5, False), (0.5, None)):
        same(lambda p=p, train=train: torch.native_dropout(x, p, train))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [200, 1000])
def test_native_dropout_of_what_is_too_large_for_its_scale(dtype, size):
    """What is dropped has no gradient, however large the one that came: it is not scaled before it is dropped."""
    large = torch.finfo(dtype).max

    def both(p):
        x = torch.ones(size, dtype=dtype, requires_grad=True)
        y, _ = torch.native_dropout(x, p, True)
        return y.detach(), *torch.autograd.grad(y, x, torch.full_like(y, large))

    for p in (0.5, 0.999999):  # the scale of which is infinite in float16
        same(lambda p=p: both(p), 0, "native_dropout")


@pytest.mark.parametrize("size", [30, 500])
def test_second_gradients_of_native_dropout(size):
    def both():
        x = torch.linspace(-2, 3, size, dtype=torch.float64).requires_grad_()
        (gradient,) = torch.autograd.grad(torch.native_dropout(x * x, 0.3, True)[0].pow(2).sum(), x, create_graph=True)
        return gradient.detach(), *torch.autograd.grad(gradient.sum(), x)

    same(both, 0, "native_dropout")


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
    same(lambda: step(x, 0.3, F.alpha_dropout), 1, "alpha_dropout")
    same(lambda: written(lambda view: F.alpha_dropout(view, 0.3, training=True, inplace=True)), 1, "alpha_dropout_")


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


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"])
def test_operators_called_by_their_own_names(name):
    function, inplace = (lambda *given, n=n, **named: getattr(torch, n)(*given, **named) for n in (name, f"{name}_"))

    def gradient(x):
        x = x.clone().requires_grad_()
        y = function(x * 1, 0.3, True)
        return y.detach(), *torch.autograd.grad(y.square().sum(), x)

    for dtype in TYPES:
        x = numbers(dtype, 30, 20, 2)
        same(lambda x=x: function(x, 0.3, train=True), 1, name)
        same(lambda x=x: inplace(input=x.clone(), p=0.3, train=True), 2, f"{name}_")
        same(lambda x=x: gradient(x.nan_to_num(0, 1, -1)), 3, name)
        same(lambda x=x: function(x, 0.3, False))
    if name == "dropout":
        expected, _ = seeded(lambda: F.dropout(torch.ones(900), 0.3))
        with gsb.enabled("some"):
            assert torch.equal(seeded(lambda: torch.dropout(torch.ones(900), 0.3, True))[0], expected)


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
