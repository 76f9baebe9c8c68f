"""Programs of users in which deferral was once seen, with the numbers that the frameworks alone give."""

from __future__ import annotations

import copy
import io
import os
import subprocess
import sys

import dgl
import dgl.function as fn
import dgl.nn.pytorch as nnd
import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

from tests.integrations.equality import found_dgl, found_large, found_pyg, pair
from tests.integrations.equality.every_look import program
from tests.integrations.equality.layer import NODES, WIDTH, normal, random_ends

IN_BETWEEN = {
    "+=": lambda x: x.add_(torch.ones_like(x) * 0.1),
    "zero_": lambda x: x.zero_(),
    "aten": lambda x: torch.ops.aten.mul_.Scalar(x, 3),
    "set_": lambda x: x.set_(x.clone() * 2),
    "data": lambda x: x.data.mul_(2),
    "data =": lambda x: setattr(x, "data", x.data * 2),
    "numpy": lambda x: x.numpy().__imul__(2),
    "copyto": lambda x: np.copyto(x.numpy(), 7.0),
}


@pytest.mark.parametrize("entropy, numbers", [(True, found_dgl.WEIGHTS_WITH_ENTROPY), (False, found_dgl.WEIGHTS_ALONE)])
def test_the_gradient_of_attention_weights_has_both_uses(entropy, numbers, deferred):
    with pair.switched_on("dgl", deferred=deferred):
        grad = found_dgl.gradient_of_weights(entropy)
    assert grad is not None
    torch.testing.assert_close(grad.flatten(), torch.tensor(numbers, dtype=torch.float32), rtol=0, atol=0.01)


def test_a_hook_on_attention_weights_scales_what_comes_before(check):
    check(found_dgl.scaled_by_hook, "dgl")


@pytest.mark.parametrize("way", found_dgl.WAYS)
def test_the_gradient_of_differences_on_edges(way, deferred):
    with pair.switched_on("dgl", deferred=deferred):
        grad = found_dgl.WAYS[way](*found_dgl.energy_of_differences())
    assert type(grad) is torch.Tensor
    torch.testing.assert_close(grad.detach(), torch.tensor(found_dgl.BY_DIFFERENCES, dtype=torch.float32))


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("reduce", [fn.sum, fn.mean, fn.max])
def test_a_hook_on_differences_on_edges_is_told(within, reduce, check):
    check(lambda: found_dgl.hooked(*found_dgl.energy_of_differences(reduce, within)), "dgl")


def test_a_message_that_is_a_gradient(check):
    check(found_pyg.inner_force, "pyg")


@pytest.mark.parametrize("way", found_pyg.WAYS)
@pytest.mark.parametrize("name", found_pyg.KEPT)
def test_the_gradient_of_what_a_layer_keeps(name, way, check):
    check(lambda: found_pyg.gradient_of_kept(name, way), "pyg")


@pytest.mark.parametrize("name", found_pyg.KEPT)
def test_hooks_on_what_a_layer_keeps(name, check):
    check(lambda: found_pyg.hook_on_kept(name), "pyg")


@pytest.mark.parametrize("reduce", [fn.sum, fn.mean])
@pytest.mark.parametrize("op", ["u_add_e", "u_sub_e"])
@pytest.mark.parametrize("shapes", [((1, 2), (1, 2)), ((4, 1), (1, 5))], ids=["alike", "broadcast"])
def test_second_gradients_of_a_linear_message(op, reduce, shapes, check):
    check(lambda: found_dgl.second_of_linear(op, reduce, shapes), "dgl")


BATCHED = ("batched gradients", "vmap over autograd.grad", "jacobian", "hessian, vectorized", "func.jacrev and jacfwd")


@pytest.mark.parametrize("look", BATCHED)
@pytest.mark.parametrize(
    "layer",
    ["EdgeConv", "PNAConv", "CGConv", "GeneralConv", "NNConv"]
    + [f"own {name}" for name in ("cat", "matmul", "where", "maximum", "norm")],
)
def test_batched_gradients(layer, look, check):
    check(program("pyg", layer, look), "pyg")


@pytest.mark.parametrize("look", ["jvp of a gradient", "dual grad_outputs"])
@pytest.mark.parametrize(
    "framework, layer",
    [("pyg", "GCNConv"), ("pyg", "GATConv"), ("pyg", "own weighted"), ("pyg", "own max"), ("pyg", "EdgeConv")]
    + [("dgl", "GraphConv"), ("dgl", "own copy_u"), ("dgl", "own u_mul_e max"), ("dgl", "own v_sub_u edges")],
)
def test_the_forward_mode_derivative_of_a_gradient(framework, layer, look, check):
    check(program(framework, layer, look), framework)


def test_the_forward_mode_derivative_of_a_gradient_of_a_unit_with_dropout(check):
    check(found_large.forward_mode_of_unit, "pyg")


def test_hooks_between_a_unit_and_its_dropout(check):
    check(found_large.hook_on_unit, "pyg")


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_compiled_function_in_a_message(fullgraph, check):
    check(lambda: found_pyg.compiled_within(fullgraph), "pyg")


@pytest.mark.slow
def test_a_function_compiled_by_inductor_in_a_message(check):
    check(lambda: found_pyg.compiled_within(True, "inductor"), "pyg")


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_in_a_scope_that_ends(reentrant, check):
    check(lambda: found_dgl.checkpoint_in_scope(reentrant), "dgl")


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_whose_scope_has_ended(reentrant, check):
    check(lambda: found_dgl.checkpoint_without_scope(reentrant), "dgl")


@pytest.mark.parametrize("op", [fn.u_sub_v, fn.u_dot_v, fn.copy_u], ids=["u_sub_v", "u_dot_v", "copy_u"])
@pytest.mark.parametrize("write", IN_BETWEEN)
def test_values_on_edges_are_of_the_time_of_apply_edges(write, op, check):
    if op is fn.copy_u:
        op = lambda u, v, out: fn.copy_u(u, out)
    check(lambda: found_dgl.read_after(IN_BETWEEN[write], op), "dgl")


@pytest.mark.parametrize("write", IN_BETWEEN)
def test_a_detached_score_is_of_the_time_of_apply_edges(write, check):
    check(lambda: found_dgl.read_after(IN_BETWEEN[write], fn.u_dot_v, detached=True), "dgl")


def test_values_on_edges_of_an_embedding_after_a_step(check):
    check(found_dgl.embedding_after_step, "dgl")


def test_what_a_layer_keeps_after_a_step(check):
    check(found_pyg.kept_after_step, "pyg")


@pytest.mark.parametrize("write", IN_BETWEEN)
def test_what_a_layer_keeps_when_the_batch_is_refilled(write, check):
    check(lambda: found_pyg.kept_after(IN_BETWEEN[write]), "pyg")


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("name", found_large.ACTIVATIONS)
def test_an_activation_in_place_of_a_large_product(name, gradients, check):
    check(lambda: found_large.activated_in_place(name, gradients), "pyg")


@pytest.mark.parametrize("name", found_large.ACTIVATIONS)
def test_an_activation_in_place_in_a_scope(name, check):
    check(lambda: found_large.activated_in_scope(name), "dgl")


@pytest.mark.parametrize("way", ["freed", "data", "versioned"])
@pytest.mark.parametrize("name", found_large.CONVOLUTIONS)
def test_weights_that_leave_after_the_forward(name, way, check):
    check(lambda: found_large.moved_weights(name, way), "pyg")


@pytest.mark.slow
@pytest.mark.parametrize("name", found_large.CONVOLUTIONS)
def test_sharded_linear_layers(name, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", found_large.SHARDED, name, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=300,
        env=_environment(),
    )
    assert done.returncode == 0, done.stderr[-1500:]


@pytest.mark.parametrize("look", ["h += conv(h)", "h += conv(h), of one shape"])
@pytest.mark.parametrize(
    "layer", ["GINEConv plain", "GENConv plain", "SimpleConv max", "SimpleConv mul", "GCNConv", "own max"]
)
def test_a_residual_in_place(layer, look, check):
    check(program("pyg", layer, look), "pyg")


HANDED_OUT = ("result", "x_j", "score", "alpha", "message", "gradient", "written alpha")


def _saved(t):
    module, file = torch.nn.Module(), io.BytesIO()
    module.register_buffer("kept", t)
    torch.save(module.state_dict(), file)
    return module.kept


PUT = {
    "type": lambda t: [type(t) is torch.Tensor, t],
    "detach": lambda t: [type(t.detach()) is torch.Tensor, t.detach()],
    "Parameter": lambda t: torch.nn.Parameter(t.detach()),
    "Parameter of itself": lambda t: torch.nn.Parameter(t),
    "register_buffer": _saved,
    "detach_": lambda t: [t.detach_(), t],
    "deepcopy": lambda t: copy.deepcopy(t.detach()),
    "dual": lambda t: torch.func.jvp(lambda x: x * t.detach(), (torch.ones(t.shape),), (torch.ones(t.shape),)),
    "numpy": lambda t: np.asarray(t.detach()),
}


@pytest.mark.parametrize("which", HANDED_OUT)
@pytest.mark.parametrize("put", PUT)
def test_what_is_handed_out_is_a_tensor(put, which, check):
    check(lambda: found_pyg.identity(PUT[put], which), "pyg")


@pytest.mark.parametrize("look", ["facts", "types of gradients", "Parameter of it", "a buffer of it", "detach_"])
@pytest.mark.parametrize("layer", ["EGATConv", "own gates", "own attention", "own attention local_var"])
def test_results_on_edges_are_tensors(layer, look, check):
    check(program("dgl", layer, look), "dgl")


def test_a_traced_model_of_kept_messages(check):
    def traced():
        layer, x = found_pyg.Keeps(), found_pyg.features().detach()

        def function(x):
            out = layer(x, found_pyg.EDGE_INDEX)
            return out, layer.kept["x_j"] * 2

        found = torch.jit.trace(function, (x,), check_trace=False)
        return found(x * 2)

    check(traced, "pyg")


DLPACK = """
import torch, gnn_sparse_backend as gsb
from tests.integrations.equality import found_pyg
gsb.enable("pyg")
layer = found_pyg.Keeps()
layer(found_pyg.features(), found_pyg.EDGE_INDEX)
for name in found_pyg.KEPT:
    t = layer.kept[name].detach()
    assert torch.equal(torch.from_dlpack(torch.utils.dlpack.to_dlpack(layer.kept[name].detach())), t)
"""


@pytest.mark.slow
def test_dlpack_of_what_is_kept():
    done = subprocess.run([sys.executable, "-c", DLPACK], capture_output=True, text=True, env=_environment())
    assert done.returncode == 0, done.stderr[-1500:] or f"the process was killed: {done.returncode}"


@pytest.mark.parametrize("aggregate", ["sum", "stack", "max"])
def test_the_order_of_the_results_of_a_heterogeneous_convolution(aggregate, check):
    def orders():
        torch.manual_seed(1)
        source, destination = random_ends()
        g = dgl.heterograph(
            {
                ("b", "z", "c"): (source, destination),
                ("c", "y", "a"): (source, destination),
                ("a", "x", "b"): (source, destination),
                ("b", "w", "a"): (source, destination),
            },
            num_nodes_dict=dict.fromkeys("abc", NODES),
        )
        parts = {name: nnd.GraphConv(WIDTH, 3, norm="right", allow_zero_in_degree=True) for name in "zyxw"}
        module = nnd.HeteroGraphConv(parts, aggregate=aggregate).double()
        looks = []
        for order in ("abc", "cba", "bca"):
            out = module(g, {name: normal(NODES, WIDTH, seed=ord(name)) for name in order})
            looks += [list(out), out, [torch.nn.functional.dropout(t, 0.5) for t in out.values()]]
        return looks

    check(orders, "dgl")


def _too_large(convolution, nodes=3):
    return lambda: pair.tried(convolution(), torch.ones(nodes, WIDTH), torch.tensor([[0, 9], [1, 0]]))


def _too_large_a_destination(convolution, nodes=3):
    return lambda: pair.tried(convolution(), torch.ones(nodes, WIDTH), torch.tensor([[0, 1], [1, 9]]))


def _too_large_at_both(convolution, nodes=3):
    return lambda: pair.tried(convolution(), torch.ones(nodes, WIDTH), torch.tensor([[0, 9], [1, 9]]))


@pytest.mark.parametrize("wrong", [_too_large, _too_large_a_destination, _too_large_at_both])
@pytest.mark.parametrize(
    "convolution",
    [
        lambda: pyg.GCNConv(WIDTH, 3),
        lambda: pyg.SAGEConv(WIDTH, 3),
        lambda: pyg.SAGEConv(WIDTH, 3, aggr="max"),
        lambda: pyg.GATConv(WIDTH, 3),
        lambda: pyg.EdgeConv(torch.nn.Linear(2 * WIDTH, 3)),
        lambda: pyg.GINConv(torch.nn.Linear(WIDTH, 3)),
        lambda: pyg.SimpleConv("sum"),
        lambda: pyg.TransformerConv(WIDTH, 3),
        lambda: found_pyg.Keeps(),
        lambda: found_pyg.Sends(),
    ],
    ids=["GCN", "SAGE", "SAGE max", "GAT", "EdgeConv", "GIN", "SimpleConv", "Transformer", "own", "own of x_j"],
)
def test_errors_of_indices_out_of_range(convolution, wrong, check):
    check(wrong(convolution), "pyg")


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))}
