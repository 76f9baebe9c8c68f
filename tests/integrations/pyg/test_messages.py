"""Users' own layers: which messages run on our kernel, and that every other one works as without us."""

import copy
import pickle

import pytest
import torch
from torch_geometric.nn import MessagePassing, SoftmaxAggregation
from torch_geometric.utils import scatter

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.lazy import gather
from gnn_sparse_backend.integrations.pyg.host import HOST, IndexEnd
from gnn_sparse_backend.integrations.scopes import Scope
from tests.integrations.pyg.pair import NODES, calls, check_pair, edges, features


class Layer(MessagePassing):
    """``message`` is ``function(x_j, w)``."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def forward(self, x, edge_index, w=None):
        return self.propagate(edge_index, x=x, w=w)

    def message(self, x_j, w):
        return self.function(x_j, w)


def weight(*shape, dtype=torch.float64):
    return torch.rand(90, *shape, dtype=dtype, generator=torch.Generator().manual_seed(2)).requires_grad_()


def heads(x_j):
    return x_j.view(-1, 2, 3)


@pytest.mark.parametrize(
    "function, shape, counted, aggr",
    [
        (lambda x_j, w: x_j, None, "copy", "sum"),
        (lambda x_j, w: x_j, None, "copy", "mean"),
        (lambda x_j, w: w * x_j, (1,), "mul", "sum"),
        (lambda x_j, w: x_j * w, (1,), "mul", "mean"),
        (lambda x_j, w: w.view(-1, 1) * x_j, (), "mul", "sum"),
        (lambda x_j, w: x_j * w[:, None], (), "mul", "mean"),
        (lambda x_j, w: torch.mul(w.unsqueeze(-1), x_j), (), "mul", "sum"),
        (lambda x_j, w: x_j.mul(w), (1,), "mul", "mean"),
        (lambda x_j, w: torch.multiply(x_j, other=w), (1,), "mul", "sum"),
        # the lazy operand is the second one
        (lambda x_j, w: w - x_j, (1,), "message", "sum"),
        (lambda x_j, w: 2 / (x_j.abs() + 1), None, "message", "mean"),
    ],
)
def test_products(function, shape, counted, aggr):
    w = None if shape is None else weight(*shape)
    counts = check_pair(Layer(function, aggr=aggr), features(6), edges(), w)
    assert counts == {f"{counted}.{aggr}": 1}


@pytest.mark.parametrize(
    "function, shape, counted",
    [
        (lambda x_j, w: heads(x_j), None, "copy"),
        (lambda x_j, w: w * heads(x_j), (2, 1), "mul"),
        (lambda x_j, w: heads(x_j) * w, (1, 1), "mul"),
        (lambda x_j, w: w.unsqueeze(-1) * x_j.reshape((-1, 2, 3)), (2,), "mul"),
        (lambda x_j, w: w.view(-1, 2, 1) * x_j.view(x_j.size(0), 2, 3), (2,), "mul"),
    ],
)
@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_heads(function, shape, counted, aggr):
    w = None if shape is None else weight(*shape)
    counts = check_pair(Layer(function, aggr=aggr, node_dim=0), features(6), edges(), w)
    assert counts == {f"{counted}.{aggr}": 1}


@pytest.mark.short(2)
@pytest.mark.parametrize("aggr", ["max", "min"])
@pytest.mark.parametrize(
    "function",
    [lambda x_j, w: x_j, lambda x_j, w: w * x_j, lambda x_j, w: x_j.relu(), lambda x_j, w: torch.sign(x_j) + x_j],
)
def test_gradients_of_maxima_among_equal_messages(function, aggr):
    """Of numbers that are equal, and 0, where PyTorch gives a share to what it scatters into."""
    x = features(6).detach().round().requires_grad_()
    check_pair(Layer(function, aggr=aggr), x, edges(), weight(1).detach().round().requires_grad_())


@pytest.mark.parametrize(
    "function",
    [
        lambda x_j, w: torch.sin(x_j),
        lambda x_j, w: x_j[:, [5, 0, 1, 2, 3, 4]],
        lambda x_j, w: torch.cat([x_j, x_j], -1),
        lambda x_j, w: x_j.clone().mul_(2),
        lambda x_j, w: x_j.view(-1, 3, 2).flatten(1),
        lambda x_j, w: torch.add(x_j, x_j, alpha=2),
        lambda x_j, w: torch.sum(x_j, axis=1, keepdim=True),
        lambda x_j, w: x_j[x_j.size(0) // 2 :].repeat(2, 1),
    ],
)
def test_other_messages_are_computed(function):
    counts = check_pair(Layer(function), features(6), edges())
    assert counts == {"gather": 1, "scatter.sum": 1}


def test_in_place_messages():
    def double(x_j, w):
        x_j *= 2
        return x_j

    def zero_some(x_j, w):
        x_j[::2] = 0
        return x_j

    def product_then_write(x_j, w):
        message = w * x_j
        x_j.zero_()
        return message

    for function, w in ((double, None), (zero_some, None), (product_then_write, weight(1).detach())):
        check_pair(Layer(function), features(6), edges(), w)


def test_message_that_is_read_and_returned():
    seen = []

    def function(x_j, w):
        seen.append(float(x_j.detach().sum()))
        return x_j

    counts = check_pair(Layer(function), features(6), edges())
    assert counts == {"gather": 1, "scatter.sum": 1}
    assert seen[0] == seen[1]


def test_reading_without_gradients_does_not_cut_the_history():
    def function(x_j, w):
        with torch.no_grad():
            scale = x_j.abs().max()
        return x_j / scale

    check_pair(Layer(function), features(6), edges())


def test_message_computed_by_a_custom_autograd_function():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 3 * x * x * grad

    check_pair(Layer(lambda x_j, w: Cube.apply(x_j)), features(6), edges())
    check_pair(Layer(lambda x_j, w: Cube.apply(w * x_j)), features(6), edges(), weight(1))
    check_pair(Layer(lambda x_j, w: Cube.apply(x_j.view(-1, 2, 3)).view(-1, 6)), features(6), edges())


def test_message_computed_by_torchscript():
    @torch.jit.script
    def scripted(x_j, w):
        return torch.tanh(x_j) * w

    check_pair(Layer(lambda x_j, w: scripted(x_j, w)), features(6), edges(), weight(1))


def test_module_with_backward_hook_inside_message():
    linear = torch.nn.Linear(6, 4).double()
    linear.register_full_backward_hook(lambda module, grad_in, grad_out: None)
    layer = Layer(lambda x_j, w: linear(x_j))
    layer.linear = linear
    check_pair(layer, features(6), edges())


@pytest.mark.parametrize(
    "function, shape",
    [
        (lambda t: torch.utils.checkpoint.checkpoint(torch.sin, t, use_reentrant=False), None),
        (lambda t: torch.utils.checkpoint.checkpoint(torch.sin, t, use_reentrant=False), (1,)),
        (lambda t: torch.vmap(torch.sin)(t), (1,)),
        (lambda t: torch.func.grad(lambda t: t.pow(3).sum())(t), None),
        (lambda t: torch.compile(torch.sin, backend="eager")(t), (1,)),
        (lambda t: (t.register_hook(lambda grad: grad * 3), t)[1], None),
        (lambda t: (t.retain_grad(), t)[1], None),
        (lambda t: t.as_subclass(torch.Tensor), (1,)),
        (lambda t: setattr(t, "data", t.data * 2) or t, None),
    ],
    ids=["checkpoint", "checkpoint_product", "vmap", "grad", "compile", "hook", "retain", "subclass", "data"],
)
def test_what_may_happen_to_a_message(function, shape):
    w = None if shape is None else weight(*shape)
    counts = check_pair(Layer(lambda x_j, w: function(x_j if w is None else w * x_j)), features(6), edges(), w)
    assert counts["scatter.sum"] == 1 and set(counts) - {"scatter.sum"} <= {"propagate", "gather", "edge_map"}


def test_saved_tensors_hooks_see_what_they_see_without_us():
    def offloaded(x, w):
        with torch.autograd.graph.save_on_cpu():
            return Layer(lambda x_j, w: (w * x_j).sin())(x, edges(), w)

    check_pair(offloaded, features(6), weight(1))


def test_own_aggregation():
    class Own(Layer):
        def aggregate(self, inputs, index, ptr=None, dim_size=None):
            if self.how == "scatter":
                return scatter(inputs, index, dim=self.node_dim, dim_size=dim_size, reduce="mean")
            if self.how == "scatter_add_":
                out = inputs.new_ones(dim_size, inputs.size(-1))
                return out.scatter_add_(0, index.view(-1, 1).expand_as(inputs), inputs)
            if self.how == "index_add":
                return torch.index_add(inputs.new_zeros(dim_size, 6), 0, index, inputs)
            if self.how == "index_add_":
                return inputs.new_zeros(dim_size, 6).index_add_(0, index, inputs)
            if self.how == "alpha":
                return inputs.new_zeros(dim_size, 6).index_add_(0, index, inputs, alpha=2)
            if self.how == "partial":  # fewer columns than the message has
                return inputs.new_zeros(dim_size, 6).scatter_add(0, index.view(-1, 1).expand(-1, 4), inputs[:, :4])
            columns = torch.zeros(6, dtype=torch.int64)
            return inputs.new_zeros(dim_size, 6).scatter_add(0, index.view(-1, 1) + columns, inputs)

    for how, counted in (
        ("scatter", "copy.mean"),
        ("scatter_add_", "copy.sum"),
        ("index_add", "copy.sum"),
        ("index_add_", "copy.sum"),
        ("alpha", "gather"),
        ("partial", "gather"),
        ("full", "gather"),
    ):
        layer = Own(lambda x_j, w: x_j)
        layer.how = how
        assert check_pair(layer, features(6), edges()) == {counted: 1}, how


def test_aggregation_over_another_dimension():
    layer = Layer(lambda x_j, w: x_j, node_dim=-2)
    x = torch.randn(4, NODES, 6, dtype=torch.float64).requires_grad_()
    assert check_pair(layer, x, edges()) == {"gather": 1, "scatter.sum": 1}


def test_mixed_types_are_promoted_as_by_the_framework():
    for x_type, w_type in (
        (torch.float32, torch.float64),
        (torch.float64, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.int64),
        (torch.float32, torch.bool),
    ):
        x, w = features(6).detach().to(x_type), (weight(1).detach() * 2).to(w_type)
        layer = Layer(lambda x_j, w: w * x_j)
        expected = layer(x, edges(), w)
        with gsb.enabled("pyg"):
            actual = layer(x, edges(), w)
        assert actual.dtype is expected.dtype
        torch.testing.assert_close(actual, expected)
    assert calls() == {"mul.sum": 5}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_numbers_in_an_attention_of_half_types(dtype):
    # numbers of the program are float32 there, whatever stands beside them: the last operand of the values is one
    layer = Layer(lambda x_j, w: x_j.relu() + 0.25, aggr=SoftmaxAggregation(t=0.5))
    x = features(6).detach().to(dtype)
    cotangent = torch.randn(x.shape, generator=torch.Generator().manual_seed(3)).to(dtype)

    def run(kind):
        leaf = x.to(kind).requires_grad_()
        out = layer(leaf, edges())
        return out, *torch.autograd.grad(out, leaf, cotangent.to(kind))

    truth = run(torch.float64)
    with gsb.enabled("pyg"):
        ours = run(dtype)
    assert calls() == {"attention": 1}
    for one, exact in zip(ours, truth):
        assert one.dtype is dtype
        # each is one rounding of float32 sums; the gradient also reads the result, which was rounded
        torch.testing.assert_close(
            one.double(), exact, rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps
        )


def test_modification_between_gather_and_use_comes_too_late():
    def run():
        x = features(6).detach()

        def function(x_j, w):
            x.mul_(2)
            return x_j

        return Layer(function)(x, edges())

    expected = run()
    with gsb.enabled("pyg"):
        torch.testing.assert_close(run(), expected)


def test_modification_after_the_layer_is_allowed():
    def residual(x, edge_index):
        h = x * 1
        out = Layer(lambda x_j, w: x_j)(h, edge_index)
        h += out
        return h

    check_pair(residual, features(6), edges())


@pytest.fixture
def lazy():
    """A lazy message, and the tensor it stands for."""
    x, (index, _) = features(6), edges()
    with gsb.enabled("pyg"), Scope(trusted=True):
        yield gather(HOST, IndexEnd(index, len(x), lambda x: x.index_select(0, index)), x), x.index_select(0, index)


def test_what_is_known_without_computing(lazy):
    message, value = lazy
    assert message.shape == message.size() == value.shape
    assert (message.size(0), message.size(-1), message.dim(), message.ndim, len(message), message.numel()) == (
        90,
        6,
        2,
        2,
        90,
        540,
    )
    assert (message.dtype, message.device, message.layout) == (value.dtype, value.device, value.layout)
    assert message.requires_grad and message.is_floating_point() and not message.is_cuda
    assert message.new_zeros(3).dtype is value.dtype and type(message.new_zeros(3)) is torch.Tensor
    assert isinstance(message, torch.Tensor) and torch.is_tensor(message)
    assert message._recipe.pending()


@pytest.mark.parametrize(
    "use",
    [
        lambda t: repr(t.detach()),
        lambda t: str(t.detach()),
        lambda t: f"{t[0, 0]:.3f}",
        lambda t: t[3:5].tolist(),
        lambda t: t.detach().numpy().tolist(),
        lambda t: list(t)[2].tolist(),
        lambda t: t.clone().tolist(),
        lambda t: t.is_contiguous(),
        lambda t: t.stride(),
        lambda t: bool((t == t).all()),
        lambda t: t.sum().item(),
        lambda t: t.T.shape,
        lambda t: pickle.loads(pickle.dumps(t.detach())).tolist(),
        lambda t: copy.deepcopy(t.detach()).tolist(),
        lambda t: torch.stack([t, t]).sum().item(),
        lambda t: t.to(torch.float32).dtype,
        lambda t: t.grad_fn is None,
        lambda t: torch.from_dlpack(t.detach()).tolist(),
        lambda t: t.data.tolist(),
        lambda t: t.untyped_storage().nbytes(),
        lambda t: torch.utils.checkpoint.checkpoint(torch.sin, t, use_reentrant=True).tolist(),
    ],
)
def test_what_computes_the_message(lazy, use):
    message, value = lazy
    assert use(message) == use(value)


def test_pickle_and_deepcopy_without_history():
    caught = []
    layer = Layer(lambda x_j, w: caught.append(x_j) or x_j)
    x = features(6).detach()
    with gsb.enabled("pyg"):
        layer(x, edges())
    value = x[edges()[0]]
    for made in (pickle.loads(pickle.dumps(caught[0])), copy.deepcopy(caught[0]), copy.copy(caught[0])):
        assert type(made) is torch.Tensor and torch.equal(made, value)


def test_a_message_that_was_used_is_an_ordinary_tensor(lazy):
    message, value = lazy
    assert torch.equal(message + 0, value) and (message + 0).requires_grad
    assert torch.equal(message.sin(), value.sin())
    assert type(message) is torch.Tensor and message.requires_grad
