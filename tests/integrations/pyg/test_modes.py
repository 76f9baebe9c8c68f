"""Explainers, hooks, TorchScript, tracing, compilation, transforms: the framework's own path, counted."""

import copy
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch_geometric import nn as gnn
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import MessagePassing

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status
from gnn_sparse_backend.integrations.lazy import LazyTensor
from tests.integrations.pyg.features import steps
from tests.integrations.pyg.pair import NODES, calls, check_pair, edges, features, step

SCRIPTED = Path(__file__).with_name("scripted.py")
# every message is computed, for the hooks to see
HOOKS = {"gather": 1, "scatter.mean": 1}


@pytest.mark.parametrize(
    "place",
    [
        "propagate_forward_pre",
        "propagate_forward",
        "message_forward_pre",
        "message_forward",
        "aggregate_forward_pre",
        "aggregate_forward",
    ],
)
def test_hooks(place):
    seen = []

    def record(value):
        if isinstance(value, torch.Tensor):
            seen.append(value)
        elif isinstance(value, dict):
            record(list(value.values()))
        elif isinstance(value, (tuple, list)):
            for item in value:
                record(item)

    layer = gnn.SAGEConv(5, 4).double()
    handle = getattr(layer, f"register_{place}_hook")(lambda module, *inputs: record(inputs))
    assert check_pair(layer, features(5), edges()) == HOOKS
    assert seen and not any(isinstance(value, LazyTensor) for value in seen)
    handle.remove()
    assert check_pair(layer, features(5), edges()) == {"copy.mean": 1}


def test_hook_that_changes_the_message():
    layer = gnn.SAGEConv(5, 4).double()
    layer.register_message_forward_hook(lambda module, inputs, out: out * 2)
    assert check_pair(layer, features(5), edges()) == HOOKS


def test_module_hooks():
    layer = gnn.SAGEConv(5, 4).double()
    outputs = []
    layer.register_forward_hook(lambda module, inputs, out: outputs.append(out))
    assert check_pair(layer, features(5), edges()) == {"copy.mean": 1}
    layer.aggr_module.register_forward_pre_hook(lambda module, inputs: outputs.append(inputs))
    assert check_pair(layer, features(5), edges()) == HOOKS
    layer = gnn.SAGEConv(5, 4).double()
    layer.aggr_module.register_full_backward_hook(lambda module, grad_in, grad_out: outputs.append(grad_out))
    check_pair(layer, features(5), edges())


def test_explainer():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = gnn.GCNConv(5, 8), gnn.SAGEConv(8, 3)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index)

    torch.manual_seed(0)
    model, x, edge_index = Model(), features(5, dtype=torch.float32).detach(), edges()

    def explain():
        torch.manual_seed(1)
        explainer = Explainer(
            model,
            GNNExplainer(epochs=4),
            explanation_type="model",
            node_mask_type="attributes",
            edge_mask_type="object",
            model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
        )
        explanation = explainer(x, edge_index, index=3)
        return explanation.edge_mask, explanation.node_mask

    expected = explain()
    with gsb.enabled("pyg"):
        actual = explain()
        assert calls()["gather"] >= 8 and calls()["scatter.mean"] >= 4  # every message is computed
        reset_status()
        model(x, edge_index)
        assert calls() == {"mul.sum": 1, "copy.mean": 1}  # and the kernel runs again when it is over
    for ours, theirs in zip(actual, expected):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert expected[0].abs().sum() > 0


@steps
def test_torchscript():
    x, edge_index = features(5, dtype=torch.float32).detach(), edges()
    for layer in (gnn.SAGEConv(5, 4), gnn.GCNConv(5, 4), gnn.GraphConv(5, 4), gnn.GINConv(torch.nn.Linear(5, 4))):
        expected = layer(x, edge_index)
        before = torch.jit.script(layer)
        with gsb.enabled("pyg"):
            torch.testing.assert_close(torch.jit.script(layer)(x, edge_index), expected)
            torch.testing.assert_close(before(x, edge_index), expected)
    assert all(set(reasons) == {"TorchScript compiles the layer"} for reasons in calls().values())


_FIRST = """
import torch
from torch_geometric import nn
import gnn_sparse_backend as gsb

x, edge_index = torch.randn(9, 5), torch.randint(0, 9, (2, 30))
layers = [(nn.GCNConv(5, 4), (x, edge_index)), (nn.SimpleConv("sum", "self_loop"), (x, edge_index)),
          (nn.APPNP(2, 0.1), (x, edge_index)), (nn.SAGEConv(5, 4), (x, edge_index)),
          (nn.ChebConv(5, 4, 2), (x, edge_index)),
          (nn.RGCNConv(5, 4, 2), (x, edge_index, torch.arange(30) % 2)), (nn.PointNetConv(), (x, x[:, :3], edge_index))]
later = nn.TAGConv(5, 4), nn.PointTransformerConv(5, 4)
with gsb.enabled("pyg"):
    layers[5][0](*layers[5][1])  # PyG's RGCNConv can be compiled once it has been called
    scripted = [torch.jit.script(layer) for layer, _ in layers]
    counted = gsb.status().to_dict()["calls"]["pyg"]
    assert all(counted[name]["fallbacks"]["TorchScript compiles the layer"] for name in ("scatter", "spmm")), counted
    found = [layer(*inputs) for layer, (_, inputs) in zip(scripted, layers)]
    assert gsb.status().to_dict()["calls"]["pyg"] == counted  # TorchScript calls nothing of ours
for out, (layer, inputs) in zip(found, layers):
    torch.testing.assert_close(out, layer(*inputs))
for layer in later:
    torch.jit.script(layer)  # what was kept of the functions does no harm afterwards
"""


@pytest.mark.slow
def test_torchscript_compiles_layers_for_the_first_time():
    # in a process of its own: TorchScript keeps what it has compiled, and with PyG alone it compiled PyG's functions
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", _FIRST], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_torchscript_with_operators_of_ours():
    command = [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider", SCRIPTED]
    done = subprocess.run(command, env=os.environ | {"GSB_TORCHSCRIPT": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]  # 5 where there are no tests


def test_tracing():
    x, edge_index = features(5, dtype=torch.float32).detach(), edges()
    layer = gnn.SAGEConv(5, 4)
    with gsb.enabled("pyg"):
        traced = torch.jit.trace(layer, (x, edge_index))
        assert set(calls()["propagate"]) == {"torch.jit is tracing"}
        other = edges("large")
        torch.testing.assert_close(traced(x, other), layer(x, other))


def test_compile_and_export():
    x, edge_index = features(5, dtype=torch.float32).detach(), edges()
    layer = gnn.SAGEConv(5, 4)
    expected = layer(x, edge_index)
    with gsb.enabled("pyg"):
        compiled = torch.compile(layer, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, edge_index), expected)
        exported = torch.export.export(layer, (x, edge_index), strict=False).module()
        torch.testing.assert_close(exported(x, edge_index), expected)
    torch._dynamo.reset()


def test_torch_func():
    layer, edge_index = gnn.SimpleConv(aggr="sum"), edges()
    x = features(5).detach()

    def loss(x):
        return layer(x, edge_index).pow(2).sum()

    expected = torch.func.grad(loss)(x), torch.func.jvp(loss, (x,), (x,))[1]
    with gsb.enabled("pyg"):
        torch.testing.assert_close((torch.func.grad(loss)(x), torch.func.jvp(loss, (x,), (x,))[1]), expected)
    reasons = {"a torch.func transform is active": 2}
    assert calls() == {"propagate": reasons, "scatter.sum": reasons}


def test_forward_mode():
    layer, edge_index = gnn.SimpleConv(aggr="sum"), edges()
    x = features(5).detach()
    with gsb.enabled("pyg"), torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        out = torch.autograd.forward_ad.unpack_dual(layer(dual, edge_index))
    torch.testing.assert_close(out.tangent, out.primal)
    reason = {"forward-mode differentiation is active": 1}
    assert calls() == {"propagate": reason, "scatter.sum": reason}


def test_dispatch_modes_see_the_framework():
    from torch.utils.flop_counter import FlopCounterMode

    layer = gnn.SAGEConv(5, 4).double()
    expected = layer(features(5), edges())
    with gsb.enabled("pyg"), FlopCounterMode(display=False):
        torch.testing.assert_close(layer(features(5), edges()), expected)
    reason = {"a torch dispatch mode is active": 1}
    assert calls() == {"propagate": reason, "scatter.mean": reason}


def test_fake_tensors():
    from torch._subclasses import FakeTensorMode

    with gsb.enabled("pyg"), FakeTensorMode():
        out = gnn.SAGEConv(5, 4)(torch.rand(NODES, 5), torch.zeros(2, 90, dtype=torch.int64))
        assert out.shape == (NODES, 4)


def test_activation_checkpointing():
    layer = gnn.GCNConv(5, 4).double()
    checkpoint = torch.utils.checkpoint.checkpoint
    counts = check_pair(lambda x: checkpoint(layer, x, edges(), use_reentrant=False), features(5))
    assert set(counts) == {"mul.sum"}
    grads = []
    for names in ((), ("pyg",)):
        x = features(5)
        for name in names:
            gsb.enable(name)
        checkpoint(layer, x, edges(), use_reentrant=True).sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients(context):
    layer = gnn.GCNConv(5, 4).double()
    with context():
        expected = layer(features(5), edges())
        with gsb.enabled("pyg"):
            actual = layer(features(5), edges())
    assert not actual.requires_grad and calls() == {"mul.sum": 1}
    torch.testing.assert_close(actual, expected)


def test_aggregation_in_another_mode_than_the_gather():
    class Layer(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        def aggregate(self, inputs, index, ptr=None, dim_size=None):
            with torch.set_grad_enabled(not torch.is_grad_enabled()):
                return super().aggregate(inputs, index, ptr, dim_size)

    with gsb.enabled("pyg"):
        assert not Layer()(features(5), edges()).requires_grad
        with torch.no_grad():
            assert not Layer()(features(5), edges()).requires_grad
    assert calls() == {"gather": 2, "scatter.sum": 2}


def test_deterministic_algorithms_and_edge_index():
    from tests.integrations.pyg.features import EdgeIndex

    edge_index = EdgeIndex(edges(), sparse_size=(NODES, NODES)).sort_by("col").values
    torch.use_deterministic_algorithms(True)
    try:
        layer = gnn.GATConv(5, 4).double()
        check_pair(layer, features(5), edge_index)
    finally:
        torch.use_deterministic_algorithms(False)


def test_models_are_copied_and_saved_as_without_us():
    model = gnn.GCN(5, 8, num_layers=2, out_channels=3).double()
    expected = step(model, features(5), edges())["output"]
    with gsb.enabled("pyg"):
        model(features(5), edges())
        twin = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        torch.save(model, whole := io.BytesIO())
    file.seek(0), whole.seek(0)
    fresh = gnn.GCN(5, 8, num_layers=2, out_channels=3).double()
    fresh.load_state_dict(torch.load(file))
    for one in (twin, fresh, torch.load(whole, weights_only=False)):
        torch.testing.assert_close(step(one, features(5), edges())["output"], expected)
